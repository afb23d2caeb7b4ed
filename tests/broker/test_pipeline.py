"""The whole pipeline on both brokers: the client, a plain producer, bad input, traces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgpack
import numpy as np
import pytest
from families import family
from pipeline_kit import PARTITIONS, Plain, make_registry, make_services, running

from pipeline.client import Client
from pipeline.errors import BrokerUnavailableError, DeadlineError
from pipeline.ports import Broker, Headers
from pipeline.telemetry import Telemetry
from repair_worker.settings import RepairSettings
from schemas.codes import Code, Status
from schemas.headers import CORRELATION_ID
from schemas.limits import DEFAULT_LIMITS
from schemas.reply import Path as ReplyPath
from schemas.reply import Reply, Route
from schemas.request import Base, Op, Request, Want

PROSE = "The quick brown fox jumps over 12 lazy dogs.\ndef f(x):\n    return x + 1\n" * 80


@pytest.fixture
async def pipeline(broker: Broker, tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker with every worker running on it."""
    async with running(broker, make_services(make_registry(tmp_path))):
        yield broker


def ids_of(reply: Reply) -> list[int]:
    return np.frombuffer(reply.ids, dtype="<u4").tolist()


async def test_a_conversation_through_the_client(pipeline: Broker) -> None:
    tokenizer = family("qwen", engine=False)
    async with Client(pipeline, PARTITIONS, tenant="acme") as client:
        session = client.session("talk", "test")
        first = await session.append(PROSE)
        assert (first.path, first.revision) == (ReplyPath.CPU, 1)
        second = await session.append(" And 3 more.", offsets=True)
        assert (second.path, second.route, second.revision) == (ReplyPath.REPAIR, Route.A, 2)
        # The engine begins again some 64 bytes before the edit, whatever the length of the text.
        assert second.encoded_chars < 64 + 2 * len(" And 3 more.")
        assert len(second.ids) <= len(" And 3 more.")
        await session.splice(100, 110, "é, in the middle")
        await session.truncate(session.length - 5)
        await session.update("<think>" + session.text)
        fork = await session.fork("talk-2")
        await fork.append(" in the fork")
        await session.append(" in the original")
        for one in (session, fork):
            assert np.array_equal(one.ids, tokenizer.encode(one.text))
        assert fork.text.endswith(" in the fork")
        await session.close()
        alone = await client.encode("one-off text", "other", offsets=True)
        assert np.array_equal(alone.ids, family("gpt2", engine=False).encode("one-off text"))


async def test_a_million_characters_are_appended_like_ten(pipeline: Broker) -> None:
    """They go through the repair worker and the engine, on both brokers."""
    new = "def f(x):  # 世界, dögs & 12 foxes <|im_end|>\n    return x + 1\n" * 17_000
    async with Client(pipeline, PARTITIONS) as client:
        session = client.session("long", "test")
        await session.append(PROSE)
        answer = await session.append(new)
        assert (answer.path, answer.route) == (ReplyPath.REPAIR, Route.A)
        assert len(new) <= answer.encoded_chars < len(new) + 200
        after = await session.append(" and on")
        assert (after.path, after.route) == (ReplyPath.REPAIR, Route.A)
        assert after.encoded_chars < 200
        assert len(new) > 1_000_000
        assert np.array_equal(session.ids, family("qwen", engine=False).encode(session.text))


async def test_many_sessions_at_once(pipeline: Broker) -> None:
    tokenizer = family("qwen", engine=False)

    async def talk(client: Client, number: int) -> None:
        session = client.session(f"s{number}", "test", add_special_tokens=bool(number % 2))
        for turn in range(6):
            await session.append(f"\nturn {turn} of {number}: " + PROSE[: 400 * number % 1400])
            expected = tokenizer.encode(session.text, add_special_tokens=bool(number % 2))
            assert np.array_equal(session.ids, expected)

    async with Client(pipeline, PARTITIONS) as client, asyncio.TaskGroup() as group:
        for number in range(12):
            group.create_task(talk(client, number))


