"""Samples on a bench: what is written for an answer, and that nothing of it touches the answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from repair_kit import Follower, adopt, first_base, repair_bench
from worker_kit import NAME, Bench, TinyRegistry, base_of, bench, ids_of, reference_ids, tiny, work

from consumers.cpu_fallback.service import CpuFallbackService
from pipeline.errors import BrokerUnavailableError, RecordTooLargeError
from pipeline.samples import ENTRY_BYTES, Dropped, library_versions
from pipeline.sampling import Sampler
from pipeline.telemetry import Telemetry
from schemas.codes import Status
from schemas.headers import TRACEPARENT, find
from schemas.health import Control
from schemas.reply import Path, Reply, Route
from schemas.request import Op, Want
from schemas.sample import Sample
from schemas.topics import CONTROL, REPLIES, SHADOW
from toksplice.engine_session import EngineSession
from toksplice.reference_session import ReferenceSession

TEXT = "The quick brown fox jumps over the lazy dog. " * 40


async def samples_of(it: Bench) -> list[Sample]:
    """Write what waits; everything written so far."""
    async with asyncio.timeout(20):
        while len(it.ctx.samples):
            await it.ctx.samples.send_next()
    return [Sample.decode(sent.value or b"") for sent in it.sent(SHADOW)]


def dropped(it: Bench) -> dict[str, float]:
    reasons = [reason.value for reason in Dropped]
    counts = {reason: it.count("toksplice.shadow.dropped", reason=reason) for reason in reasons}
    return {reason: count for reason, count in counts.items() if count}


def u32(data: bytes | None) -> list[int]:
    return np.frombuffer(data or b"", "<u4").tolist()


@pytest.mark.parametrize("engine", [True, False])
async def test_a_sample_holds_what_the_client_has(engine: bool) -> None:
    """Text and all ids, for every operation, by engine and by reference."""
    async with repair_bench(sampling=1.0, registry=TinyRegistry(engine=engine)) as it:
        await it.handle(adopt(TEXT))
        client = Follower(it, TEXT)
        texts, replies = [], []
        for op, new, fields in (
            (Op.APPEND, TEXT + "And on. Dög!", {"text": "And on. Dög!", "offsets": True}),
            (Op.SPLICE, "A" + TEXT[3:] + "And on. Dög!", {"text": "A", "start": 0, "end": 3}),
            (Op.TRUNCATE, "A" + TEXT[3:900], {"length": 898}),
            (Op.TEXT, TEXT[:300], {"text": TEXT[:300], "want": Want.IDS}),
            (Op.TEXT, TEXT[:300], {"text": TEXT[:300]}),
        ):
            replies.append(await client.send(op, new, **fields))
            texts.append(new)
        samples = await samples_of(it)
        assert [sample.text.decode() for sample in samples] == texts
        assert [u32(sample.ids) for sample in samples] == [reference_ids(text) for text in texts]
        for sample, reply in zip(samples, replies, strict=True):
            assert (sample.path, sample.route, sample.reason) == (reply.path, reply.route, reply.reason)
            assert (sample.epoch, sample.revision) == (reply.epoch, reply.revision)
            assert (sample.keep_left, sample.keep_right, sample.offsets) == (
                reply.keep_left,
                reply.keep_right,
                reply.offsets,
            )
            assert sample.first_changed == sample.same_until == reply.first_changed
            assert (sample.tokenizer, sample.worker, sample.libraries) == (NAME, "worker-1", dict(library_versions()))
        assert samples[0].engine == ("native" if engine else "reference")
        assert ("Resumption" if engine else "Certificate") in samples[0].certificate
        assert len({sample.sample_id for sample in samples}) == len(samples)
        assert it.count("toksplice.shadow.samples", tokenizer=NAME, path="repair") >= 3
        assert dropped(it) == {}


async def test_a_first_text_is_sampled_too() -> None:
    async with bench(CpuFallbackService(TinyRegistry()), sampling=1.0) as it:
        reply = await it.ask(work("r", text=TEXT, add_special_tokens=True, offsets=True))
        await it.ask(work("one-off", text="fox", session_id=""))
        first, one_off = await samples_of(it)
        assert (first.path, first.route, first.text.decode()) == (Path.CPU, Route.A, TEXT)
        assert u32(first.ids) == ids_of(reply) == reference_ids(TEXT, add_special_tokens=True)
        assert u32(first.offsets) == u32(reply.offsets)
        assert (one_off.session_id, u32(one_off.ids)) == ("", reference_ids("fox"))
        assert [sent.partition is None for sent in it.sent(SHADOW)] == [False, True]


async def test_a_patch_that_does_not_fit_what_the_client_has_shows() -> None:
    """The session is right, and so are the ids sent; the answer keeps one token too many."""

    class KeepsTooMuch:
        def state(self, work: Any, session: Any) -> Any:
            return session

        def answer(self, work: Any, reply: Reply) -> Reply:
            return replace(reply, keep_left=reply.keep_left + 1, ids=reply.ids[4:])

    async with repair_bench(sampling=1.0, faults=KeepsTooMuch()) as it:
        await it.handle(adopt(TEXT))
        await it.ask(work("a", Op.SPLICE, text="X", start=5, end=9, base=first_base(TEXT)))
        (sample,) = await samples_of(it)
        assert u32(sample.ids) != reference_ids(sample.text.decode())


async def test_what_is_no_answer_of_its_own_is_not_sampled() -> None:
    """Repeats, failures, forks and ends."""
    async with repair_bench(sampling=1.0) as it:
        await it.handle(adopt(TEXT))
        append = work("a", Op.APPEND, text="é", base=first_base(TEXT))
        reply = await it.ask(append)
        assert (await it.ask(append)).replayed
        await it.ask(work("stale", Op.APPEND, text="x", base=first_base(TEXT)))
        await it.ask(work("fork", Op.FORK, new_session="copy", base=base_of(reply)))
        inside = len(TEXT) + 1
        bad = await it.ask(work("bad", Op.SPLICE, text="", start=0, end=inside, base=base_of(reply)))
        assert bad.code == "bad_position"
        await it.ask(work("end", Op.CLOSE))
        assert [sample.request_id for sample in await samples_of(it)] == ["a"]


async def test_an_answer_that_does_not_go_out_is_no_sample() -> None:
    async with repair_bench(sampling=1.0) as it:
        await it.handle(adopt(TEXT))
        it.producer.fail_next(REPLIES)
        append = work("a", Op.APPEND, text="x", base=first_base(TEXT))
        with pytest.raises(BrokerUnavailableError):
            await it.handle(append)
        assert (await it.ask(append)).replayed
        late = work("late", Op.TEXT, text=TEXT + "y", deadline_ms=it.clock.now_ms() + 5)
        (entry,) = it.service._keeper._store  # type: ignore[attr-defined]
        original = entry.session.update

        def slow(*arguments: Any, **options: Any) -> Any:
            it.clock.advance(1)
            return original(*arguments, **options)

        entry.session.update = slow
        assert (await it.ask(late)).status == "expired"
        assert await samples_of(it) == []
        assert dropped(it) == {"unsent": 2}


async def test_nothing_that_a_sample_costs_comes_before_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is out while nothing of the session's text or ids has been read, on the engine or off it."""
    for engine, kind in ((True, EngineSession), (False, ReferenceSession)):
        async with repair_bench(sampling=1.0, registry=TinyRegistry(engine=engine)) as it:
            await it.handle(adopt(TEXT))
            with monkeypatch.context() as patch:
                patch.setattr(kind, "text", property(lambda self: pytest.fail("the text was read")))
                patch.setattr(kind, "utf8", lambda self, start, stop: pytest.fail("the text was read"))
                if engine:
                    patch.setattr(kind, "ids", property(lambda self: pytest.fail("the ids were read")))
                else:
                    patch.setattr(kind, "_own", lambda self: None)
                reply = await it.ask(work("a", Op.APPEND, text="x", base=first_base(TEXT)))
                assert reply.code is None
            assert len(it.ctx.samples) == 1
            assert it.sent(SHADOW) == []


