"""Hash tables that the kernels read: open addressing with exact keys, built here with the kernels' own hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]

#: A slot of a table of byte strings. Up to `INLINE` bytes are in `low` and `high` themselves; of longer strings `low`
#: is a hash, and the bytes are in the pool at `offset`. A free slot has the length 0.
SLOT = np.dtype(
    [("low", "<u8"), ("high", "<u8"), ("value", "<u4"), ("length", "<u4"), ("offset", "<u4"), ("pad", "<u4")]
)
INLINE = 16
#: A free slot of a table of pairs.
FREE_PAIR = (1 << 64) - 1

_WORD = 8
_STEP = np.uint64(0x632BE59BD9B4E019)
_HIGH = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Strings:
    """Byte strings with a value each. `slots`: of dtype `SLOT`, as many as a power of two. `pool`: u8."""

    slots: npt.NDArray[np.void]
    pool: npt.NDArray[np.uint8]
    longest: int


def strings(texts: Sequence[bytes], values: Sequence[int]) -> Strings:
    """A table of different non-empty strings."""
    lengths = np.array([len(text) for text in texts], dtype=np.uint64)
    is_long = lengths > INLINE
    low, high = _keys(texts, lengths)
    slots = np.zeros(_size(len(texts)), dtype=SLOT)
    places = _place(_mix(low + _HIGH * high + lengths), len(slots))
    pooled = np.where(is_long, lengths, np.uint64(0))
    for name, column in (
        ("low", low),
        ("high", high),
        ("value", np.array(values, dtype=np.uint32)),
        ("length", lengths),
        ("offset", np.cumsum(pooled, dtype=np.uint64) - pooled),
    ):
        slots[name][places] = column
    pool = b"".join(text for text in texts if len(text) > INLINE)
    return Strings(slots, np.frombuffer(pool + bytes(_WORD), dtype=np.uint8), int(lengths.max(initial=0)))


def pairs(keys: U64, values: U64, value_bits: int) -> U64:
    """A table of keys with a value each, `key << value_bits | value` in a slot."""
    slots = np.full(_size(len(keys)), FREE_PAIR, dtype=np.uint64)
    slots[_place(_mix(keys), len(slots))] = keys << np.uint64(value_bits) | values
    return slots


def _size(count: int) -> int:
    """Slots for so many entries: a power of two, at most half of them taken."""
    return 1 << max(4, (2 * count - 1).bit_length())


def _mix(key: U64) -> U64:
    key = (key ^ key >> np.uint64(32)) * np.uint64(0x9E3779B97F4A7C15)
    key = (key ^ key >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
    return key ^ key >> np.uint64(32)


def _keys(texts: Sequence[bytes], lengths: U64) -> tuple[U64, U64]:
    """What a slot holds of each text."""
    inline = np.frombuffer(b"".join(text[:INLINE].ljust(INLINE, b"\0") for text in texts), dtype="<u8").reshape(-1, 2)
    low, high = inline[:, 0].copy(), inline[:, 1].copy()
    (is_long,) = np.nonzero(lengths > INLINE)
    low[is_long], high[is_long] = _hashed([texts[at] for at in is_long.tolist()], lengths[is_long]), 0
    return low, high


def _hashed(texts: Sequence[bytes], lengths: U64) -> U64:
    width = -(-int(lengths.max(initial=0)) // _WORD) * _WORD
    words = np.frombuffer(b"".join(text.ljust(width, b"\0") for text in texts), dtype="<u8").reshape(
        -1, max(width // _WORD, 1)
    )
    hashed = lengths.copy()
    for at in range(words.shape[1]):
        inside = lengths > at * _WORD
        hashed[inside] = _mix(hashed[inside] ^ words[inside, at]) + _STEP
    return hashed


def _place(hashes: U64, size: int) -> Indices:
    """The slot of each entry: the first free one from its hash on, all entries at once in turns."""
    mask = size - 1
    places = (hashes & np.uint64(mask)).astype(np.int64)
    owner = np.full(size, -1, dtype=np.int64)
    pending = np.arange(len(hashes))
    while len(pending):
        free = pending[owner[places[pending]] < 0]
        owner[places[free]] = free
        pending = pending[owner[places[pending]] != pending]
        places[pending] = (places[pending] + 1) & mask
    return places