async def test_a_plain_producer_is_served(pipeline: Broker) -> None:
    """Order, patches, idempotence, need_text and conflicts, by the wire format alone."""
    tokenizer = family("qwen", engine=False)
    async with Plain(pipeline) as plain:
        text = Request(request_id="r1", tokenizer="test", op=Op.TEXT, session_id="s", text=PROSE)
        first = await plain.ask(text)
        assert (first.status, first.keep_left, first.total) == (Status.OK, 0, len(tokenizer.encode(PROSE)))
        base = Base(revision=first.revision, length=first.length, epoch=first.epoch)
        append = replace(text, request_id="r2", op=Op.APPEND, text=" more", base=base)
        second = await plain.ask(append)
        whole = tokenizer.encode(PROSE + " more").tolist()
        assert ids_of(first)[: second.keep_left] + ids_of(second) == whole
        assert second.fingerprint == tokenizer.fingerprint

        await plain.send(append)  # the same request again
        again = await plain.reply_to("r2", count=2)
        assert again.replayed
        assert (again.ids, again.revision) == (second.ids, second.revision)

        stale = await plain.ask(replace(append, request_id="r3"))
        assert (stale.status, stale.code, stale.revision) == (Status.CONFLICT, Code.STALE_REVISION, 2)
        foreign = replace(append, request_id="r4", base=Base(revision=2, length=second.length, epoch=first.epoch ^ 1))
        assert (await plain.ask(foreign)).status in (Status.NEED_TEXT, Status.CONFLICT)
        unknown = await plain.ask(replace(append, request_id="r5", session_id="never seen"))
        assert (unknown.status, unknown.code) == (Status.NEED_TEXT, Code.UNKNOWN_SESSION)
        resent = await plain.ask(replace(text, request_id="r6", text=PROSE + " more!", want=Want.IDS))
        assert (resent.path, resent.keep_left, resent.revision) == (ReplyPath.REPAIR, 0, 3)
        assert ids_of(resent) == tokenizer.encode(PROSE + " more!").tolist()


async def test_a_delta_that_overtakes_its_text_waits_for_it(pipeline: Broker) -> None:
    """A producer that does not wait for replies: the append is there before the session is."""
    async with Plain(pipeline) as plain:
        text = Request(request_id="r1", tokenizer="test", op=Op.TEXT, session_id="s", text=PROSE)
        length = len(PROSE.encode())
        append = replace(text, request_id="r2", op=Op.APPEND, text=" x", base=Base(revision=1, length=length))
        await plain.send(text)
        await plain.send(append)
        reply = await plain.reply_to("r2")
        assert (reply.status, reply.revision) == (Status.OK, 2)


@dataclass(frozen=True)
class Bad:
    """One kind of bad input: what is sent, and the answer."""

    name: str
    code: Code
    status: Status
    value: bytes | None = None
    request: Request | None = None
    headers: Headers = field(default=())


TEXT = Request(request_id="bad", tokenizer="test", op=Op.TEXT, session_id="bad", text="x")
GOOD = {"v": 1, "request_id": "bad", "session_id": "bad", "tokenizer": "test", "op": "text", "text": "x"}
INVALID_UTF8 = msgpack.packb(GOOD).replace(b"\xa4text\xa1x", b"\xa4text\xa1\xff")
#: A lone surrogate as Python would write it: three bytes that are no UTF-8.
SURROGATE = msgpack.packb(GOOD | {"text": "\ud800"}, unicode_errors="surrogatepass")
NAMED = ((CORRELATION_ID, b"bad"),)

