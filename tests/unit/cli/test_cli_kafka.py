"""The commands against a real Apache Kafka: workers in processes of their own, a replay, and the operators' view."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_factories import KafkaFactory
from cli_kit import Command
from kafka_server import KafkaServer

from cli.wiring import GPU_WORKER, SERVICES
from shadow.faults.switch import CONFIRM_VARIABLE, FAULT_VARIABLE
from toksplice.registry import Registry

pytestmark = pytest.mark.broker

STOP_S = 60
#: Those that need no device, whatever is in this machine.
WORKERS = [name for name in SERVICES if name != GPU_WORKER]


@pytest.fixture
def kafka(kafka_server: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of the server; topics are in a namespace of this test's own."""
    factory = KafkaFactory(kafka_server)
    for name, value in factory.environ().items():
        monkeypatch.setenv(name, value)
    yield factory.url
    asyncio.run(factory.close())


@pytest.fixture
def processes() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Processes that must not outlive the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(STOP_S)


def start(*words: str) -> "subprocess.Popen[bytes]":
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    return subprocess.Popen([sys.executable, "-m", "cli.main", *words], env=environ, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("way", ["up", "worker"])
def test_a_replay_through_kafka_is_exact(
    command: Command,
    registry: Registry,
    kafka: str,
    processes: list["subprocess.Popen[bytes]"],
    tmp_path: Path,
    way: str,
) -> None:
    if way == "up":
        processes.append(start("up", "--no-gpu", "--broker", kafka))
    else:
        processes.extend(start("worker", name, "--broker", kafka) for name in WORKERS)
    sessions = tmp_path / "sessions.jsonl"
    talk = [["user", "Hello"], ["assistant", "Hi"], ["tool", "line\n" * 900], ["assistant", "Done"]]
    sessions.write_text("".join(json.dumps({"session": str(n), "appends": talk}) + "\n" for n in range(3)))

    done = command("replay", sessions, "--verify", "--broker", kafka, "--json", "-")
    assert done.code == 0, done.err
    assert (done.json["requests"], done.json["checked"], done.json["mismatches"]) == (6, 6, 0)

    workers = command("top", "--broker", kafka, "--json").json
    assert sorted(worker["kind"] for worker in workers) == sorted([*WORKERS, "gpu-stand-in"])
    assert command("top", "--broker", kafka, "--once").code == 0
    assert command("dlq", "list", "--broker", kafka, "--json").json == {"total": 0, "letters": []}

    for process in processes:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(STOP_S) for process in processes] == [0] * len(processes)


def test_a_broker_that_is_not_there_is_one_clear_error(command: Command, registry: Registry, tmp_path: Path) -> None:
    sessions = tmp_path / "sessions.jsonl"
    sessions.write_text('{"appends": [["assistant", "x"]]}\n')
    done = command("replay", sessions, "--broker", "kafka://127.0.0.1:1")
    assert done.code == 5
    assert done.err.startswith("toksplice: ")
    assert done.err.count("\n") == 1


def test_a_drill_is_found_reported_replayed_and_cleared(
    command: Command,
    registry: Registry,
    kafka: str,
    processes: list["subprocess.Popen[bytes]"],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every step an operator takes, with workers that have a fault of history planted."""
    for variable in (FAULT_VARIABLE, CONFIRM_VARIABLE):
        monkeypatch.setenv(variable, "repair/append/cache_after_long_prefix.collision/tail")
    up = start("up", "--no-gpu", "--broker", kafka)
    processes.append(up)
    sessions = tmp_path / "sessions.jsonl"
    talk = [["user", "Hello, " * 100], ["assistant", "Hi"], ["tool", "line\n"], ["assistant", "Done"]]
    sessions.write_text(json.dumps({"session": "s", "appends": talk}) + "\n")
    assert command("replay", sessions, "--broker", kafka, "--json", "-").code == 0

    report = {"total": 0, "open_breakers": []}
    until_s = time.monotonic() + STOP_S
    # The check is behind the answers; each look waits for the broker.
    while not (report["total"] and report["open_breakers"]) and time.monotonic() < until_s:
        done = command("shadow", "report", "--broker", kafka, "--json")
        assert done.code == 0, done.err
        report = done.json
    (finding, *_) = report["findings"]
    assert report["open_breakers"] == [registry.resolve("gpt2")]
    assert (finding["tokenizer"], finding["path"], finding["route"]) == ("gpt2", "repair", "A")

    done = command("shadow", "replay", finding["sample_id"], "--broker", kafka, "--json")
    assert done.code == 1, done.err
    assert done.json["by"] == "recorded"
    assert len(done.json["minimal"]["steps"]) == 2

    up.send_signal(signal.SIGTERM)
    assert up.wait(STOP_S) == 0
    done = command("shadow", "clear", "gpt2", "--yes", "--broker", kafka, "--json")
    assert (done.code, [one["tokenizer"] for one in done.json["closed"]]) == (0, ["gpt2"]), done.err
    assert command("shadow", "report", "--broker", kafka, "--json").json["open_breakers"] == []
    assert command("shadow", "clear", "gpt2", "--yes", "--broker", kafka).out.strip() == "no breaker was closed"
