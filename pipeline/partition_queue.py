"""One assigned partition: a bounded queue, the task that works it in order, and what may be committed.

The queue takes what the fetch loop gives it and says when it is full; it never drops a record. Parked records
finish in any order, so the offset to commit is the lowest one that is not finished (the low watermark).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from pipeline.clock import Clock
from pipeline.ports import Record, TopicPartition
from pipeline.settings import WorkerSettings
from pipeline.waiting import cancel, settle

_log = logging.getLogger(__name__)


class Parked(Protocol):
    """A record that is not finished, although the next one may be handled."""

    def run(self) -> Coroutine[Any, Any, None]:
        """Finish it; raises nothing but CancelledError."""

    def close(self) -> None:
        """Release what it holds; called once, after `run` has ended or in its place."""


class Processor(Protocol):
    """Works on records."""

    async def process(self, record: Record) -> Parked | None:
        """Returns None when the record is finished; raises nothing but CancelledError."""


class OffsetWindow:
    """The records of a partition that were begun: which are finished, and up to where all are."""

    def __init__(self) -> None:
        self._begun: deque[tuple[int, float]] = deque()
        self._finished: set[int] = set()
        self.low: int | None = None
        """The next offset to commit; None before any record is finished."""

    def __len__(self) -> int:
        """Records from the oldest unfinished one on, finished ones among them included."""
        return len(self._begun)

    @property
    def unfinished(self) -> int:
        return len(self._begun) - len(self._finished)

    @property
    def oldest(self) -> tuple[int, float] | None:
        """Offset and begin (monotonic seconds) of the oldest unfinished record."""
        return self._begun[0] if self._begun else None

    def begin(self, offset: int, now_s: float) -> None:
        """Offsets come in order, with gaps where the broker has them."""
        self._begun.append((offset, now_s))

    def finish(self, offset: int) -> bool:
        """True when this moved the low watermark."""
        self._finished.add(offset)
        moved = False
        while self._begun and self._begun[0][0] in self._finished:
            done, _ = self._begun.popleft()
            self._finished.discard(done)
            self.low = done + 1
            moved = True
        return moved


class PartitionQueue:
    """The records of one partition from fetch to commit.

    `on_progress` is called when more can be committed, `on_room` when a queue that was paused is down to
    half.
    """

    def __init__(
        self,
        source: TopicPartition,
        processor: Processor,
        settings: WorkerSettings,
        clock: Clock,
        *,
        on_progress: Callable[[], None],
        on_room: Callable[[PartitionQueue], None],
    ) -> None:
        self.source = source
        self.paused = False
        self.committed: int | None = None
        """The offset that was last committed for this assignment."""
        self.window = OffsetWindow()
        self._processor = processor
        self._settings = settings
        self._clock = clock
        self._on_progress = on_progress
        self._on_room = on_room
        self._queue: deque[Record] = deque()
        self._queued_bytes = 0
        self._last_offset = -1
        self._parked: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._closing = False
        self._reported: int | None = None
        self._task = asyncio.create_task(self._run(), name=f"{source.topic}/{source.partition}")

    # Filling, by the fetch loop

    def offer(self, records: Sequence[Record]) -> None:
        """Queue records of this partition, in order. One that was already taken is ignored: a fetch that was
        under way during a rebalance can repeat it."""
        for record in records:
            if record.offset <= self._last_offset:
                continue
            self._last_offset = record.offset
            self._queue.append(record)
            self._queued_bytes += len(record.value or b"")
        self._wake.set()

    @property
    def depth(self) -> int:
        """Records read and not finished."""
        return len(self._queue) + self.window.unfinished

    @property
    def full(self) -> bool:
        """At or over the high mark: the partition should be paused."""
        return len(self._queue) >= self._settings.queue_records or self._queued_bytes >= self._settings.queue_bytes

    @property
    def _has_room(self) -> bool:
        """At or under half the high mark: a paused partition can be resumed."""
        return (
            len(self._queue) <= self._settings.queue_records // 2
            and self._queued_bytes <= self._settings.queue_bytes // 2
        )

    @property
    def to_commit(self) -> int | None:
        """The offset to commit; None when it is committed already or nothing is finished."""
        return None if self.window.low == self.committed else self.window.low

    # Watching

    def stuck(self) -> tuple[int, float, bool] | None:
        """(offset, seconds so far, first time seen) of the oldest record, when it is over the handler
        limit."""
        oldest = self.window.oldest
        if oldest is None:
            return None
        offset, begun_s = oldest
        took_s = self._clock.monotonic_s() - begun_s
        if took_s < self._settings.handler_limit_s:
            return None
        first = self._reported != offset
        self._reported = offset
        return offset, took_s, first

    # Ending

    async def drain(self, limit_s: float) -> bool:
        """Finish what is queued and parked, at most for `limit_s`, then cancel the rest; True when all was
        done."""
        self._closing = True
        self._wake.set()
        return await self._end(limit_s)

    async def abandon(self, limit_s: float) -> bool:
        """Drop what is queued, finish what is in work, at most for `limit_s`, then cancel; True when all was
        done."""
        self._queue.clear()
        self._queued_bytes = 0
        return await self.drain(limit_s)

    async def _end(self, limit_s: float) -> bool:
        begun_s = self._clock.monotonic_s()
        done = await settle([self._task], limit_s, self._clock)
        if done:
            left_s = limit_s - (self._clock.monotonic_s() - begun_s)
            done = await settle(list(self._parked), left_s, self._clock)
        if not done:
            # Without a limit to wait for, giving them back is what was asked for.
            level = logging.WARNING if limit_s > 0 else logging.INFO
            _log.log(level, "%s/%d: %d records given back unfinished", *self.source, self.depth)
            unfinished = [self._task, *self._parked]
            if not await cancel(unfinished, self._settings.stop_s, self._clock):
                _log.error("%s/%d: a handler ignores its cancellation and is left behind", *self.source)
        return done

    # Working

    async def _run(self) -> None:
        while True:
            await self._until_ready()
            if not self._queue:
                return
            record = self._queue.popleft()
            self._queued_bytes -= len(record.value or b"")
            if self.paused and self._has_room:
                self._on_room(self)
            self.window.begin(record.offset, self._clock.monotonic_s())
            parked = await self._processor.process(record)
            if parked is None:
                self._finish(record.offset)
            else:
                self._park(record.offset, parked)
            # A handler that never waits must not keep the loop from other partitions and from heartbeats.
            await asyncio.sleep(0)

    async def _until_ready(self) -> None:
        """Return when a record can be begun, or when there is none and the queue is closing."""
        while not self._may_begin():
            if self._closing and not self._queue:
                return
            self._wake.clear()
            await self._wake.wait()

    def _may_begin(self) -> bool:
        return (
            bool(self._queue)
            and len(self._parked) < self._settings.max_parked
            and len(self.window) < self._settings.max_uncommitted
        )

    def _park(self, offset: int, parked: Parked) -> None:
        task = asyncio.create_task(parked.run(), name=f"parked {self.source.topic} {offset}")
        self._parked.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._parked.discard(task)
            parked.close()
            if not task.cancelled() and task.exception() is None:
                self._finish(offset)
            self._wake.set()

        task.add_done_callback(done)

    def _finish(self, offset: int) -> None:
        if self.window.finish(offset):
            self._on_progress()
