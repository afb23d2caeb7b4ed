"""Character classes, probed from the installed reference.

The reference classifies characters by the Unicode tables of the pattern engine it was built with; no table
of another library agrees with it on every code point. So each class is asked of the reference itself, and the
answer is cached on disk by library version.

Certificates need bits over the first two planes (`..._bits`): code points beyond are left out, belong to no class
there, and so can never carry one. Automata need every code point, as runs (`..._runs`): the ascending positions
where membership changes, u32, so that [start, end, start, end, ...] are the members.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import Regex
from tokenizers.normalizers import NFD, NFKD, Normalizer, Replace
from tokenizers.pre_tokenizers import PreTokenizer

from toksplice.pattern import UnsupportedPatternError
from toksplice.probes import remembered

Bits = npt.NDArray[np.bool_]
Runs = npt.NDArray[np.uint32]

#: All of Unicode, surrogates included.
CODE_POINTS = 0x110000

#: Code points probed: the Basic Multilingual Plane and the Supplementary Multilingual Plane.
PROBED = 0x20000

#: Classes and normal forms kept in memory at once.
MEMORY_ENTRIES = 256

#: Characters a probe hands to the reference at once: it does best with small texts.
_PROBE_CHUNK = 1 << 14
_SURROGATES = range(0xD800, 0xE000)
# U+0345 has the highest combining class but its own, so it changes places with any other combining mark.
_HIGHEST_MARK = "\u0345"


def class_bits(source: str) -> Bits:
    """Which code points the one-character pattern `source` matches: bool, shape (PROBED,)."""
    return _as_bits(class_runs(source))


@functools.lru_cache(maxsize=MEMORY_ENTRIES)
def literal_fold_is_plain(literals: tuple[str, ...]) -> bool:
    """True when no single code point matches two or more characters of a literal, case ignored.

    Multi-character case folding (as `(?i:ss)` matching one sharp s) would let a match hold characters
    that its leaves do not name.
    """
    parts = {word[i:j] for word in literals for i in range(len(word)) for j in range(i + 2, len(word) + 1)}
    if not parts:
        return True
    alternatives = "|".join(sorted("".join(f"[{c}]" if not c.isalnum() else c for c in p) for p in parts))
    runs = _cached_runs(f"fold {alternatives}", lambda: _probe_class_runs(f"(?i:{alternatives})", apart=True))
    return len(runs) == 0


def isolated_bits(pre_tokenizer_json: str) -> Bits:
    """Which code points a Digits or Punctuation pre-tokenizer cuts off from a letter beside them."""
    return _as_bits(isolated_runs(pre_tokenizer_json))


@functools.lru_cache(maxsize=MEMORY_ENTRIES)
def class_runs(source: str) -> Runs:
    """Which code points the one-character pattern `source` matches, over all planes."""
    return _cached_runs(f"class {source}", lambda: _probe_class_runs(source))


@functools.lru_cache(maxsize=MEMORY_ENTRIES)
def isolated_runs(pre_tokenizer_json: str) -> Runs:
    """Which code points a Digits or Punctuation pre-tokenizer cuts off, over all planes."""
    return _cached_runs(f"isolated {pre_tokenizer_json}", lambda: _probe_isolated_runs(pre_tokenizer_json))


@functools.lru_cache(maxsize=MEMORY_ENTRIES)
def inert_bits(form: str) -> Bits:
    """Characters that a normal form (NFC, NFD, NFKC or NFKD) leaves alone and cannot join to their left.

    Inert: unchanged by itself, and the first character of its full decomposition is a starter that is never
    the second of a composition (rule R6 of docs/exactness.md).
    """
    packed = remembered(
        f"{PROBED}\ninert {form}",
        lambda: np.packbits(_probe_inert(form)),
        lambda stored: stored.dtype == np.uint8 and stored.shape == (PROBED // 8,),
    )
    return np.unpackbits(packed).astype(np.bool_)


def _regex(source: str) -> Regex:
    try:
        return Regex(source)
    except Exception as error:
        raise UnsupportedPatternError(f"{source} is no pattern of its own: {error}") from error


def _probe_class_runs(source: str, *, apart: bool = False) -> Runs:
    """Characters that `source` matches; `apart`: with a line feed before each, so that no two can match together."""
    # What is left when all matches are removed. A normalizer does this ten times as fast as a pre-tokenizer.
    removed = Replace(_regex(f"(?:{source})++"), "")
    member = np.zeros(CODE_POINTS + 1, dtype=np.bool_)
    for points in _chunks():
        member[points] = True
        shown = np.column_stack([np.full_like(points, ord("\n")), points]).reshape(-1) if apart else points
        rest = removed.normalize_str(_text(shown))
        member[np.frombuffer(rest.encode("utf-32-le"), dtype=np.uint32)] = False
    return _as_runs(member)


def _probe_isolated_runs(pre_tokenizer_json: str) -> Runs:
    # Cut into runs of members and of others, which alternate; the letter in front is none.
    config = json.loads(pre_tokenizer_json) | {"individual_digits": False, "behavior": "Contiguous"}
    pre_tokenizer = _pre_tokenizer(json.dumps(config))
    member = np.zeros(CODE_POINTS + 1, dtype=np.bool_)
    for points in _chunks():
        pieces = pre_tokenizer.pre_tokenize_str("a" + _text(points))
        for _, (start, end) in pieces[1::2]:
            member[points[start - 1 : end - 1]] = True
    return _as_runs(member)


def _chunks() -> list[Runs]:
    """All characters, in parts."""
    every = np.concatenate([np.arange(_SURROGATES.start), np.arange(_SURROGATES.stop, CODE_POINTS)])
    return [every[start : start + _PROBE_CHUNK].astype(np.uint32) for start in range(0, len(every), _PROBE_CHUNK)]


def _text(points: Runs) -> str:
    return points.astype("<u4").tobytes().decode("utf-32-le")


def _as_runs(member: Bits) -> Runs:
    """Runs of a membership, bool of shape (CODE_POINTS + 1,) whose last is False."""
    return np.flatnonzero(np.diff(member, prepend=False)).astype(np.uint32)


def _as_bits(runs: Runs) -> Bits:
    """The membership of the code points probed for certificates."""
    inside = np.searchsorted(runs, np.arange(PROBED), side="right") & 1
    return inside.astype(np.bool_)


def _probe_inert(form: str) -> Bits:
    normalizer = normal_form(form)
    # Compositions are canonical in every form; only what a character falls apart into differs.
    decomposer: Normalizer = NFKD() if form.startswith("NFK") else NFD()
    canonical = NFD()
    points = _points()
    mark = _HIGHEST_MARK
    bits = np.zeros(PROBED, dtype=np.bool_)
    seconds: set[str] = set()
    firsts: dict[int, str] = {}
    for point in points:
        char = chr(point)
        decomposed = decomposer.normalize_str(char)
        firsts[point] = decomposed[:1]
        seconds.update(canonical.normalize_str(char)[1:])
        bits[point] = normalizer.normalize_str(char) == char
    non_starters = {c for c in set(firsts.values()) if c and decomposer.normalize_str(f"a{mark}{c}") != f"a{mark}{c}"}
    non_starters.add(mark)
    for point, first in firsts.items():
        if not first or first in seconds or first in non_starters:
            bits[point] = False
    return bits


def normal_form(form: str) -> Normalizer:
    """The reference's normalizer of that name."""
    from tokenizers import normalizers  # the form is a class name there

    normalizer: Normalizer = getattr(normalizers, form)()
    return normalizer


def _pre_tokenizer(config_json: str) -> PreTokenizer:
    shell = '{"model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"},"pre_tokenizer":%s}'
    pre_tokenizer: PreTokenizer = tokenizers.Tokenizer.from_str(shell % config_json).pre_tokenizer
    return pre_tokenizer


def _points() -> list[int]:
    return [point for point in range(PROBED) if point not in _SURROGATES]


def _cached_runs(what: str, probe: Callable[[], Runs]) -> Runs:
    return remembered(f"runs\n{what}", probe, _are_runs)


def _are_runs(stored: npt.NDArray[Any]) -> bool:
    if stored.dtype != np.uint32 or stored.ndim != 1 or len(stored) % 2:
        return False
    ascending = bool((stored[1:] > stored[:-1]).all())
    return ascending and (len(stored) == 0 or int(stored[-1]) <= CODE_POINTS)
