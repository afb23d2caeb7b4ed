"""The client against a scripted pipeline: the ordinary course, and everything that can go wrong with
replies."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from chassis_kit import GUARD_S, write
from client_kit import FakePipeline, bent_once, failure, once, pipeline

from pipeline.client import Client, ClientSession
from pipeline.clock import ManualClock
from pipeline.errors import BrokerUnavailableError, ClosedError, DeadlineError, ReplyError
from pipeline.ports import Record
from pipeline.telemetry import Telemetry
from schemas.codes import Code
from schemas.reply import Path, Reply, Route
from schemas.request import Op, Request, Want
from schemas.topics import REPLIES, REQUESTS


def check(session: ClientSession, fake: FakePipeline, text: str) -> None:
    """Client, pipeline and expectation agree about the session."""
    assert session.text == text
    assert session.length == len(text.encode())
    assert session.ids.tolist() == list(text.encode())
    state = fake.sessions[session.session_id]
    assert state.text.decode() == text
    assert (session.epoch, session.revision) == (state.epoch, state.revision)


async def test_the_first_append_sends_the_text_and_the_next_only_what_is_new() -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "qwen3", add_special_tokens=True)
        assert (session.text, session.revision, len(session.ids)) == ("", 0, 0)
        first = await session.append("Hallo ")
        second = await session.append("Wörld", offsets=True)
        check(session, fake, "Hallo Wörld")
        text, append = fake.requests.entries
    assert (text.op, text.text, text.want, text.base) == (Op.TEXT, "Hallo ", Want.IDS, None)
    assert (append.op, append.text, append.want) == (Op.APPEND, "Wörld", Want.PATCH)
    assert (append.base.revision, append.base.length, append.base.epoch) == (1, 6, first.epoch)
    assert (append.tenant, append.session_id, append.tokenizer) == ("acme", "s1", "qwen3")
    assert append.add_special_tokens
    assert append.deadline_ms is not None
    assert (first.keep_left, first.total, first.resent) == (0, 6, False)
    assert (second.keep_left, second.keep_right, second.total, second.first_changed) == (6, 0, 12, 6)
    assert second.ids.tolist() == list("Wörld".encode())
    assert second.offsets is not None
    assert second.offsets.tolist()[0] == [6, 7]
    assert (second.path, second.route, second.reason) == (Path.REPAIR, Route.C, "test")
    assert (second.timings, second.fingerprint, second.length) == ({"tokenize_us": 5}, "f", 12)


async def test_every_change_is_sent_as_its_shortest_op() -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "t")
        await session.append("Grüße, Welt")
        await session.splice(0, 7, "Hi")
        check(session, fake, "Hi, Welt")
        await session.truncate(4)
        check(session, fake, "Hi, ")
        await session.update("Hi, you")
        check(session, fake, "Hi, you")
        await session.update("Hé, you")
        check(session, fake, "Hé, you")
        await session.update("Hè, you")  # é and è share their first byte.
        check(session, fake, "Hè, you")
        await session.update("Hè")
        check(session, fake, "Hè")
        await session.update("Hè")
        check(session, fake, "Hè")
        await session.splice(0, 3, "")
        check(session, fake, "")
    assert fake.ops == [
        "text",
        "splice",
        "truncate",
        "append",
        "splice",
        "splice",
        "truncate",
        "append",
        "truncate",
    ]
    assert [r.text for r in fake.requests.entries if r.op is Op.SPLICE] == ["Hi", "é", "è"]


async def test_a_fork_is_a_session_of_its_own() -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "t")
        await session.append("common")
        child = await session.fork("s2")
        await child.append(" child")
        await session.append(" parent")
        check(child, fake, "common child")
        check(session, fake, "common parent")
    assert fake.ops == ["text", "fork", "append", "append"]


@pytest.mark.parametrize("code", [Code.UNKNOWN_SESSION, Code.STALE_REVISION])
async def test_a_fork_of_a_lost_session_sends_the_text_under_the_new_id(code: Code) -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "t")
        await session.append("common")
        fake.before = once(code, Op.FORK)
        child = await session.fork("s2")
        check(child, fake, "common")
        await session.append("!")
        check(session, fake, "common!")
    assert fake.ops == ["text", "fork", "text", "text"]


async def test_a_closed_session_is_gone() -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "t")
        await session.append("x")
        await session.close()
        await session.close()
        assert fake.sessions == {}
        with pytest.raises(ClosedError):
            await session.append("y")
        with pytest.raises(ClosedError):
            await session.fork("s2")
    assert fake.ops == ["text", "close"]


async def test_a_one_off_has_no_session() -> None:
    async with pipeline() as (fake, client):
        answer = await client.encode("añb", "t", offsets=True)
        assert answer.ids.tolist() == list("añb".encode())
        assert answer.total == 4
        assert answer.offsets is not None
        assert answer.offsets.shape == (4, 2)
        [sent] = fake.requests.entries
        assert (sent.session_id, sent.op) == ("", Op.TEXT)
        with pytest.raises(ValueError, match="needs an id"):
            client.session("", "t")


# Lost and stale state


@pytest.mark.parametrize("code", [Code.UNKNOWN_SESSION, Code.STALE_REVISION])
async def test_a_lost_or_stale_session_is_mended_with_the_whole_text(code: Code) -> None:
    telemetry = Telemetry.in_memory()
    async with pipeline(telemetry=telemetry) as (fake, client):
        session = client.session("s1", "t")
        await session.append("one")
        fake.before = once(code, Op.APPEND)
        answer = await session.append(" two")
        check(session, fake, "one two")
        assert answer.resent
        assert (answer.keep_left, answer.ids.tolist(), answer.total) == (3, list(b" two"), 7)
        await session.append(" three")
        check(session, fake, "one two three")
    assert fake.ops == ["text", "append", "text", "append"]
    [resend] = [point for point in telemetry.metric_points("toksplice.client.resends") if point.value]
    assert dict(resend.attributes or {}) == {"cause": code.status.value}


async def test_a_session_changed_by_another_writer_is_mended() -> None:
    async with pipeline() as (fake, client):
        mine, other = client.session("s1", "t"), client.session("s1", "t")
        await mine.append("mine")
        await other.append("other")
        await mine.append("!")
        check(mine, fake, "mine!")
    assert fake.ops == ["text", "text", "append", "text"]


@pytest.mark.parametrize(
    "changes",
    [
        {"length": 99},
        {"revision": 9},
        {"keep_left": 4, "total": 5},
        {"keep_left": 3, "keep_right": 1, "total": 5},
    ],
)
async def test_a_patch_that_does_not_fit_is_not_applied(changes: dict[str, int]) -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "t")
        await session.append("one")
        fake.bend = bent_once(Op.APPEND, **changes)
        answer = await session.append("!")
        check(session, fake, "one!")
        assert answer.resent
    assert fake.ops == ["text", "append", "text"]


async def test_a_new_epoch_with_an_accepted_change_is_taken_over() -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "t")
        await session.append("one")
        fake.bend = bent_once(Op.APPEND, epoch=1)
        answer = await session.append("!")
        assert (answer.resent, session.epoch) == (False, 1)
    assert fake.ops == ["text", "append"]


async def test_a_whole_text_that_is_answered_wrongly_is_an_error() -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "t")
        fake.bend = bent_once(Op.TEXT, length=99)
        with pytest.raises(ReplyError, match="does not fit") as caught:
            await session.append("one")
        assert caught.value.code == Code.INTERNAL
        assert (session.text, len(session.ids)) == ("", 0)
        await session.append("one")
        check(session, fake, "one")
        fake.bend = bent_once(Op.TEXT, length=99)
        with pytest.raises(ReplyError, match="does not fit"):
            await client.encode("one", "t")


# Replies out of order, twice, too late, broken


async def test_replies_in_any_order_find_their_calls() -> None:
    async with pipeline() as (fake, client):
        last = asyncio.Event()

        async def reversed_order(request: Request, reply: Reply) -> list[Reply]:
            if request.text == "first":
                await last.wait()
            last.set()
            return [reply]

        fake.bend = reversed_order
        answers = await asyncio.gather(client.encode("first", "t"), client.encode("second", "t"))
    assert [answer.total for answer in answers] == [5, 6]


async def test_second_copies_and_strangers_replies_are_dropped() -> None:
    telemetry = Telemetry.in_memory()
    async with pipeline(telemetry=telemetry) as (fake, client):
        session = client.session("s1", "t")

        async def twice(request: Request, reply: Reply) -> list[Reply]:
            return [reply, reply]

        fake.bend = twice
        mine = client.reply_partition
        await write(fake.broker, b"\xc1", topic=REPLIES, partition=mine)
        stranger = Reply.failure("someone else's", Code.EXPIRED, "").encode()
        await write(fake.broker, stranger, topic=REPLIES, partition=mine)
        for text in ("a", "b", "c"):
            await session.append(text)
        check(session, fake, "abc")
        await client.encode("x", "t")
    [dropped] = [point for point in telemetry.metric_points("toksplice.client.dropped_replies") if point.value]
    assert dict(dropped.attributes or {}) == {"cause": "unknown"}
    assert dropped.value >= 2 + 3


async def test_two_copies_in_one_fetch_are_one_answer() -> None:
    async with pipeline() as (fake, client):
        copies = 0

        async def hold(request: Request, reply: Reply) -> list[Reply]:
            nonlocal copies
            name = str(request.request_id).encode()
            headers = (("correlation-id", name),)
            copy = Record(
                topic=REPLIES,
                partition=client.reply_partition,
                offset=0,
                key=None,
                value=reply.encode(),
                headers=headers,
                timestamp_ms=0,
            )
            # Both before the call can take the first.
            for _ in range(2):
                client._receive(copy)
                copies += 1
            return []

        fake.bend = hold
        assert (await client.encode("x", "t")).total == 1
        assert copies == 2


async def test_a_reply_is_joined_by_its_id_where_there_is_no_header() -> None:
    async with pipeline() as (fake, client):
        asked = asyncio.create_task(client.encode("x", "t"))

        async def bare(request: Request, reply: Reply) -> list[Reply]:
            await write(fake.broker, reply.encode(), topic=REPLIES, partition=client.reply_partition)
            return []

        fake.bend = bare
        assert (await asked).total == 1


async def test_a_reply_that_cannot_be_read_fails_its_call_only() -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "t")
        await session.append("one")

        async def garbage(request: Request, reply: Reply) -> list[Reply]:
            name = request.request_id
            assert isinstance(name, str)
            headers = (("correlation-id", name.encode()),)
            partition = client.reply_partition
            await write(fake.broker, b"\xc1", topic=REPLIES, partition=partition, headers=headers)
            return []

        fake.bend = garbage
        with pytest.raises(ReplyError, match="cannot be read"):
            await session.append("!")
        assert session.text == "one"
        fake.bend = None
        await session.append("!")
        check(session, fake, "one!")


# Refusals and retries


async def test_a_refusal_is_raised_with_code_and_advice_and_changes_nothing() -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "t")
        await session.append("one")
        fake.before = once(Code.QUOTA_EXCEEDED)
        with pytest.raises(ReplyError, match="Close sessions") as caught:
            await session.append(" two")
        assert (caught.value.code, caught.value.retriable) == (Code.QUOTA_EXCEEDED, False)
        check(session, fake, "one")
        await session.append("!")
        check(session, fake, "one!")
    assert fake.ops == ["text", "append", "append"]


async def test_wrong_positions_and_texts_are_refused_without_a_request() -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "t")
        await session.append("aé")
        for start, end in ((2, 3), (0, 2), (-1, 0), (2, 1), (0, 4)):
            with pytest.raises(ReplyError) as caught:
                await session.splice(start, end, "x")
            assert caught.value.code == Code.BAD_POSITION
        with pytest.raises(ReplyError) as caught:
            await session.truncate(2)
        assert caught.value.code == Code.BAD_POSITION
        with pytest.raises(ReplyError) as caught:
            await session.append("\ud800")
        assert caught.value.code == Code.INVALID_UTF8
        with pytest.raises(ReplyError) as caught:
            await session.append("x" * (16 * 1024 * 1024 + 1))
        assert caught.value.code == Code.TEXT_TOO_LARGE
        check(session, fake, "aé")
        await session.append("!")
    assert fake.ops == ["text", "append"]


@pytest.mark.parametrize("code", [Code.OVERLOADED, Code.BROKER_UNAVAILABLE, Code.STORAGE_FULL])
async def test_a_retriable_error_is_sent_again_under_a_new_id(code: Code) -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "t")
        await session.append("one")
        fake.before = once(code, Op.APPEND)
        answer = await session.append("!")
        check(session, fake, "one!")
        assert not answer.resent
        assert len({request.request_id for request in fake.requests.entries}) == 3
    assert fake.ops == ["text", "append", "append"]


async def test_retries_are_bounded() -> None:
    async with pipeline(max_retries=2) as (fake, client):
        fake.before = lambda request: failure(request, Code.OVERLOADED)
        with pytest.raises(ReplyError) as caught:
            await client.encode("x", "t")
        assert caught.value.retriable
        assert len(fake.requests.entries) == 3


async def test_a_request_that_may_be_written_goes_again_under_its_own_id() -> None:
    async with pipeline() as (fake, client):
        client._producer = Lossy(client)  # type: ignore[assignment]
        await client.encode("x", "t")
        first, second = await fake.requests.holds(2)
        assert first.request_id == second.request_id
    async with pipeline(max_retries=0) as (fake, client):
        fake.broker.send_errors[REQUESTS] = [BrokerUnavailableError("away")]
        session = client.session("s1", "t")
        with pytest.raises(BrokerUnavailableError):
            await session.append("x")
        await session.append("y")
        check(session, fake, "y")


class Lossy:
    """A producer whose first acknowledgement is lost."""

    def __init__(self, client: Client) -> None:
        assert client._producer is not None
        self._inner = client._producer
        self._lost = False

    async def send(self, *args: object, **fields: object) -> int:
        offset = await self._inner.send(*args, **fields)  # type: ignore[arg-type]
        if not self._lost:
            self._lost = True
            raise BrokerUnavailableError("the acknowledgement was lost")
        return offset

    async def stop(self) -> None:
        await self._inner.stop()


# Deadlines, cancellation, concurrency, closing


async def silence(request: Request, reply: Reply) -> list[Reply]:
    return []


async def test_a_call_without_an_answer_ends_at_its_deadline() -> None:
    clock = ManualClock()
    telemetry = Telemetry.in_memory()
    async with pipeline(clock=clock, telemetry=telemetry) as (fake, client):
        session = client.session("s1", "t")
        await session.append("one")
        fake.bend = silence
        asked = asyncio.create_task(session.append(" two", deadline_s=2.5))
        await fake.requests.holds(2)
        assert fake.requests.entries[-1].deadline_ms == clock.now_ms() + 2_500
        await clock.sleeping(1)
        clock.advance(2.5)
        with pytest.raises(DeadlineError, match=r"2\.5 s"):
            await asked
        assert (session.text, session.revision) == ("one", 0)
        fake.bend = None
        await session.append(" 2")
        check(session, fake, "one 2")
    assert fake.ops == ["text", "append", "text"]
    statuses = {
        (point.attributes or {})["status"]: point.count
        for point in telemetry.metric_points("toksplice.request.e2e.duration")
    }
    assert statuses == {"ok": 2, "expired": 1}


async def test_an_expired_reply_is_a_deadline_error() -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "t")
        await session.append("one")
        fake.before = once(Code.EXPIRED)
        with pytest.raises(DeadlineError):
            await session.append("!")
        await session.append("?")
        check(session, fake, "one?")
    assert fake.ops == ["text", "append", "text"]


async def test_after_a_cancelled_call_the_next_sends_the_text() -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "t")
        await session.append("one")
        fake.bend = silence
        asked = asyncio.create_task(session.append(" two"))
        await fake.requests.holds(2)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert session.text == "one"
        fake.bend = None
        answer = await session.append(" three")
        check(session, fake, "one three")
        assert (answer.keep_left, answer.total) == (3, 9)
    assert fake.ops == ["text", "append", "text"]


async def test_calls_on_one_session_run_one_after_the_other() -> None:
    async with pipeline() as (fake, client):
        session = client.session("s1", "t")
        await asyncio.gather(*(session.append(f"{number},") for number in range(20)))
        check(session, fake, "".join(f"{number}," for number in range(20)))
    assert fake.ops == ["text"] + ["append"] * 19


async def test_a_deadline_covers_the_wait_for_the_call_before() -> None:
    clock = ManualClock()
    async with pipeline(clock=clock) as (fake, client):
        session = client.session("s1", "t")
        fake.bend = silence
        slow = asyncio.create_task(session.append("slow", deadline_s=10))
        await fake.requests.holds(1)
        quick = asyncio.create_task(session.append("quick", deadline_s=1))
        await clock.sleeping(2)
        clock.advance(1)
        with pytest.raises(DeadlineError):
            await quick
        assert not slow.done()
        clock.advance(10)
        with pytest.raises(DeadlineError):
            await slow
    assert fake.ops == ["text"]


async def test_many_calls_at_once_are_bounded_by_max_pending() -> None:
    async with pipeline(max_pending=3) as (fake, client):
        release = asyncio.Event()
        highest = 0

        async def hold(request: Request, reply: Reply) -> list[Reply]:
            nonlocal highest
            highest = max(highest, len(client._pending))
            await release.wait()
            return [reply]

        fake.bend = hold
        calls = [asyncio.create_task(client.encode("x" * (n + 1), "t")) for n in range(10)]
        await fake.requests.holds(3)
        release.set()
        answers = await asyncio.gather(*calls)
        assert [answer.total for answer in answers] == list(range(1, 11))
        assert highest == 3
        assert client._pending == {}


async def test_closing_fails_calls_in_flight() -> None:
    async with pipeline() as (fake, client):
        fake.bend = silence
        asked = asyncio.create_task(client.encode("x", "t"))
        await fake.requests.holds(1)
        await client.close()
        with pytest.raises(ClosedError):
            await asked
        with pytest.raises(ClosedError):
            await client.encode("x", "t")
        await client.close()


async def test_a_broker_that_is_stopped_fails_calls_in_flight() -> None:
    async with pipeline(fetch_timeout_s=0.01) as (fake, client):
        fake.bend = silence
        asked = asyncio.create_task(client.encode("x", "t"))
        await fake.requests.holds(1)
        await fake.broker.memory.stop()
        with pytest.raises(ClosedError):
            async with asyncio.timeout(GUARD_S):
                await asked


async def test_a_call_is_one_trace_with_its_reply() -> None:
    telemetry = Telemetry.in_memory()
    async with pipeline(telemetry=telemetry) as (fake, client):
        session = client.session("secret-session", "t")
        await session.append("private words")
        assert fake.sessions
    spans = {span.name: span for span in telemetry.finished_spans()}
    assert set(spans) == {"toksplice append", f"send {REQUESTS}", f"process {REPLIES}"}
    send = spans[f"send {REQUESTS}"]
    assert send.parent is not None
    assert send.parent.span_id == spans["toksplice append"].get_span_context().span_id
    everything = "".join(span.to_json() for span in spans.values())
    assert "secret-session" not in everything
    assert "private words" not in everything


async def test_ids_are_read_only_and_kept_by_copying() -> None:
    async with pipeline() as (_, client):
        session = client.session("s1", "t")
        await session.append("abc")
        kept = session.ids.copy()
        with pytest.raises(ValueError, match="read-only"):
            session.ids[0] = 1
        await session.append("d" * 5000)
        assert kept.tolist() == list(b"abc")
        assert session.ids.dtype == np.uint32
