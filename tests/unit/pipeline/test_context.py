"""Answers, forwards, followed topics and blocking work, as a service uses them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from chassis_kit import (
    GUARD_S,
    Journal,
    ScriptedService,
    SpyBroker,
    make_worker,
    read,
    running,
    started_broker,
    write,
)

from pipeline.blocking import BlockingPool
from pipeline.clock import ManualClock
from pipeline.context import HEADROOM_BYTES, Context
from pipeline.errors import ClosedError
from pipeline.ports import Headers, Record
from pipeline.telemetry import Telemetry
from schemas.codes import Code, Status
from schemas.errors import ProtocolError
from schemas.reply import Path, Reply, Route
from schemas.topics import REPAIR, REPLIES, SESSIONS, partition_for, session_key

MIB = 1024 * 1024


@asynccontextmanager
async def service_with(
    act: Callable[[Context, Record], Awaitable[None]],
    *,
    headers: Headers = (),
    partition: int = 0,
    telemetry: Telemetry | None = None,
    clock: ManualClock | None = None,
) -> AsyncIterator[SpyBroker]:
    """A broker on which a worker has done `act` for one record with `headers`."""

    async def handler(record: Record) -> None:
        await act(service.ctx, record)

    service = ScriptedService(handler)
    async with started_broker() as broker:
        worker = make_worker(broker, service, record_bytes=MIB, telemetry=telemetry, clock=clock)
        async with running(worker):
            await write(broker, b"value", headers=headers, partition=partition)
            await broker.committed(1, partition=partition)
            yield broker


async def one_reply(broker: SpyBroker) -> tuple[Record, Reply]:
    [record] = await read(broker, REPLIES, 1)
    return record, Reply.decode(record.value or b"")


def ok(session_id: str = "s1", ids: bytes = b"") -> Reply:
    return Reply(request_id="r1", session_id=session_id, status=Status.OK, ids=ids, total=len(ids) // 4, revision=7)


@pytest.mark.parametrize("asked", [b"-1", b"2", b"99999999999", b"one", b"", b"\xff"])
async def test_a_reply_partition_that_does_not_exist_is_not_used(asked: bytes) -> None:
    session = next(f"s{n}" for n in range(9) if partition_for(session_key("", f"s{n}"), 2) == 1)

    async def act(ctx: Context, record: Record) -> None:
        await ctx.reply(record, ok(session))

    async with service_with(act, headers=(("reply-partition", asked),)) as broker:
        record, _ = await one_reply(broker)
        assert record.partition == 1
        assert record.key == session_key("", session)


async def test_an_answer_to_a_one_off_stays_in_its_partition() -> None:
    async def act(ctx: Context, record: Record) -> None:
        await ctx.reply(record, ok(""))

    for partition in (0, 1):
        async with service_with(act, partition=partition) as broker:
            record, _ = await one_reply(broker)
            assert record.partition == partition


async def test_an_answer_over_the_record_limit_is_replaced() -> None:
    async def act(ctx: Context, record: Record) -> None:
        await ctx.reply(record, ok(ids=bytes(MIB - HEADROOM_BYTES + 4)))
        await ctx.reply(record, ok(ids=bytes(MIB - HEADROOM_BYTES)))
        await ctx.reply(record, ok(ids=bytes(MIB - HEADROOM_BYTES - 4096)))

    async with service_with(act) as broker:
        replies = [Reply.decode(record.value or b"") for record in await read(broker, REPLIES, 3)]
    assert [reply.code for reply in replies] == [Code.TEXT_TOO_LARGE, Code.TEXT_TOO_LARGE, None]
    assert [reply.status for reply in replies] == [Status.REJECTED, Status.REJECTED, Status.OK]
    assert [reply.revision for reply in replies] == [7, 7, 7], "the change was made, and the reply says so"


async def test_an_answer_that_breaks_the_protocol_is_the_services_fault() -> None:
    async def act(ctx: Context, record: Record) -> None:
        with pytest.raises(ValueError, match="breaks the protocol"):
            await ctx.reply(record, Reply(request_id="", status=Status.OK))

    async with service_with(act):
        pass


async def test_an_answer_after_its_deadline_is_expired() -> None:
    clock = ManualClock()

    async def act(ctx: Context, record: Record) -> None:
        deadline_ms = clock.now_ms() + 100
        assert not ctx.expired(None)
        assert not ctx.expired(deadline_ms)
        clock.advance(0.101)
        assert ctx.expired(deadline_ms)
        await ctx.reply(record, ok(), deadline_ms=deadline_ms)

    async with service_with(act, clock=clock) as broker:
        _, reply = await one_reply(broker)
    assert (reply.status, reply.code, reply.revision) == (Status.EXPIRED, Code.EXPIRED, 7)


async def test_a_forward_is_keyed_by_session_and_keeps_the_headers() -> None:
    headers = (("correlation-id", b"c"), ("reply-partition", b"1"), ("theirs", b"x"))

    async def act(ctx: Context, record: Record) -> None:
        await ctx.forward(REPAIR, record, b"work", tenant="t", session_id="s3")

    async with service_with(act, headers=headers) as broker:
        [record] = await read(broker, REPAIR, 1)
    assert record.key == session_key("t", "s3")
    assert record.partition == partition_for(session_key("t", "s3"), 2)
    assert (record.value, record.headers) == (b"work", headers)


@pytest.mark.parametrize(("value", "header"), [(bytes(MIB), b""), (b"x", bytes(40 * MIB))])
async def test_a_forward_over_the_record_limit_is_a_protocol_error(value: bytes, header: bytes) -> None:
    record = Record(
        topic="t",
        partition=0,
        offset=0,
        key=None,
        value=b"",
        headers=(("theirs", header),),
        timestamp_ms=0,
    )

    async def act(ctx: Context, _: Record) -> None:
        with pytest.raises(ProtocolError) as caught:
            await ctx.forward(REPAIR, record, value, tenant="t", session_id="s")
        assert caught.value.code is Code.TEXT_TOO_LARGE

    async with service_with(act):
        pass


async def test_answers_are_counted() -> None:
    telemetry = Telemetry.in_memory()
    clock = ManualClock()

    async def act(ctx: Context, record: Record) -> None:
        received_us = ctx.clock.now_us()
        clock.advance(0.25)
        good = Reply(request_id="r", status=Status.OK, path=Path.REPAIR, route=Route.C, reason="delta", replayed=True)
        await ctx.reply(record, good, tokenizer="qwen3", op="append", received_us=received_us)
        await ctx.reply(record, Reply.failure("r", Code.BAD_POSITION, ""))
        await ctx.reply(record, Reply.failure("r", Code.UNKNOWN_SESSION, ""))
        assert ctx.path_stats()["repair/C"].p50_us == 250_000
        assert ctx.path_stats()["repair/C"].count == 1
        late = Reply.failure("r", Code.EXPIRED, "", path=Path.REPAIR)
        await ctx.reply(record, late, received_us=ctx.clock.now_us() - 5)
        assert ctx.path_stats()["repair"].p50_us == 5

    async with service_with(act, telemetry=telemetry, clock=clock):
        pass
    counted = {
        (point.attributes or {})["status"]: dict(point.attributes or {})
        for point in telemetry.metric_points("toksplice.requests")
    }
    assert counted["ok"] == {
        "path": "repair",
        "status": "ok",
        "tokenizer": "qwen3",
        "reason": "delta",
        "route": "C",
        "engine": "reference",
    }
    assert set(counted) == {"ok", "rejected", "need_text", "expired"}
    [duration, _] = telemetry.metric_points("toksplice.request.duration")
    assert duration.sum == pytest.approx(0.25)
    assert dict(duration.attributes or {}) == {
        "path": "repair",
        "route": "C",
        "engine": "reference",
        "status": "ok",
        "tokenizer": "qwen3",
        "op": "append",
    }
    for name in ("toksplice.replays", "toksplice.need_text", "toksplice.rejections"):
        assert [point.value for point in telemetry.metric_points(name)] == [1]


async def test_a_followed_topic_is_read_from_its_start_and_on() -> None:
    seen = Journal()

    def apply(record: Record) -> None:
        if record.value == b"bad":
            raise ValueError(record)
        seen.add((record.key, record.value))

    async with started_broker() as broker:
        await write(broker, b"1", topic=SESSIONS, key=b"a")
        await write(broker, b"bad", topic=SESSIONS, key=b"b")
        await write(broker, b"2", topic=SESSIONS, key=b"c", partition=1)
        service = ScriptedService()
        async with running(make_worker(broker, service)):
            await service.ctx.follow(SESSIONS, apply)
            assert sorted(seen.entries) == [(b"a", b"1"), (b"c", b"2")]
            producer = await broker.memory.producer()
            await producer.send(SESSIONS, None, key=b"a", partition=0)
            assert (await seen.holds(3))[-1] == (b"a", None)


async def test_a_follower_starts_again_when_its_tail_fails() -> None:
    clock = ManualClock()
    seen = Journal()
    async with started_broker() as broker:
        await write(broker, b"1", topic=SESSIONS, key=b"a")
        service = ScriptedService()
        async with running(make_worker(broker, service, clock=clock)):
            broker.memory.fail()
            following = asyncio.create_task(service.ctx.follow(SESSIONS, lambda record: seen.add(record.value)))
            await clock.sleeping(3)
            assert not following.done()
            broker.memory.recover()
            clock.advance(1)
            async with asyncio.timeout(GUARD_S):
                await following
            assert seen.entries == [b"1"]


# Blocking work

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE")


async def test_blocking_work_runs_on_a_bounded_number_of_threads() -> None:
    pool = BlockingPool(2, name="test")
    gate = threading.Barrier(2)
    names: set[str] = set()

    def work(value: int) -> tuple[int, str]:
        gate.wait(GUARD_S)
        names.add(threading.current_thread().name)
        return value, VARIABLE.get()

    VARIABLE.set("inherited")
    results = await asyncio.gather(*(pool.run(work, value) for value in range(6)))
    assert results == [(value, "inherited") for value in range(6)]
    assert names == {"test-0", "test-1"}
    pool.close()
    with pytest.raises(ClosedError):
        await pool.run(work, 1)


async def test_blocking_work_passes_its_error_on_and_a_cancelled_caller_is_free() -> None:
    pool = BlockingPool(1, name="test")
    loop = asyncio.get_running_loop()
    begun, release = asyncio.Event(), threading.Event()

    def fail() -> None:
        raise ZeroDivisionError

    def block() -> None:
        loop.call_soon_threadsafe(begun.set)
        release.wait(GUARD_S)

    with pytest.raises(ZeroDivisionError):
        await pool.run(fail)
    blocked = asyncio.create_task(pool.run(block))
    await begun.wait()
    waiting = asyncio.create_task(pool.run(fail))
    await asyncio.sleep(0)
    for task in (blocked, waiting):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    release.set()
    assert await pool.run(int, "7") == 7
    pool.close()
