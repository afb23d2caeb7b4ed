"""Texts side by side in the input buffer of a launch, and the answers taken apart again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpu_worker.device import Bytes
from gpu_worker.encoder import U32, Encoding

#: Bytes that a block of threads works on; TILE in kernels/common.cuh.
TILE = 4096
#: Stands before every text and behind the last one; no UTF-8 holds it.
SEPARATOR = 0xFF
#: Most texts of one launch.
TEXTS_MAX = 1000
#: Where the first separator is in the buffer. In front: the tiles in use and the number of texts, both u32, and from
#: `STARTS_AT` on where each text starts, counted from the first separator, and at last where the next one would.
TEXT_AT = 4096
STARTS_AT = 64
#: Bytes behind the last tile, which kernels may read.
PADDING = 64


@dataclass(frozen=True, slots=True)
class Packed:
    """`starts`: where each text starts, counted from the first separator, and at last where the next one would."""

    starts: tuple[int, ...]

    @property
    def tiles(self) -> int:
        return -(-self.starts[-1] // TILE)

    @property
    def input_bytes(self) -> int:
        """What is uploaded."""
        return TEXT_AT + self.tiles * TILE + PADDING


def batches(texts: Sequence[bytes], capacity: int) -> Iterator[list[int]]:
    """The indices of texts that go into one launch each, in their order; a text longer than `capacity` goes alone."""
    batch: list[int] = []
    used = 1
    for index, text in enumerate(texts):
        needed = len(text) + 1
        if batch and (used + needed > capacity or len(batch) == TEXTS_MAX):
            yield batch
            batch, used = [], 1
        batch.append(index)
        used += needed
    if batch:
        yield batch


def packed_bytes(texts: Sequence[bytes]) -> int:
    """Room that texts take, with their separators."""
    return 1 + sum(len(text) + 1 for text in texts)


def pack(texts: Sequence[bytes], to: Bytes) -> Packed:
    """Write the input of a launch."""
    starts = [1]
    to[TEXT_AT] = SEPARATOR
    for text in texts:
        begin, end = TEXT_AT + starts[-1], TEXT_AT + starts[-1] + len(text)
        to[begin:end] = np.frombuffer(text, dtype=np.uint8)
        to[end] = SEPARATOR
        starts.append(starts[-1] + len(text) + 1)
    packed = Packed(tuple(starts))
    to[TEXT_AT + starts[-1] : packed.input_bytes] = SEPARATOR
    to[:8].view("<u4")[:] = packed.tiles, len(texts)
    to[STARTS_AT : STARTS_AT + 4 * len(starts)].view("<u4")[:] = starts
    return packed


def unpack(packed: Packed, ids: U32, starts: U32, pieces: U32) -> list[Encoding]:
    """The encoding of each text. `starts` and `pieces` count from the byte behind the first separator."""
    if len(packed.starts) == 2:
        return [Encoding(ids, starts, pieces)]
    bounds = np.array(packed.starts, dtype=np.uint32) - np.uint32(1)
    token_bounds = np.searchsorted(starts, bounds).tolist()
    piece_bounds = np.searchsorted(pieces, bounds).tolist()
    return [
        Encoding(
            ids[token_bounds[k] : token_bounds[k + 1]].copy(),
            starts[token_bounds[k] : token_bounds[k + 1]] - bounds[k],
            pieces[piece_bounds[k] : piece_bounds[k + 1]] - bounds[k],
        )
        for k in range(len(bounds) - 1)
    ]
