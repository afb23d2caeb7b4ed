"""The GPU worker on a bench: answers, hand-over, the ladder to the CPU, and everything that can go wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from gpu_kit import FakeDevice, until
from worker_kit import NOW_MS, Bench, TinyRegistry, bench, ids_of, reference, reference_ids, tiny, work

from gpu_worker.encoder import Refusal
from gpu_worker.reasons import Reason
from gpu_worker.service import GpuService
from gpu_worker.settings import GpuSettings
from pipeline.errors import BrokerUnavailableError
from pipeline.faults import Faults
from schemas.codes import Code, Status
from schemas.errors import ProtocolError
from schemas.health import Control
from schemas.reply import Path, Reply, Route
from schemas.request import Base, Op
from schemas.topics import CONTROL, CPU, GPU, REPAIR, REPLIES
from schemas.work import Adopt, Served, Work
from toksplice import ReferenceFailedError, Session

TEXT = "The quick brown fox — jumped <|end|> over 1234 dögs. 世界"
SETTINGS = GpuSettings(text_bytes_min=0, batch_wait_s=0)


@dataclass
class Gpu:
    """A GPU worker on a bench, and its device."""

    it: Bench
    device: FakeDevice
    service: GpuService

    async def finish(self, *works: Work, late: float = 0) -> None:
        """Hand over records and work on them together, as the chassis does with parked ones."""
        parked = [await self.it.handle(one) for one in works]
        async with asyncio.TaskGroup() as group:
            for one in parked:
                assert one is not None
                group.create_task(_awaited(one))
            if late:
                await self.launching()
                self.it.clock.advance(late)
                self.device.go.set()

    async def ask(self, one: Work) -> Reply:
        before = len(self.it.replies())
        await self.finish(one)
        (reply,) = self.it.replies()[before:]
        return reply

    async def launching(self, count: int = 1) -> None:
        """Return once so many launches were begun."""
        await until(lambda: len(self.device.launches) >= count)

    def passed_on(self) -> list[Work]:
        found = self.it.passed_on(CPU)
        assert all(isinstance(one, Work) for one in found)
        return found  # type: ignore[return-value]


async def _awaited(parked: Any) -> None:
    await parked


@asynccontextmanager
async def gpu(
    device: FakeDevice | None = None,
    settings: GpuSettings = SETTINGS,
    registry: TinyRegistry | None = None,
    faults: Faults | None = None,
    **bench_settings: Any,
) -> AsyncIterator[Gpu]:
    device = device or FakeDevice()
    given: dict[str, Any] = {} if faults is None else {"faults": faults}
    service = GpuService(registry or TinyRegistry(), device.open, settings, draw_epoch=lambda: 77, **given)
    async with bench(service, **bench_settings) as it:
        await service.encoders.complete.wait()
        yield Gpu(it, device, service)


async def test_the_answer_is_the_reference_s() -> None:
    async with gpu() as one:
        reply = await one.ask(work("r1", text=TEXT, tenant="t"))
        assert one.device.launches == [[TEXT.encode()]]
        assert ids_of(reply) == reference_ids(TEXT)
        assert (reply.status, reply.path, reply.route, reply.reason) == (Status.OK, Path.GPU, Route.G, "why")
        assert (reply.epoch, reply.revision, reply.length) == (77, 1, len(TEXT.encode()))
        assert (reply.keep_left, reply.keep_right, reply.total) == (0, 0, len(reference_ids(TEXT)))
        assert (reply.tenant, reply.session_id, reply.fingerprint) == ("t", "s", tiny().fingerprint)
        assert reply.encoded_chars == len(TEXT)
        assert set(reply.timings) == {"queue_us", "tokenize_us", "total_us"}
        assert one.it.count("toksplice.characters.encoded", engine="gpu") == len(TEXT)
        assert one.it.count("toksplice.requests", path="gpu", route="G", engine="gpu", tokenizer="tiny") == 1


@pytest.mark.parametrize("add_special_tokens", [False, True])
async def test_offsets_are_the_reference_s_with_special_tokens_too(add_special_tokens: bool) -> None:
    async with gpu() as one:
        reply = await one.ask(work("r1", text=TEXT, offsets=True, add_special_tokens=add_special_tokens))
        assert ids_of(reply) == reference_ids(TEXT, add_special_tokens=add_special_tokens)
        spans = np.frombuffer(reply.offsets or b"", "<u4").reshape(-1, 2)
        # The reference counts characters; the wire counts bytes.
        found = reference().encode(TEXT, add_special_tokens=add_special_tokens).offsets
        assert spans.tolist() == [[len(TEXT[:start].encode()), len(TEXT[:end].encode())] for start, end in found]


@pytest.mark.parametrize("add_special_tokens", [False, True])
async def test_the_session_is_handed_over_before_the_answer(add_special_tokens: bool) -> None:
    async with gpu() as one:
        await one.ask(work("r1", text=TEXT, add_special_tokens=add_special_tokens))
        assert [sent.topic for sent in one.it.producer.sent] == [REPAIR, REPLIES]
        (adopt,) = one.it.passed_on(REPAIR)
        assert isinstance(adopt, Adopt)
        assert (adopt.epoch, adopt.revision, adopt.add_special_tokens) == (77, 1, add_special_tokens)
        assert adopt.served == Served(request_id="r1", path=Path.GPU, reason="why", route=Route.G)
        session = tiny().restore(adopt.state)
        assert session.native
        assert session.text == TEXT
        assert session.ids.tolist() == reference_ids(TEXT, add_special_tokens=add_special_tokens)


async def test_a_one_off_is_answered_and_not_handed_over() -> None:
    async with gpu() as one:
        reply = await one.ask(work("r1", text=TEXT, session_id=""))
        assert ids_of(reply) == reference_ids(TEXT)
        assert (reply.epoch, reply.revision) == (0, 0)
        assert one.it.sent(REPAIR) == []


@pytest.mark.parametrize("topic", [REPAIR, REPLIES])
async def test_no_acknowledgement_no_end_of_the_record(topic: str) -> None:
    async with gpu() as one:
        one.it.producer.fail_next(topic)
        parked = await one.it.handle(work("r1", text=TEXT))
        assert parked is not None
        with pytest.raises(BrokerUnavailableError):
            await parked
        assert one.it.sent(REPLIES) == []
        # The chassis has it handled again.
        assert (await one.ask(work("r1", text=TEXT))).status is Status.OK


async def test_records_of_a_partition_share_a_launch_and_each_gets_its_own_answer() -> None:
    async with gpu() as one:
        one.device.go.clear()
        first = asyncio.create_task(one.finish(work("r0", text="the first one")))
        await one.launching()
        texts = {f"r{number}": f"text {number} " * number for number in range(1, 6)}
        rest = [work(name, text=text, session_id=name) for name, text in texts.items()]
        others = asyncio.create_task(one.finish(*rest))
        await until(lambda: len(one.service._batcher) == len(rest))
        one.device.go.set()
        await first
        await others
        assert one.device.launches == [[b"the first one"], [text.encode() for text in texts.values()]]
        answers = {reply.request_id: ids_of(reply) for reply in one.it.replies()}
        assert answers == {name: reference_ids(text) for name, text in texts.items()} | {
            "r0": reference_ids("the first one")
        }
        (point,) = one.it.telemetry.metric_points("toksplice.gpu.launch.texts")
        assert (point.count, point.sum) == (2, 6)


async def test_texts_of_one_session_come_one_after_the_other() -> None:
    async with gpu() as one:
        await one.finish(*(work(f"r{number}", text=f"version {number}") for number in range(4)))
        assert [len(launch) for launch in one.device.launches] == [1, 1, 1, 1]
        assert [reply.request_id for reply in one.it.replies()] == ["r0", "r1", "r2", "r3"]
        assert [tiny().restore(adopt.state).text for adopt in one.it.passed_on(REPAIR)] == [  # type: ignore[union-attr]
            f"version {number}" for number in range(4)
        ]


# The ladder


async def assert_passed_on(one: Gpu, given: Work, reason: str) -> None:
    """The work is the CPU's now, unanswered here, and says why."""
    before = len(one.passed_on())
    await one.finish(given)
    (onward,) = one.passed_on()[before:]
    assert (onward.request, onward.fingerprint, onward.received_us) == (
        given.request,
        given.fingerprint,
        given.received_us,
    )
    assert (onward.reason, onward.hops) == (reason, given.hops + 1)
    assert one.it.sent(REPLIES) == one.it.sent(REPAIR) == []
    assert one.it.count("toksplice.fallbacks", reason=reason) == before + 1


