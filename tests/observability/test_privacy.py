"""What users wrote, and who they are, stays out of every exporter: spans, metrics, logs, the live page.

Secrets are planted in texts, sessions, tenants and request ids. They travel every path, good and bad, with workers that
fail in words that quote all they know; then every byte that left is searched.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from observed_kit import PROSE, Watched, watched, watched_environment
from otlp_sink import METRICS, TRACES, Sink, otlp_sink
from pipeline_kit import GUARD_S, PARTITIONS, Plain

from cli.live.page import DATA
from cli.live.page import METRICS as PROMETHEUS
from cli.worker import _FORMAT, _JsonFormatter
from consumers.classifier.directory import Directory
from pipeline.failures import CAUSES_MAX, without_words
from pipeline.faults import NO_FAULTS
from pipeline.heartbeat import Heartbeat
from pipeline.ports import Record, TopicPartition
from repair_worker.service import RepairService
from schemas.codes import Code
from schemas.deadletter import DeadLetter
from schemas.reply import Reply, Route
from schemas.request import Base, Op, Request
from schemas.topics import DLQ
from schemas.work import Work

ROOT = Path(__file__).parents[2]
TEXT, SESSION, TENANT, REQUEST = "zanzibarwort", "quixotisch-session", "umbrageous-tenant", "kakapo-request"
#: In a text whose handling fails.
BOOM = "thunderplump"
SECRETS = (TEXT, SESSION, TENANT, REQUEST, BOOM)
KEY = "a key that all workers share"


def forms(secret: str) -> Iterator[bytes]:
    """A secret as an exporter could have written it."""
    raw = secret.encode()
    yield raw
    yield raw.hex().encode()
    # base64 begins anew each three bytes, so there are three forms; what depends on the neighbours is cut off.
    for shift in range(3):
        yield base64.b64encode(b"\0" * shift + raw).strip(b"=")[4:-2]


def found_in(data: bytes) -> list[str]:
    low = data.lower()
    return [secret for secret in SECRETS if any(form in data or form.lower() in low for form in forms(secret))]


class Liar:
    """A fault whose answers are wrong where a shadow check can tell."""

    def state(self, work: Work, session: Any) -> Any:
        return session

    def answer(self, work: Work, reply: Reply) -> Reply:
        if reply.route is not Route.A or len(reply.ids) < 8:
            return reply
        return replace(reply, ids=reply.ids[:-8] + reply.ids[-4:] + reply.ids[-8:-4])


@pytest.fixture
def logged() -> Iterator[Callable[[], bytes]]:
    """Everything that is logged at any level, as the commands write it, for people and for machines."""
    root = logging.getLogger()
    streams, handlers, level = [], [], root.level
    for formatter in (logging.Formatter(_FORMAT), _JsonFormatter()):
        streams.append(io.StringIO())
        handlers.append(logging.StreamHandler(streams[-1]))
        handlers[-1].setFormatter(formatter)
        root.addHandler(handlers[-1])
    root.setLevel(logging.DEBUG)
    yield lambda: "".join(stream.getvalue() for stream in streams).encode()
    root.setLevel(level)
    for handler in handlers:
        root.removeHandler(handler)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that fail in the middle of everything, in words that quote all they know."""
    handle, measure = RepairService.handle, Heartbeat._measure

    async def quoting_handle(self: RepairService, record: Record) -> Any:
        if BOOM.encode() in (record.value or b""):
            raise RuntimeError(f"cannot handle {record.value!r}") from ValueError(TEXT)
        return await handle(self, record)

    async def quoting_measure(self: Heartbeat) -> None:
        await measure(self)
        raise RuntimeError(" ".join(SECRETS))

    def quoting_apply(self: Directory, key: bytes | None, value: bytes | None) -> None:
        raise RuntimeError(f"cannot apply {key!r} {value!r} {TEXT}")

    monkeypatch.setattr(RepairService, "handle", quoting_handle)
    monkeypatch.setattr(Heartbeat, "_measure", quoting_measure)
    monkeypatch.setattr(Directory, "apply", quoting_apply)


