"""What drills tokenize: a small tokenizer with all that a fault can strike, and texts that hold all of it."""

from __future__ import annotations

import json
from typing import Any, Final

from toksplice.ranks import gpt2_tokenizer_json

NAME: Final = "drill"
MERGES: Final = 2_000
"""Merges of GPT-2 that are kept: enough for words, numbers and runs of punctuation, and loaded in no time."""
TURN: Final = "<|turn|>"
FIRST_UNITS: Final = 9
"""Units of a first text: three of them in each third."""

_ADDED: Final = ("<|begin|>", "<|end|>", TURN)


def tokenizer_json() -> bytes:
    """GPT-2's tokenizer, cut short, with special tokens around a text and one that stands in texts."""
    config: dict[str, Any] = json.loads(gpt2_tokenizer_json())
    model = config["model"]
    model["merges"] = model["merges"][:MERGES]
    made = {"".join(pair) for pair in model["merges"]}
    words = [word for word in model["vocab"] if len(word) == 1 or word in made]
    model["vocab"] = {word: number for number, word in enumerate(words)}
    first = len(words)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    config["added_tokens"] = [{"id": first + n, "content": content, **flags} for n, content in enumerate(_ADDED)]
    begin, end = ({"SpecialToken": {"id": content, "type_id": 0}} for content in _ADDED[:2])
    config["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}, end],
        "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}, end],
        "special_tokens": {
            content: {"id": content, "ids": [first + n], "tokens": [content]} for n, content in enumerate(_ADDED[:2])
        },
    }
    return json.dumps(config).encode()


def unit(number: int) -> str:
    """Text of some 80 bytes with a year, a dash, dots, words, an added token and a line's end."""
    return f"In {1900 + number % 100} -- they said... {TURN} the other house, number {number}, is here.\n"


def first_text(number: int) -> str:
    """A text for the `number`-th session."""
    return "".join(unit(number * FIRST_UNITS + n) for n in range(FIRST_UNITS))
