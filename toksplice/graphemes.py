"""Where the reference sees a boundary between grapheme clusters, asked of the reference itself.

It has no call for that, but its Precompiled normalizer replaces a cluster as a whole when the map holds the
beginning of it. So a map with a single character c, which becomes X, tells whether the next character belongs to
the cluster of c: then it vanishes as well.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np
from tokenizers.normalizers import Precompiled

from toksplice.charsmap import write_charsmap
from toksplice.pointsets import POINTS, Bits, cached, chunks

_MARK = "X"


@functools.cache
def apart_from_space() -> Bits:
    """Characters that begin a cluster of their own after a space: none that extends, joins or combines."""

    def probe() -> Bits:
        space = Precompiled(write_charsmap({" ": _MARK}))
        bits = np.zeros(POINTS, dtype=np.bool_)
        for chars in chunks():
            # A line feed is a cluster of its own beside anything but CR.
            found = space.normalize_str("\n".join(f" {char}" for char in chars)).split("\n")
            bits[[ord(char) for char, text in zip(chars, found, strict=True) if text == _MARK + char]] = True
        return bits

    return cached("apart from a space", probe)


def taking_the_next(chars: Iterable[str]) -> list[str]:
    """Those of `chars` that take a letter after them into their own cluster."""
    return [char for char in chars if Precompiled(write_charsmap({char: _MARK})).normalize_str(char + "a") == _MARK]
