"""What the tests of the chassis share: a scripted service, a broker that tells what was asked of it, short
cuts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pipeline.clock import ManualClock
from pipeline.context import Context
from pipeline.memory import MemoryBroker
from pipeline.ports import (
    Consumer,
    Headers,
    Producer,
    RebalanceListener,
    Record,
    Tail,
    TopicPartition,
    TopicSpec,
)
from pipeline.service import ServiceHealth
from pipeline.settings import WorkerSettings
from pipeline.telemetry import Telemetry
from pipeline.topology import specs
from pipeline.worker import Worker
from schemas.request import Op, Request
from schemas.topics import REQUESTS

PARTITIONS = 2
GROUP = "test-group"

#: Nothing waits longer than this in real time; it is reached only when a test fails.
GUARD_S = 20.0

Handler = Callable[[Record], Awaitable[Awaitable[None] | None]]


def settings(**changes: Any) -> WorkerSettings:
    """Settings without pauses, so that tests need not move the clock for what they are not about."""
    quick: dict[str, Any] = {
        "worker_id": "worker-1",
        "partitions": PARTITIONS,
        "retry_backoff_s": 0.0,
        "retry_backoff_max_s": 0.0,
        "commit_interval_s": 0.0,
        "fetch_timeout_s": 0.02,
    }
    return WorkerSettings(**(quick | changes))


class Journal:
    """Things that happened, in order; tests wait for them."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self._changed = asyncio.Event()

    def add(self, entry: Any) -> None:
        self.entries.append(entry)
        self._changed.set()

    async def until(self, condition: Callable[[list[Any]], bool]) -> None:
        async with asyncio.timeout(GUARD_S):
            while not condition(self.entries):
                self._changed.clear()
                await self._changed.wait()

    async def holds(self, count: int) -> list[Any]:
        await self.until(lambda entries: len(entries) >= count)
        return self.entries


class ScriptedService:
    """A service whose `handle` is the test's own function; it notes what it was told."""

    kind = "classifier"
    topics: tuple[str, ...] = (REQUESTS,)
    group = GROUP
    drains = True

    def __init__(self, handler: Handler | None = None) -> None:
        self.ctx: Context
        self.handler = handler
        self.begun = Journal()
        self.handled = Journal()
        self.calls = Journal()
        self.answer = ServiceHealth(tokenizers=("f" * 64,), queue_depth=3)

    async def start(self, ctx: Context) -> None:
        self.ctx = ctx
        self.calls.add("start")

    async def stop(self) -> None:
        self.calls.add("stop")

    async def handle(self, record: Record) -> Awaitable[None] | None:
        self.begun.add(record)
        result = None if self.handler is None else await self.handler(record)
        self.handled.add(record)
        return result

    async def partitions_assigned(self, partitions: frozenset[int]) -> None:
        self.calls.add(("assigned", partitions))

    async def partitions_lost(self, partitions: frozenset[int]) -> None:
        self.calls.add(("lost", partitions))

    def health(self) -> ServiceHealth:
        return self.answer


class SpyConsumer:
    def __init__(self, inner: Consumer, spy: SpyBroker) -> None:
        self._inner = inner
        self._spy = spy

    async def fetch(self, *, max_records: int, timeout_s: float) -> Sequence[Record]:
        return await self._inner.fetch(max_records=max_records, timeout_s=timeout_s)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._spy.commit_errors:
            raise self._spy.commit_errors.pop(0)
        await self._inner.commit(offsets)
        self._spy.commits.add(dict(offsets))

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        self._inner.pause(partitions)
        self._spy.flow.add(("pause", partitions))

    def resume(self, partitions: frozenset[TopicPartition]) -> None:
        self._inner.resume(partitions)
        self._spy.flow.add(("resume", partitions))

    def assignment(self) -> frozenset[TopicPartition]:
        return self._inner.assignment()

    async def lag(self) -> Mapping[TopicPartition, int]:
        return await self._inner.lag()

    async def stop(self) -> None:
        self._spy.stops.add("consumer")
        await self._inner.stop()


class SpyProducer:
    def __init__(self, inner: Producer, spy: SpyBroker) -> None:
        self._inner = inner
        self._spy = spy

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> int:
        if self._spy.send_errors[topic]:
            raise self._spy.send_errors[topic].pop(0)
        offset = await self._inner.send(topic, value, key=key, partition=partition, headers=headers)
        self._spy.sends.add(topic)
        return offset

    async def stop(self) -> None:
        self._spy.stops.add("producer")
        await self._inner.stop()