async def get(url: str) -> bytes:
    host, _, path = url.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    writer.write(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    return answer


async def dead_letters(stack: Watched, codes: set[Code]) -> None:
    """Wait for dead letters of all `codes`."""
    tail = await stack.broker.tail([TopicPartition(DLQ, p) for p in range(PARTITIONS)], from_start=True)
    async with asyncio.timeout(GUARD_S):
        while codes:
            for record in await tail.fetch(max_records=100, timeout_s=1):
                letter = DeadLetter.decode(record.value or b"")
                codes.discard(letter.code)
                assert any(secret.encode() in letter.value for secret in SECRETS), "the secrets travelled"
    await tail.stop()


async def until_logged(logged: Callable[[], bytes], *words: str) -> None:
    """Wait for what workers log after they have answered."""
    async with asyncio.timeout(GUARD_S):
        for word in words:
            while word.encode() not in logged():  # noqa: ASYNC110 - a log tells nobody that it was written
                await asyncio.sleep(0.01)


@asynccontextmanager
async def load(folder: Path) -> AsyncIterator[Watched]:
    """A pipeline that has seen it all. The block begins with everything sent and answered."""
    async with watched(folder, state=folder / "state", tenant=TENANT) as stack:
        text = f"{PROSE}{TEXT} said {TEXT} to {TEXT}. "
        await stack.drive(tenant=TENANT, name=SESSION, text=text)
        async with Plain(stack.broker) as plain:
            shared = {"tenant": TENANT, "session_id": SESSION, "tokenizer": "qwen"}
            first = Request(request_id=f"{REQUEST}-0", op=Op.TEXT, text=text, **shared)
            held = await plain.ask(first)
            base = Base(epoch=held.epoch, revision=held.revision, length=held.length)
            bad = Request(request_id=f"{REQUEST}-1", op=Op.APPEND, text=BOOM + TEXT, base=base, **shared)
            assert (await plain.ask(bad)).code is Code.INTERNAL
        yield stack


@pytest.mark.usefixtures("failing")
async def test_nothing_that_users_wrote_or_are_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Callable[[], bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    with otlp_sink() as sink:
        watched_environment(monkeypatch, otlp=sink.endpoint)
        monkeypatch.setenv("TOKSPLICE_CONVERSATION_KEY", KEY)
        (tmp_path / "state").mkdir()
        async with load(tmp_path) as stack:
            await dead_letters(stack, {Code.INTERNAL, Code.MALFORMED})
            await until_logged(logged, "heartbeat failed; it goes on", "could not be applied")
            pages = b"".join([await get(stack.url + path.removeprefix("/")) for path in ("/", DATA, PROMETHEUS)])
            hashes = [stack.telemetries[0].conversation_id(TENANT, f"{SESSION}-qwen-0")]
    printed = "".join(capfd.readouterr()).encode()
    check_that_all_was_seen(sink, pages, logged(), hashes)
    leaks = {
        "spans": found_in(b"".join(sink.bodies[TRACES])),
        "metrics": found_in(b"".join(sink.bodies[METRICS])),
        "logs": found_in(logged()),
        "live page": found_in(pages),
        "printed": found_in(printed),
    }
    assert {where: found for where, found in leaks.items() if found} == {}
    assert sink.bodies.keys() == {TRACES, METRICS}


def check_that_all_was_seen(sink: Sink, pages: bytes, logs: bytes, hashes: list[str]) -> None:
    """The search means something only where there is something to find."""
    spans = b"".join(sink.bodies[TRACES])
    for word in ("process tokenize.requests", "send tokenize.replies", "RuntimeError", "malformed", *hashes):
        assert word.encode() in spans, word
    for word in (b"toksplice.requests", b"toksplice.need_text", b"toksplice.dead_letters", b"no_rule"):
        assert word in b"".join(sink.bodies[METRICS]), word
    assert b"try 3 failed: RuntimeError" in logs
    assert b"TokSpliceDeadLetters" in pages
    assert b"toksplice_requests_total" in pages


async def test_a_wrong_answer_is_told_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Callable[[], bytes]
) -> None:
    with otlp_sink() as sink:
        watched_environment(monkeypatch, otlp=sink.endpoint)
        (tmp_path / "state").mkdir()
        async with watched(tmp_path, state=tmp_path / "state", tenant=TENANT) as stack:
            (repair,) = (w.service for w in stack.workers if isinstance(w.service, RepairService))
            assert repair._faults is NO_FAULTS
            repair._faults = Liar()
            session = stack.client.session(SESSION, "qwen")
            await session.append(f"{PROSE}{TEXT} said {TEXT}. ")
            await session.append(f"{TEXT} was said. ")
            await until_logged(logged, "WRONG ANSWER")
            pages = await get(stack.url + "live.json")
    assert found_in(logged() + pages + b"".join(sink.bodies[TRACES] + sink.bodies[METRICS])) == []
    shadow = json.loads(pages.partition(b"\r\n\r\n")[2])["shadow"]
    assert shadow["checked"]


async def test_the_search_finds_what_is_there() -> None:
    for secret in SECRETS:
        for shift in range(3):
            assert found_in(base64.b64encode(b"x" * shift + secret.encode() + b"tail")) == [secret]
        assert found_in(secret.upper().encode()) == [secret]
        assert found_in(secret.encode().hex().encode()) == [secret]
    assert found_in(b"nothing") == []


# How exceptions are told


def test_an_exception_is_told_without_its_words() -> None:
    def fails() -> None:
        try:
            raise KeyError(TEXT)
        except KeyError as error:
            raise RuntimeError(SESSION) from error

    with pytest.raises(RuntimeError) as caught:
        fails()
    told = without_words(caught.value)
    assert re.fullmatch(
        r"RuntimeError at test_privacy.py:\d+ in fails < test_privacy.py:\d+ in \w+, "
        r"caused by KeyError at test_privacy.py:\d+ in fails",
        told,
    )
    assert without_words(ValueError(TEXT)) == "ValueError at an unknown place"
    chained: BaseException = ValueError("0")
    for _ in range(2 * CAUSES_MAX):
        following = ValueError("more")
        following.__cause__ = chained
        chained = following
    assert without_words(chained).count("ValueError") == CAUSES_MAX


def test_no_log_is_written_with_the_words_of_an_exception() -> None:
    packages = ("cli", "consumers", "gpu_worker", "pipeline", "repair_worker", "schemas", "shadow", "toksplice")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for package in packages
        for path in (ROOT / package).rglob("*.py")
        for match in re.finditer(r"\b_?log\w*\.exception\(|exc_info=|stack_info=|print_exc", path.read_text())
        if path.name != "failures.py"
    ]
    assert found == []
