"""Workers as processes of their own on a real Kafka; one of two repair workers is killed in mid-load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest
from broker_factories import KafkaFactory
from families import family
from pipeline_kit import GUARD_S, PARTITIONS, Plain, WorkerProcess, make_registry

from pipeline.client import Client
from pipeline.ports import Broker, TopicPartition
from pipeline.topology import specs
from schemas.health import Health
from schemas.reply import Reply
from schemas.request import Op, Request
from schemas.topics import HEALTH, REPLIES, partition_for, session_key

pytestmark = pytest.mark.broker

PROSE = "The quick brown fox jumps over 12 lazy dogs.\ndef f(x):\n    return x + 1\n" * 40
SESSIONS = 16
TURNS_BEFORE, TURNS_AFTER = 4, 8
WORKERS = {
    "classifier-1": "consumers.classifier",
    "cpu-1": "consumers.cpu_fallback",
    "repair-1": "repair_worker",
    "repair-2": "repair_worker",
}


@pytest.fixture
async def processes(kafka_factory: KafkaFactory, tmp_path: Path) -> AsyncIterator[dict[str, WorkerProcess]]:
    """Every worker in a process of its own, ready."""
    broker = await kafka_factory()
    await broker.ensure_topics(specs(PARTITIONS))
    registry = tmp_path / "registry"
    make_registry(tmp_path)
    started: dict[str, WorkerProcess] = {}
    async with AsyncExitStack() as stack:
        for worker_id, package in WORKERS.items():
            log = tmp_path / f"{worker_id}.log"
            started[worker_id] = await WorkerProcess.start(package, worker_id, kafka_factory, registry, log)
            stack.push_async_callback(started[worker_id].stop)
        await until_ready(broker, set(WORKERS))
        yield started


async def until_ready(broker: Broker, workers: set[str]) -> None:
    """Wait until each of these workers has said that it is ready."""
    tail = await broker.tail([TopicPartition(HEALTH, p) for p in range(PARTITIONS)], from_start=True)
    waiting = set(workers)
    async with asyncio.timeout(GUARD_S):
        while waiting:
            for record in await tail.fetch(max_records=100, timeout_s=1):
                if record.value is not None and (health := Health.decode(record.value)).ready:
                    waiting.discard(health.worker)
    await tail.stop()


async def test_a_killed_worker_loses_nothing_and_doubles_nothing(
    processes: dict[str, WorkerProcess], kafka_factory: KafkaFactory
) -> None:
    """Sixteen conversations; a repair worker dies between two of their turns, without a word."""
    tokenizer = family("qwen", engine=False)
    broker = await kafka_factory()
    warm = asyncio.Semaphore(0)

    async def talk(client: Client, number: int) -> None:
        session = client.session(f"s{number}", "test")
        await session.append(PROSE)
        revisions = []
        for turn in range(TURNS_BEFORE + TURNS_AFTER):
            if turn == TURNS_BEFORE:
                warm.release()
            answer = await session.append(f"\nturn {turn} of {number}.", deadline_s=GUARD_S)
            revisions.append((session.epoch, answer.revision))
            assert np.array_equal(session.ids, tokenizer.encode(session.text))
        # Every turn was answered once, each with a state of its own.
        assert len(set(revisions)) == TURNS_BEFORE + TURNS_AFTER

    async with Client(broker, PARTITIONS) as client, asyncio.TaskGroup() as group:
        for number in range(SESSIONS):
            group.create_task(talk(client, number))
        await warm.acquire()
        processes["repair-1"].kill()
    assert await processes["repair-1"].process.wait() == -9
    assert processes["repair-2"].process.returncode is None


async def test_stopping_gracefully_ends_with_code_0(processes: dict[str, WorkerProcess]) -> None:
    codes = [await process.stop() for process in processes.values()]
    assert codes == [0] * len(processes)


async def test_one_session_stays_with_one_partition_number(
    processes: dict[str, WorkerProcess], kafka_factory: KafkaFactory
) -> None:
    """Replies without a reply partition of their own come back in the session's partition."""
    broker = await kafka_factory()
    async with Plain(broker) as plain:
        reply: Reply = await plain.ask(
            Request(request_id="r", tokenizer="test", op=Op.TEXT, tenant="acme", session_id="s", text="hello")
        )
        assert reply.total > 0
    partition = partition_for(session_key("acme", "s"), PARTITIONS)
    tail = await broker.tail([TopicPartition(REPLIES, partition)], from_start=True)
    async with asyncio.timeout(GUARD_S):
        while not (records := await tail.fetch(max_records=10, timeout_s=1)):
            pass
    assert Reply.decode(records[0].value or b"").request_id == "r"
    await tail.stop()
