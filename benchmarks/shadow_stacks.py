"""The pipelines that `benchmarks/shadow.py` measures: all in this process, or a process a worker on Kafka."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

from cli.wiring import GPU_WORKER, MEMORY_URL, SERVICES, make_broker, running, worker_settings
from pipeline.client import Client, ClientSession
from pipeline.faults import NO_FAULTS
from pipeline.ports import Broker, Record, TopicPartition
from pipeline.runtime import connect, make_worker
from pipeline.worker import Worker
from schemas.health import Control, Health
from schemas.topics import CONTROL, HEALTH
from shadow.service import ShadowService
from shadow.settings import ShadowSettings
from toksplice.registry import Entry, Registry

WORKERS = tuple(name for name in SERVICES if name != GPU_WORKER)
QUIET_S = 3.0
"""Without another sample in so long, all were taken up; several heartbeats."""
SETTLE_S = 0.3
"""For a new sampling rate to reach every worker."""


class WatchedShadow(ShadowService):
    """A shadow check that the load can wait for."""

    def __init__(self, registry: Registry, settings: ShadowSettings, store: str) -> None:
        super().__init__(registry, settings, store_path=store)
        self._one_more = asyncio.Event()

    async def handle(self, record: Record) -> Awaitable[None] | None:
        try:
            return await super().handle(record)
        finally:
            self._one_more.set()

    def checked(self) -> dict[str, int]:
        """What it did so far: samples, by tier, different, failed, dropped."""
        return dict(self.health().counts)

    async def has_taken_up(self, samples: int) -> None:
        """Return once it has taken up so many samples."""
        while self.checked().get("samples", 0) < samples:
            self._one_more.clear()
            await self._one_more.wait()


class Stack(ABC):
    """A running pipeline with its shadow check."""

    def __init__(self, broker: Broker, client: Client, tokenizer: Entry) -> None:
        self.client = client
        self.tokenizer = tokenizer
        self._broker = broker

    @abstractmethod
    def checked(self) -> dict[str, int]:
        """What the shadow check did so far: samples, by tier, different, failed, dropped."""

    @abstractmethod
    async def all_checked(self) -> None:
        """Return once every sample was taken up."""

    async def sample(self, rate: float) -> None:
        """Change the share of answers that are sampled, while it runs."""
        fingerprint = self.tokenizer.fingerprint
        producer = await self._broker.producer()
        control = Control(tokenizer=fingerprint, breaker_open=False, sampling=rate)
        await producer.send(CONTROL, control.encode(), key=fingerprint.encode())
        await producer.stop()
        await asyncio.sleep(SETTLE_S)

    async def session(self, name: str, text: str, deadline_s: float) -> ClientSession:
        session = self.client.session(name, self.tokenizer.name)
        await session.append(text, deadline_s=deadline_s)
        return session


class Embedded(Stack):
    """All of it in this process."""

    def __init__(
        self, broker: Broker, workers: list[Worker], shadow: WatchedShadow, client: Client, tokenizer: Entry
    ) -> None:
        super().__init__(broker, client, tokenizer)
        self.shadow = shadow
        self._workers = workers

    def checked(self) -> dict[str, int]:
        return self.shadow.checked()

    async def all_checked(self) -> None:
        while (taken := self._taken()) > self.checked().get("samples", 0):
            await self.shadow.has_taken_up(taken)

    def _taken(self) -> int:
        """Samples that the workers took so far, less those that they could not send."""
        points = [point for worker in self._workers for point in worker.telemetry.points()]
        senders = {"cpu-fallback", "repair-worker"}
        taken = sum(p.value for p in points if p.name == "toksplice.shadow.samples")
        lost = sum(p.value for p in points if p.name == "toksplice.shadow.dropped" and _kind(p.job) in senders)
        return int(taken - lost)


class Distributed(Stack):
    """Workers in processes of their own; what they did is what their heartbeats say."""

    def __init__(self, broker: Broker, client: Client, tokenizer: Entry) -> None:
        super().__init__(broker, client, tokenizer)
        self._counts: dict[str, int] = {}

    async def follow_health(self) -> None:
        """Read heartbeats until cancelled."""
        partitions = [TopicPartition(HEALTH, number) for number in range(worker_settings().partitions)]
        tail = await self._broker.tail(partitions, from_start=False)
        while True:
            for record in await tail.fetch(max_records=100, timeout_s=1.0):
                health = Health.decode(record.value) if record.value else None
                if health is not None and health.kind == ShadowService.kind:
                    self._counts = dict(health.counts or {})

    def checked(self) -> dict[str, int]:
        return dict(self._counts)

    async def all_checked(self) -> None:
        """Once no more were taken up for some heartbeats: how many are under way nobody knows."""
        before = None
        while (now := self.checked().get("samples", 0)) != before or not now:
            before = now
            await asyncio.sleep(QUIET_S)


def _kind(job: str) -> str:
    return job.removeprefix("toksplice.").removeprefix("toksplice-")


@asynccontextmanager
async def embedded(
    registry: Registry, tokenizer: Entry, settings: ShadowSettings, *, store: str, sampling: float
) -> AsyncIterator[Embedded]:
    """A running pipeline on the memory broker."""
    common = worker_settings()
    broker = make_broker(MEMORY_URL)
    shadow = WatchedShadow(registry, settings, store)
    services = [shadow if name == shadow.kind else SERVICES[name](registry, None, NO_FAULTS) for name in WORKERS]
    sampled = replace(common, sampling=sampling)
    workers = [make_worker(broker, service, sampled, keep_metrics=True) for service in services]
    async with running(broker, workers, common), Client(broker, common.partitions) as client:
        yield Embedded(broker, workers, shadow, client, tokenizer)


@asynccontextmanager
async def distributed(
    url: str, registry: Path | None, tokenizer: Entry, *, cores: float, store: str, sampling: float
) -> AsyncIterator[Distributed]:
    """A running pipeline on Kafka."""
    settings = worker_settings()
    broker = make_broker(url)
    await connect(broker, settings)
    environment = os.environ | {
        "TOKSPLICE_SAMPLING": str(sampling),
        "TOKSPLICE_SHADOW_CPU_SHARE": str(cores),
        "TOKSPLICE_SHADOW_STORE": store,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    with _workers(url, registry, environment):
        async with Client(broker, settings.partitions) as client:
            stack = Distributed(broker, client, tokenizer)
            following = asyncio.create_task(stack.follow_health())
            try:
                yield stack
            finally:
                following.cancel()
    await broker.stop()


@contextmanager
def _workers(url: str, registry: Path | None, environment: dict[str, str]) -> Iterator[None]:
    """A process for each worker, ended in the end."""
    where = ["--registry", str(registry)] if registry else []
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "cli.main", "worker", name, "--broker", url, *where],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        for name in WORKERS
    ]
    try:
        yield
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()
