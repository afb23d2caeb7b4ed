"""What becomes of records that fail: retries, dead letters, answers, and a broker that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from chassis_kit import (
    ScriptedService,
    SpyBroker,
    make_worker,
    nothing_in,
    pump,
    read,
    request,
    running,
    started_broker,
    write,
)

from pipeline.clock import ManualClock
from pipeline.errors import BrokerUnavailableError, RecordTooLargeError
from pipeline.ports import Record
from pipeline.telemetry import Telemetry
from schemas.codes import Code, Status
from schemas.deadletter import DeadLetter
from schemas.errors import ProtocolError
from schemas.reply import Reply
from schemas.request import Request
from schemas.topics import DLQ, REPAIR, REPLIES, REQUESTS
from schemas.work import Adopt, Work

USERS_WORDS = "what a user wrote"


async def dead_letter(broker: SpyBroker) -> DeadLetter:
    [record] = await read(broker, DLQ, 1)
    assert record.value is not None
    return DeadLetter.decode(record.value)


async def only_reply(broker: SpyBroker) -> tuple[Record, Reply]:
    [record] = await read(broker, REPLIES, 1)
    assert record.value is not None
    return record, Reply.decode(record.value)


def decoding() -> ScriptedService:
    async def handler(record: Record) -> None:
        Request.decode(record.value or b"")

    return ScriptedService(handler)


def failing(times: int) -> ScriptedService:
    async def handler(record: Record) -> None:
        nonlocal times
        times -= 1
        if times >= 0:
            raise RuntimeError(USERS_WORDS)

    return ScriptedService(handler)


async def test_a_record_that_fails_twice_is_handled_a_third_time() -> None:
    telemetry = Telemetry.in_memory()
    async with started_broker() as broker:
        service = failing(2)
        async with running(make_worker(broker, service, telemetry=telemetry)):
            await write(broker, request().encode())
            await broker.committed(1)
        assert len(service.begun.entries) == 3
        assert await nothing_in(broker, DLQ)
    [retries] = telemetry.metric_points("toksplice.retries")
    assert (retries.value, dict(retries.attributes or {})) == (2, {"worker": "classifier"})


async def test_pauses_between_tries_double_up_to_their_bound() -> None:
    clock = ManualClock()
    pauses = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async with started_broker() as broker:
        worker = make_worker(
            broker, failing(5), clock=clock, max_attempts=5, retry_backoff_s=1.0, retry_backoff_max_s=3.0
        )
        async with running(worker):
            await clock.sleeping(2)
            clock.sleep = sleep  # type: ignore[method-assign]
            await write(broker, request().encode())
            await broker.committed(1)
            del clock.sleep  # type: ignore[attr-defined]
    assert [pause for pause in pauses if pause] == [1.0, 2.0, 3.0, 3.0]


async def test_after_the_last_try_it_is_dead_lettered_and_answered_and_committed() -> None:
    telemetry = Telemetry.in_memory()
    headers = (("correlation-id", b"c-1"), ("reply-partition", b"1"))
    async with started_broker() as broker:
        async with running(make_worker(broker, failing(99), telemetry=telemetry)):
            value = request("r9", tenant="acme").encode()
            await write(broker, value, headers=headers, key=b"key")
            await broker.committed(1)
        letter = await dead_letter(broker)
        record, reply = await only_reply(broker)
    assert (letter.topic, letter.partition, letter.offset) == (REQUESTS, 0, 0)
    assert (letter.code, letter.attempt, letter.worker) == (Code.INTERNAL, 3, "worker-1")
    assert (letter.key, letter.value, letter.headers) == (b"key", value, headers)
    assert USERS_WORDS not in letter.error
    assert "RuntimeError" in letter.error
    assert (reply.request_id, reply.tenant, reply.session_id) == ("r9", "acme", "s1")
    assert (reply.status, reply.code) == (Status.ERROR, Code.INTERNAL)
    assert record.partition == 1
    assert ("correlation-id", b"c-1") in record.headers
    [point] = telemetry.metric_points("toksplice.dead_letters")
    assert dict(point.attributes or {}) == {"topic": REQUESTS, "code": "internal"}


async def test_tries_are_counted_over_parking() -> None:
    async def handler(record: Record) -> Awaitable[None]:
        async def fail() -> None:
            raise RuntimeError

        return fail()

    async with started_broker() as broker:
        service = ScriptedService(handler)
        async with running(make_worker(broker, service)):
            await write(broker, request().encode())
            await broker.committed(1)
        assert len(service.begun.entries) == 3
        assert (await dead_letter(broker)).attempt == 3


async def test_a_record_that_breaks_the_protocol_is_rejected_at_once() -> None:
    async with started_broker() as broker:
        service = decoding()
        async with running(make_worker(broker, service)):
            await write(broker, request("r3").encode().replace(b"\xa2op\xa4text", b"\xa2op\xa4tent"))
            await broker.committed(1)
            assert len(service.begun.entries) == 1
        _, reply = await only_reply(broker)
        letter = await dead_letter(broker)
    assert (reply.request_id, reply.session_id) == ("r3", "s1")
    assert (reply.status, reply.code) == (Status.REJECTED, Code.BAD_TYPE)
    assert (letter.code, letter.attempt) == (Code.BAD_TYPE, 1)


@pytest.mark.parametrize("value", [b"", b"\xc1 no MessagePack", b"\x81\xa1v\x01"])
async def test_a_record_without_identity_is_dead_lettered_only(value: bytes) -> None:
    async with started_broker() as broker:
        async with running(make_worker(broker, decoding())):
            await write(broker, value)
            await broker.committed(1)
        assert (await dead_letter(broker)).value == value
        assert await nothing_in(broker, REPLIES)


@pytest.mark.parametrize(("correlation", "name"), [(b"c-7", "c-7"), (b"\xff\x00", b"\xff\x00")])
async def test_a_readable_correlation_id_is_address_enough(correlation: bytes, name: str | bytes) -> None:
    async with started_broker() as broker:
        async with running(make_worker(broker, decoding())):
            await write(broker, b"\xc1", headers=(("correlation-id", correlation),))
            await broker.committed(1)
        record, reply = await only_reply(broker)
    assert reply.request_id == name
    assert reply.code is Code.MALFORMED
    assert record.headers == (("correlation-id", correlation),)


class WorkService(ScriptedService):
    kind = "repair-worker"
    topics = (REPAIR,)


async def refuse(record: Record) -> None:
    raise ProtocolError(Code.QUOTA_EXCEEDED, "no")


async def test_work_records_are_answered_to_the_request_in_them() -> None:
    work = Work(request=request("r5"), fingerprint="f", reason="delta", received_us=1)
    async with started_broker() as broker:
        async with running(make_worker(broker, WorkService(refuse))):
            await write(broker, work.encode(), topic=REPAIR)
            await broker.committed(1, topic=REPAIR)
        _, reply = await only_reply(broker)
    assert (reply.request_id, reply.code) == ("r5", Code.QUOTA_EXCEEDED)


async def test_a_handed_over_session_is_nobodys_request() -> None:
    adopt = Adopt(session_id="s", fingerprint="f", epoch=1, revision=1, state=b"x")
    async with started_broker() as broker:
        async with running(make_worker(broker, WorkService(refuse))):
            headers = (("correlation-id", b"c-1"),)
            await write(broker, adopt.encode(), topic=REPAIR, headers=headers)
            await broker.committed(1, topic=REPAIR)
        assert (await dead_letter(broker)).code is Code.QUOTA_EXCEEDED
        assert await nothing_in(broker, REPLIES)


async def test_nothing_is_committed_before_the_dead_letter_is_acknowledged() -> None:
    clock = ManualClock()
    async with started_broker() as broker:
        away = [BrokerUnavailableError("away"), OSError("odd"), BrokerUnavailableError("away")]
        broker.send_errors[DLQ] = list(away)
        async with running(make_worker(broker, decoding(), clock=clock)):
            await write(broker, b"\xc1", b"\xc1")
            await clock.sleeping(3)
            assert broker.commits_of() == []
            await pump(clock, asyncio.ensure_future(broker.committed(2)))
        assert len(await read(broker, DLQ, 2)) == 2


async def test_an_unreachable_broker_is_no_fault_of_the_record() -> None:
    clock = ManualClock()

    async def handler(record: Record) -> None:
        await service.ctx.reply(record, Reply(request_id="r1", session_id="s1", status=Status.OK))

    service = ScriptedService(handler)
    async with started_broker() as broker:
        broker.send_errors[REPLIES] = [BrokerUnavailableError("away") for _ in range(10)]
        async with running(make_worker(broker, service, clock=clock)):
            await write(broker, request().encode())
            await pump(clock, asyncio.ensure_future(broker.committed(1)))
        assert len(service.begun.entries) == 11
        assert len(await read(broker, REPLIES, 1)) == 1
        assert await nothing_in(broker, DLQ)


async def test_an_answer_that_cannot_be_written_does_not_hold_up_the_partition() -> None:
    async with started_broker() as broker:
        broker.send_errors[REPLIES] = [RecordTooLargeError("never")]
        async with running(make_worker(broker, failing(99))):
            await write(broker, request().encode())
            await broker.committed(1)
        assert len(await read(broker, DLQ, 1)) == 1


async def test_commits_that_fail_are_made_again() -> None:
    clock = ManualClock()
    async with started_broker() as broker:
        broker.commit_errors = [BrokerUnavailableError("away"), RuntimeError("odd")]
        async with running(make_worker(broker, ScriptedService(), clock=clock)):
            await write(broker, b"x")
            await pump(clock, asyncio.ensure_future(broker.committed(1)))
