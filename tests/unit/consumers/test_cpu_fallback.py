"""The CPU fallback on a bench: answers, hand-over, and everything that can go wrong."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from worker_kit import NOW_MS, TinyRegistry, bench, ids_of, reference, reference_ids, tiny, work

from consumers.cpu_fallback.service import CpuFallbackService
from pipeline.errors import BrokerUnavailableError, RecordTooLargeError
from schemas.codes import Code, Status
from schemas.errors import ProtocolError
from schemas.health import Control
from schemas.reply import Path, Route
from schemas.request import Base, Op, Want
from schemas.topics import CONTROL, CPU, REPAIR, REPLIES
from schemas.work import Adopt, Served
from toksplice import ReferenceFailedError, TokenizerError
from toksplice.engine import NativeRoute

TEXT = "The quick brown fox — jumped <|end|> over 1234 dögs."


def service(registry: TinyRegistry | None = None) -> CpuFallbackService:
    return CpuFallbackService(registry or TinyRegistry(), draw_epoch=lambda: 77)


async def test_the_answer_is_the_reference_s() -> None:
    async with bench(service()) as it:
        reply = await it.ask(work("r1", text=TEXT, tenant="t"))
        assert ids_of(reply) == reference_ids(TEXT)
        assert (reply.status, reply.path, reply.route, reply.reason) == (Status.OK, Path.CPU, Route.A, "why")
        assert (reply.epoch, reply.revision, reply.length) == (77, 1, len(TEXT.encode()))
        assert (reply.keep_left, reply.keep_right, reply.total) == (0, 0, len(reference_ids(TEXT)))
        assert (reply.tenant, reply.session_id, reply.fingerprint) == ("t", "s", tiny().fingerprint)
        assert set(reply.timings) == {"queue_us", "tokenize_us", "total_us"}
        assert it.count("toksplice.characters.encoded", engine="native") == len(TEXT)


async def test_without_the_engine_the_reference_encodes() -> None:
    async with bench(service(TinyRegistry(engine=False))) as it:
        reply = await it.ask(work("r1", text=TEXT))
        assert (reply.path, reply.route, ids_of(reply)) == (Path.CPU, Route.D, reference_ids(TEXT))
        assert it.count("toksplice.characters.encoded", engine="reference") == len(TEXT)


async def test_an_open_breaker_bars_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NativeRoute, "encode", None)
    monkeypatch.setattr(NativeRoute, "session", None)
    async with bench(service()) as it:
        control = Control(tokenizer=tiny().fingerprint, breaker_open=True, sampling=0.0)
        it.control.apply(it.record(control.encode(), CONTROL))
        for number, session_id in enumerate(("s", "")):
            reply = await it.ask(work(f"r{number}", text=TEXT, session_id=session_id))
            assert (reply.path, reply.route, ids_of(reply)) == (Path.CPU, Route.D, reference_ids(TEXT))
        (adopt,) = it.passed_on(REPAIR)
        assert isinstance(adopt, Adopt)
        assert adopt.served is not None
        assert adopt.served.route is Route.D


@pytest.mark.parametrize("add_special_tokens", [False, True])
async def test_the_session_is_handed_over_before_the_answer(add_special_tokens: bool) -> None:
    async with bench(service()) as it:
        await it.ask(work("r1", text=TEXT, add_special_tokens=add_special_tokens))
        assert [sent.topic for sent in it.producer.sent] == [REPAIR, REPLIES]
        assert it.producer.sent[0].partition == it.producer.sent[1].partition
        (adopt,) = it.passed_on(REPAIR)
        assert isinstance(adopt, Adopt)
        assert (adopt.epoch, adopt.revision, adopt.add_special_tokens) == (77, 1, add_special_tokens)
        assert adopt.served == Served(request_id="r1", path=Path.CPU, reason="why", route=Route.A)
        session = tiny().restore(adopt.state)
        assert session.text == TEXT
        assert session.ids.tolist() == reference_ids(TEXT, add_special_tokens=add_special_tokens)


async def test_no_acknowledged_hand_over_no_answer() -> None:
    async with bench(service()) as it:
        it.producer.fail_next(REPAIR)
        with pytest.raises(BrokerUnavailableError):
            await it.handle(work("r1", text=TEXT))
        assert it.producer.sent == []


@pytest.mark.parametrize("offsets", [False, True])
async def test_a_one_off_is_answered_and_not_handed_over(offsets: bool) -> None:
    async with bench(service()) as it:
        reply = await it.ask(work("r1", text=TEXT, session_id="", offsets=offsets))
        assert ids_of(reply) == reference_ids(TEXT)
        assert (reply.epoch, reply.revision) == (0, 0)
        assert it.sent(REPAIR) == []


@pytest.mark.parametrize("want", Want)
async def test_offsets_are_byte_spans_of_the_ids_sent(want: Want) -> None:
    async with bench(service()) as it:
        reply = await it.ask(work("r1", text=TEXT, offsets=True, want=want, add_special_tokens=True))
        spans = np.frombuffer(reply.offsets or b"", "<u4").reshape(-1, 2)
        assert len(spans) == reply.total
        # The reference counts characters; the wire counts bytes.
        expected = [
            (len(TEXT[:start].encode()), len(TEXT[:end].encode())) for start, end in reference().encode(TEXT).offsets
        ]
        assert spans.tolist() == [list(span) for span in expected]


async def test_empty_text() -> None:
    async with bench(service()) as it:
        reply = await it.ask(work("r1", text=""))
        assert (reply.status, reply.total, reply.length, reply.revision) == (Status.OK, 0, 0, 1)
        assert len(it.sent(REPAIR)) == 1


async def test_work_past_its_deadline_is_not_begun() -> None:
    registry = TinyRegistry()
    async with bench(service(registry)) as it:
        reply = await it.ask(work("r1", text=TEXT, deadline_ms=NOW_MS - 1))
        assert reply.status is Status.EXPIRED
        assert registry.gets == 0
        assert it.sent(REPAIR) == []


async def test_work_that_ends_past_its_deadline_leaves_no_session() -> None:
    registry = TinyRegistry()
    async with bench(service(registry)) as it:
        get = registry.get

        def slow(fingerprint: str) -> object:
            it.clock.advance(2)
            return get(fingerprint)

        registry.get = slow  # type: ignore[assignment, method-assign]
        reply = await it.ask(work("r1", text=TEXT, deadline_ms=NOW_MS + 1_000))
        assert reply.status is Status.EXPIRED
        assert it.sent(REPAIR) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ReferenceFailedError("text: secret"), Code.REFERENCE_FAILED),
        (TokenizerError("secret"), Code.MALFORMED),
    ],
)
async def test_failures_of_the_library_are_answered_and_quote_nothing(
    error: Exception, code: Code, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    registry = TinyRegistry()
    registry.errors = [error]
    async with bench(service(registry)) as it:
        reply = await it.ask(work("r1", text=TEXT))
        assert (reply.code, reply.status) == (code, code.status)
        assert "secret" not in reply.message + caplog.text
        assert it.sent(REPAIR) == []
        # The next one is served: nothing is left behind.
        assert (await it.ask(work("r2", text=TEXT))).status is Status.OK


async def test_a_tokenizer_that_this_worker_does_not_have() -> None:
    async with bench(service()) as it:
        foreign = work("r1", text=TEXT)
        foreign = type(foreign)(
            request=foreign.request, fingerprint="0" * 64, reason="x", received_us=foreign.received_us
        )
        assert (await it.ask(foreign)).code is Code.UNKNOWN_TOKENIZER


async def test_a_state_over_the_record_limit_is_skipped_and_counted() -> None:
    # Ids of 4 bytes and the reference's state both grow with the text; only the state holds the text besides.
    text = "The quick brown fox. " * 1500
    async with bench(service(TinyRegistry(engine=False)), record_bytes=64 * 1024 + 60_000) as it:
        reply = await it.ask(work("r1", text=text, session_id="s"))
        assert reply.status is Status.OK
        assert it.sent(REPAIR) == []
        assert it.count("toksplice.fallbacks", reason="adopt_too_large") == 1


async def test_a_state_that_the_broker_finds_too_large_is_skipped_too() -> None:
    async with bench(service()) as it:
        it.producer.errors[REPAIR] = [RecordTooLargeError("made by a test")]
        assert (await it.ask(work("r1", text=TEXT))).status is Status.OK
        assert it.count("toksplice.fallbacks", reason="adopt_too_large") == 1


async def test_a_delta_that_went_astray_is_asked_for_its_text() -> None:
    async with bench(service()) as it:
        reply = await it.ask(work("r1", Op.APPEND, text="x", base=Base(revision=1, length=1)))
        assert (reply.status, reply.code) == (Status.NEED_TEXT, Code.UNKNOWN_SESSION)


async def test_records_that_do_not_belong_here_are_refused() -> None:
    async with bench(service()) as it:
        adopt = Adopt(session_id="s", fingerprint="f", epoch=1, revision=1, state=b"x")
        with pytest.raises(ProtocolError):
            await it.handle(adopt)
        for value in (None, b"\xc1"):
            with pytest.raises(ProtocolError):
                await it.service.handle(it.record(value, CPU))


async def test_health_names_what_it_can_serve() -> None:
    async with bench(service()) as it:
        assert it.service.health().tokenizers == (tiny().fingerprint,)


async def test_health_tells_what_a_text_takes_but_not_behind_an_open_breaker() -> None:
    async with bench(service()) as it:
        assert it.service.health().costs == {}
        control = Control(tokenizer=tiny().fingerprint, breaker_open=True, sampling=0.0)
        it.control.apply(it.record(control.encode(), CONTROL))
        await it.ask(work("r1", text=TEXT))
        assert it.service.health().costs == {}
        control = Control(tokenizer=tiny().fingerprint, breaker_open=False, sampling=0.0)
        it.control.apply(it.record(control.encode(), CONTROL))
        await it.ask(work("r2", text=TEXT))
        assert it.service.health().costs.keys() == {tiny().fingerprint}


async def test_the_duration_is_measured_from_the_classifier_s_read() -> None:
    async with bench(service()) as it:
        it.clock.advance(1.5)
        reply = await it.ask(work("r1", text=TEXT))
        assert reply.timings["queue_us"] == 1_500_000
        (point,) = it.telemetry.metric_points("toksplice.request.duration")
        assert point.attributes == {
            "path": "cpu",
            "route": "A",
            "engine": "native",
            "status": "ok",
            "tokenizer": "tiny",
            "op": "text",
        }
        assert point.sum == pytest.approx(1.5)
