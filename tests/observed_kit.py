"""A whole embedded pipeline that is watched: live page, telemetry, and traffic of every kind through it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from families import tokenizer_json
from gpu_kit import EagerGpu, FakeDevice
from pipeline_kit import PARTITIONS, Plain

from cli.live.http import Address
from cli.live.page import live_page
from cli.wiring import MEMORY_URL, make_broker, make_workers, running, worker_settings
from pipeline.client import Client
from pipeline.client_state import new_request_id
from pipeline.ports import Broker
from pipeline.runtime import Runnable
from pipeline.settings import TelemetrySettings, from_env
from pipeline.telemetry import Telemetry
from schemas.codes import Status
from schemas.request import Base, Op, Request
from toksplice.registry import Registry

#: Served by route A, by certified windows of the reference (C), and by the reference alone (D).
FAMILIES = ("qwen", "stripping", "llama2")
LONG = "A long text, which goes to the GPU's worker where there is one: 1, 2, 3. " * 1_000
PROSE = "An agent reads a file, runs the tests, and writes down what it found. " * 30


def watched_environment(patch: pytest.MonkeyPatch, *, otlp: str = "") -> None:
    """Settings by which everything is exported soon, and every answer is sampled."""
    values = {
        "TOKSPLICE_PARTITIONS": PARTITIONS,
        "TOKSPLICE_HEARTBEAT_S": 0.5,
        "TOKSPLICE_HOUSEKEEPING_S": 0.5,
        "TOKSPLICE_FETCH_TIMEOUT_S": 0.05,
        "TOKSPLICE_SAMPLING": 1,
        "TOKSPLICE_METRIC_INTERVAL_S": 0.5,
        "TOKSPLICE_GPU_TEXT_BYTES_MIN": len(LONG),
        "OTEL_EXPORTER_OTLP_ENDPOINT": otlp,
    }
    for name, value in values.items():
        patch.setenv(name, str(value))


@dataclass
class Watched:
    """A running pipeline. `url` is its live page's."""

    broker: Broker
    client: Client
    workers: Sequence[Runnable]
    telemetries: Sequence[Telemetry]
    url: str
    rounds: itertools.count[int] = field(default_factory=itertools.count)

    async def drive(self, *, tenant: str = "", name: str = "session", text: str = PROSE) -> None:
        """One round of requests over every path, good and bad; each round has sessions of its own."""
        number = next(self.rounds)
        for tokenizer in FAMILIES:
            session = self.client.session(f"{name}-{tokenizer}-{number}", tokenizer)
            await session.append(text)
            for turn in range(4):
                await session.append(f"\nuser {turn}: {text[:200]}")
            await session.splice(3, 8, text[:9])
        await self.client.encode(text, FAMILIES[0])
        await self.client.encode(text + LONG, FAMILIES[0])
        async with Plain(self.broker) as plain:
            await self._fail_in_every_way(plain, tenant, f"{name}-{number}", text)

    async def _fail_in_every_way(self, plain: Plain, tenant: str, name: str, text: str) -> None:
        def request(op: Op, **fields: object) -> Request:
            shared = {"tenant": tenant, "session_id": name, "tokenizer": FAMILIES[0], "text": text}
            return Request(request_id=new_request_id(), op=op, **{**shared, **fields})  # type: ignore[arg-type]

        first = request(Op.TEXT)
        held = await plain.ask(first)
        assert held.status is Status.OK, held
        base = Base(epoch=held.epoch, revision=held.revision, length=held.length)
        change = request(Op.APPEND, base=base)
        assert (await plain.ask(change)).status is Status.OK
        await plain.send(change)
        assert (await plain.reply_to(change.request_id, count=2)).replayed
        lost = request(Op.APPEND, session_id=f"{name}-lost", base=base)
        assert (await plain.ask(lost)).status is Status.NEED_TEXT
        assert (await plain.ask(request(Op.APPEND, base=base))).status is Status.CONFLICT
        assert (await plain.ask(request(Op.TEXT, tokenizer=f"{name}-unknown"))).status is Status.REJECTED
        late = request(Op.TEXT, deadline_ms=1)
        assert (await plain.ask(late)).status is Status.EXPIRED
        # Not a message at all, but with everything in it that a client could have put there.
        broken = text.encode() + name.encode() + tenant.encode()
        await plain.send_raw(broken, tenant=tenant, session_id=name, headers=(("correlation-id", name.encode()),))
        await plain.reply_to(name)


@asynccontextmanager
async def watched(folder: Path, *, state: Path | None = None, tenant: str = "") -> AsyncIterator[Watched]:
    """Every worker on a memory broker, a client and the live page, by the settings in the environment."""
    registry = Registry(folder / "registry")
    for family in FAMILIES:
        path = folder / f"{family}.json"
        path.write_bytes(tokenizer_json(family))
        registry.add(family, path)
    settings = worker_settings()
    broker = make_broker(MEMORY_URL)
    device = FakeDevice()
    # The device of a GPU worker is one that the reference stands in for; the worker around it is the real one.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpu_worker.availability.open_gpu", device.open)
        patch.setattr("gpu_worker.service.GpuService", EagerGpu)
        workers = make_workers(broker, registry, settings, state, keep_metrics=True, gpu=True)
    own = Telemetry.create(from_env(TelemetrySettings), keep_metrics=True)
    telemetries = [*(worker.telemetry for worker in workers), own]
    try:
        async with (
            running(broker, workers, settings),
            Client(broker, settings.partitions, tenant=tenant, telemetry=own) as client,
            live_page(telemetries, Address("127.0.0.1", 0)) as url,
        ):
            yield Watched(broker, client, workers, telemetries, url)
    finally:
        for telemetry in telemetries:
            telemetry.shutdown()
