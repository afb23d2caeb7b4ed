"""A worker that works while nobody else does: when it joins, when it leaves, and that it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from pipeline.clock import ManualClock
from pipeline.memory import MemoryBroker
from pipeline.ports import Producer, Record
from pipeline.service import ServiceHealth
from pipeline.settings import WorkerSettings
from pipeline.standby import Standby
from pipeline.topology import GPU_GROUP, specs
from schemas.health import Health
from schemas.topics import GPU, HEALTH

PARTITIONS = 2
SETTINGS = WorkerSettings(partitions=PARTITIONS, fetch_timeout_s=0.01, commit_interval_s=0.01, heartbeat_s=1)
AFTER_S = 5.0


@dataclass
class Taker:
    """A service that notes what it was given, and how often it was started."""

    kind: str = "stand-in"
    topics: tuple[str, ...] = (GPU,)
    group: str = GPU_GROUP
    drains: bool = True
    starts: int = 0
    stops: int = 0
    taken: list[bytes] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    failure: Exception | None = None

    async def start(self, ctx: object) -> None:
        if self.failure is not None:
            raise self.failure
        self.starts += 1
        self.changed.set()

    async def stop(self) -> None:
        self.stops += 1
        self.changed.set()

    async def handle(self, record: Record) -> Awaitable[None] | None:
        self.taken.append(record.value or b"")
        self.changed.set()
        return None

    async def partitions_assigned(self, partitions: frozenset[int]) -> None: ...

    async def partitions_lost(self, partitions: frozenset[int]) -> None: ...

    def health(self) -> ServiceHealth:
        return ServiceHealth()

    async def until(self, starts: int, stops: int, taken: int = 0) -> None:
        while (self.starts, self.stops, len(self.taken)) != (starts, stops, taken):
            self.changed.clear()
            await self.changed.wait()


@dataclass
class Scene:
    taker: Taker
    standby: Standby
    clock: ManualClock
    producer: Producer
    task: asyncio.Task[None]

    async def beat(self, worker: str = "gpu-1", kind: str = "gpu-worker", *, ready: bool = True) -> None:
        health = Health(worker=worker, kind=kind, time_ms=self.clock.now_ms(), ready=ready)
        await self.producer.send(HEALTH, health.encode(), key=worker.encode(), partition=0)

    async def pass_s(self, seconds: float) -> None:
        """Let time pass in steps in which everybody who sleeps can wake."""
        for _ in range(round(seconds * 2)):
            self.clock.advance(0.5)
            for _ in range(30):
                await asyncio.sleep(0)


@asynccontextmanager
async def scene(*, beating: bool) -> AsyncIterator[Scene]:
    broker, clock, taker = MemoryBroker(), ManualClock(), Taker()
    await broker.start()
    await broker.ensure_topics(specs(PARTITIONS))
    producer = await broker.producer()
    standby = Standby(broker, taker, "gpu-worker", SETTINGS, clock=clock, after_s=AFTER_S)
    async with asyncio.timeout(20):
        if beating:
            health = Health(worker="gpu-1", kind="gpu-worker", time_ms=clock.now_ms(), ready=True)
            await producer.send(HEALTH, health.encode(), key=b"gpu-1", partition=0)
        task = asyncio.create_task(standby.run())
        await asyncio.wait({task, asyncio.create_task(standby.ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
        yield Scene(taker, standby, clock, producer, task)
        standby.request_stop()
        await task
    assert taker.starts == taker.stops
    await broker.stop()


async def test_alone_it_takes_what_there_is() -> None:
    async with scene(beating=False) as it:
        await it.taker.until(1, 0)
        await it.producer.send(GPU, b"work", partition=0)
        await it.taker.until(1, 0, taken=1)
        assert it.taker.taken == [b"work"]


async def test_while_another_is_there_it_takes_nothing() -> None:
    async with scene(beating=True) as it:
        await it.producer.send(GPU, b"work", partition=0)
        for _ in range(4):
            await it.pass_s(AFTER_S - 1)
            await it.beat()
        await it.pass_s(1)
        assert (it.taker.starts, it.taker.taken) == (0, [])


async def test_it_joins_when_the_last_one_falls_silent_and_leaves_when_one_is_heard_again() -> None:
    async with scene(beating=True) as it:
        await it.pass_s(AFTER_S)
        assert it.taker.starts == 0
        await it.pass_s(2)
        await it.taker.until(1, 0)
        await it.beat("gpu-2")
        await it.taker.until(1, 1)
        await it.pass_s(AFTER_S + 2)
        await it.taker.until(2, 1)


async def test_a_goodbye_is_not_waited_for() -> None:
    async with scene(beating=True) as it:
        await it.beat("gpu-2")
        await it.producer.send(HEALTH, None, key=b"gpu-1", partition=0)
        await it.pass_s(1)
        assert it.taker.starts == 0
        await it.producer.send(HEALTH, None, key=b"gpu-2", partition=0)
        await it.taker.until(1, 0)


async def test_one_that_is_not_ready_is_there_all_the_same() -> None:
    """It reads its topic, and passes on what it cannot serve."""
    async with scene(beating=True) as it:
        await it.pass_s(AFTER_S - 1)
        await it.beat(ready=False)
        await it.pass_s(AFTER_S - 1)
        assert it.taker.starts == 0


@pytest.mark.parametrize(
    "value", [b"\xc1 no map", Health(worker="c", kind="classifier", time_ms=0, ready=True).encode()]
)
async def test_others_and_what_cannot_be_read_count_for_nothing(value: bytes) -> None:
    async with scene(beating=False) as it:
        await it.taker.until(1, 0)
        await it.producer.send(HEALTH, value, key=b"x", partition=0)
        await it.pass_s(3)
        assert (it.taker.starts, it.taker.stops) == (1, 0)


async def test_a_worker_that_cannot_start_ends_it_with_its_error() -> None:
    broker, taker = MemoryBroker(), Taker(failure=RuntimeError("made by a test"))
    await broker.start()
    await broker.ensure_topics(specs(PARTITIONS))
    standby = Standby(broker, taker, "gpu-worker", SETTINGS, after_s=AFTER_S)
    async with asyncio.timeout(20):
        with pytest.raises(RuntimeError, match="made by a test"):
            await standby.run()
    await broker.stop()


async def test_it_ends_when_told_before_it_could_begin() -> None:
    broker = MemoryBroker()
    await broker.start()
    await broker.ensure_topics(specs(PARTITIONS))
    standby = Standby(broker, Taker(), "gpu-worker", SETTINGS, after_s=AFTER_S)
    standby.request_stop()
    async with asyncio.timeout(20):
        await standby.run()
    await broker.stop()
