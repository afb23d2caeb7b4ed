"""The whole pipeline with a GPU worker on the emulated device, on both brokers: it serves cold starts, its sessions are
repaired, and when it dies in the middle of its work nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from broker_factories import BrokerFactory
from cuda_on_cpu.device import CpuDevice
from cuda_on_cpu.emulator import missing
from families import family
from gpu_kit import EagerGpu, until
from pipeline_kit import GUARD_S, PARTITIONS, SETTINGS, make_registry, make_services, running

from consumers.classifier.service import ClassifierService
from consumers.cpu_fallback.stand_in import GONE, make_stand_in
from gpu_worker.chain import Chain
from gpu_worker.encoder import Encoder, Encoding, Refusal
from gpu_worker.encoders import MakeEncoder
from gpu_worker.program import compile_for
from gpu_worker.settings import GpuSettings
from pipeline.client import Client
from pipeline.client_state import Answer
from pipeline.ports import Broker
from pipeline.service import Service
from pipeline.standby import Standby
from pipeline.worker import Worker
from schemas.reply import Path as ReplyPath
from schemas.reply import Route
from toksplice import Tokenizer
from toksplice.registry import Registry

if (reason := missing()) is not None:
    pytest.skip(f"no device to test with: {reason}", allow_module_level=True)

PROSE = "The quick brown fox — jumps over 12 lazy dögs.\ndef f(x):\n    return x + 1\n世界 " * 40
SHORT = "Too short for a GPU."
#: Soon enough for a test, and late enough that no heartbeat of a busy machine is missed.
STAND_IN_AFTER_S = 4.0


@dataclass
class Emulated:
    """The kernels on the CPU. A test can hold a launch back."""

    texts: list[bytes] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.go.set()

    def open(self) -> MakeEncoder:
        device = CpuDevice()
        return lambda tokenizer: _Held(self, Chain(device, compile_for(tokenizer)), tokenizer)


class _Held:
    def __init__(self, emulated: Emulated, chain: Encoder, tokenizer: Tokenizer) -> None:
        self._emulated = emulated
        self._chain = chain

    def encode(self, texts: Sequence[bytes]) -> list[Encoding | Refusal]:
        self._emulated.texts += texts
        if not self._emulated.go.wait(GUARD_S):
            raise TimeoutError("the test never let the launch go")
        return self._chain.encode(texts)


@dataclass
class Scene:
    """The pipeline, and a GPU worker with a connection of its own that a test can cut."""

    client: Client
    gpu: Emulated
    worker: Worker
    task: asyncio.Task[None]
    broker: Broker
    standby: Standby

    async def kill(self) -> None:
        """The GPU worker's connections end without a word. What it was doing goes on, and reaches nobody."""
        await self.broker.stop()


@pytest.fixture
async def scene(broker_factory: BrokerFactory, tmp_path: Path) -> AsyncIterator[Scene]:
    registry, gpu = make_registry(tmp_path), Emulated()
    broker, own = await broker_factory(), await broker_factory()
    services = make_services(registry)
    standby = make_stand_in(broker, SETTINGS, after_s=STAND_IN_AFTER_S)
    async with running(broker, services), Client(broker, PARTITIONS) as client:
        standing_by = asyncio.create_task(standby.run())
        service = EagerGpu(registry, gpu.open, GpuSettings(text_bytes_min=1_000))
        worker = Worker(own, service, replace(SETTINGS, drain_s=0, stop_s=1))
        task = asyncio.create_task(worker.run())
        await until_served(services, registry)
        yield Scene(client, gpu, worker, task, own, standby)
        gpu.go.set()
        for one in (worker, standby):
            one.request_stop()
        await asyncio.gather(task, standing_by)


async def until_served(services: Sequence[Service], registry: Registry) -> None:
    """Wait until the classifier has heard that the GPU worker serves a tokenizer."""
    (classifier,) = (service for service in services if isinstance(service, ClassifierService))
    wanted = {registry.resolve("test")}
    await until(lambda: any(wanted <= worker.fingerprints for worker in classifier.gpu.workers), every_s=0.05)


def expected(text: str, *, add_special_tokens: bool = False) -> np.ndarray:
    return family("qwen", engine=False).encode(text, add_special_tokens=add_special_tokens)


async def test_cold_starts_are_the_gpu_s_and_their_sessions_are_repaired(scene: Scene) -> None:
    session = scene.client.session("s", "test")
    first = await session.append(PROSE, offsets=True)
    assert (first.path, first.route, first.reason, first.revision) == (ReplyPath.GPU, Route.G, "long_text", 1)
    assert np.array_equal(session.ids, expected(PROSE))
    spans = family("qwen", engine=False).session(PROSE).offsets()
    assert np.array_equal(np.asarray(first.offsets).reshape(-1, 2), spans)

    second = await session.append(" And on.")
    assert (second.path, second.route, second.revision) == (ReplyPath.REPAIR, Route.A, 2)
    await session.splice(100, 110, "é<|im_end|>")
    await session.truncate(session.length - 7)
    assert np.array_equal(session.ids, expected(session.text))

    with_special = scene.client.session("t", "test", add_special_tokens=True)
    assert (await with_special.append(PROSE)).path is ReplyPath.GPU
    assert (await with_special.append("!")).path is ReplyPath.REPAIR
    assert np.array_equal(with_special.ids, expected(with_special.text, add_special_tokens=True))

    short = await scene.client.session("u", "test").append(SHORT)
    assert (short.path, short.reason) == (ReplyPath.CPU, "short_text")
    assert scene.gpu.texts == [PROSE.encode()] * 2


async def test_its_death_in_the_middle_of_its_work_loses_nothing(scene: Scene) -> None:
    """Some sessions begin before it dies, some while it holds their texts, some after."""
    answers: dict[str, Answer] = {}

    async def begin(name: str) -> None:
        session = scene.client.session(name, "test")
        answers[name] = await session.append(f"{name}: {PROSE}", deadline_s=GUARD_S)
        assert (await session.append(" and on", deadline_s=GUARD_S)).path is ReplyPath.REPAIR
        assert np.array_equal(session.ids, expected(session.text))

    await asyncio.gather(*(begin(f"before-{number}") for number in range(4)))
    scene.gpu.go.clear()
    scene.gpu.texts.clear()
    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(begin(f"during-{number}"))
        await until(lambda: bool(scene.gpu.texts), every_s=0.01)
        await scene.kill()
        for number in range(6):
            group.create_task(begin(f"after-{number}"))
    assert len(answers) == 16
    assert {answer.path for name, answer in answers.items() if "before" in name} == {ReplyPath.GPU}
    orphans = [answer for name, answer in answers.items() if "before" not in name]
    assert {answer.path for answer in orphans} == {ReplyPath.CPU}
    assert {answer.reason for name, answer in answers.items() if "during" in name} == {GONE}