BAD_INPUT = [
    Bad("wrong type", Code.BAD_TYPE, Status.REJECTED, msgpack.packb(GOOD | {"text": 7})),
    Bad("wrong version", Code.BAD_VERSION, Status.REJECTED, msgpack.packb(GOOD | {"v": 2})),
    Bad("truncated", Code.MALFORMED, Status.REJECTED, msgpack.packb(GOOD)[:-1], headers=NAMED),
    Bad("not a map", Code.MALFORMED, Status.REJECTED, b"\x93\x01\x02\x03", headers=NAMED),
    Bad("no text", Code.BAD_TYPE, Status.REJECTED, msgpack.packb(GOOD | {"text": None})),
    Bad("lone surrogate", Code.INVALID_UTF8, Status.REJECTED, SURROGATE),
    Bad("invalid UTF-8", Code.INVALID_UTF8, Status.REJECTED, INVALID_UTF8),
    Bad(
        "text over the limit",
        Code.TEXT_TOO_LARGE,
        Status.REJECTED,
        msgpack.packb(GOOD | {"text": "x" * (DEFAULT_LIMITS.text_bytes + 1)}),
    ),
    Bad("unknown tokenizer", Code.UNKNOWN_TOKENIZER, Status.REJECTED, request=replace(TEXT, tokenizer="nobody's")),
    Bad(
        "stale revision",
        Code.STALE_REVISION,
        Status.CONFLICT,
        request=replace(TEXT, session_id="steady", op=Op.APPEND, base=Base(revision=77, length=len(PROSE))),
    ),
    Bad(
        "position inside a character",
        Code.BAD_POSITION,
        Status.REJECTED,
        request=replace(
            TEXT, session_id="accent", op=Op.SPLICE, start=1, end=2, text="", base=Base(revision=1, length=2)
        ),
    ),
    Bad(
        "unknown session",
        Code.UNKNOWN_SESSION,
        Status.NEED_TEXT,
        request=replace(TEXT, op=Op.APPEND, base=Base(revision=1, length=5)),
    ),
    Bad("expired deadline", Code.EXPIRED, Status.EXPIRED, request=replace(TEXT, deadline_ms=1)),
]


async def test_bad_input_gets_its_code_and_disturbs_nothing(pipeline: Broker) -> None:
    """Every kind in one table, between the turns of a steady conversation."""
    async with Plain(pipeline) as plain, Client(pipeline, PARTITIONS) as client:
        steady = client.session("steady", "test")
        await steady.append(PROSE)
        accent = replace(TEXT, request_id="accent", session_id="accent", text="é")
        assert (await plain.ask(accent)).status is Status.OK
        for number, bad in enumerate(BAD_INPUT, 1):
            if bad.request is not None:
                await plain.send(bad.request)
            else:
                await plain.send_raw(bad.value or b"", session_id="bad", headers=bad.headers)
            reply = await plain.reply_to("bad")
            plain.replies.clear()
            assert (reply.code, reply.status) == (bad.code, bad.status), bad.name
            assert reply.message, bad.name
            answer = await steady.append(f" turn {number}.")
            assert answer.route is Route.A, bad.name
        assert np.array_equal(steady.ids, family("qwen", engine=False).encode(steady.text))


async def test_empty_text_is_a_text(pipeline: Broker) -> None:
    async with Plain(pipeline) as plain:
        reply = await plain.ask(replace(TEXT, request_id="empty", session_id="empty", text=""))
        assert (reply.status, reply.total, reply.length) == (Status.OK, 0, 0)


async def test_duplicated_and_reordered_requests(pipeline: Broker) -> None:
    """Each is carried out once; one that comes before its turn is refused, and right when sent again."""
    async with Plain(pipeline) as plain:
        text = Request(request_id="t", tokenizer="test", op=Op.TEXT, session_id="s", text=PROSE)
        first = await plain.ask(text)
        size = first.length
        turns = [
            replace(
                text,
                request_id=f"a{n}",
                op=Op.APPEND,
                text="!",
                base=Base(revision=1 + n, length=size + n, epoch=first.epoch),
            )
            for n in range(4)
        ]
        for turn in (turns[1], turns[0], turns[0], turns[2], turns[1]):
            await plain.send(turn)
        early = await plain.reply_to("a1")
        assert early.status in (Status.CONFLICT, Status.OK)
        last = await plain.ask(replace(text, request_id="end", text=PROSE + "!!!!"))
        assert last.status is Status.OK
        replayed = [r for r in plain.replies if r.request_id == "a0"]
        assert sorted(r.replayed for r in replayed) == [False, True]
        assert len({r.revision for r in replayed}) == 1


