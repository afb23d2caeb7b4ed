"""Deltas that arrive before the state they build on: in which order they are answered, and when they give up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from repair_kit import FIRST_EPOCH, adopt, first_base, repair_bench
from worker_kit import GUARD_S, NOW_MS, Bench, base_of, patched, reference_ids, work

from pipeline.errors import BrokerUnavailableError
from schemas.codes import Status
from schemas.reply import Reply
from schemas.request import Base, Op
from schemas.topics import REPLIES, partition_for, session_key
from schemas.work import Work

TEXT = "The quick brown fox jumps over the lazy dog. " * 30
HOME = partition_for(session_key("", "s"), 4)


def ahead(request_id: str, text: str = "x", *, revision: int = 1, length: int = len(TEXT), **fields: object) -> Work:
    """An append sent before the answer that it builds on, so without an epoch."""
    return work(request_id, Op.APPEND, text=text, base=Base(revision=revision, length=length), **fields)


async def park(it: Bench, message: Work) -> asyncio.Task[None]:
    """Hand over a delta that has to wait; returns the task that the chassis would run."""
    parked = await it.handle(message)
    assert parked is not None

    async def run(parked: Awaitable[None]) -> None:
        await parked

    return asyncio.create_task(run(parked))


async def ended(*tasks: asyncio.Task[None]) -> None:
    async with asyncio.timeout(GUARD_S):
        await asyncio.gather(*tasks)


def answer(it: Bench, request_id: str) -> Reply:
    (reply,) = [reply for reply in it.replies() if reply.request_id == request_id]
    return reply


async def test_a_delta_is_answered_once_its_session_is_handed_over() -> None:
    async with repair_bench() as it:
        task = await park(it, ahead("a", "And on."))
        assert it.replies() == []
        assert it.service.health().queue_depth == 1
        await it.handle(adopt(TEXT))
        await ended(task)
        reply = answer(it, "a")
        assert (reply.status, reply.revision) == (Status.OK, 2)
        assert patched(reference_ids(TEXT), reply) == reference_ids(TEXT + "And on.")
        assert it.service.health().queue_depth == 0
        # Whether it was in time may turn out differently in another life, so its state bears a name of its own.
        assert reply.epoch == 1000


async def test_a_chain_of_deltas_is_answered_in_order() -> None:
    async with repair_bench() as it:
        tasks = [
            await park(it, ahead(f"a{number}", "x", revision=1 + number, length=len(TEXT) + number))
            for number in range(5)
        ]
        await it.handle(adopt(TEXT))
        await ended(*tasks)
        assert [(reply.request_id, reply.revision) for reply in it.replies()] == [
            (f"a{number}", 2 + number) for number in range(5)
        ]
        assert all(reply.status is Status.OK for reply in it.replies())


async def test_of_two_deltas_on_the_same_state_the_first_wins() -> None:
    async with repair_bench() as it:
        tasks = [await park(it, ahead("a")), await park(it, ahead("b"))]
        await it.handle(adopt(TEXT))
        await ended(*tasks)
        assert [(reply.request_id, reply.status) for reply in it.replies()] == [
            ("a", Status.OK),
            ("b", Status.CONFLICT),
        ]


async def test_a_delta_that_waited_in_vain_is_asked_for_the_text() -> None:
    async with repair_bench(park_s=1.0) as it:
        task = await park(it, ahead("a"))
        await it.clock.sleeping(2)
        it.clock.advance(0.999)
        await asyncio.sleep(0)
        assert it.replies() == []
        it.clock.advance(0.001)
        await ended(task)
        assert (answer(it, "a")).status is Status.NEED_TEXT
        assert it.service.health().queue_depth == 0


async def test_a_deadline_ends_the_waiting_early() -> None:
    async with repair_bench(park_s=1.0) as it:
        task = await park(it, ahead("a", deadline_ms=NOW_MS + 200))
        await it.clock.sleeping(2)
        it.clock.advance(0.2)
        await ended(task)
        assert (answer(it, "a")).status is Status.NEED_TEXT


async def test_the_state_of_a_live_session_can_be_waited_for_too() -> None:
    async with repair_bench(park_s=1.0) as it:
        await it.handle(adopt(TEXT))
        task = await park(it, ahead("b", "y", revision=2, length=len(TEXT) + 1))
        assert await it.handle(ahead("a", "x")) is None
        await ended(task)
        assert (answer(it, "a")).revision == 2
        assert (answer(it, "b")).revision == 3


async def test_waiting_in_vain_for_a_live_session_is_a_conflict_that_tells_its_state() -> None:
    async with repair_bench(park_s=1.0) as it:
        await it.handle(adopt(TEXT))
        task = await park(it, ahead("b", "y", revision=7))
        await it.clock.sleeping(2)
        it.clock.advance(1.0)
        await ended(task)
        reply = answer(it, "b")
        assert (reply.status, reply.epoch, reply.revision) == (Status.CONFLICT, FIRST_EPOCH, 1)


async def test_a_delta_with_an_epoch_never_waits() -> None:
    async with repair_bench() as it:
        reply = await it.ask(work("a", Op.APPEND, text="x", base=first_base(TEXT)))
        assert reply.status is Status.NEED_TEXT


async def test_sessions_do_not_wait_for_each_other() -> None:
    async with repair_bench(park_s=1.0) as it:
        task = await park(it, ahead("a"))
        await it.handle(adopt(TEXT, session_id="other"))
        await it.handle(adopt(TEXT, add_special_tokens=True))
        assert it.replies() == []
        assert (await it.ask(work("o", Op.APPEND, text="x", session_id="other", base=first_base(TEXT)))).revision == 2
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("bound", [{"parked_max": 2}, {"session_parked_max": 2}])
async def test_beyond_the_bound_the_text_is_asked_for_at_once(bound: dict[str, int]) -> None:
    async with repair_bench(**bound) as it:
        tasks = [await park(it, ahead("a")), await park(it, ahead("b"))]
        assert (await it.ask(ahead("c"))).status is Status.NEED_TEXT
        await it.handle(adopt(TEXT))
        await ended(*tasks)


async def test_a_failure_while_answering_is_told_to_the_chassis_and_holds_nobody_up() -> None:
    async with repair_bench() as it:
        first, second = ahead("a"), ahead("b", revision=2, length=len(TEXT) + 1)
        tasks = [await park(it, first), await park(it, second)]
        it.producer.fail_next(REPLIES)
        await it.handle(adopt(TEXT))
        await ended(tasks[1])
        with pytest.raises(BrokerUnavailableError):
            await tasks[0]
        assert (answer(it, "b")).revision == 3
        # The chassis hands it over again: the change was made, and its answer is remembered.
        again = await it.ask(first)
        assert (again.status, again.revision, again.replayed) == (Status.OK, 2, True)


async def test_a_delta_that_expired_while_it_waited_says_so() -> None:
    async with repair_bench(park_s=5.0) as it:
        task = await park(it, ahead("a", deadline_ms=NOW_MS + 200))
        await it.clock.sleeping(2)
        it.clock.advance(0.201)
        await ended(task)
        assert (answer(it, "a")).status is Status.EXPIRED


async def test_lost_partitions_take_their_waiting_deltas_along() -> None:
    async with repair_bench() as it:
        task = await park(it, ahead("a"))
        await asyncio.sleep(0)
        await it.service.partitions_lost(frozenset({HOME + 1}))
        assert it.service.health().queue_depth == 1
        await it.service.partitions_lost(frozenset({HOME}))
        assert it.service.health().queue_depth == 0
        with pytest.raises(asyncio.CancelledError):
            await task
        await it.handle(adopt(TEXT))
        assert it.replies() == []


async def test_a_waiting_delta_that_the_chassis_gives_back_waits_no_more() -> None:
    async with repair_bench() as it:
        task = await park(it, ahead("a"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert it.service.health().queue_depth == 0


async def test_a_repeat_of_a_waiting_delta_is_answered_with_it() -> None:
    async with repair_bench() as it:
        tasks = [await park(it, ahead("a")), await park(it, ahead("a"))]
        await it.handle(adopt(TEXT))
        await ended(*tasks)
        first, second = it.replies()
        assert (first.status, first.replayed) == (Status.OK, False)
        assert (second.status, second.replayed) == (Status.OK, True)
        assert base_of(first) == base_of(second)
