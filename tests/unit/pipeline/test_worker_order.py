"""Order, back-pressure, parking and commits of the worker chassis."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from chassis_kit import ScriptedService, make_worker, running, started_broker, write

from pipeline.partition_queue import OffsetWindow
from pipeline.ports import Record, TopicPartition
from schemas.topics import REQUESTS

FIRST = TopicPartition(REQUESTS, 0)


def offsets(records: list[Record]) -> list[int]:
    return [record.offset for record in records]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_one_partition_is_handled_one_record_at_a_time_in_order() -> None:
    busy = 0

    async def handler(record: Record) -> None:
        nonlocal busy
        busy += 1
        assert busy == 1
        for _ in range(3):
            await asyncio.sleep(0)
        busy -= 1

    async with started_broker() as broker:
        service = ScriptedService(handler)
        async with running(make_worker(broker, service)):
            await write(broker, *numbered(20))
            assert offsets(await service.handled.holds(20)) == list(range(20))


async def test_partitions_do_not_wait_for_each_other() -> None:
    release = asyncio.Event()

    async def handler(record: Record) -> None:
        if record.partition == 0:
            await release.wait()

    async with started_broker() as broker:
        service = ScriptedService(handler)
        async with running(make_worker(broker, service)):
            await write(broker, b"stuck", partition=0)
            await write(broker, *numbered(3), partition=1)
            handled = await service.handled.holds(3)
            assert {record.partition for record in handled} == {1}
            release.set()


async def test_an_offset_is_committed_only_after_its_record_is_finished() -> None:
    release = asyncio.Event()

    async def handler(record: Record) -> None:
        if record.offset == 1:
            await release.wait()

    async with started_broker() as broker:
        service = ScriptedService(handler)
        async with running(make_worker(broker, service)):
            await write(broker, *numbered(3))
            await broker.committed(1)
            await service.begun.holds(2)
            assert max(broker.commits_of()) == 1
            release.set()
            await broker.committed(3)


async def test_parked_records_hold_the_commit_at_the_lowest_unfinished_one() -> None:
    gates = {0: asyncio.Event(), 2: asyncio.Event()}

    async def handler(record: Record) -> Awaitable[None] | None:
        gate = gates.get(record.offset)

        async def wait() -> None:
            assert gate is not None
            await gate.wait()

        return None if gate is None else wait()

    async with started_broker() as broker:
        service = ScriptedService(handler)
        async with running(make_worker(broker, service)):
            await write(broker, *numbered(4))
            await service.handled.holds(4)
            assert broker.commits_of() == []
            gates[0].set()
            await broker.committed(2)
            assert max(broker.commits_of()) == 2
            gates[2].set()
            await broker.committed(4)


async def test_a_parked_record_that_fails_is_handled_again() -> None:
    calls = 0

    async def handler(record: Record) -> Awaitable[None] | None:
        nonlocal calls
        calls += 1

        async def fail() -> None:
            raise RuntimeError("once")

        async def succeed() -> None:
            await asyncio.sleep(0)

        return fail() if calls == 1 else succeed()

    async with started_broker() as broker, running(make_worker(broker, ScriptedService(handler))):
        await write(broker, b"x")
        await broker.committed(1)
    assert calls == 2


@pytest.mark.parametrize("bound", ["max_parked", "max_uncommitted"])
async def test_no_more_than_the_bound_is_begun_beyond_an_unfinished_record(bound: str) -> None:
    release = asyncio.Event()

    async def handler(record: Record) -> Awaitable[None] | None:
        async def wait() -> None:
            await release.wait()

        return wait()

    async with started_broker() as broker:
        service = ScriptedService(handler)
        async with running(make_worker(broker, service, **{bound: 3})):
            await write(broker, *numbered(10))
            await service.handled.holds(3)
            await write(broker, b"other partition", partition=1)
            await service.handled.until(lambda handled: any(r.partition == 1 for r in handled))
            assert offsets([r for r in service.begun.entries if r.partition == 0]) == [0, 1, 2]
            release.set()
            await broker.committed(10)


async def test_a_full_queue_pauses_its_partition_and_half_of_it_resumes() -> None:
    steps = asyncio.Semaphore(0)

    async def handler(record: Record) -> None:
        if record.partition == 0:
            await steps.acquire()

    async with started_broker() as broker:
        service = ScriptedService(handler)
        worker = make_worker(broker, service, queue_records=4, fetch_max_records=2)
        async with running(worker):
            await write(broker, *numbered(40))
            await broker.flow.holds(1)
            assert broker.flow.entries == [("pause", frozenset({FIRST}))]
            # One in work, and at most the high mark and one fetch in the queue; the other partition goes on.
            await write(broker, *numbered(3), partition=1)
            await service.handled.until(lambda handled: sum(r.partition == 1 for r in handled) == 3)
            queue = worker._queues[FIRST]
            depth = queue.depth
            assert 4 <= depth <= 1 + 4 + 2
            for _ in range(3):
                steps.release()
            await broker.flow.until(lambda flow: ("resume", frozenset({FIRST})) in flow)
            for _ in range(40):
                steps.release()
            await broker.committed(40)
    handled = [record for record in service.handled.entries if record.partition == 0]
    assert offsets(handled) == list(range(40))


async def test_bytes_fill_a_queue_too() -> None:
    release = asyncio.Event()

    async def handler(record: Record) -> None:
        await release.wait()

    async with started_broker() as broker:
        worker = make_worker(broker, ScriptedService(handler), queue_bytes=1000, fetch_max_records=1)
        async with running(worker):
            await write(broker, *[bytes(600)] * 5)
            await broker.flow.holds(1)
            assert worker._queues[FIRST].depth <= 3
            release.set()
            await broker.committed(5)


def test_the_window_moves_over_gaps_and_out_of_order_ends() -> None:
    window = OffsetWindow()
    for offset in (3, 7, 8):
        window.begin(offset, now_s=float(offset))
    assert window.oldest == (3, 3.0)
    assert not window.finish(7)
    assert (window.low, len(window), window.unfinished) == (None, 3, 2)
    assert window.finish(3)
    assert (window.low, len(window), window.unfinished) == (8, 1, 1)
    assert window.finish(8)
    assert (window.low, len(window), window.oldest) == (9, 0, None)
