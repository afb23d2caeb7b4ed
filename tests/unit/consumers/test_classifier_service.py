"""The classifier on a bench: what it writes for each kind of request."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from worker_kit import NOW_MS, PARTITIONS, Bench, TinyRegistry, bench, request, tiny

from consumers.classifier.service import ClassifierService
from consumers.classifier.settings import ClassifierSettings
from pipeline.errors import BrokerUnavailableError
from schemas.codes import Code, Status
from schemas.errors import ProtocolError
from schemas.health import Cost, Health
from schemas.request import Base, Op
from schemas.state import SessionRecord
from schemas.topics import CPU, GPU, HEALTH, REPAIR, REPLIES, REQUESTS, SESSIONS, partition_for, session_key
from schemas.work import Work


def session_record() -> SessionRecord:
    return SessionRecord(session_id="s", fingerprint=tiny().fingerprint, epoch=1, worker="w")


def beat(it: Bench, kind: str, cost: Cost) -> None:
    """A heartbeat of a worker that serves the tokenizer at this cost."""
    fingerprint = tiny().fingerprint
    health = Health(
        worker=kind, kind=kind, tokenizers=(fingerprint,), time_ms=NOW_MS, ready=True, costs={fingerprint: cost}
    )
    it.followers.applies[HEALTH](replace(it.record(health.encode(), HEALTH), key=kind.encode()))


async def test_a_first_text_goes_to_the_cpu_with_its_tokenizer_resolved() -> None:
    async with bench(ClassifierService(TinyRegistry())) as it:
        assert await it.handle(request("r1", text="short", tenant="t"), (("traceparent", b"x"),)) is None
        (sent,) = it.sent(CPU)
        assert sent.key == session_key("t", "s")
        assert sent.partition == partition_for(session_key("t", "s"), PARTITIONS)
        (work,) = it.passed_on(CPU)
        assert work == Work(
            request=request("r1", text="short", tenant="t"),
            fingerprint=tiny().fingerprint,
            reason="short_text",
            received_us=NOW_MS * 1_000,
        )
        assert it.replies() == []


async def test_it_loads_no_tokenizer() -> None:
    registry = TinyRegistry()
    async with bench(ClassifierService(registry)) as it:
        await it.handle(request("r1", text="x" * 5000))
        assert registry.gets == 0


async def test_a_session_operation_goes_to_the_repair_worker() -> None:
    async with bench(ClassifierService(TinyRegistry())) as it:
        await it.handle(request("r1", Op.APPEND, text="x", base=Base(revision=1, length=1)))
        (work,) = it.passed_on(REPAIR)
        assert isinstance(work, Work)
        assert work.reason == "session_operation"


async def test_text_of_a_live_session_goes_to_the_repair_worker_until_its_end_is_announced() -> None:
    async with bench(ClassifierService(TinyRegistry())) as it:
        record = session_record()
        for value in (record.encode(), None):
            live = it.record(value, SESSIONS)
            it.followers.applies[SESSIONS](replace(live, key=record.key))
            await it.handle(request("r1", text="x"))
        assert len(it.sent(REPAIR)) == 1
        assert len(it.sent(CPU)) == 1


async def test_a_long_text_goes_to_a_gpu_worker_that_is_there() -> None:
    settings = ClassifierSettings(gpu_text_bytes_min=10, heartbeat_age_s_max=5.0)
    async with bench(ClassifierService(TinyRegistry(), settings)) as it:
        beat(it, "gpu-worker", Cost(fixed_us=0, mib_us=0, record_us=0))
        # Ten bytes, not ten characters.
        await it.handle(request("r1", text="ééééé"))
        assert len(it.sent(GPU)) == 1
        it.clock.advance(5.001)
        await it.handle(request("r2", text="ééééé"))
        (work,) = it.passed_on(CPU)
        assert isinstance(work, Work)
        assert work.reason == "gpu_worker_stale"


async def test_what_the_workers_measured_decides() -> None:
    settings = ClassifierSettings(gpu_text_bytes_min=10)
    async with bench(ClassifierService(TinyRegistry(), settings)) as it:
        beat(it, "gpu-worker", Cost(fixed_us=100, mib_us=0, record_us=0))
        for cpu_us, topic in ((101, GPU), (99, CPU), (101, GPU)):
            before = len(it.sent(topic))
            beat(it, "cpu-fallback", Cost(fixed_us=cpu_us, mib_us=0, record_us=0))
            await it.handle(request("r", text="x" * 10))
            assert len(it.sent(topic)) == before + 1
        (work,) = it.passed_on(CPU)
        assert isinstance(work, Work)
        assert work.reason == "cpu_is_faster"


async def test_a_missing_gpu_worker_is_the_reason_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="consumers")
    async with bench(ClassifierService(TinyRegistry())) as it:
        for number in range(3):
            await it.handle(request(f"r{number}", text="secret" * 1000))
        assert {work.reason for work in it.passed_on(CPU) if isinstance(work, Work)} == {"no_gpu_worker_present"}
    messages = [record.getMessage() for record in caplog.records]
    assert sum("no gpu worker present" in message for message in messages) == 1
    assert not any("secret" in message for message in messages)


async def test_an_expired_request_is_answered_at_once() -> None:
    async with bench(ClassifierService(TinyRegistry())) as it:
        reply = await it.ask(request("r1", text="x", deadline_ms=NOW_MS - 1))
        assert (reply.status, reply.code, reply.reason) == (Status.EXPIRED, Code.EXPIRED, "expired")
        assert {sent.topic for sent in it.producer.sent} == {REPLIES}
        assert it.count("toksplice.requests", status="expired", tokenizer="tiny") == 1


async def test_an_unknown_tokenizer_is_answered_and_never_becomes_a_label() -> None:
    async with bench(ClassifierService(TinyRegistry())) as it:
        reply = await it.ask(request(b"\x00\x01", text="x", tokenizer="who is this"))
        assert reply.code is Code.UNKNOWN_TOKENIZER
        assert reply.request_id == b"\x00\x01"
        assert it.count("toksplice.rejections", code="unknown_tokenizer") == 1
        assert it.count("toksplice.requests", tokenizer="") == 1


@pytest.mark.parametrize("value", [None, b"", b"\xc1", b"\x80"])
async def test_what_breaks_the_protocol_is_left_to_the_chassis(value: bytes | None) -> None:
    async with bench(ClassifierService(TinyRegistry())) as it:
        with pytest.raises(ProtocolError):
            await it.service.handle(it.record(value, REQUESTS))
        assert it.producer.sent == []


async def test_a_broker_that_does_not_acknowledge_is_left_to_the_chassis() -> None:
    async with bench(ClassifierService(TinyRegistry())) as it:
        it.producer.fail_next(CPU)
        with pytest.raises(BrokerUnavailableError):
            await it.handle(request("r1", text="x"))
