"""Sets of code points over all planes, probed once and kept on disk by library version."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tokenizers

from toksplice.charclass import cache_folder

#: All code points. Surrogates are in every array and belong to no set.
POINTS = 0x110000

#: Characters handed to the reference at once: it does best with small texts.
_CHUNK = 1 << 13

Bits = npt.NDArray[np.bool_]


def points() -> Iterator[int]:
    """Every code point that a text can hold."""
    yield from range(0xD800)
    yield from range(0xE000, POINTS)


def chunks() -> Iterator[str]:
    """Every character but CR and LF, which belong together in a text, some thousand at a time."""
    every = [chr(point) for point in points() if chr(point) not in "\r\n"]
    for start in range(0, len(every), _CHUNK):
        yield "".join(every[start : start + _CHUNK])


def cached(what: str, probe: Callable[[], Bits]) -> Bits:
    """The bits of a probe, of shape (..., POINTS), from disk when this library version has answered it before.

    `what` must name the probe and all that its answer depends on but the library.
    """
    key = hashlib.sha256(f"{tokenizers.__version__}\n{POINTS}\n{what}".encode()).hexdigest()
    path = cache_folder() / f"{key}.npy"
    try:
        packed = np.load(path, allow_pickle=False)
        if packed.dtype == np.uint8 and packed.shape[-1:] == (POINTS // 8,):
            return np.unpackbits(packed, axis=-1).astype(np.bool_)
    except (OSError, ValueError, EOFError):
        pass  # not there, or damaged: probe again
    bits = probe()
    _store(path, np.packbits(bits, axis=-1))
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