async def test_the_queue_is_bounded_in_number_and_bytes() -> None:
    size = ENTRY_BYTES + len(TEXT) + 4 * len(reference_ids(TEXT))
    for settings in ({"sample_queue_records": 2}, {"sample_queue_bytes": 2 * size + 200}):
        async with bench(CpuFallbackService(TinyRegistry()), sampling=1.0, **settings) as it:
            for number in range(5):
                assert (await it.ask(work(f"r{number}", text=TEXT))).code is None
            assert dropped(it) == {"queue_full": 3}
            assert len(await samples_of(it)) == 2
            await it.ask(work("again", text=TEXT))
            assert len(await samples_of(it)) == 3, "there is room again"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BrokerUnavailableError("gone"), Dropped.BROKER),
        (RecordTooLargeError("large"), Dropped.TOO_LARGE),
        (ValueError("a bug"), Dropped.FAILED),
    ],
)
async def test_a_sample_that_cannot_be_written_is_counted_and_gone(error: Exception, reason: Dropped) -> None:
    async with bench(CpuFallbackService(TinyRegistry()), sampling=1.0) as it:
        await it.ask(work("a", text=TEXT))
        it.producer.errors[SHADOW] = [error]
        assert await samples_of(it) == []
        assert dropped(it) == {reason.value: 1}
        await it.ask(work("b", text=TEXT))
        assert len(await samples_of(it)) == 1


async def test_a_sample_over_the_record_limit_is_dropped() -> None:
    async with bench(CpuFallbackService(TinyRegistry()), sampling=1.0, record_bytes=256 * 1024) as it:
        await it.ask(work("a", text="fox " * 30_000))
        assert await samples_of(it) == []
        assert dropped(it) == {"too_large": 1}


