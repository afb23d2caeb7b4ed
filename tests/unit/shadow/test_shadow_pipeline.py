"""The shadow check in a whole pipeline in memory: silent while all is right, exact in its share, in nobody's way."""

from __future__ import annotations

import asyncio
from pathlib import Path as FilePath

import pytest
from pipeline_kit import SETTINGS
from shadow_kit import TEXT, WrongLastId, right, stack

from pipeline.memory import MemoryBroker
from pipeline.ports import Headers, Producer
from pipeline.sampling import Sampler
from schemas.reply import Path
from schemas.sample import Sample
from schemas.topics import CONTROL, DLQ, QUARANTINE, REPAIR, SHADOW


async def test_while_all_is_right_nothing_is_heard_of_the_check(tmp_path: FilePath) -> None:
    async with stack(MemoryBroker(), tmp_path) as it:
        sessions = [it.client.session(f"s{number}", "test") for number in range(3)]
        for turn in range(5):
            for session in sessions:
                await session.append(f"{turn}: {TEXT}", offsets=bool(turn % 2))
        await sessions[0].splice(10, 20, "é, in the middle")
        await sessions[1].truncate(100)
        await it.client.encode("a one-off", "test", offsets=True)
        await it.shadow.has_handled(18)
        assert it.count("checked", tier="reference", result="equal") == 18
        assert it.count("checked") == it.count("samples") == 18
        assert {sample.path for sample in it.shadow.handled} == {Path.CPU, Path.REPAIR}
        assert it.count("mismatches") == it.count("dropped") == 0
        for topic in (QUARANTINE, CONTROL, DLQ):
            assert await it.records(topic) == []


@pytest.mark.parametrize("begins_after", [0, 7, 25])
async def test_at_one_in_20_a_fault_that_stays_is_found_within_39_answers(
    begins_after: int, tmp_path: FilePath
) -> None:
    fault = WrongLastId(Path.REPAIR, after=begins_after)
    async with stack(MemoryBroker(), tmp_path, faults=fault) as it:
        for service in it.services:
            service._ctx.samples.sampler = Sampler(begins_after, "w", first_answers=0)
        session = it.client.session("s", "test")
        await session.append(TEXT)
        sampled_right = 0
        while not it.count("mismatches"):
            assert fault.struck < 39
            await session.append(" fox")
            taken = int(it.count("samples", path="repair"))
            await it.shadow.has_handled(taken)
            sampled_right = taken - 1
        assert sampled_right <= begins_after // 20 + 1


class ShadowHangs(MemoryBroker):
    """A broker that never acknowledges a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    async def producer(self, *, batching: bool = False) -> Producer:
        return _Hanging(await super().producer(batching=batching), self.reached)


class _Hanging:
    def __init__(self, inner: Producer, reached: asyncio.Event) -> None:
        self._inner = inner
        self._reached = reached
        self.stop = inner.stop

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> int:
        if topic == SHADOW:
            self._reached.set()
            await asyncio.get_running_loop().create_future()
        return await self._inner.send(topic, value, key=key, partition=partition, headers=headers)


async def test_samples_that_go_nowhere_delay_no_answer(tmp_path: FilePath) -> None:
    broker = ShadowHangs()
    async with stack(broker, tmp_path) as it:
        session = it.client.session("s", "test")
        for _ in range(SETTINGS.sample_queue_records + 10):
            await session.append("and on ")
        await broker.reached.wait()
        assert right(session)
        assert it.count("dropped", reason="queue_full") > 0
        assert it.count("dropped") == it.count("dropped", reason="queue_full")


async def test_a_drop_stands_in_the_order_of_the_session_s_requests(tmp_path: FilePath) -> None:
    """It is on the session's partition of the repair worker, behind what was asked before."""
    async with stack(MemoryBroker(), tmp_path, faults=WrongLastId(Path.REPAIR)) as it:
        session = it.client.session("s", "test")
        await session.append(TEXT)
        await session.append("and the fox ran.")
        await it.breaker_is_open()
        await it.shadow.has_handled(2)
        kinds = [value for value in await it.records(REPAIR) if b"\xa4drop" in value]
        assert len(kinds) == 1
        assert [Sample.decode(value).revision for value in await it.records(SHADOW)] == [1, 2]
