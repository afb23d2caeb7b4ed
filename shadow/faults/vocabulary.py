"""What faults need to know of a tokenizer: its vocabulary both ways, its special tokens, and relatives of it that are
wrong in one respect."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Final, Protocol

from pipeline.errors import SettingsError
from toksplice import Tokenizer, load

GAP_MAX: Final = 1024
"""So many ids in a row that the vocabulary does not have are its end."""

_LETTER_GONE: Final = r"[a-df-zA-Z]"
_PATTERNS: Final = {
    # A letter is taken for punctuation; numbers are cut into digits; spaces stand alone; punctuation does.
    "letter": rf" ?{_LETTER_GONE}+| ?\p{{N}}+| ?(?:(?!{_LETTER_GONE})[^\s\p{{N}}])+|\s+(?!\S)|\s+",
    "digit": r" ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "space": r"\p{L}+|\p{N}+|[^\s\p{L}\p{N}]+|\s",
    "punctuation": r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]|\s+(?!\S)|\s+",
}
"""Variant of a wrong Unicode class -> GPT-2's pattern with that class wrong."""


class TokenizerFiles(Protocol):
    """Where tokenizers come from; `toksplice.registry.Registry` is one. Both may block for seconds."""

    def path(self, name_or_fingerprint: str) -> Path: ...

    def get(self, fingerprint_hex: str) -> Tokenizer: ...


class Vocabulary:
    """One tokenizer as the faults see it. What is asked for first is found out then, which may take a second."""

    def __init__(self, files: TokenizerFiles, fingerprint: str) -> None:
        self._files = files
        self._fingerprint = fingerprint

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        return self._files.get(self._fingerprint)

    @functools.cached_property
    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(self._files.path(self._fingerprint).read_bytes())
        return config

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """What tokens spell -> their ids."""
        found: dict[str, int] = {}
        token_id = last = 0
        while token_id <= last + GAP_MAX:
            spelled = self.spell(token_id)
            if spelled is not None:
                found[spelled] = last = token_id
            token_id += 1
        return found

    def spell(self, token_id: int) -> str | None:
        """What a token spells; None for an unknown id."""
        return self.tokenizer.reference.token(token_id)

    @functools.cached_property
    def added(self) -> frozenset[int]:
        """Ids of added tokens, those around texts among them."""
        return frozenset(token["id"] for token in self._config.get("added_tokens") or ())

    @functools.cached_property
    def specials(self) -> tuple[int, int]:
        """How many special tokens stand before and after a text that asks for them."""
        around = self.tokenizer.specials_around(add_special_tokens=True)
        return len(around.prefix), len(around.suffix)

    def relative(self, variant: str) -> Tokenizer:
        """This tokenizer with one thing wrong, without the engine. The ids of its tokens are the same.

        Raises SettingsError where the tokenizer has nothing of the kind.
        """
        return _relative(self, variant)

    def changed(self, variant: str) -> bytes:
        """The tokenizer.json of that relative."""
        config = dict(self._config, post_processor=None)
        model = config["model"]
        if variant == "no_added_tokens":
            config["added_tokens"] = []
        elif variant == "fewer_merges":
            if not model.get("merges"):
                raise SettingsError("this fault needs a tokenizer with merges")
            config["model"] = dict(model, merges=model["merges"][: len(model["merges"]) // 2])
        else:
            if not _is_byte_level(config.get("pre_tokenizer")):
                raise SettingsError("this fault needs a tokenizer with a byte-level pre-tokenizer")
            config["pre_tokenizer"] = _cut_by(_PATTERNS[variant])
        return json.dumps(config).encode()


@functools.lru_cache(maxsize=16)
def _relative(vocabulary: Vocabulary, variant: str) -> Tokenizer:
    return load(vocabulary.changed(variant), engine=False)


def _is_byte_level(step: dict[str, Any] | None) -> bool:
    if step is None:
        return False
    return step.get("type") == "ByteLevel" or any(map(_is_byte_level, step.get("pretokenizers") or ()))


def _cut_by(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [split, letters]}
