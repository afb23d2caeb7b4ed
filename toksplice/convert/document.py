"""The parts of a Hugging Face tokenizer.json, and the file itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toksplice.errors import TokenizerError

SPACE_MARK = "\u2581"
"""Stands for a space in SentencePiece vocabularies."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Added:
    """A token that is found in the text before anything else; `rstrip` swallows the white space behind it."""

    content: str
    id: int
    special: bool = True
    rstrip: bool = False
    normalized: bool = False


def tokenizer_json(
    model: Json, *, added: Iterable[Added], normalizer: Json | None, pre_tokenizer: Json | None, decoder: Json | None
) -> bytes:
    """The whole file as UTF-8 JSON. Raises `TokenizerError` when an added token has another id in the vocabulary."""
    tokens = sorted(added, key=lambda token: token.id)
    known = model["vocab"] if isinstance(model["vocab"], dict) else {t: i for i, (t, _) in enumerate(model["vocab"])}
    # The reference gives an added token that the vocabulary lacks the next free id, whatever the file says.
    wrong = [token.content for token in tokens if known.get(token.content) != token.id]
    if wrong:
        raise TokenizerError(f"the vocabulary gives added tokens other ids: {wrong[:3]}")
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(token) for token in tokens],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": model,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def bpe(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    *,
    unk_token: str | None = None,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> Json:
    """A byte-pair model; with an unknown token, a run of unknown characters is one of it."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unk_token,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": unk_token is not None,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": dict(sorted(vocab.items(), key=lambda item: item[1])),
        "merges": [list(pair) for pair in merges],
    }


def byte_level(pattern: str | None = None, *before: Json) -> Json:
    """The pre-tokenizer of byte-level families: the steps `before`, a split by `pattern` (None: GPT-2's), bytes."""
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": pattern is None}
    steps = [*before, *([] if pattern is None else [split(pattern)]), bytes_]
    return steps[0] if len(steps) == 1 else sequence("pretokenizers", steps)


def byte_level_decoder() -> Json:
    return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def split(pattern: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def sequence(of: str, steps: Sequence[Json]) -> Json:
    """Steps one after the other; `of` is "normalizers", "pretokenizers" or "decoders"."""
    return {"type": "Sequence", of: list(steps)}


def spaces_to_marks(*, prefix: bool) -> Json:
    """SentencePiece's normalizer without a character map: marks for spaces, and one more in front if `prefix`."""
    marks = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK}
    return sequence("normalizers", [{"type": "Prepend", "prepend": SPACE_MARK}, marks]) if prefix else marks


def marks_to_spaces(*, prefix: bool) -> Json:
    """The decoder that belongs to `spaces_to_marks`."""
    steps: list[Json] = [
        {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    return sequence("decoders", [*steps, {"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else steps)


def byte_letters() -> dict[int, str]:
    """The printable character that stands for each byte in byte-level vocabularies (GPT-2's table).

    Printable Latin-1 bytes stand for themselves; the other 68, in order, are U+0100 and following.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in letters)
    letters |= {byte: chr(0x100 + position) for position, byte in enumerate(list(others))}
    return letters


def _added(token: Added) -> Json:
    return {
        "id": token.id,
        "content": token.content,
        "single_word": False,
        "lstrip": False,
        "rstrip": token.rstrip,
        "normalized": token.normalized,
        "special": token.special,
    }
