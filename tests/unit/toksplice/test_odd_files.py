"""Tokenizer files with structures that are easy to misread: exact by a certified splice, or left to the reference."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from families import added, byte_level, sequence, split
from tokenizers.pre_tokenizers import ByteLevel

from toksplice import TokenizerError, load

ALPHABET = sorted(ByteLevel.alphabet())


def bpe(pre_tokenizer: Any, merges: list[tuple[str, str]], **parts: Any) -> bytes:
    """A byte-level BPE with a few merges."""
    vocab = {char: i for i, char in enumerate(ALPHABET)}
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    tokens = [{"id": len(vocab) + i, "special": True, **token} for i, token in enumerate(parts.pop("tokens", []))]
    model = {"type": "BPE", "vocab": vocab, "merges": [f"{left} {right}" for left, right in merges]}
    config = {"version": "1.0", "added_tokens": tokens, "pre_tokenizer": pre_tokenizer, "model": model, **parts}
    return json.dumps(config).encode()


def edit(data: bytes, text: str, start: int, end: int, insert: str) -> str:
    """Make an edit (positions in characters), compare with the reference; the route."""
    tokenizer = load(data)
    session = tokenizer.session(text)
    patch = session.splice(len(text[:start].encode()), len(text[:end].encode()), insert)
    assert np.array_equal(session.ids, tokenizer.encode(text[:start] + insert + text[end:]))
    return patch.route


@pytest.mark.parametrize(
    ("pattern", "merge", "text", "insert"),
    [
        # An escaped dot and the class of all characters.
        (r"..|a|\.", ("a", "b"), "a" * 2001, "b"),
        (r".{1,3}|\.\d+|-|a", ("a", "b"), "a" * 2001, "b"),
        # {n}? is an optional {n} in this dialect, and not a lazy one.
        (r"xa{2}?y|yx|yZ|x|y|Z", ("y", "Z"), "y" + "xy" * 1000, "Z"),
        # The engine joins literals across groups before it folds case: ssx matches the sharp s and x.
        (r"(?i:s(?:sx))|xß|xZ|ß|x|Z", ("x", "Z"), "x" + "ßx" * 1000, "Z"),
        (r"(?i:f(?:(?:i)z))|xﬁ|xZ|ﬁ|x|Z", ("x", "Z"), "x" + "ﬁx" * 1000, "Z"),
    ],
)
def test_patterns(pattern: str, merge: tuple[str, str], text: str, insert: str) -> None:
    edit(bpe(sequence(split(pattern), byte_level()), [merge]), text, len(text), len(text), insert)


def test_a_dot_at_another_level() -> None:
    dot = {"type": "Split", "pattern": {"String": "."}, "behavior": "Isolated", "invert": False}
    edit(bpe(sequence(dot, split("..|a"), byte_level()), [("a", "b")]), "a" * 2001, 2001, 2001, "b")


def test_spans_that_run_backwards() -> None:
    """Under NFKC a diaeresis becomes a space and a mark; trimming its offset makes token starts go down."""
    pre = byte_level(use_regex=True)
    left = "ab c1 x. " * 93 + "yyy"
    text = left + "¨¨" + "ab c1 x. " * 120
    data = bpe(pre, [("Ì", "Ī")], normalizer={"type": "NFKC"}, post_processor=pre)
    assert "trims offsets" in load(data).explain().reason
    assert edit(data, text, len(left) + 1, len(left) + 2, "") == "D"


@pytest.mark.parametrize("pattern", [r"[\c]x]|\S", r"[a[\C-]]]|\S", r"[\M-]]|a"])
def test_classes_that_cannot_stand_alone_are_left_to_the_reference(pattern: str) -> None:
    assert load(bpe(sequence(split(pattern), byte_level()), [])).explain().routes == ("D",)


def test_special_tokens_that_cannot_be_told_from_the_text() -> None:
    """A template without the text, and a vocabulary in which the probes have no tokens."""
    template = {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}
    tokenizer = load(bpe(byte_level(use_regex=True), [], post_processor=template))
    with pytest.raises(TokenizerError):
        tokenizer.session("a", add_special_tokens=True)


def test_added_tokens_with_one_normal_form_are_refused() -> None:
    tokens = [added("é", normalized=True), added("e\u0301", normalized=True)]
    with pytest.raises(TokenizerError, match="same normalized form"):
        load(bpe(byte_level(use_regex=True), [], tokens=tokens, normalizer={"type": "NFC"}))
