"""The memory adapter of `pipeline.ports.Broker`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pipeline.clock import Clock
from pipeline.errors import BrokerOverloadedError, ClosedError, RecordTooLargeError
from pipeline.memory.cluster import MemoryCluster
from pipeline.memory.group import MemoryConsumer
from pipeline.memory.limits import DEFAULT_MEMORY_LIMITS, MemoryLimits
from pipeline.memory.log import Log
from pipeline.memory.reader import MemoryTail
from pipeline.ports import Headers, RebalanceListener, Record, TopicPartition, TopicSpec, record_size

_Handle = TypeVar("_Handle", "MemoryProducer", MemoryConsumer, MemoryTail)


class MemoryProducer:
    """See `pipeline.ports.Producer`. A record is readable as soon as it is written, before `send` returns."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self.closed = False

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> int:
        """See `pipeline.ports.Producer.send`."""
        self._check_open()
        if value is None and key is None:
            raise ValueError("a tombstone needs a key: it deletes one")
        cluster = self._cluster
        cluster.check_reachable()
        size = record_size(key, value, headers)
        if size > cluster.limits.record_bytes:
            raise RecordTooLargeError(
                f"a record of {size} bytes for {topic} is over the limit of {cluster.limits.record_bytes} bytes"
            )
        log = cluster.route(topic, key, partition)
        if key is None and cluster.spec(topic).compacted:
            raise ValueError(f"records of the compacted topic {topic} need a key")
        if not log.has_room(size, key):
            await self._wait_for_room(log, size, key)
        offset = log.next_offset
        record = Record(
            topic=topic,
            partition=log.source.partition,
            offset=offset,
            key=key,
            value=value,
            headers=tuple(headers),
            timestamp_ms=cluster.clock.now_ms(),
        )
        log.append(record, size)
        # The acknowledgement comes in a later turn of the loop, as it would from a real broker: readers get
        # their turn.
        await asyncio.sleep(0)
        return offset

    async def stop(self) -> None:
        """See `pipeline.ports.Producer.stop`. Nothing is ever in flight here."""
        self.closed = True

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("this producer was stopped")

    async def _wait_for_room(self, log: Log, size: int, key: bytes | None) -> None:
        loop = asyncio.get_running_loop()
        limit_s = self._cluster.limits.send_timeout_s
        deadline = loop.time() + limit_s
        while not log.has_room(size, key):
            remaining = deadline - loop.time()
            if remaining <= 0:
                raise BrokerOverloadedError(
                    f"partition {log.source.partition} of {log.source.topic} was full of unread records "
                    f"for {limit_s:g} s; its readers do not keep up"
                )
            await log.wait_for_room(remaining)
            self._check_open()
            self._cluster.check_reachable()


class MemoryBroker:
    """See `pipeline.ports.Broker`. Without a `cluster` it is a broker of its own."""

    def __init__(
        self,
        limits: MemoryLimits = DEFAULT_MEMORY_LIMITS,
        *,
        cluster: MemoryCluster | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.cluster = cluster or MemoryCluster(limits, clock=clock)
        self._open: list[MemoryProducer | MemoryConsumer | MemoryTail] = []
        self._started = False

    # Failing on purpose, for tests

    def fail(self, error: Exception | None = None) -> None:
        """See `MemoryCluster.fail`."""
        self.cluster.fail(error)

    def recover(self) -> None:
        """See `MemoryCluster.recover`."""
        self.cluster.recover()

    @contextmanager
    def unreachable(self, error: Exception | None = None) -> Iterator[None]:
        """See `MemoryCluster.unreachable`."""
        with self.cluster.unreachable(error):
            yield

    # The port

    async def start(self) -> None:
        """See `pipeline.ports.Broker.start`."""
        self.cluster.check_reachable()
        self._started = True

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        """See `pipeline.ports.Broker.ensure_topics`."""
        self._check_usable()
        self.cluster.ensure_topics(specs)

    async def producer(self, *, batching: bool = False) -> MemoryProducer:
        """See `pipeline.ports.Broker.producer`; `batching` makes no difference here."""
        self._check_usable()
        return self._remember(MemoryProducer(self.cluster))

    async def consumer(
        self,
        topics: Sequence[str],
        *,
        group: str,
        on_assigned: RebalanceListener | None = None,
        on_revoked: RebalanceListener | None = None,
    ) -> MemoryConsumer:
        """See `pipeline.ports.Broker.consumer`."""
        self._check_usable()
        members = self.cluster.group(group)
        consumer = MemoryConsumer(self.cluster, members, topics, on_assigned=on_assigned, on_revoked=on_revoked)
        await members.join(consumer)
        return self._remember(consumer)

    async def tail(self, partitions: Sequence[TopicPartition], *, from_start: bool) -> MemoryTail:
        """See `pipeline.ports.Broker.tail`."""
        self._check_usable()
        return self._remember(MemoryTail(self.cluster, partitions, from_start=from_start))

    async def stop(self) -> None:
        """See `pipeline.ports.Broker.stop`."""
        self._started = False
        opened, self._open = self._open, []
        for one in opened:
            await one.stop()
        await self.cluster.settled()

    def _check_usable(self) -> None:
        if not self._started:
            raise ClosedError("this broker is not started, or was stopped")
        self.cluster.check_reachable()

    def _remember(self, one: _Handle) -> _Handle:
        self._open = [other for other in self._open if not other.closed]
        self._open.append(one)
        return one