class SpyBroker:
    """A memory broker that notes commits, pauses and stops, and fails sends and commits on request."""

    def __init__(self, memory: MemoryBroker) -> None:
        self.memory = memory
        self.commits = Journal()
        self.flow = Journal()
        self.sends = Journal()
        self.stops = Journal()
        self.send_errors: dict[str, list[Exception]] = defaultdict(list)
        self.commit_errors: list[Exception] = []

    async def start(self) -> None:
        await self.memory.start()

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        await self.memory.ensure_topics(specs)

    async def producer(self, *, batching: bool = False) -> Producer:
        return SpyProducer(await self.memory.producer(batching=batching), self)

    async def consumer(
        self,
        topics: Sequence[str],
        *,
        group: str,
        on_assigned: RebalanceListener | None = None,
        on_revoked: RebalanceListener | None = None,
    ) -> Consumer:
        inner = await self.memory.consumer(topics, group=group, on_assigned=on_assigned, on_revoked=on_revoked)
        return SpyConsumer(inner, self)

    async def tail(self, partitions: Sequence[TopicPartition], *, from_start: bool) -> Tail:
        return await self.memory.tail(partitions, from_start=from_start)

    async def stop(self) -> None:
        self.stops.add("broker")
        await self.memory.stop()

    async def committed(self, offset: int, partition: int = 0, topic: str = REQUESTS) -> None:
        """Wait until the partition is committed up to `offset`."""
        source = TopicPartition(topic, partition)
        await self.commits.until(lambda commits: any(c.get(source, -1) >= offset for c in commits))

    def commits_of(self, partition: int = 0, topic: str = REQUESTS) -> list[int]:
        source = TopicPartition(topic, partition)
        return [commit[source] for commit in self.commits.entries if source in commit]


@asynccontextmanager
async def started_broker(partitions: int = PARTITIONS) -> AsyncIterator[SpyBroker]:
    broker = SpyBroker(MemoryBroker())
    await broker.start()
    await broker.ensure_topics(specs(partitions))
    try:
        yield broker
    finally:
        await broker.memory.stop()


def make_worker(
    broker: SpyBroker,
    service: ScriptedService,
    *,
    clock: ManualClock | None = None,
    telemetry: Telemetry | None = None,
    **changes: Any,
) -> Worker:
    return Worker(broker, service, settings(**changes), telemetry, clock or ManualClock())


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """Run a worker until the block ends, then stop it gracefully."""
    task = asyncio.create_task(worker.run())
    ready = asyncio.create_task(worker.ready.wait())
    try:
        async with asyncio.timeout(GUARD_S):
            await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield task
    finally:
        ready.cancel()
        worker.request_stop()
        async with asyncio.timeout(GUARD_S):
            await task


async def pump(clock: ManualClock, task: asyncio.Future[Any], step_s: float = 0.5) -> Any:
    """Let time pass, turn by turn, until `task` is done; return its result."""
    async with asyncio.timeout(GUARD_S):
        while not task.done():
            await asyncio.sleep(0)
            clock.advance(step_s)
    return task.result()


async def write(
    broker: SpyBroker,
    *values: bytes,
    topic: str = REQUESTS,
    partition: int = 0,
    headers: Headers = (),
    key: bytes | None = None,
) -> None:
    producer = await broker.memory.producer()
    for value in values:
        await producer.send(topic, value, partition=partition, headers=headers, key=key)
    await producer.stop()


async def read(broker: SpyBroker, topic: str, count: int, partitions: int = PARTITIONS) -> list[Record]:
    """The first `count` records of a topic; waits for them."""
    sources = [TopicPartition(topic, number) for number in range(partitions)]
    tail = await broker.memory.tail(sources, from_start=True)
    found: list[Record] = []
    async with asyncio.timeout(GUARD_S):
        while len(found) < count:
            found += await tail.fetch(max_records=1000, timeout_s=GUARD_S)
    await tail.stop()
    return found


async def nothing_in(broker: SpyBroker, topic: str, partitions: int = PARTITIONS) -> bool:
    """True when a topic holds no record now."""
    sources = [TopicPartition(topic, number) for number in range(partitions)]
    tail = await broker.memory.tail(sources, from_start=True)
    empty = await tail.caught_up()
    await tail.stop()
    return empty


def request(request_id: str = "r1", session_id: str = "s1", **fields: Any) -> Request:
    return Request(
        **(
            {
                "request_id": request_id,
                "session_id": session_id,
                "tokenizer": "t",
                "op": Op.TEXT,
                "text": "private words",
            }
            | fields
        )
    )
