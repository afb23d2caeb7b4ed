"""Character classes, probed from the installed reference.

The reference classifies characters by the Unicode tables of the pattern engine it was built with; no table
of another library agrees with it on every code point. So each class is asked of the reference itself, over
the first two planes, and the answer is cached on disk by library version. Code points beyond are left out:
they belong to no class here and so can never carry a certificate.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import Regex
from tokenizers.normalizers import NFD, NFKD, Normalizer
from tokenizers.pre_tokenizers import PreTokenizer, Split

from toksplice.pattern import UnsupportedPatternError

Bits = npt.NDArray[np.bool_]

#: Code points probed: the Basic Multilingual Plane and the Supplementary Multilingual Plane.
PROBED = 0x20000

#: Classes and normal forms kept in memory at once.
MEMORY_ENTRIES = 256

_SURROGATES = range(0xD800, 0xE000)
# U+0345 has the highest combining class but its own, so it changes places with any other combining mark.
_HIGHEST_MARK = "\u0345"


def cache_folder() -> Path:
    """Where probes are kept: `TOKSPLICE_HOME`, or toksplice/ under the user's cache folder."""
    home = os.environ.get("TOKSPLICE_HOME")
    base = Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toksplice"
    return base / "probes"


@functools.lru_cache(maxsize=MEMORY_ENTRIES)
def class_bits(source: str) -> Bits:
    """Which code points the one-character pattern `source` matches: bool, shape (PROBED,)."""
    return _cached(f"class {source}", lambda: _probe_class(source))


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
    bits = _cached(f"fold {alternatives}", lambda: _probe_alone(f"(?i:{alternatives})"))
    return not bits.any()


@functools.lru_cache(maxsize=MEMORY_ENTRIES)
def isolated_bits(pre_tokenizer_json: str) -> Bits:
    """Which code points a Digits or Punctuation pre-tokenizer cuts off from a letter beside them."""

    def probe() -> Bits:
        pre_tokenizer = _pre_tokenizer(pre_tokenizer_json)
        bits = np.zeros(PROBED, dtype=np.bool_)
        points = _points()
        text = "".join(f"{chr(point)}a" for point in points)
        for _, (start, end) in pre_tokenizer.pre_tokenize_str(text):
            if end - start == 1 and start % 2 == 0:
                bits[points[start // 2]] = True
        return bits

    return _cached(f"isolated {pre_tokenizer_json}", probe)


@functools.lru_cache(maxsize=MEMORY_ENTRIES)
def inert_bits(form: str) -> Bits:
    """Characters that a normal form (NFC, NFD, NFKC or NFKD) leaves alone and cannot join to their left.

    Inert: unchanged by itself, and the first character of its full decomposition is a starter that is never
    the second of a composition (rule R6 of docs/exactness.md).
    """
    return _cached(f"inert {form}", lambda: _probe_inert(form))


def _regex(source: str) -> Regex:
    try:
        return Regex(source)
    except Exception as error:
        raise UnsupportedPatternError(f"{source} is no pattern of its own: {error}") from error


def _probe_class(source: str) -> Bits:
    runs = Split(_regex(f"(?:{source})+"), "removed")
    points = np.array(_points())
    bits = np.zeros(PROBED, dtype=np.bool_)
    bits[points] = True
    for _, (start, end) in runs.pre_tokenize_str("".join(map(chr, points))):
        bits[points[start:end]] = False
    return bits


def _probe_alone(source: str) -> Bits:
    """As `_probe_class`, with a line feed between the characters, so that no two can match together."""
    splitter = Split(_regex(f"(?:{source})"), "isolated")
    points = _points()
    bits = np.zeros(PROBED, dtype=np.bool_)
    for _, (start, end) in splitter.pre_tokenize_str("".join(f"\n{chr(point)}" for point in points)):
        if end - start == 1 and start % 2 == 1:
            bits[points[start // 2]] = True
    return bits


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


def _cached(what: str, probe: Callable[[], Bits]) -> Bits:
    """The bits of a probe, from disk when this library version has answered it before."""
    key = hashlib.sha256(f"{tokenizers.__version__}\n{PROBED}\n{what}".encode()).hexdigest()
    path = cache_folder() / f"{key}.npy"
    try:
        packed = np.load(path, allow_pickle=False)
        if packed.dtype == np.uint8 and packed.shape == (PROBED // 8,):
            return np.unpackbits(packed).astype(np.bool_)
    except (OSError, ValueError, EOFError):
        pass  # not there, or damaged: probe again
    bits = probe()
    _store(path, np.packbits(bits))
    return bits


def _store(path: Path, packed: npt.NDArray[np.uint8]) -> None:
    """Write atomically; a full or read-only disk only costs the next process a probe."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            np.save(file, packed, allow_pickle=False)
        Path(file.name).replace(path)
    except OSError:
        return
