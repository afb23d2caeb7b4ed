"""What the tests of the shadow check share: samples, faults that a test plants, and a service that tells what it
did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from families import family
from pipeline_kit import PARTITIONS, SETTINGS, make_registry

from consumers.classifier.service import ClassifierService
from consumers.classifier.settings import ClassifierSettings
from consumers.cpu_fallback.service import CpuFallbackService
from pipeline.client import Client, ClientSession
from pipeline.clock import ManualClock
from pipeline.faults import NO_FAULTS, Faults
from pipeline.ports import Broker, Record, TopicPartition
from pipeline.service import Service
from pipeline.telemetry import Telemetry
from pipeline.topology import specs
from pipeline.worker import Worker
from repair_worker.service import RepairService
from repair_worker.settings import RepairSettings
from schemas.reply import Path, Reply, Route
from schemas.request import Op
from schemas.sample import DifferenceKind, Finding, Sample, Tier
from schemas.work import Work
from shadow.service import ShadowService
from shadow.settings import ShadowSettings
from toksplice import Session
from toksplice.registry import Registry

TEXT = "The quick brown fox jumps over 12 lazy dogs.\n" * 20
WRONG = 7
"""An id that stands nowhere in TEXT."""

#: Nothing waits longer than this in real time; it is reached only when a test fails.
GUARD_S = 60.0


def u32(values: Any) -> bytes:
    return np.asarray(values, "<u4").tobytes()


def sample(text: str = TEXT, ids: Any = None, *, special: bool = False, **changes: Any) -> Sample:
    """A sample of `family("qwen")`, right unless `ids` or a change makes it wrong."""
    tokenizer = family("qwen", engine=False)
    right = tokenizer.encode(text, add_special_tokens=special)
    given: dict[str, Any] = {
        "sample_id": "sample-1",
        "time_ms": 1_700_000_000_000,
        "session_id": "s",
        "request_id": "r",
        "op": Op.APPEND,
        "fingerprint": tokenizer.fingerprint,
        "tokenizer": "test",
        "add_special_tokens": special,
        "path": Path.REPAIR,
        "route": Route.A,
        "text": text.encode(),
        "ids": u32(right if ids is None else ids),
        "worker": "repair-1",
    }
    return Sample(**(given | changes))


def with_wrong_id(at: int = 3, text: str = TEXT) -> Sample:
    """A sample with one id substituted."""
    ids = family("qwen", engine=False).encode(text).copy()
    ids[at] = WRONG
    return sample(text, ids)


def finding(number: int = 0, text: str = TEXT, **changes: Any) -> Finding:
    """What is found of such a sample."""
    given: dict[str, Any] = {
        "sample": replace(with_wrong_id(text=text), sample_id=f"sample-{number}"),
        "tier": Tier.REFERENCE,
        "kind": DifferenceKind.SUBSTITUTED,
        "index": 3,
        "answer_id": WRONG,
        "expected_id": 9,
        "answer_total": 10,
        "expected_total": 10,
        "text_bytes": len(text.encode()),
        "time_ms": 1_000 + number,
        "worker": "shadow-1",
    }
    return Finding(**(given | changes))


class WrongLastId:
    """A fault of one path: from `after` answers of it on, the last id that an answer sends is another one."""

    def __init__(self, path: Path, after: int = 0) -> None:
        self.path = path
        self.struck = 0
        self._left = after

    def state(self, work: Work, session: Session) -> Session:
        return session

    def answer(self, work: Work, reply: Reply) -> Reply:
        if reply.path is not self.path or not reply.ids:
            return reply
        self._left -= 1
        if self._left >= 0:
            return reply
        self.struck += 1
        return replace(reply, ids=reply.ids[:-4] + u32([WRONG]))


class TellingShadow(ShadowService):
    """A shadow service that a test can wait for."""

    def __init__(self, registry: Registry, folder: FilePath, **settings: Any) -> None:
        settings = {"cpu_share": 8.0} | settings
        super().__init__(registry, ShadowSettings(**settings), store_path=folder / "quarantine.sqlite")
        self.handled: list[Sample] = []
        self._changed = asyncio.Event()

    async def handle(self, record: Record) -> None:
        await super().handle(record)
        self.handled.append(Sample.decode(record.value or b""))
        self._changed.set()

    async def has_handled(self, count: int) -> None:
        async with asyncio.timeout(GUARD_S):
            while len(self.handled) < count:
                self._changed.clear()
                await self._changed.wait()


@dataclass
class Stack:
    """Every worker of a pipeline, and a client."""

    broker: Broker
    shadow: TellingShadow
    services: Sequence[Any]
    telemetry: Telemetry
    client: Client

    async def records(self, topic: str) -> list[bytes]:
        """Everything that is on a topic."""
        tail = await self.broker.tail([TopicPartition(topic, p) for p in range(PARTITIONS)], from_start=True)
        values: list[bytes] = []
        while not await tail.caught_up():
            values.extend(record.value or b"" for record in await tail.fetch(max_records=1000, timeout_s=0.01))
        await tail.stop()
        return values

    async def breaker_is_open(self) -> None:
        """Return once every worker bars the tokenizer."""
        opened = [asyncio.Event() for _ in self.services]
        for service, event in zip(self.services, opened, strict=True):
            service._ctx.control.on_breaker(lambda _, event=event: event.set())
        async with asyncio.timeout(GUARD_S):
            for event in opened:
                await event.wait()

    def count(self, name: str, **attributes: str) -> float:
        return sum(
            point.value  # type: ignore[union-attr]
            for point in self.telemetry.metric_points(f"toksplice.shadow.{name}")
            if attributes.items() <= dict(point.attributes or {}).items()
        )


@asynccontextmanager
async def stack(
    broker: Broker, folder: FilePath, *, faults: Faults = NO_FAULTS, **settings: Any
) -> AsyncIterator[Stack]:
    """A pipeline on `broker`, which is stopped with it. Its clock stands still: what happens needs no timer, so that a
    breaker is open everywhere as soon as its record has been passed on."""
    registry = make_registry(folder)
    await broker.start()
    await broker.ensure_topics(specs(PARTITIONS))
    shadow = TellingShadow(registry, folder, **settings)
    repair = RepairService(registry, RepairSettings(), faults=faults)
    fallback = CpuFallbackService(registry, faults=faults)
    services: list[Service] = [ClassifierService(registry, ClassifierSettings()), fallback, repair, shadow]
    telemetry, clock = Telemetry.in_memory(), ManualClock(now_ms=time.time_ns() // 1_000_000)
    workers = [Worker(broker, service, SETTINGS, telemetry, clock) for service in services]
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(worker.run())
        try:
            async with asyncio.timeout(GUARD_S):
                for worker in workers:
                    await worker.ready.wait()
            async with Client(broker, PARTITIONS) as client:
                yield Stack(broker, shadow, services, telemetry, client)
        finally:
            for worker in workers:
                worker.request_stop()
            stopped = asyncio.create_task(_move(clock))
    stopped.cancel()
    await broker.stop()
    telemetry.shutdown()


async def _move(clock: ManualClock) -> None:
    """Let the limits of a shutdown pass, should one be needed."""
    while True:
        await clock.sleeping(1)
        await asyncio.sleep(0.01)
        clock.advance(0.05)


def right(session: ClientSession) -> bool:
    """Whether the client has what the reference gives for its text."""
    return bool(np.array_equal(session.ids, family("qwen", engine=False).encode(session.text)))
