"""Sets of code points over all planes, probed once and kept on disk by library version."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from toksplice.charclass import CODE_POINTS
from toksplice.probes import remembered

#: All code points. Surrogates are in every array and belong to no set.
POINTS = CODE_POINTS

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
    packed = remembered(
        f"{POINTS}\n{what}",
        lambda: np.packbits(probe(), axis=-1),
        lambda stored: stored.dtype == np.uint8 and stored.shape[-1:] == (POINTS // 8,),
    )
    return np.unpackbits(packed, axis=-1).astype(np.bool_)