async def test_the_share_follows_the_control_topic() -> None:
    async with repair_bench(sampling=0.0) as it:
        await it.handle(adopt(TEXT))
        client = Follower(it, TEXT)
        for _ in range(30):
            await client.append("x")
        assert await samples_of(it) == []
        control = Control(tokenizer=tiny().fingerprint, breaker_open=False, sampling=1.0)
        it.control.apply(it.record(control.encode(), CONTROL))
        for _ in range(3):
            await client.append("x")
        assert len(await samples_of(it)) == 3


async def test_a_sample_is_in_the_trace_of_its_answer() -> None:
    async with bench(CpuFallbackService(TinyRegistry()), sampling=1.0) as it:
        with Telemetry.in_memory().span("client") as span:
            headers = it.telemetry.inject((("correlation-id", b"c"),), span)
        await it.handle(work("a", text=TEXT), headers)
        await samples_of(it)
        (sent,) = it.sent(SHADOW)
        (reply,) = it.sent(REPLIES)
        assert [name for name, _ in sent.headers] == [TRACEPARENT]
        assert find(sent.headers, TRACEPARENT) == find(reply.headers, TRACEPARENT)


async def test_a_session_is_weighed_again_when_its_sample_is_gone() -> None:
    """While a sample shares its memory a session weighs less; a budget that believed that for ever would be
    overdrawn."""
    async with repair_bench(sampling=1.0) as it:
        keeper = it.service._keeper  # type: ignore[attr-defined]
        await it.handle(adopt(TEXT))
        await Follower(it, TEXT).append("x" * 50)
        (entry,) = keeper._store
        shared = entry.session.size_bytes
        await keeper.tidy()
        assert keeper._lent
        lent_weight = keeper._store.bytes_used
        await samples_of(it)
        await keeper.tidy()
        assert not keeper._lent
        assert entry.session.size_bytes > shared
        assert keeper._store.bytes_used - lent_weight == entry.session.size_bytes - shared


async def test_a_stopping_worker_writes_what_waits() -> None:
    async with bench(CpuFallbackService(TinyRegistry()), sampling=1.0) as it:
        await it.ask(work("a", text=TEXT))
        waiting = asyncio.create_task(it.ctx.samples.send_next())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await it.ctx.samples.drain()
        assert len(it.sent(SHADOW)) == 1
        assert dropped(it) == {}


async def test_a_producer_that_is_still_connecting_at_a_stop_is_closed() -> None:
    """Or its connection would be left half open."""
    async with bench(CpuFallbackService(TinyRegistry()), sampling=1.0) as it:
        connect, closed = asyncio.Event(), asyncio.Event()

        async def slow() -> Any:
            await connect.wait()
            return it.producer

        async def stop() -> None:
            closed.set()

        it.ctx.samples._make_producer = slow
        it.producer.stop = stop  # type: ignore[method-assign]
        await it.ask(work("a", text=TEXT))
        waiting = asyncio.create_task(it.ctx.samples.send_next())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        connect.set()
        await it.ctx.samples.drain()
        assert closed.is_set()
        assert len(it.sent(SHADOW)) == 1


async def test_a_producer_that_could_not_be_had_is_asked_for_again() -> None:
    async with bench(CpuFallbackService(TinyRegistry()), sampling=1.0) as it:
        make, failures = it.ctx.samples._make_producer, [BrokerUnavailableError("not yet")]

        async def flaky() -> Any:
            if failures:
                raise failures.pop()
            return await make()

        it.ctx.samples._make_producer = flaky
        for request_id in ("a", "b"):
            await it.ask(work(request_id, text=TEXT))
        assert [sample.request_id for sample in await samples_of(it)] == ["b"]
        assert dropped(it) == {"broker": 1}


@pytest.mark.parametrize(
    ("engine", "sampling", "at_once"),
    [(True, 0.05, False), (True, 0.05, True), (False, 0.05, False), (True, 0.0, False)],
)
async def test_the_state_before_is_kept_whatever_is_answered_meanwhile(
    engine: bool, sampling: float, at_once: bool
) -> None:
    """Or the patch of an answer that is overtaken could not be checked. Where none can overtake it is kept only when
    it is its turn, and so is a session on the reference: its change would copy it."""
    async with repair_bench(sampling=sampling) as it:
        samples = it.ctx.samples
        samples.sampler = Sampler(0, "w", first_answers=0)
        session = tiny(engine=engine).session(TEXT)
        asked = work("r", Op.APPEND, text="fox")
        while samples.due(asked.fingerprint, (Path.REPAIR,)):
            samples.take(asked.fingerprint, Path.REPAIR)
        trial = samples.trial(asked)
        trial.before(session, Path.REPAIR, at_once=at_once)
        for _ in range(40):
            if samples.due(asked.fingerprint, (Path.REPAIR,)):
                break
            samples.take(asked.fingerprint, Path.REPAIR)
        reply = Reply(request_id="r", status=Status.OK, path=Path.REPAIR, route=Route.A)
        trial.after(reply, session)
        if not sampling:
            assert trial.evidence is None
            return
        assert trial.evidence is not None
        assert (trial.evidence.before is not None) == (engine and not at_once)
