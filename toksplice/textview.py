"""UTF-8 text by byte position: character boundaries, and what two texts have in common."""

from __future__ import annotations

import numpy as np

from toksplice.errors import PositionError

_BYTES_A_CHAR = 4
_COMPARE_BLOCK = 1 << 16


def check_is_int(position: int) -> None:
    """Raise `PositionError` for what only converts to a position, as bools and floats do."""
    if isinstance(position, bool) or not isinstance(position, int):
        raise PositionError(f"a position must be an int, not {type(position).__name__}")


def check_boundary(text: bytearray, position: int) -> None:
    """Raise `PositionError` unless `position` is a character boundary of `text`."""
    check_is_int(position)
    if not 0 <= position <= len(text):
        raise PositionError(f"position {position} is outside a text of {len(text)} bytes")
    if position < len(text) and text[position] & 0xC0 == 0x80:
        raise PositionError(f"position {position} is inside a character")


def back(text: bytearray, position: int, chars: int) -> int:
    """The byte position `chars` characters left of `position`, or 0."""
    low = max(0, position - _BYTES_A_CHAR * chars)
    window = np.frombuffer(bytes(text[low:position]), dtype=np.uint8)
    starts = np.flatnonzero((window & 0xC0) != 0x80)
    if chars == 0:
        return position
    return low + int(starts[-chars]) if len(starts) >= chars else 0


def forward(text: bytearray, position: int, chars: int) -> int:
    """The byte position `chars` characters right of `position`, or the end."""
    high = min(len(text), position + _BYTES_A_CHAR * chars + 1)
    window = np.frombuffer(bytes(text[position:high]), dtype=np.uint8)
    starts = np.flatnonzero((window & 0xC0) != 0x80)
    return position + int(starts[chars]) if len(starts) > chars else len(text)


def common_prefix(old: bytearray, new: bytes) -> int:
    """Bytes that both texts begin with, floored to a character boundary of both."""
    size = min(len(old), len(new))
    at = 0
    while at < size:
        step = min(_COMPARE_BLOCK, size - at)
        if old[at : at + step] != new[at : at + step]:
            a = np.frombuffer(bytes(old[at : at + step]), dtype=np.uint8)
            b = np.frombuffer(new, dtype=np.uint8, count=step, offset=at)
            at += int(np.argmax(a != b))
            break
        at += step
    while at and ((at < len(old) and old[at] & 0xC0 == 0x80) or (at < len(new) and new[at] & 0xC0 == 0x80)):
        at -= 1
    return at


def common_suffix(old: bytearray, new: bytes, keep: int) -> int:
    """Bytes that both texts end with, outside the first `keep`, floored to a character boundary."""
    size = min(len(old), len(new)) - keep
    at = 0
    while at < size:
        step = min(_COMPARE_BLOCK, size - at)
        tail_old = old[len(old) - at - step : len(old) - at]
        tail_new = new[len(new) - at - step : len(new) - at]
        if tail_old != tail_new:
            a = np.frombuffer(bytes(tail_old), dtype=np.uint8)[::-1]
            b = np.frombuffer(tail_new, dtype=np.uint8)[::-1]
            at += int(np.argmax(a != b))
            break
        at += step
    while at and new[len(new) - at] & 0xC0 == 0x80:
        at -= 1
    return at
