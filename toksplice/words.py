"""Tokenizers that split at white space first: where their texts may be cut, read off the tokenizer.json.

When the first step of the pre-tokenizer takes white space away, what stands left and right of it is encoded
independently. So a text may be cut after white space wherever the stages before the pre-tokenizer work on both
sides as if the other side were not there. This module names the characters for which they do (docs/exactness.md,
"Words"); `toksplice.word_repair` cuts there. It serves Unigram (T5, XLM-R, XLNet) and WordPiece (BERT) alike, since
the model sees single pieces only.
"""

from __future__ import annotations

import functools
import json
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tokenizers
from tokenizers import pre_tokenizers
from tokenizers.normalizers import NFD, Normalizer

from toksplice.added import AddedTokens
from toksplice.charclass import inert_bits
from toksplice.charsmap import read_charsmap
from toksplice.graphemes import apart_from_space, taking_the_next
from toksplice.pointsets import POINTS, Bits, cached, chunks, points
from toksplice.sections import SectionStarts
from toksplice.structure import NotUnderstoodError, steps, trims_offsets

#: First steps that take white space away and let no piece reach over it.
_SPLITTERS = {
    "WhitespaceSplit": pre_tokenizers.WhitespaceSplit,
    "BertPreTokenizer": pre_tokenizers.BertPreTokenizer,
    "Whitespace": pre_tokenizers.Whitespace,
}
#: Later steps that treat every piece by itself, wherever it stands. So does Metaspace, unless it marks the first piece.
_LOCAL_STEPS = (*_SPLITTERS, "ByteLevel", "Digits", "Punctuation", "Split")
#: Normalizers that change every character by itself, or only reorder marks that no white space is among.
_PLAIN = ("BertNormalizer", "Lowercase", "NFD", "NFKD", "Nmt", "StripAccents")
_DECOMPOSING = ("NFD", "NFKD")
_FIRM = string.ascii_letters + string.digits
_RUNS_OF_SPACES = {"Regex": " {2,}"}

Step = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Words:
    """Where a text may be cut: after a separator and before an opener, both by code point.

    `firm`: and only where the two characters after the cut are among these, unless it is None. `added`: added tokens
    that are matched before normalization. `sections`: where spans can drift, or None when they cannot.
    """

    separators: Bits
    openers: Bits
    firm: Bits | None
    added: AddedTokens
    sections: SectionStarts | None


def splits_at_white_space(config: Mapping[str, Any]) -> bool:
    """True when the first step of the pre-tokenizer takes white space away."""
    found = steps(config.get("pre_tokenizer"), "pretokenizers")
    return bool(found) and found[0]["type"] in _SPLITTERS


def words(config: Mapping[str, Any]) -> Words:
    """Read the components of a tokenizer.json; raises `NotUnderstoodError` with what has no argument."""
    white = _white(_splitter(config))
    if trims_offsets(config.get("post_processor")):
        raise NotUnderstoodError("a post-processor that trims offsets, and the first token's in its own way")
    normal = steps(config.get("normalizer"), "normalizers")
    openers, steady = _openers(normal, white)
    normalizer = _normalizer(config.get("normalizer"))
    entries = [entry for entry in config.get("added_tokens") or () if entry["content"]]
    early = [entry for entry in entries if not entry.get("normalized")]
    late = [entry for entry in entries if entry.get("normalized")]
    return Words(
        separators=_separators(normalizer, white),
        openers=openers,
        firm=_firm(normalizer) if _can_reach_over(late, normalizer, white) else None,
        added=AddedTokens(early),
        sections=SectionStarts(early, steady, white) if steady is not None else None,
    )


def _splitter(config: Mapping[str, Any]) -> str:
    first, *rest = steps(config.get("pre_tokenizer"), "pretokenizers")
    for step in rest:
        if step["type"] == "Metaspace":
            if step.get("prepend_scheme", "always") == "first":
                raise NotUnderstoodError("Metaspace marks the first piece only")
        elif step["type"] not in _LOCAL_STEPS:
            raise NotUnderstoodError(f"pre-tokenizer {step['type']}")
    return str(first["type"])


