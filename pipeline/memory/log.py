"""One partition of one topic: an ordered list of records with a bound, and who still needs them."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, Protocol

from pipeline.memory.limits import MemoryLimits
from pipeline.ports import Record, TopicPartition, TopicSpec, record_size

#: Dead list entries tolerated before the list is shifted: shifting is linear, so it has to be rare.
_DEAD_ENTRIES_MAX: Final = 1_024
#: A compacted log is not compacted while it has fewer records than this.
_COMPACT_RECORDS_MIN: Final = 64

_OFFSET = attrgetter("offset")


class Wakeable(Protocol):
    """A reader that wants to know about new records."""

    def wake(self) -> None:
        """There may be something to read."""


class Log:
    """The records of one partition.

    `committed` maps a group to the offset that it reads next; `tail_positions` maps a tail to its position.
    Both decide what may be dropped. Not compacted: once every group has committed a record (and every open
    tail has passed it, while there is room), it goes.
    """

    def __init__(self, spec: TopicSpec, partition: int, limits: MemoryLimits) -> None:
        self.source = TopicPartition(spec.name, partition)
        self.next_offset = 0
        self.committed: dict[str, int] = {}
        self.tail_positions: dict[Wakeable, int] = {}
        self._spec = spec
        self._limits = limits
        self._records: list[Record] = []
        self._head = 0
        self._bytes = 0
        self._readers: set[Wakeable] = set()
        self._waiting_for_room: list[asyncio.Future[None]] = []
        self._latest: dict[bytes, int] = {}
        self._compact_at = _COMPACT_RECORDS_MIN

    # Reading

    @property
    def start_offset(self) -> int:
        """The oldest offset that can still be read; `next_offset` if there is none."""
        return self._records[self._head].offset if self._head < len(self._records) else self.next_offset

    def read(self, position: int, count: int) -> Sequence[Record]:
        """Up to `count` records from `position` on; offsets of dropped records are skipped."""
        first = bisect_left(self._records, position, lo=self._head, key=_OFFSET)
        return self._records[first : first + count]

    def records_from(self, position: int) -> int:
        """How many records are there from `position` on."""
        return len(self._records) - bisect_left(self._records, position, lo=self._head, key=_OFFSET)

    def attach(self, reader: Wakeable) -> None:
        """Wake `reader` at every append from now on."""
        self._readers.add(reader)

    def detach(self, reader: Wakeable) -> None:
        """Undo `attach`, and release what a tail held back."""
        self._readers.discard(reader)
        if self.tail_positions.pop(reader, None) is not None:
            self.trim()

    # Writing

    def has_room(self, size: int, key: bytes | None) -> bool:
        """Whether a record of `size` bytes fits, once everything that may go has gone.

        In a compacted log a record replaces the last one of its key, so it always fits: a full log can be updated,
        and emptied by tombstones.
        """
        if self._fits(size) or (self._spec.compacted and key in self._latest):
            return True
        self.trim(pressed=size)
        return self._fits(size)

    def append(self, record: Record, size: int) -> None:
        """Add a record whose offset is `next_offset`; the caller has asked `has_room`.

        Records of a compacted topic have a key.
        """
        self._records.append(record)
        self._bytes += size
        self.next_offset = record.offset + 1
        if self._spec.compacted:
            self._latest[record.key or b""] = record.offset
            if len(self._records) - self._head >= self._compact_at or not self._fits(0):
                self._compact()
        elif self._spec.drop_oldest:
            self.trim()
        self.wake_readers()

    async def wait_for_room(self, timeout_s: float) -> None:
        """Return when something was dropped, or after `timeout_s`."""
        loop = asyncio.get_running_loop()
        room: asyncio.Future[None] = loop.create_future()
        self._waiting_for_room.append(room)
        timer = loop.call_later(timeout_s, release, room)
        try:
            await room
        finally:
            timer.cancel()
            if room in self._waiting_for_room:
                self._waiting_for_room.remove(room)

    # Dropping

    def trim(self, *, pressed: int = 0) -> None:
        """Drop what nobody needs; with `pressed`, make room for so many bytes as far as the topic allows."""
        before = self._head, len(self._records)
        if self._spec.compacted:
            if pressed:
                self._compact()
        elif self._spec.drop_oldest:
            self._trim_kept(pressed)
        elif self.committed:
            groups_floor = min(self.committed.values())
            tails_floor = min(self.tail_positions.values(), default=groups_floor)
            self._drop_below(min(groups_floor, tails_floor))
            # A tail is an onlooker: it must not stop the work. It goes on at what is left.
            if pressed and not self._fits(pressed):
                self._drop_below(groups_floor)
        self._shift()
        if before != (self._head, len(self._records)):
            self.wake_writers()

    def wake_readers(self) -> None:
        """Let everyone who waits for records look again."""
        for reader in self._readers:
            reader.wake()

    def wake_writers(self) -> None:
        """Let everyone who waits for room look again."""
        waiting, self._waiting_for_room = self._waiting_for_room, []
        for room in waiting:
            release(room)

    def _fits(self, size: int) -> bool:
        count = len(self._records) - self._head
        return count == 0 or (count < self._limits.log_records and self._bytes + size <= self._limits.log_bytes)

    def _trim_kept(self, pressed: int) -> None:
        limits = self._limits
        floor = min((*self.committed.values(), *self.tail_positions.values()), default=self.next_offset)
        while self._head < len(self._records) and (
            len(self._records) - self._head > limits.kept_records or self._bytes > limits.kept_bytes
        ):
            if self._records[self._head].offset >= floor or self._records[self._head] is self._records[-1]:
                break
            self._drop_first()
        while pressed and not self._fits(pressed):
            self._drop_first()

    def _drop_below(self, floor: int) -> None:
        while self._head < len(self._records) and self._records[self._head].offset < floor:
            self._drop_first()

    def _drop_first(self) -> None:
        record = self._records[self._head]
        self._bytes -= record_size(record.key, record.value, record.headers)
        self._head += 1
        if self._head == len(self._records):
            self._records.clear()
            self._head = 0

    def _shift(self) -> None:
        # Dead entries keep their records alive, so a few large ones must not linger either.
        if self._head and (self._head > _DEAD_ENTRIES_MAX or self._head * 2 > len(self._records)):
            del self._records[: self._head]
            self._head = 0

    def _compact(self) -> None:
        """Keep the last record of each key; drop a tombstone once every open reader has seen it."""
        floor = min((*self.committed.values(), *self.tail_positions.values()), default=self.next_offset)
        kept: list[Record] = []
        for record in self._records[self._head :]:
            key = record.key or b""
            if self._latest[key] != record.offset:
                continue
            if record.value is None and record.offset < floor:
                del self._latest[key]
                continue
            kept.append(record)
        self._records = kept
        self._head = 0
        self._bytes = sum(record_size(record.key, record.value, record.headers) for record in kept)
        self._compact_at = max(_COMPACT_RECORDS_MIN, 2 * len(kept))


def release(future: asyncio.Future[None]) -> None:
    """Complete `future` unless it is done already."""
    if not future.done():
        future.set_result(None)
