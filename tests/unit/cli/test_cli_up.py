"""`toksplice up` on the memory broker: JSON lines in and out, sessions kept over a restart, a clean end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Command

from cli.errors import CliError, ExitCode
from cli.jsonlines import id_of_line, line_from_reply, request_from_line
from cli.line_server import Line, Turns, lines_of
from cli.wiring import GPU_WORKER, SERVICES, make_broker, make_workers, why_no_gpu
from pipeline.settings import WorkerSettings
from schemas.codes import Code, Status
from schemas.errors import ProtocolError
from schemas.reply import Path as ReplyPath
from schemas.reply import Reply, Route
from schemas.request import Base, Op, Request
from toksplice.registry import Registry

TIMEOUT_S = 120


class Up:
    """`toksplice up` in a process of its own."""

    def __init__(self, *words: str, gpu: bool = False) -> None:
        words = words if gpu else ("--no-gpu", *words)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "up", "--dashboard", "off", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])},
        )

    def ask(self, **request: Any) -> Any:
        """Send one request and wait for the next reply."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> tuple[int, str, str]:
        """Close stdin and wait; exit code, the rest of stdout, stderr."""
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, out.decode(), err.decode()


@pytest.fixture
def ups() -> Iterator[list[Up]]:
    """Processes that must not outlive the test."""
    started: list[Up] = []
    yield started
    for up in started:
        if up.process.poll() is None:
            up.process.kill()
            up.process.communicate()


def test_requests_are_answered_and_sessions_outlive_the_process(registry: Registry, ups: list[Up]) -> None:
    ups.append(Up())
    reply = ups[0].ask(text="Hello world")
    assert (reply["status"], reply["ids"], reply["request_id"]) == ("ok", [15496, 995], "line-1")
    first = ups[0].ask(session_id="s", text="Once upon", request_id="a", offsets=True)
    assert first["ids"] == [7454, 2402]
    assert first["offsets"] == [[0, 4], [4, 9]]
    assert ups[0].ask(op="append", session_id="s", request_id="mine")["code"] == "bad_type"
    code, out, err = ups[0].end()
    assert (code, out) == (0, ""), err
    assert err == "ready: one JSON request a line on stdin\n"

    ups.append(Up())
    base = {name: first[name] for name in ("epoch", "revision", "length")}
    second = ups[1].ask(op="append", session_id="s", text=" a time", base=base)
    assert second["status"] == "ok", second
    assert second["total"] == 4
    assert second.get("keep_left", 0) + len(second["ids"]) == 4
    assert ups[1].end()[0] == 0


def test_without_state_a_restart_asks_for_the_text(registry: Registry, ups: list[Up]) -> None:
    ups.append(Up("--no-state"))
    first = ups[0].ask(session_id="s", text="Once upon")
    assert ups[0].end()[0] == 0
    ups.append(Up("--no-state"))
    base = {name: first[name] for name in ("epoch", "revision", "length")}
    assert ups[1].ask(op="append", session_id="s", text=" a time", base=base)["status"] == "need_text"
    assert ups[1].end()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(registry: Registry, ups: list[Up], number: signal.Signals) -> None:
    ups.append(Up("--no-state"))
    assert ups[0].ask(text="x")["status"] == "ok"
    ups[0].process.send_signal(number)
    # stdin stays open until the process has ended: the signal alone must be enough.
    assert ups[0].process.wait(TIMEOUT_S) == 0
    assert ups[0].end() == (0, "", "ready: one JSON request a line on stdin\n")


def test_many_lines_at_once_are_all_answered(registry: Registry, ups: list[Up]) -> None:
    ups.append(Up("--no-state"))
    lines = [json.dumps({"text": f"number {n}"}) for n in range(400)]
    out, err = ups[0].process.communicate(("\n".join(lines)).encode(), timeout=TIMEOUT_S)
    replies = [json.loads(line) for line in out.splitlines()]
    assert sorted(reply["request_id"] for reply in replies) == sorted(f"line-{n}" for n in range(1, 401)), err
    assert {reply["status"] for reply in replies} == {"ok"}


def test_a_line_needs_only_what_differs_from_the_defaults() -> None:
    request = request_from_line(b'{"text": "x"}', number=3, tokenizer="gpt2")
    assert request == Request(request_id="line-3", tokenizer="gpt2", op=Op.TEXT, text="x")
    line = b'{"op": "append", "session_id": "s", "text": "x", "base": {"revision": 1, "length": 2, "epoch": 5}}'
    assert request_from_line(line, number=1, tokenizer="t").base == Base(revision=1, length=2, epoch=5)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense", Code.MALFORMED),
        (b"[1]", Code.MALFORMED),
        (b"[" * 100_000, Code.MALFORMED),
        (b'{"text": 1}', Code.BAD_TYPE),
        (b'{"v": 2, "text": "x"}', Code.BAD_VERSION),
        (b'{"text": "\xff"}', Code.INVALID_UTF8),
    ],
)
def test_a_line_that_is_no_request_is_refused(line: bytes, code: Code) -> None:
    with pytest.raises(ProtocolError) as caught:
        request_from_line(line, number=1, tokenizer="t")
    assert caught.value.code is code


def test_a_refused_line_is_answered_under_its_own_id() -> None:
    assert id_of_line(b'{"request_id": "mine", "text": 1}', 5) == "mine"
    assert id_of_line(b'{"text": 1}', 5) == id_of_line(b"nonsense", 5) == "line-5"


