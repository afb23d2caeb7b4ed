"""Which route serves a tokenizer, decided from the structure of its tokenizer.json.

Route C needs a pre-tokenizer whose boundaries can be proved certain, or one that splits at white space first
(`toksplice.words`), a normalizer that can be cut, a model without dropout, and a post-processor that only puts ids
around the text. Whatever is not understood is not guessed: the tokenizer takes route D, the reference on the whole
text, and the plan says why.
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
from toksplice.structure import NotUnderstoodError, steps, trims_offsets
from toksplice.sync import Level, SyncTable, build, isolated_leaf
from toksplice.words import Words, splits_at_white_space, words

#: The pattern inside the reference's ByteLevel pre-tokenizer when `use_regex` is set.
BYTE_LEVEL_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

NORMAL_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
COMPATIBILITY_FORMS = ("NFKC", "NFKD")


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
    """Which routes serve a tokenizer, and why: `routes` in the order they are tried.

    `synchronising_pairs` are those of route C, 0 where another route serves.
    """

    routes: tuple[str, ...]
    reason: str
    pre_tokenizer: tuple[str, ...]
    normalizer: str
    synchronising_pairs: int
    longest_token_chars: int
    added_tokens: int


Route = RouteC | Words


def plan(config: Mapping[str, Any], longest: int) -> tuple[Route | None, str]:
    """Read the components of a tokenizer.json: what route C needs, or None when only the reference may serve it; and
    why. `longest` is that of `longest_token_chars`.
    """
    try:
        if splits_at_white_space(config):
            return words(config), "words are encoded independently, and cuts after white space were proved"
        route = _windows(config, config.get("added_tokens") or (), longest)
        return route, "the boundaries of the pre-tokenizer were proved from its patterns"
    except (NotUnderstoodError, UnsupportedPatternError) as error:
        return None, f"every edit is encoded in full: {error}"


_NATIVE_REASONS = {
    "A": "the split patterns were compiled into automata, and a scan resumes where nothing further right decides",
    "B": "no token of the vocabulary crosses certain pairs of characters, and a scan resumes at such a pair",
}


def explain_native(config: Mapping[str, Any], letter: str, longest_token_chars: int) -> Explanation:
    """What is said of a tokenizer that the engine serves by the route `letter`."""
    return _explanation(config, (letter,), _NATIVE_REASONS[letter], 0, longest_token_chars)


def explain(config: Mapping[str, Any], route: Route | None, reason: str, longest_token_chars: int) -> Explanation:
    """What is said of a tokenizer that the engine does not serve; `route`, `reason`: of `plan`."""
    routes = ("C", "D") if route else ("D",)
    pairs = int(route.sync.pairs.sum()) if isinstance(route, RouteC) else 0
    return _explanation(config, routes, reason, pairs, longest_token_chars)


def _explanation(
    config: Mapping[str, Any], routes: tuple[str, ...], reason: str, pairs: int, longest: int
) -> Explanation:
    return Explanation(
        routes=routes,
        reason=reason,
        pre_tokenizer=tuple(step["type"] for step in steps(config.get("pre_tokenizer"), "pretokenizers")),
        normalizer=" + ".join(s["type"] for s in steps(config.get("normalizer"), "normalizers")) or "none",
        synchronising_pairs=pairs,
        longest_token_chars=longest,
        added_tokens=len(config.get("added_tokens") or ()),
    )


def _windows(config: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], longest: int) -> RouteC:
    """The facts for windows with a certificate."""
    levels = tuple(_levels(config.get("pre_tokenizer")))
    form = _form(config.get("normalizer"))
    if form in COMPATIBILITY_FORMS and trims_offsets(config.get("post_processor")):
        # A character that falls apart into a space and more gets spans that run backwards.
        raise NotUnderstoodError(f"{form} with a post-processor that trims offsets")
    white = class_bits(r"\s") | _python_white()
    sync = build(levels, never_left=white | class_bits(r"\p{M}"))
    if not sync.pairs.any():
        raise NotUnderstoodError("the pre-tokenizer has no boundary that is certain")
    added = AddedTokens(entries, normal_form(form).normalize_str if form else None)
    return RouteC(sync, inert_bits(form) if form else None, white, added, longest)


def _form(config: Mapping[str, Any] | None) -> str | None:
    found = steps(config, "normalizers")
    if not found:
        return None
    if len(found) > 1 or found[0]["type"] not in NORMAL_FORMS:
        raise NotUnderstoodError("normalizer " + " + ".join(step["type"] for step in found))
    return str(found[0]["type"])


def _levels(config: Mapping[str, Any] | None) -> list[Level]:
    found = steps(config, "pretokenizers")
    if not found:
        raise NotUnderstoodError("there is no pre-tokenizer")
    levels: list[Level] = []
    for i, step in enumerate(found):
        if step["type"] == "ByteLevel":
            if i != len(found) - 1:
                raise NotUnderstoodError(f"{found[i + 1]['type']} after ByteLevel, which works on bytes")
            if step.get("add_prefix_space", True):
                raise NotUnderstoodError("ByteLevel with add_prefix_space")
            if step.get("use_regex", True):
                levels.append(Level(parse(BYTE_LEVEL_PATTERN)))
        else:
            levels.append(split_level(step))
    return levels


def split_level(step: Mapping[str, Any]) -> Level:
    """The level of a splitting step; raises `NotUnderstoodError`, `UnsupportedPatternError`."""
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
