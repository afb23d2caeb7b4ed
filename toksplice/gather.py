"""Bytes put together from stretches of sessions: copied once, and while other threads run where the engine serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toksplice import _native

_ID: Final = np.dtype("<u4")

Part = bytes | _native.Stretch
"""Bytes, or a stretch of a session that will be: its size is its `len`, and later edits leave it as it was."""


def little_endian(values: NDArray[np.uint32]) -> bytes:
    """`values` as u32, little-endian."""
    return values.astype(_ID, copy=False).tobytes()


def gather(parts: Sequence[Part]) -> bytes:
    """All of `parts` in one."""
    return _native.gather(parts)