def test_a_reply_line_has_ids_and_offsets_as_numbers() -> None:
    reply = Reply(
        request_id=b"\x01\xff",
        status=Status.OK,
        path=ReplyPath.REPAIR,
        route=Route.C,
        ids=b"\1\0\0\0\0\1\0\0",
        total=2,
        offsets=b"\0\0\0\0\1\0\0\0\1\0\0\0\2\0\0\0",
        timings={"total_us": 5},
    )
    fields = json.loads(line_from_reply(reply))
    assert fields["request_id"] == "01ff"
    assert (fields["ids"], fields["offsets"]) == ([1, 256], [[0, 1], [1, 2]])
    assert (fields["route"], fields["timings"]) == ("C", {"total_us": 5})
    failure = json.loads(line_from_reply(Reply.failure("a", Code.EXPIRED, "late")))
    assert "ids" not in failure
    assert failure["code"] == "expired"


async def test_lines_are_read_from_a_pipe_whole_and_in_order() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as sink, os.fdopen(reading, "rb"):
        sink.write(b"one\n\ntwo")
        lines = lines_of(reading)
        assert await anext(lines) == b"one"
        assert await anext(lines) == b""
        sink.write(b" and a half\nthree")
        sink.close()
        assert [line async for line in lines] == [b"two and a half", b"three"]


def test_it_says_in_one_line_why_no_gpu_is_used(ups: list[Up], registry: Registry) -> None:
    reason = why_no_gpu()
    if reason is None:
        pytest.skip("there is a GPU here")
    ups += [Up("--no-state", gpu=True), Up("--no-state")]
    said = [up.end()[2].splitlines() for up in ups]
    assert reason in said[0]
    assert not any("GPU" in line for line in said[1])


@pytest.mark.parametrize("gpu", [False, True])
def test_the_gpu_s_worker_runs_only_when_there_is_a_gpu(registry: Registry, gpu: bool) -> None:
    workers = make_workers(make_broker("memory://"), registry, WorkerSettings(), gpu=gpu)
    kinds = {worker.service.kind for worker in workers}
    assert kinds == {*SERVICES, "gpu-stand-in"} if gpu else kinds == set(SERVICES) - {GPU_WORKER}


def test_one_name_cannot_stand_for_all_workers(registry: Registry) -> None:
    with pytest.raises(CliError, match="TOKSPLICE_WORKER_ID") as caught:
        make_workers(make_broker("memory://"), registry, WorkerSettings(worker_id="one"))
    assert caught.value.exit_code is ExitCode.USAGE


def test_a_script_may_write_a_sessions_lines_at_once(registry: Registry, ups: list[Up]) -> None:
    ups.append(Up("--no-state"))
    script: list[dict[str, Any]] = [
        {"session_id": "s", "text": "Once upon"},
        {"session_id": "s", "op": "append", "text": " a", "base": {"revision": 1, "length": 9}},
        {"session_id": "s", "op": "append", "text": " time", "base": {"revision": 2, "length": 11}},
        {"session_id": "s", "op": "fork", "new_session": "t", "base": {"revision": 3, "length": 16}},
        {"session_id": "t", "op": "append", "text": "!", "base": {"revision": 1, "length": 16}},
        {"text": "x", "tokenizer": "qwen3"},
    ]
    out, err = ups[0].process.communicate(("\n".join(map(json.dumps, script))).encode(), timeout=TIMEOUT_S)
    replies = {reply["request_id"]: reply for reply in map(json.loads, out.splitlines())}
    statuses = [replies[f"line-{n}"]["status"] for n in range(1, 7)]
    assert statuses == ["ok", "ok", "ok", "ok", "ok", "rejected"], err
    assert [replies[f"line-{n}"]["total"] for n in range(1, 6)] == [2, 3, 4, 4, 5]
    assert "`toksplice tokenizers fetch qwen3`" in replies["line-6"]["message"]
    order = [json.loads(line)["request_id"] for line in out.splitlines()]
    assert [name for name in order if name in {"line-1", "line-2", "line-3"}] == ["line-1", "line-2", "line-3"]


def line(session: str, new_session: str | None = None) -> Line:
    op = Op.TEXT if new_session is None else Op.FORK
    request = Request(
        request_id="r", tokenizer="t", op=op, session_id=session, text="", base=Base(revision=1, length=0),
        new_session=new_session,
    )  # fmt: skip
    return Line(request, b"")


def test_lines_of_a_session_take_turns_and_others_go_on() -> None:
    turns = Turns()
    first, second, other, one_off = line("a"), line("a"), line("b"), line("")
    assert turns.add(first) == [first]
    assert turns.add(second) == []
    assert turns.add(other) == [other]
    assert turns.add(one_off) == [one_off]
    assert turns.done(one_off) == []
    assert turns.done(second) == []
    assert turns.done(first) == [second]
    assert turns.done(first) == []
    assert turns.done(second) == []
    assert turns.add(line("a"))


def test_a_fork_takes_its_turn_in_both_sessions() -> None:
    turns = Turns()
    parent, child, fork, after = line("a"), line("b"), line("a", "b"), line("b")
    assert turns.add(parent) == [parent]
    assert turns.add(child) == [child]
    assert turns.add(fork) == []
    assert turns.add(after) == []
    assert turns.done(child) == []
    assert turns.done(parent) == [fork]
    assert turns.done(fork) == [after]


def test_help_tells_of_the_lines(command: Command) -> None:
    out = command("up", "--help").out
    assert "one request a line on stdin" in out
    assert "in order within a session only" in out