async def test_a_text_under_the_threshold_is_passed_on() -> None:
    async with gpu(settings=GpuSettings(text_bytes_min=10, batch_wait_s=0)) as one:
        # Bytes count, not characters.
        await assert_passed_on(one, work("r1", text="éééé"), "short_text")
        assert (await one.ask(work("r2", text="ééééé"))).status is Status.OK


@pytest.mark.parametrize("refusal", [refusal for refusal in Refusal if refusal is not Refusal.DEVICE_ERROR])
async def test_what_the_kernels_refuse_is_passed_on_and_the_next_text_is_served(refusal: Refusal) -> None:
    async with gpu() as one:
        one.device.refusals[b"fox"] = refusal
        await assert_passed_on(one, work("r1", text=TEXT), f"gpu_{refusal.value}")
        assert (await one.ask(work("r2", text="The dog"))).path is Path.GPU


def test_every_refusal_has_a_reason() -> None:
    assert {Reason.of(refusal) for refusal in Refusal} < set(Reason)


async def test_a_launch_that_raises_is_passed_on_and_the_next_text_is_served(caplog: pytest.LogCaptureFixture) -> None:
    async with gpu() as one:
        one.device.errors = [RuntimeError("secret")]
        await assert_passed_on(one, work("r1", text=TEXT), "gpu_failed")
        assert "secret" not in caplog.text
        assert (await one.ask(work("r2", text=TEXT))).status is Status.OK