def _white(splitter: str) -> Bits:
    """Characters at which the splitter splits and which are in no piece."""

    def probe() -> Bits:
        step = _SPLITTERS[splitter]()
        bits = np.zeros(POINTS, dtype=np.bool_)
        for chars in (*chunks(), "\r\n"):
            places = np.array([ord(char) for char in chars])
            bits[places] = True
            for _, (start, end) in step.pre_tokenize_str(chars):
                bits[places[start:end]] = False
        return bits

    return cached(f"removed by {splitter}", probe)


def _normalizer(config: Mapping[str, Any] | None) -> Normalizer | None:
    if config is None:
        return None
    shell = {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}, "normalizer": config}
    normalizer: Normalizer | None = tokenizers.Tokenizer.from_str(json.dumps(shell)).normalizer
    return normalizer


def _separators(normalizer: Normalizer | None, white: Bits) -> Bits:
    """White space that is one white-space character after normalization, whatever stands beside it."""
    bits = white.copy()
    if normalizer is None:
        return bits
    if normalizer.normalize_str("aa") != "aa":
        raise NotUnderstoodError("a normalizer that changes the letter a")
    for point in np.flatnonzero(white):
        # CR LF is the one pair with white space in one cluster (`_charsmap_facts` sees to the rest).
        for text in (chr(point), "\r\n") if point == ord("\n") else (chr(point),):
            found = normalizer.normalize_str(f"a{text}a")
            inner = found[1:-1]
            bits[point] &= found[:1] == "a" == found[-1:] and inner != "" and all(white[ord(char)] for char in inner)
    return bits


def _openers(normal: Sequence[Step], white: Bits) -> tuple[Bits, Bits | None]:
    """Characters that may stand right of a cut, and those with which a section does not make spans drift.

    The second is None when spans cannot drift.
    """
    kinds = [step["type"] for step in normal]
    if all(kind in _PLAIN for kind in kinds):
        return ~white, None
    if "BertNormalizer" in kinds or kinds.count("Precompiled") > 1:
        raise NotUnderstoodError("normalizer " + " + ".join(kinds))
    at = kinds.index("Precompiled") if "Precompiled" in kinds else len(kinds)
    for step in normal[at + 1 :]:
        if step["type"] != "Lowercase" and not _collapses_spaces(step):
            raise NotUnderstoodError(f"normalizer {step['type']} after Precompiled")
    traces = [_trace(step, white) for step in normal[:at]]
    has_map = at < len(kinds)

    def probe() -> Bits:
        erased, blank = _charsmap_facts(normal[at], white) if has_map else np.zeros((2, POINTS), dtype=np.bool_)
        apart = apart_from_space() if has_map else ~white
        may_follow = apart & ~erased & ~blank & ~white
        bits = np.stack([may_follow, ~erased])
        for point in points() if traces else ():
            firsts = _follow(traces, char := chr(point))
            if firsts != char:
                bits[0, point] = len(firsts) == 1 and may_follow[ord(firsts)]
                bits[1, point] = firsts != "" and not any(erased[ord(first)] for first in firsts)
        return bits

    openers, steady = cached(f"openers and steady, {json.dumps(normal, sort_keys=True)}", probe)
    return openers & ~white, steady if has_map else None


#: From a character that a text begins with to those that it can begin with after a normalizer; "" when they depend
#: on the rest of the text.
Trace = Callable[[str], str]


def _follow(traces: Sequence[Trace], char: str) -> str:
    """All that a text which begins with `char` can begin with after the normalizers, or "" when that is unknown."""
    firsts = char
    for trace in traces:
        if len(firsts) > 1:
            nexts = [trace(first) for first in firsts]
            firsts = "".join(sorted(set("".join(nexts)))) if all(nexts) else ""
        elif firsts:
            firsts = trace(firsts)
    return firsts


