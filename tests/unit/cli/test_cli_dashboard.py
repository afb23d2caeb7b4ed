"""`toksplice up` and its live page: where it is, how it is turned off, what is said when it cannot be."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from cli_kit import Command

from cli.errors import ExitCode
from cli.live.http import DEFAULT_ADDRESS
from toksplice.registry import Registry

TIMEOUT_S = 120
READY = "ready: one JSON request a line on stdin\n"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts `toksplice up` in a process that does not outlive the test."""
    monkeypatch.setenv("TOKSPLICE_SAMPLING", "0")  # Samples that are still unchecked at the end are told of on stderr.
    started: list[subprocess.Popen[str]] = []

    def up(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "cli.main", "up", "--no-state", "--no-gpu", *words]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        started.append(subprocess.Popen(command, text=True, **pipes))
        return started[-1]

    yield up
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def page_of(process: subprocess.Popen[str]) -> int:
    """The port that the process says its page is on."""
    assert process.stderr is not None
    found = re.fullmatch(r"live page: http://127\.0\.0\.1:(\d+)/\n", process.stderr.readline())
    assert found is not None
    assert process.stderr.readline() == READY
    return int(found[1])


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_page_is_there_while_the_command_runs(start: Start) -> None:
    process = start("--dashboard", "127.0.0.1:0")
    port = page_of(process)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write('{"text": "Hello world"}\n')
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["status"] == "ok"
    status, body = get(port, "/live.json")
    shown = json.loads(body)
    assert (status, shown["requests"]["total"]) == (200, 1)
    assert [row["path"] for row in shown["latency"]] == ["cpu"]
    assert b"<title>TokSplice, live</title>" in get(port, "/")[1]
    assert b"toksplice_requests_total{" in get(port, "/metrics")[1]
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=TIMEOUT_S) == ("", "")
    assert process.returncode == 0
    with pytest.raises(ConnectionRefusedError):
        get(port, "/")


def test_the_usual_port_may_be_taken(start: Start) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((DEFAULT_ADDRESS.host, DEFAULT_ADDRESS.port))
            taken.listen()
        except OSError:
            pass  # Somebody else has it, which is as good.
        process = start()
        port = page_of(process)
        assert port != DEFAULT_ADDRESS.port
        assert get(port, "/")[0] == 200


def test_the_page_can_be_off(start: Start) -> None:
    process = start("--dashboard", "off")
    assert process.communicate("", timeout=TIMEOUT_S) == ("", READY)


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("--dashboard", f"127.0.0.1:{port}")
        out, err = process.communicate("", timeout=TIMEOUT_S)
    assert process.returncode == ExitCode.USAGE
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"toksplice: --dashboard: 127.0.0.1:{port} cannot be listened on (")


@pytest.mark.parametrize("address", ["0.0.0.0:80", "nowhere", "example.org:80"])
def test_an_address_that_is_not_on_loopback_is_an_error(command: Command, registry: Registry, address: str) -> None:
    done = command("up", "--dashboard", address)
    assert done.code == ExitCode.USAGE
    assert done.err.startswith(f"toksplice: --dashboard: '{address.partition(':')[0]}")
    assert done.err.count("\n") == 1