async def test_after_a_failure_of_the_device_everything_is_passed_on_until_it_is_there_again() -> None:
    device = FakeDevice()
    async with gpu(device) as one:
        device.refusals[b"fox"] = Refusal.DEVICE_ERROR
        await assert_passed_on(one, work("r1", text=TEXT), "gpu_device_error")
        health = one.service.health()
        assert (health.ready, health.tokenizers) == (False, ())
        assert health.detail
        await assert_passed_on(one, work("r2", text="The dog"), "gpu_device_error")
        assert len(device.launches) == 1
        # It stays away at the first look, and is there at the second.
        device.missing = RuntimeError("gone")
        await rescan(one)
        assert (device.opened, one.service.health().ready) == (2, False)
        device.missing = None
        await rescan(one)
        await one.service.encoders.complete.wait()
        assert one.service.health().ready
        assert (await one.ask(work("r3", text="The dog"))).status is Status.OK


async def rescan(one: Gpu) -> None:
    """The next look at device and registry, to its end."""
    opened = one.device.opened
    await one.it.clock.sleeping(1)
    one.it.clock.advance(SETTINGS.rescan_s)
    await until(lambda: one.device.opened > opened)
    await one.it.clock.sleeping(1)


async def test_an_open_breaker_sends_every_text_to_the_cpu() -> None:
    async with gpu() as one:
        control = Control(tokenizer=tiny().fingerprint, breaker_open=True, sampling=0.0)
        one.it.control.apply(one.it.record(control.encode(), CONTROL))
        await assert_passed_on(one, work("r1", text=TEXT), "breaker_open")
        assert one.device.launches == []


async def test_a_tokenizer_that_the_kernels_do_not_understand() -> None:
    async with gpu(FakeDevice(unsupported=["tiny"])) as one:
        assert one.service.health().tokenizers == ()
        assert one.service.health().ready
        await assert_passed_on(one, work("r1", text=TEXT), "gpu_not_served")


async def test_a_tokenizer_without_the_engine_is_not_served_since_its_sessions_could_not_be_repaired() -> None:
    async with gpu(registry=TinyRegistry(engine=False)) as one:
        assert one.device.made == []
        await assert_passed_on(one, work("r1", text=TEXT), "gpu_not_served")


async def test_a_failure_while_the_answer_is_made_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    registry = TinyRegistry()
    async with gpu(registry=registry) as one:
        registry.errors = [ReferenceFailedError("secret")]
        await assert_passed_on(one, work("r1", text=TEXT), "gpu_failed")
        assert "secret" not in caplog.text
        assert (await one.ask(work("r2", text=TEXT))).status is Status.OK


async def test_overload_sheds_the_shortest_text_whoever_came_last() -> None:
    settings = GpuSettings(text_bytes_min=0, batch_wait_s=0, waiting_texts_max=2)
    async with gpu(settings=settings) as one:
        one.device.go.clear()
        first = asyncio.create_task(one.finish(work("r0", text="busy")))
        await one.launching()
        sizes = {"a": 30, "b": 10, "c": 20, "d": 5}
        rest = asyncio.create_task(
            one.finish(*(work(name, text="x" * size, session_id=name) for name, size in sizes.items()))
        )
        await until(lambda: len(one.passed_on()) == 2)
        one.device.go.set()
        await first
        await rest
        shed = {(onward.request.request_id, onward.reason) for onward in one.passed_on()}
        assert shed == {("b", "gpu_shed"), ("d", "gpu_shed")}
        assert {reply.request_id for reply in one.it.replies()} == {"r0", "a", "c"}