def _trace(step: Step, white: Bits) -> Trace:
    """How a normalizer changes the first character of a text."""
    kind = step["type"]
    if kind == "Replace":
        pattern, content = _replace(step, white)
        return lambda char: char if char != pattern[0] else content and char + content[0]
    if kind in ("NFC", "NFKC"):
        inert = inert_bits(kind)
        return lambda char: char if ord(char) < len(inert) and inert[ord(char)] else ""
    if kind not in _PLAIN:
        raise NotUnderstoodError(f"normalizer {kind}")
    normalizer = _normalizer(step)
    if normalizer is None:
        return lambda char: char
    if kind in _DECOMPOSING:
        # A combining mark could change places with what follows it.
        return lambda char: found if _is_starter(found := normalizer.normalize_str(char)[:1]) else ""
    return lambda char: normalizer.normalize_str(char)[:1]


@functools.cache
def _is_starter(char: str) -> bool:
    """Whether a fully decomposed character stays behind a combining mark of the highest class (U+0345)."""
    text = f"a\u0345{char}"
    normalized: str = NFD().normalize_str(text)
    return char != "\u0345" and normalized == text


def _replace(step: Step, white: Bits) -> tuple[str, str]:
    """What is replaced and by what; raises `NotUnderstoodError` when a match could reach over a cut."""
    if _collapses_spaces(step):
        return " ", " "
    pattern = step["pattern"].get("String", "")
    if not pattern or any(white[ord(char)] for char in pattern):
        raise NotUnderstoodError(f"a normalizer that replaces {step['pattern']}")
    return pattern, step["content"]


def _collapses_spaces(step: Step) -> bool:
    return bool(step["type"] == "Replace" and step["pattern"] == _RUNS_OF_SPACES and step["content"] == " ")


def _charsmap_facts(step: Step, white: Bits) -> Bits:
    """Two sets, shape (2, POINTS): characters that begin a sequence which the map erases, and those that begin one
    whose replacement begins with white space."""
    charsmap = read_charsmap(step["precompiled_charsmap"] or "")
    firsts = {key[0] for key in charsmap}
    # A cluster that ends with white space is CR LF, or begins with a character that takes the next one.
    if taking_the_next(sorted(firsts - {"\r"})):
        raise NotUnderstoodError("a character map that can swallow the white space after a character")
    bits = np.zeros((2, POINTS), dtype=np.bool_)
    for key, replacement in charsmap.items():
        bits[0, ord(key[0])] |= not replacement
        bits[1, ord(key[0])] |= replacement != "" and bool(white[ord(replacement[0])])
    return bits


def _can_reach_over(late: Sequence[Step], normalizer: Normalizer | None, white: Bits) -> bool:
    """Whether a token that is matched after normalization could reach over a cut that has no two firm characters
    after it; raises `NotUnderstoodError` when it could even then."""
    strips = False
    for entry in late:
        content = entry["content"] if normalizer is None else normalizer.normalize_str(entry["content"])
        if not content or any(white[ord(char)] for char in content):
            raise NotUnderstoodError(f"the added token {entry['content']!r} is matched with white space in it")
        if entry.get("lstrip") or entry.get("rstrip"):
            strips = True
            if content[0] in _FIRM:
                raise NotUnderstoodError(f"the added token {entry['content']!r} swallows white space")
    return strips


def _firm(normalizer: Normalizer | None) -> Bits:
    """ASCII letters and digits that become ASCII letters and digits."""
    bits = np.zeros(POINTS, dtype=np.bool_)
    for char in _FIRM:
        found = char if normalizer is None else normalizer.normalize_str(char)
        bits[ord(char)] = found != "" and set(found) <= set(_FIRM)
    return bits
