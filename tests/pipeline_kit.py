"""A whole pipeline for tests: every worker in this process, on either broker, or in processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from broker_factories import BrokerFactory, KafkaFactory
from families import tokenizer_json

from consumers.classifier.service import ClassifierService
from consumers.classifier.settings import ClassifierSettings
from consumers.cpu_fallback.service import CpuFallbackService
from pipeline.client_state import new_request_id
from pipeline.ports import Broker, Headers, Tail, TopicPartition
from pipeline.service import Service
from pipeline.settings import WorkerSettings
from pipeline.telemetry import Telemetry
from pipeline.topology import specs
from pipeline.worker import Worker
from repair_worker.service import RepairService
from repair_worker.settings import RepairSettings, SnapshotSettings
from schemas.reply import Reply
from schemas.request import Request
from schemas.topics import REPLIES, REQUESTS, partition_for, session_key
from toksplice.registry import Registry

PARTITIONS = 4
#: Nothing waits longer than this in real time; it is reached only when a test fails.
GUARD_S = 60.0
SETTINGS = WorkerSettings(partitions=PARTITIONS, fetch_timeout_s=0.05, commit_interval_s=0.05, heartbeat_s=1)

ROOT = Path(__file__).parents[1]


def make_registry(folder: Path) -> Registry:
    """A registry with the small tokenizers "test" and "other"."""
    registry = Registry(folder / "registry")
    for name, family in (("test", "qwen"), ("other", "gpt2")):
        path = folder / f"{family}.json"
        path.write_bytes(tokenizer_json(family))
        registry.add(name, path)
    return registry


def make_services(
    registry: Registry, repair: RepairSettings | None = None, snapshots: Path | None = None
) -> list[Service]:
    return [
        ClassifierService(registry, ClassifierSettings()),
        CpuFallbackService(registry),
        RepairService(
            registry, repair or RepairSettings(), snapshot_path=snapshots, snapshot_settings=SnapshotSettings()
        ),
    ]


@asynccontextmanager
async def running(
    broker: Broker,
    services: Sequence[Service],
    *,
    telemetry: Telemetry | None = None,
    settings: WorkerSettings = SETTINGS,
) -> AsyncIterator[None]:
    """Run a worker for each service while the block lasts."""
    await broker.ensure_topics(specs(settings.partitions))
    workers = [Worker(broker, service, settings, telemetry or Telemetry.disabled()) for service in services]
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(worker.run())
        try:
            async with asyncio.timeout(GUARD_S):
                for worker in workers:
                    await worker.ready.wait()
            yield
        finally:
            for worker in workers:
                worker.request_stop()


class Plain:
    """A producer and consumer that knows nothing but the wire format."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.replies: list[Reply] = []

    async def __aenter__(self) -> Plain:
        partitions = [TopicPartition(REPLIES, p) for p in range(PARTITIONS)]
        self._tail: Tail = await self._broker.tail(partitions, from_start=False)
        self._producer = await self._broker.producer()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tail.stop()
        await self._producer.stop()

    async def send(self, request: Request) -> None:
        await self.send_raw(request.encode(), tenant=request.tenant, session_id=request.session_id)

    async def send_raw(self, value: bytes, *, tenant: str = "", session_id: str = "s", headers: Headers = ()) -> None:
        key = session_key(tenant, session_id)
        await self._producer.send(REQUESTS, value, key=key, partition=partition_for(key, PARTITIONS), headers=headers)

    async def ask(self, request: Request) -> Reply:
        """Send and wait for the answer of that request."""
        await self.send(request)
        return await self.reply_to(request.request_id)

    async def reply_to(self, request_id: str | bytes, *, count: int = 1) -> Reply:
        """The `count`-th reply to a request."""
        async with asyncio.timeout(GUARD_S):
            while True:
                found = [reply for reply in self.replies if reply.request_id == request_id]
                if len(found) >= count:
                    return found[count - 1]
                for record in await self._tail.fetch(max_records=100, timeout_s=1):
                    self.replies.append(Reply.decode(record.value or b""))


def fresh(request: Request) -> Request:
    """The same request under a new id."""
    return replace(request, request_id=new_request_id())


class WorkerProcess:
    """`python -m PACKAGE` on the Kafka of a factory."""

    def __init__(self, process: asyncio.subprocess.Process, worker_id: str) -> None:
        self.process = process
        self.worker_id = worker_id

    @classmethod
    async def start(
        cls, package: str, worker_id: str, factory: KafkaFactory, registry: Path, log: Path
    ) -> WorkerProcess:
        environ = {
            **os.environ,
            **factory.environ(),
            "PYTHONPATH": str(ROOT),
            "TOKSPLICE_PARTITIONS": str(PARTITIONS),
            "TOKSPLICE_WORKER_ID": worker_id,
            "TOKSPLICE_HEARTBEAT_S": "0.5",
        }
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", package, "--registry", str(registry), env=environ, stdout=output, stderr=output
            )
        return cls(process, worker_id)

    def kill(self) -> None:
        """SIGKILL: no goodbye to anyone."""
        self.process.send_signal(signal.SIGKILL)

    async def stop(self) -> int:
        """SIGTERM and wait; the exit code."""
        if self.process.returncode is None:
            self.process.terminate()
        async with asyncio.timeout(GUARD_S):
            return await self.process.wait()


__all__ = [
    "GUARD_S",
    "PARTITIONS",
    "SETTINGS",
    "BrokerFactory",
    "Plain",
    "WorkerProcess",
    "fresh",
    "make_registry",
    "make_services",
    "running",
]
