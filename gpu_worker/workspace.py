"""The memory of a launch and the launches themselves, for texts up to a size: recorded once, run for every batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_worker.device import Buffer, Device, Launch
from gpu_worker.packing import PADDING, STARTS_AT, TEXT_AT, TEXTS_MAX, TILE
from gpu_worker.program import Program

#: Longest pieces in bytes that are merged by a warp in registers, by a warp in shared memory, and by a block; the same
#: as in kernels/common.cuh.
SHORT_PIECE = 32
MEDIUM_PIECE = 128
LONG_PIECE = 4096
#: Most blocks that work on the pieces to merge. Each takes one after the other.
MERGE_BLOCKS_MAX = 1024
#: Before the refusals in the answer: how many tokens there are, and how many pieces.
TOTALS = 2

_ID_BYTES = 4
_PIECE_BYTES = 8


@dataclass(frozen=True, slots=True)
class Tables:
    """A program's tables on a device."""

    block_of: Buffer
    class_of: Buffer
    of_class: Buffer
    compose: Buffer
    apply: Buffer
    constant: Buffer
    images: Buffer
    starts: Buffer
    whole: Buffer
    whole_pool: Buffer
    pairs: Buffer
    products: Buffer
    byte_ids: Buffer
    added: Buffer
    added_pool: Buffer
    added_lengths: Buffer
    added_prefixes: Buffer


def upload_tables(device: Device, program: Program) -> Tables:
    """Raises `OutOfDeviceMemoryError`."""
    scans, vocabulary, added = program.scans, program.vocabulary, program.added
    return Tables(
        block_of=device.constant(program.block_of),
        class_of=device.constant(program.class_of),
        of_class=device.constant(scans.of_class),
        compose=device.constant(scans.compose),
        apply=device.constant(scans.apply),
        constant=device.constant(scans.is_constant),
        images=device.constant(scans.image),
        starts=device.constant(scans.starts),
        whole=device.constant(vocabulary.whole.slots),
        whole_pool=device.constant(vocabulary.whole.pool),
        pairs=device.constant(vocabulary.pair_ranks),
        products=device.constant(vocabulary.products),
        byte_ids=device.constant(vocabulary.byte_ids),
        added=device.constant(added.contents.slots),
        added_pool=device.constant(added.contents.pool),
        added_lengths=device.constant(added.lengths),
        added_prefixes=device.constant(added.prefixes),
    )


class Workspace:
    """Buffers for texts that take `capacity` bytes together, a multiple of `TILE`, and the launches on them.

    Raises `OutOfDeviceMemoryError`.
    """

    def __init__(self, device: Device, program: Program, tables: Tables, capacity: int) -> None:
        self.capacity = capacity
        self.staging = device.staging(TEXT_AT + capacity + PADDING)
        self.input = device.scratch(TEXT_AT + capacity + PADDING)
        #: `TOTALS` and the refusal of each text, u32.
        self.answer = device.scratch(4 * (TOTALS + TEXTS_MAX))
        self.ids = device.scratch(_ID_BYTES * capacity)
        self.starts = device.scratch(4 * capacity)
        self.pieces = device.scratch(4 * capacity)
        self._tiles = capacity // TILE
        self._text = self.input[TEXT_AT:]
        self._text_starts = self.input[STARTS_AT:]
        self._refusals = self.answer[4 * TOTALS :]
        self._slots = device.scratch(_ID_BYTES * capacity)
        self._heads, self._insides, self._begins = (device.scratch(capacity // 8) for _ in range(3))
        self._classes, self._labels = device.scratch(capacity), device.scratch(capacity)
        self._function_of_tile, self._first_of_tile = device.scratch(self._tiles), device.scratch(4 * self._tiles)
        self._states_of_tile, self._counts = device.scratch(8 * self._tiles), device.scratch(4 * self._tiles)
        # A piece that is no token of its own has two bytes at least.
        shortest = (2, SHORT_PIECE + 1, MEDIUM_PIECE + 1)
        self._queues = [device.scratch(_PIECE_BYTES * (capacity // least + 1)) for least in shortest]
        self._queue_sizes = device.scratch(4 * len(self._queues))
        launches = [*self._find_added(program, tables), *self._split(program, tables), *self._merge(program, tables)]
        self.run = device.recorded([*launches, *self._gather()])

    def _find_added(self, program: Program, tables: Tables) -> list[Launch]:
        marks = (self._heads, self._insides)
        clear = (self.input, *marks, self._queue_sizes, u32(len(self._queues)), self._refusals)
        find = (
            *(self.input, self._text_starts, self._text),
            *(tables.added, _mask(program.added.contents.slots), tables.added_pool),
            *(tables.added_lengths, u32(len(program.added.lengths)), tables.added_prefixes),
            *(*marks, self._slots, self._refusals),
        )
        return [Launch("clear_marks", self._tiles, clear), Launch("find_added", self._tiles, find)]

    def _split(self, program: Program, tables: Tables) -> list[Launch]:
        scans = program.scans
        functions, labels, states = u32(scans.functions), u32(scans.labels), u32(scans.states)
        separator = u32(len(scans.of_class) - 1)
        classify = (
            *(self.input, self._text_starts, self._text, self._heads, self._insides),
            *(tables.block_of, tables.class_of, separator, tables.of_class, tables.compose, functions),
            *(self._classes, self._function_of_tile, self._refusals),
        )
        label = (
            *(self.input, self._classes, self._function_of_tile, tables.of_class, tables.compose, tables.apply),
            *(tables.constant, tables.images, functions, labels, states, self._labels, self._states_of_tile),
        )
        mark = (
            *(self.input, self._labels, self._states_of_tile, tables.images, tables.starts, labels, states),
            *(self._begins, self._first_of_tile),
        )
        return [
            Launch("classify", self._tiles, classify),
            Launch("label_characters", self._tiles, label),
            Launch("mark_pieces", self._tiles, mark),
        ]

    def _merge(self, program: Program, tables: Tables) -> list[Launch]:
        whole = program.vocabulary.whole
        encode = (
            *(self.input, self._text_starts, self._text, self._begins, self._first_of_tile),
            *(tables.whole, _mask(whole.slots), tables.whole_pool, u32(whole.longest)),
            *(self._slots, self._queue_sizes, *self._queues, self._refusals),
        )
        merges = (
            *(tables.pairs, _mask(program.vocabulary.pair_ranks), tables.products, tables.byte_ids),
            self._slots,
        )
        launches = [Launch("encode_pieces", self._tiles, encode)]
        kernels = ("merge_short", "merge_medium", "merge_long")
        for name, queue, per_tile in zip(kernels, self._queues, (4, 1, 1), strict=True):
            blocks = min(per_tile * self._tiles, MERGE_BLOCKS_MAX)
            launches.append(Launch(name, blocks, (self._text, queue, self._queue_sizes, *merges)))
        return launches

    def _gather(self) -> list[Launch]:
        shared = (self.input, self._text, self._begins, self._slots, self._counts)
        gathered = (self.ids, self.starts, self.pieces, self.answer)
        return [
            Launch("count_tokens", self._tiles, shared),
            Launch("gather_tokens", self._tiles, (*shared, *gathered)),
        ]


def u32(value: int) -> np.uint32:
    return np.uint32(value)


def _mask(slots: np.ndarray[Any, Any]) -> np.uint32:
    """What a hash is cut to; tables have as many slots as a power of two."""
    return np.uint32(len(slots) - 1)
