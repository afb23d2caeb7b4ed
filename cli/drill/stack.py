"""The pipeline of a drill: every worker in this process on the memory broker, as in `toksplice up`, with a place to
plant faults and ears for what the check says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from cli.drill.subject import NAME, tokenizer_json
from cli.wiring import MEMORY_URL, make_broker, running
from consumers.classifier.service import ClassifierService
from consumers.classifier.settings import ClassifierSettings
from consumers.cpu_fallback.service import CpuFallbackService
from pipeline.client import Client
from pipeline.context import Context
from pipeline.faults import NO_FAULTS, Faults
from pipeline.ports import Broker, Producer, Record, Tail, TopicPartition
from pipeline.sampling import Sampler
from pipeline.service import Service
from pipeline.settings import WorkerSettings
from pipeline.worker import Worker
from repair_worker.service import RepairService
from repair_worker.settings import RepairSettings
from schemas.health import Control
from schemas.reply import Reply
from schemas.sample import Finding
from schemas.topics import CONTROL, QUARANTINE
from schemas.work import Work
from shadow.service import ShadowService
from shadow.settings import ShadowSettings
from toksplice import Session
from toksplice.registry import Registry

SAMPLING: Final = 0.05
PARTITIONS: Final = 2
CORES: Final = 64.0
"""Budget of the check: a drill is about what is sampled, so nothing that is sampled goes unchecked."""
WAIT_S: Final = 60.0
"""Longest wait for one thing that has to happen."""
FETCH_RECORDS: Final = 100


class Planted:
    """The faults of the workers: those that are planted now, or none."""

    def __init__(self) -> None:
        self.now: Faults = NO_FAULTS

    def state(self, work: Work, session: Session) -> Session:
        return self.now.state(work, session)

    def answer(self, work: Work, reply: Reply) -> Reply:
        return self.now.answer(work, reply)


class CountingSampler(Sampler):
    """A sampler without the first answers that are always taken, which counts what it takes."""

    def __init__(self, seed: int, worker: str) -> None:
        super().__init__(seed, worker, first_answers=0)
        self.taken = 0

    def take(self, fingerprint: str, rate: float, path: str) -> bool:
        taken = super().take(fingerprint, rate, path)
        self.taken += taken
        return taken


class _Repair(RepairService):
    ctx: Context

    async def start(self, ctx: Context) -> None:
        self.ctx = ctx
        await super().start(ctx)


class _Cpu(CpuFallbackService):
    ctx: Context

    async def start(self, ctx: Context) -> None:
        self.ctx = ctx
        await super().start(ctx)


class _Shadow(ShadowService):
    """Counts what it has handled."""

    ctx: Context

    async def start(self, ctx: Context) -> None:
        self.ctx = ctx
        self.handled = 0
        self.advanced = asyncio.Event()
        await super().start(ctx)

    async def handle(self, record: Record) -> Awaitable[None] | None:
        parked = await super().handle(record)
        self.handled += 1
        self.advanced.set()
        return parked


class Stack:
    """A running pipeline. Made by `stack`."""

    def __init__(
        self, broker: Broker, registry: Registry, planted: Planted, services: tuple[_Repair, _Cpu, _Shadow]
    ) -> None:
        self.registry = registry
        self.fingerprint = registry.resolve(NAME)
        self.planted = planted
        self.client: Client
        self._broker = broker
        self._repair, self._cpu, self._shadow = services
        self._samplers: tuple[CountingSampler, ...] = ()
        self._taken = 0
        self._switched = asyncio.Event()
        self._tail: Tail
        self._producer: Producer

    async def open(self) -> None:
        """Follow what the check says."""
        partitions = [TopicPartition(QUARANTINE, number) for number in range(PARTITIONS)]
        self._tail = await self._broker.tail(partitions, from_start=False)
        self._producer = await self._broker.producer()
        for context in self._contexts:
            context.control.on_breaker(lambda _: self._switched.set())

    async def close(self) -> None:
        await self._tail.stop()
        await self._producer.stop()

    @property
    def _contexts(self) -> tuple[Context, ...]:
        return (self._repair.ctx, self._cpu.ctx, self._shadow.ctx)

    def begin_streams(self, seed: int, name: str) -> None:
        """Begin new streams of answers, whose sampling is decided by `seed` and `name`."""
        self._taken += sum(sampler.taken for sampler in self._samplers)
        self._samplers = (CountingSampler(seed, f"repair {name}"), CountingSampler(seed, f"cpu {name}"))
        self._repair.ctx.samples.sampler, self._cpu.ctx.samples.sampler = self._samplers

    @property
    def stream_sampled(self) -> int:
        """Answers of the present streams that were sampled until now."""
        return sum(sampler.taken for sampler in self._samplers)

    @property
    def sampled(self) -> int:
        """Answers of all streams that were sampled until now."""
        return self._taken + self.stream_sampled

    async def findings(self) -> list[Finding]:
        """What the check has found since this was last asked, once all that was sampled is checked."""
        async with asyncio.timeout(WAIT_S):
            while self._shadow.handled < self.sampled:
                self._shadow.advanced.clear()
                await self._shadow.advanced.wait()
        found: list[Finding] = []
        while records := await self._tail.fetch(max_records=FETCH_RECORDS, timeout_s=0):
            found.extend(Finding.decode(record.value or b"") for record in records)
        return found

    async def close_breaker(self) -> None:
        """Wait until the breaker is open on every worker, then close it, as an operator would."""
        await self._breaker(True)
        record = Control(tokenizer=self.fingerprint, breaker_open=False, sampling=SAMPLING)
        await self._producer.send(CONTROL, record.encode(), key=self.fingerprint.encode())
        await self._breaker(False)

    async def _breaker(self, is_open: bool) -> None:
        async with asyncio.timeout(WAIT_S):
            while any(context.control.breaker_open(self.fingerprint) is not is_open for context in self._contexts):
                self._switched.clear()
                await self._switched.wait()


@asynccontextmanager
async def stack(folder: Path) -> AsyncIterator[Stack]:
    """Run the pipeline beside the block. `folder` is empty, and holds the tokenizer and the findings."""
    source = folder / "tokenizer.json"
    source.write_bytes(tokenizer_json())
    registry = Registry(folder / "registry")
    registry.add(NAME, source)
    planted = Planted()
    repair = _Repair(registry, RepairSettings(), faults=planted)
    cpu = _Cpu(registry, faults=planted)
    shadow = _Shadow(registry, ShadowSettings(cpu_share=CORES), store_path=folder / "quarantine.sqlite")
    services: list[Service] = [ClassifierService(registry, ClassifierSettings()), repair, cpu, shadow]
    settings = WorkerSettings(partitions=PARTITIONS, sampling=SAMPLING)
    broker = make_broker(MEMORY_URL)
    workers = [Worker(broker, service, settings) for service in services]
    async with running(broker, workers, settings):
        it = Stack(broker, registry, planted, (repair, cpu, shadow))
        await it.open()
        try:
            async with Client(broker, PARTITIONS) as it.client:
                yield it
        finally:
            await it.close()