async def test_the_broker_goes_and_comes_back(tmp_path: Path, broker_factory: object) -> None:
    broker: Broker = await broker_factory()  # type: ignore[operator]
    async with running(broker, make_services(make_registry(tmp_path))), Client(broker, PARTITIONS) as client:
        session = client.session("s", "test")
        await session.append(PROSE)
        async with broker_factory.unreachable():  # type: ignore[attr-defined]
            with pytest.raises((BrokerUnavailableError, DeadlineError)):
                await session.append(" lost?", deadline_s=2)
        await session.append(" back.", deadline_s=50)
        assert np.array_equal(session.ids, family("qwen", engine=False).encode(session.text))


async def test_a_full_disk_is_counted_and_disturbs_nothing(broker: Broker, tmp_path: Path) -> None:
    """Snapshots cannot be written; requests are answered all the same."""
    telemetry = Telemetry.in_memory()
    blocked = tmp_path / "not a folder"
    blocked.write_text("")
    services = make_services(make_registry(tmp_path), snapshots=blocked / "sessions.sqlite")
    async with running(broker, services, telemetry=telemetry), Client(broker, PARTITIONS) as client:
        session = client.session("s", "test")
        await session.append(PROSE)
        answer = await session.append(" more")
        assert answer.route is Route.A
    failures = telemetry.metric_points("toksplice.snapshot.failures")
    codes = {point.attributes["code"] for point in failures if point.value}
    assert codes == {Code.STORAGE_FULL.value}


async def test_one_trace_follows_a_request_over_every_hop(broker: Broker, tmp_path: Path) -> None:
    telemetry = Telemetry.in_memory()
    services = make_services(make_registry(tmp_path))
    async with (
        running(broker, services, telemetry=telemetry),
        Client(broker, PARTITIONS, telemetry=telemetry) as client,
    ):
        session = client.session("secret-session-name", "test")
        await session.append(PROSE)
        await session.append(" more")
    spans = telemetry.finished_spans()
    calls = sorted((s for s in spans if s.name == "toksplice append"), key=lambda s: s.start_time or 0)
    assert len(calls) == 2
    for call, topics in zip(
        calls,
        (
            ["tokenize.requests", "tokenize.cpu-fallback", "tokenize.repair-worker", "tokenize.replies"],
            ["tokenize.requests", "tokenize.repair-worker", "tokenize.replies"],
        ),
        strict=True,
    ):
        trace = [s for s in spans if s.context.trace_id == call.context.trace_id]
        for topic in topics:
            kinds = {
                s.attributes["messaging.operation.type"]
                for s in trace
                if s.attributes and str(s.attributes.get("messaging.destination.name", "")).endswith(topic)
            }
            assert kinds == {"send", "process"}, (topic, kinds)
        ids = {s.context.span_id for s in trace}
        assert all(s.parent is None or s.parent.span_id in ids for s in trace)
    assert "secret-session-name" not in str([dict(s.attributes or {}) for s in spans])
    assert PROSE[:20] not in str([dict(s.attributes or {}) for s in spans])
    durations = [point.attributes for point in telemetry.metric_points("toksplice.request.duration")]
    made = {(point["path"], point["route"], point["engine"]) for point in durations}
    assert made == {("cpu", "A", "native"), ("repair", "A", "native")}
    answered = [s.attributes for s in spans if s.attributes and "toksplice.route" in s.attributes]
    assert [(a["toksplice.path"], a["toksplice.engine"]) for a in answered] == [("cpu", "native"), ("repair", "native")]


async def test_evicted_sessions_are_asked_for_again(broker: Broker, tmp_path: Path) -> None:
    """The byte budget holds one session: the client resends the text by itself."""
    tokenizer = family("qwen", engine=False)
    repair = RepairSettings(sessions_bytes_max=120_000)
    async with running(broker, make_services(make_registry(tmp_path), repair)), Client(broker, PARTITIONS) as client:
        sessions = [client.session(f"s{n}", "test") for n in range(4)]
        for turn in range(3):
            for session in sessions:
                await session.append(PROSE if not turn else f" turn {turn}")
                assert np.array_equal(session.ids, tokenizer.encode(session.text))