async def test_passing_on_takes_an_acknowledgement_too() -> None:
    async with gpu(settings=GpuSettings(text_bytes_min=10_000)) as one:
        one.it.producer.fail_next(CPU)
        parked = await one.it.handle(work("r1", text=TEXT))
        assert parked is not None
        with pytest.raises(BrokerUnavailableError):
            await parked
        assert one.it.producer.sent == []


# Deadlines


async def test_work_past_its_deadline_is_not_begun() -> None:
    async with gpu() as one:
        reply = await one.ask(work("r1", text=TEXT, deadline_ms=NOW_MS - 1))
        assert (reply.status, reply.path) == (Status.EXPIRED, Path.GPU)
        assert one.device.launches == []


async def test_a_deadline_that_passes_in_the_queue_costs_no_launch() -> None:
    async with gpu() as one:
        one.device.go.clear()
        first = asyncio.create_task(one.finish(work("r0", text="busy")))
        await one.launching()
        waiting = asyncio.create_task(one.finish(work("r1", text=TEXT, session_id="t", deadline_ms=NOW_MS + 1_000)))
        await until(lambda: len(one.service._batcher) == 1)
        one.it.clock.advance(2)
        one.device.go.set()
        await first
        await waiting
        assert [reply.status for reply in one.it.replies() if reply.request_id == "r1"] == [Status.EXPIRED]
        assert len(one.device.launches) == 1


async def test_a_deadline_that_passes_in_the_launch_leaves_no_session() -> None:
    async with gpu() as one:
        one.device.go.clear()
        await one.finish(work("r1", text=TEXT, deadline_ms=NOW_MS + 1_000), late=2)
        (reply,) = one.it.replies()
        assert reply.status is Status.EXPIRED
        assert one.it.sent(REPAIR) == []


# The rest


async def test_a_delta_that_went_astray_is_asked_for_its_text() -> None:
    async with gpu() as one:
        reply = await one.ask(work("r1", Op.APPEND, text="x", base=Base(revision=1, length=1)))
        assert (reply.status, reply.code) == (Status.NEED_TEXT, Code.UNKNOWN_SESSION)


async def test_records_that_do_not_belong_here_are_refused() -> None:
    async with gpu() as one:
        with pytest.raises(ProtocolError):
            await one.it.handle(Adopt(session_id="s", fingerprint="f", epoch=1, revision=1, state=b"x"))
        for value in (None, b"\xc1"):
            with pytest.raises(ProtocolError):
                await one.service.handle(one.it.record(value, GPU))


async def test_without_a_device_the_worker_does_not_start() -> None:
    device = FakeDevice()
    device.missing = RuntimeError("no device")
    with pytest.raises(RuntimeError, match="no device"):
        async with bench(GpuService(TinyRegistry(), device.open, SETTINGS)):
            pass


async def test_health_tells_what_a_text_takes() -> None:
    async with gpu() as one:
        assert one.service.health().costs == {}
        await one.ask(work("r1", text=TEXT))
        health = one.service.health()
        assert health.tokenizers == tuple(health.costs) == (tiny().fingerprint,)


async def test_answers_are_sampled_with_their_text_and_ids() -> None:
    async with gpu(sampling=1.0) as one:
        await one.ask(work("r1", text=TEXT))
        assert len(one.it.ctx.samples) == 1
        assert one.it.count("toksplice.shadow.samples", path="gpu", tokenizer="tiny") == 1


async def test_what_is_passed_on_is_not_sampled() -> None:
    async with gpu(sampling=1.0, settings=GpuSettings(text_bytes_min=10_000)) as one:
        await one.finish(work("r1", text=TEXT))
        assert len(one.it.ctx.samples) == 0


class Planted:
    """A drill: the session loses its last word, and the answer its reason."""

    def state(self, given: Work, session: Session) -> Session:
        session.truncate(session.length - 4)
        return session

    def answer(self, given: Work, reply: Reply) -> Reply:
        return type(reply)(**{**{name: getattr(reply, name) for name in reply.__slots__}, "reason": "drilled"})


async def test_a_drill_can_make_its_answers_wrong() -> None:
    async with gpu(faults=Planted(), sampling=1.0) as one:
        reply = await one.ask(work("r1", text="one two six"))
        assert reply.reason == "drilled"
        assert ids_of(reply) == reference_ids("one two")


async def test_logs_say_nothing_of_texts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with gpu() as one:
        one.device.refusals[b"fox"] = Refusal.OUT_OF_MEMORY
        await one.finish(work("r1", text=TEXT, session_id="secret-session"))
        assert "fox" not in caplog.text
        assert "secret-session" not in caplog.text
