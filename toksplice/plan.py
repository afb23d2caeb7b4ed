"""Which route serves a tokenizer, decided from the structure of its tokenizer.json.

Route C needs a pre-tokenizer whose boundaries can be proved certain, a normalizer that can be cut, a model
without dropout, and a post-processor that only puts ids around the text. Whatever is not understood is not
guessed: the tokenizer takes route D, the reference on the whole text, and the plan says why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toksplice.added import AddedTokens
from toksplice.charclass import PROBED, Bits, class_bits, inert_bits, normal_form
from toksplice.pattern import Chars, Concat, Node, UnsupportedPatternError, literal, parse
from toksplice.sync import Level, SyncTable, build, isolated_leaf

#: The pattern inside the reference's ByteLevel pre-tokenizer when `use_regex` is set.
BYTE_LEVEL_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

_NORMAL_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_COMPATIBILITY_FORMS = ("NFKC", "NFKD")


class NotUnderstoodError(Exception):
    """A part of the tokenizer that route C has no argument for."""


@dataclass(frozen=True, slots=True)
class RouteC:
    """What a certificate needs to know about a tokenizer.

    `sync`: boundaries that are certain. `inert`: characters that normalization leaves alone, or None without
    a normalizer. `white`: white space. `longest_token_chars`: no token of the vocabulary is longer.
    """

    sync: SyncTable
    inert: Bits | None
    white: Bits
    added: AddedTokens
    longest_token_chars: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Which routes serve a tokenizer, and why: `routes` in the order they are tried."""

    routes: tuple[str, ...]
    reason: str
    pre_tokenizer: tuple[str, ...]
    normalizer: str
    synchronising_pairs: int
    longest_token_chars: int
    added_tokens: int


def plan(config: Mapping[str, Any], longest: int) -> tuple[RouteC | None, Explanation]:
    """Read the components of a tokenizer.json: the route C facts, or None when only the reference may serve it.

    `longest` is that of `longest_token_chars`.
    """
    entries = config.get("added_tokens") or ()
    route: RouteC | None = None
    try:
        levels = tuple(_levels(config.get("pre_tokenizer")))
        form = _form(config.get("normalizer"))
        if form in _COMPATIBILITY_FORMS and _trims_offsets(config.get("post_processor")):
            # A character that falls apart into a space and more gets spans that run backwards.
            raise NotUnderstoodError(f"{form} with a post-processor that trims offsets")
        white = class_bits(r"\s") | _python_white()
        sync = build(levels, never_left=white | class_bits(r"\p{M}"))
        if not sync.pairs.any():
            raise NotUnderstoodError("the pre-tokenizer has no boundary that is certain")
        added = AddedTokens(entries, normal_form(form).normalize_str if form else None)
        route = RouteC(sync, inert_bits(form) if form else None, white, added, longest)
        reason = "the boundaries of the pre-tokenizer were proved from its patterns"
    except (NotUnderstoodError, UnsupportedPatternError) as error:
        reason = f"every edit is encoded in full: {error}"
    return route, Explanation(
        routes=("C", "D") if route else ("D",),
        reason=reason,
        pre_tokenizer=tuple(step["type"] for step in _steps(config.get("pre_tokenizer"), "pretokenizers")),
        normalizer=" + ".join(s["type"] for s in _steps(config.get("normalizer"), "normalizers")) or "none",
        synchronising_pairs=int(route.sync.pairs.sum()) if route else 0,
        longest_token_chars=longest,
        added_tokens=len(entries),
    )


def _steps(config: Mapping[str, Any] | None, member: str) -> list[Mapping[str, Any]]:
    """The steps of a component, sequences within sequences laid flat."""
    if config is None:
        return []
    if config["type"] != "Sequence":
        return [config]
    return [step for child in config[member] for step in _steps(child, member)]


def _trims_offsets(config: Mapping[str, Any] | None) -> bool:
    return any(
        step["type"] in ("ByteLevel", "RobertaProcessing") and step.get("trim_offsets", True)
        for step in _steps(config, "processors")
    )


def _form(config: Mapping[str, Any] | None) -> str | None:
    steps = _steps(config, "normalizers")
    if not steps:
        return None
    if len(steps) > 1 or steps[0]["type"] not in _NORMAL_FORMS:
        raise NotUnderstoodError("normalizer " + " + ".join(step["type"] for step in steps))
    return str(steps[0]["type"])


def _levels(config: Mapping[str, Any] | None) -> list[Level]:
    steps = _steps(config, "pretokenizers")
    if not steps:
        raise NotUnderstoodError("there is no pre-tokenizer")
    levels: list[Level] = []
    for i, step in enumerate(steps):
        if step["type"] == "ByteLevel":
            if i != len(steps) - 1:
                raise NotUnderstoodError(f"{steps[i + 1]['type']} after ByteLevel, which works on bytes")
            if step.get("add_prefix_space", True):
                raise NotUnderstoodError("ByteLevel with add_prefix_space")
            if step.get("use_regex", True):
                levels.append(Level(parse(BYTE_LEVEL_PATTERN)))
        else:
            levels.append(_split_level(step))
    return levels


def _split_level(step: Mapping[str, Any]) -> Level:
    kind = step["type"]
    if kind == "Digits":
        return isolated_leaf(json.dumps(step, sort_keys=True), runs=not step.get("individual_digits", False))
    if kind == "Punctuation" and step.get("behavior") in ("Isolated", "Contiguous"):
        return isolated_leaf(json.dumps(step, sort_keys=True), runs=step["behavior"] == "Contiguous")
    if kind != "Split":
        raise NotUnderstoodError(f"pre-tokenizer {kind}")
    behavior = (step["behavior"], bool(step.get("invert")))
    if behavior not in (("Isolated", False), ("Isolated", True), ("Removed", True)):
        raise NotUnderstoodError(f"Split with behavior {step['behavior']}")
    pattern = step["pattern"]
    if "Regex" in pattern:
        return Level(parse(pattern["Regex"]))
    return Level(_word(pattern["String"]))


def _word(text: str) -> Node:
    leaves: Sequence[Chars] = [literal(char) for char in text]
    if not leaves:
        raise NotUnderstoodError("Split at nothing")
    return leaves[0] if len(leaves) == 1 else Concat(tuple(leaves))


def longest_token_chars(model: Mapping[str, Any]) -> int:
    """Characters of the longest vocabulary entry; a byte-level entry has at most as many characters as bytes."""
    vocabulary = model.get("vocab") or ()
    words = vocabulary if isinstance(vocabulary, dict) else (entry[0] for entry in vocabulary)
    return max(map(len, words), default=0)


def _python_white() -> Bits:
    bits = np.zeros(PROBED, dtype=np.bool_)
    bits[[point for point in range(PROBED) if chr(point).isspace()]] = True
    return bits
