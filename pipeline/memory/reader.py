"""Reading partition logs: what group members and tails have in common, and tails."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pipeline.errors import ClosedError
from pipeline.memory.log import Log, release
from pipeline.ports import Record, TopicPartition

if TYPE_CHECKING:
    from pipeline.memory.cluster import MemoryCluster


class Reader:
    """Positions in some logs, and waiting for records. One `fetch` at a time."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._logs: dict[TopicPartition, Log] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._order: deque[TopicPartition] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self.closed = False

    def wake(self) -> None:
        """There may be something to read, or a reason to stop waiting."""
        if self._waiting is not None:
            release(self._waiting)

    async def fetch(self, *, max_records: int, timeout_s: float) -> Sequence[Record]:
        """See `pipeline.ports.Consumer.fetch`."""
        self._check_open()
        if max_records < 1:
            raise ValueError(f"max_records must be at least 1, not {max_records}")
        # The yield comes before the take: a cancellation must not lose records that the position has passed.
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not self.closed:
            if self._readable() and (records := self._take(max_records)):
                return records
            remaining = deadline - loop.time()
            if remaining <= 0:
                break
            await self._wait(remaining)
        return ()

    def _readable(self) -> bool:
        return not self._cluster.failed

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError(f"this {type(self).__name__} was stopped")

    def _attach(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, instead of whatever was read before."""
        self._detach()
        for source, position in sorted(positions.items()):
            log = self._cluster.log(source)
            log.attach(self)
            self._logs[source] = log
            self._positions[source] = position
        self._order = deque(self._logs)
        self.wake()

    def _detach(self) -> None:
        for log in self._logs.values():
            log.detach(self)
        self._logs = {}
        self._positions = {}
        self._paused = set()
        self._order = deque()

    def _take(self, max_records: int) -> list[Record]:
        # Partitions take turns in being first, so that a busy one starves nobody.
        self._order.rotate(-1)
        taken: list[Record] = []
        for source in self._order:
            log = self._logs[source]
            if source in self._paused or self._positions[source] >= log.next_offset:
                continue
            records = log.read(self._positions[source], max_records - len(taken))
            # A compacted log can end in dropped records, so an empty read is at the end too.
            at_end = not records or records[-1].offset + 1 == log.next_offset
            self._moved(source, log, log.next_offset if at_end else records[-1].offset + 1)
            taken.extend(records)
            if len(taken) == max_records:
                break
        return taken

    def _moved(self, source: TopicPartition, log: Log, position: int) -> None:
        self._positions[source] = position

    async def _wait(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        timer = loop.call_later(timeout_s, release, self._waiting)
        try:
            await self._waiting
        finally:
            timer.cancel()
            self._waiting = None


class MemoryTail(Reader):
    """See `pipeline.ports.Tail`. Reads what is still kept, which can be less than Kafka keeps."""

    def __init__(self, cluster: MemoryCluster, partitions: Iterable[TopicPartition], *, from_start: bool) -> None:
        super().__init__(cluster)
        logs = {source: cluster.log(source) for source in partitions}
        self._targets = {source: log.next_offset for source, log in logs.items()}
        self._attach({source: log.start_offset if from_start else log.next_offset for source, log in logs.items()})
        for source, log in logs.items():
            log.tail_positions[self] = self._positions[source]

    async def caught_up(self) -> bool:
        """See `pipeline.ports.Tail.caught_up`."""
        self._check_open()
        return all(self._positions[source] >= target for source, target in self._targets.items())

    async def stop(self) -> None:
        """See `pipeline.ports.Tail.stop`."""
        if not self.closed:
            self.closed = True
            self._detach()
            self.wake()

    def _moved(self, source: TopicPartition, log: Log, position: int) -> None:
        super()._moved(source, log, position)
        log.tail_positions[self] = position
        log.trim()
