"""`toksplice shadow report | replay | clear`, and a fault of history from a wrong answer to the test that shows it."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import pytest
from broker_factories import MemoryFactory
from cli_kit import URL, Command, connect_to
from pipeline_kit import PARTITIONS, make_registry
from shadow_kit import finding, right, stack

import toksplice
from cli.main import build_parser
from cli.quarantine import clear, report
from cli.quarantine import command as command_module
from cli.quarantine.replay import Bounds, replayed
from cli.quarantine.source import TopicSource
from pipeline.control import ControlState
from pipeline.memory import MemoryBroker
from pipeline.ports import TopicPartition
from schemas.health import Control, Health
from schemas.sample import DifferenceKind, Finding
from schemas.topics import CONTROL, HEALTH, QUARANTINE, REQUESTS
from shadow.alarm import redacted
from shadow.faults.catalogue import CATALOGUE
from shadow.faults.engines import LONG_PREFIX_BYTES
from shadow.faults.injector import Injector
from shadow.faults.switch import CONFIRM_VARIABLE, FAULT_VARIABLE
from shadow.store import QuarantineStore

HISTORY_FAULT = "repair/append/cache_after_long_prefix.collision/tail"
POISONED = "cpu/first/cache_poisoned.collision/head"
BOUNDS = Bounds(tries=3_000, seconds=60)


def keep(path: FilePath, *findings: Finding) -> None:
    async def save() -> None:
        store = QuarantineStore(path)
        for one in findings:
            assert await store.save(one)
        await store.close()

    asyncio.run(save())


@pytest.fixture
def store(home: FilePath) -> FilePath:
    """Where the command looks without being told."""
    return home / "state" / "quarantine.sqlite"


@pytest.fixture
def small(home: FilePath) -> Any:
    """The home's registry, with the tokenizer of `finding`."""
    return make_registry(home.parent)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Turn the drill's switch."""

    def plant(name: str) -> None:
        monkeypatch.setenv(FAULT_VARIABLE, name)
        monkeypatch.setenv(CONFIRM_VARIABLE, name)

    return plant


@pytest.fixture
async def broker(memory_factory: MemoryFactory, monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    """A memory broker that the commands take for the Kafka that they were named."""
    broker = await memory_factory()
    await connect_to(broker, monkeypatch, command_module, clear)
    return broker


# Report


def test_without_a_file_there_is_nothing_to_report(command: Command, store: FilePath) -> None:
    done = command("shadow", "report", "--json")
    assert done.code == 0
    assert done.json["total"] == 0
    assert done.json["coverage"] is None
    assert not store.exists()


def test_findings_are_paged_the_latest_first(command: Command, store: FilePath) -> None:
    keep(store, *(finding(number) for number in range(5)), finding(9, kind=DifferenceKind.ADDED))
    done = command("shadow", "report", "--json", "--limit", 4, "--page", 2)
    assert done.code == 0
    assert [row["sample_id"] for row in done.json["findings"]] == ["sample-1", "sample-0"]
    assert (done.json["total"], done.json["pages"]) == (6, 2)
    assert done.json["counts"]["kind"] == {"substituted": 5, "added": 1}
    table = command("shadow", "report", "--store", store).out
    assert table.index("sample-9") < table.index("sample-4") < table.index("sample-0")
    assert "quick brown fox" not in table


def test_a_file_that_is_none_is_one_error(command: Command, tmp_path: FilePath) -> None:
    bad = tmp_path / "bad.sqlite"
    bad.write_bytes(b"not a database, and long enough to be looked at" * 10)
    for words in (("report",), ("replay", "x")):
        done = command("shadow", *words, "--store", bad)
        assert done.code == 6
        assert str(bad) in done.err
        assert len(done.err.strip().splitlines()) == 1


def test_what_a_record_says_is_shown_as_it_is(command: Command, store: FilePath) -> None:
    """No markup, nothing that commands a terminal, and any number for a time."""
    odd = replace(finding().sample, tokenizer="[/red]", sample_id="[bold]\x1b]0;x\x07")
    keep(store, finding(sample=odd, time_ms=2**53 - 1))
    done = command("shadow", "report")
    assert done.code == 0
    assert "by tokenizer: [/red] 1" in done.out
    assert r"[bold]\x1b]0;x\x07" in done.out
    assert f"{2**53 - 1} ms" in done.out


def test_a_report_changes_no_file(command: Command, tmp_path: FilePath) -> None:
    notes = tmp_path / "notes"
    notes.write_bytes(b"")
    notes.chmod(0o644)
    assert command("shadow", "report", "--store", notes).code == 6
    assert (notes.read_bytes(), notes.stat().st_mode & 0o777) == (b"", 0o644)


def test_a_text_that_is_none_is_not_replayed(command: Command, store: FilePath) -> None:
    keep(store, finding(sample=replace(finding().sample, text=b"\xff")))
    done = command("shadow", "replay", finding().sample.sample_id)
    assert done.code == 3
    assert "not UTF-8" in done.err


async def test_with_a_broker_the_report_tells_coverage_and_breakers(broker: MemoryBroker) -> None:
    producer = await broker.producer()
    health = Health(
        worker="a", kind="shadow", time_ms=1, ready=True, counts={"samples": 30, "reference": 20, "dropped": 10}
    )
    await producer.send(HEALTH, replace(health, counts={"samples": 1}).encode(), key=b"a")
    await producer.send(HEALTH, health.encode(), key=b"a")
    await producer.send(HEALTH, replace(health, worker="b", counts={"samples": 10}).encode(), key=b"b")
    await producer.send(HEALTH, replace(health, worker="gone").encode(), key=b"gone")
    await producer.send(HEALTH, None, key=b"gone")
    await producer.send(HEALTH, replace(health, worker="r", kind="repair-worker").encode(), key=b"r")
    await producer.send(CONTROL, Control(tokenizer="f", breaker_open=True, sampling=1).encode(), key=b"f")
    for number in (0, 2, 1, 2):
        await producer.send(QUARANTINE, finding(number).encode(), partition=number)
    await producer.send(QUARANTINE, b"no finding", partition=0)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        yield TopicSource(broker, 12), broker

    facts = await report._report(opened(), 10, 1)
    assert facts["coverage"] == {
        "workers": 2,
        "counts": {"samples": 40, "reference": 20, "dropped": 10},
        "by_reference": 0.5,
    }
    assert facts["open_breakers"] == ["f"]
    assert [row["sample_id"] for row in facts["findings"]] == ["sample-2", "sample-1", "sample-0"]
    report._print(facts)


# Replay


def test_an_answer_that_is_right_now_does_not_come_again(command: Command, store: FilePath, small: Any) -> None:
    keep(store, finding(0))
    done = command("shadow", "replay", "sample-0", "--registry", small.folder, "--json")
    assert done.code == 0, done.err
    assert done.json["recorded"]["wrong"] is True
    assert done.json["reproduces"] is False
    assert done.json["minimal"] is done.json["test"] is None
    tried = {(one["history"], one["engine"]): one["route"] for one in done.json["attempts"]}
    assert tried["isolated", True] == "A"
    assert tried["isolated", False] == "D"
    assert list(tried) == [("isolated", True), ("isolated", False), ("last change", True), ("lines", True)]
    assert "does not come again" in command("shadow", "replay", "sample-0", "--registry", small.folder).out


def test_a_fault_of_the_engine_comes_again_alone_and_becomes_a_test(
    command: Command, store: FilePath, small: Any, planted: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(store, finding(0))
    planted(POISONED)
    done = command("shadow", "replay", "sample-0", "--registry", small.folder, "--json")
    assert done.code == 1, done.err
    assert "DRILL" in done.err
    assert done.json["by"] == "isolated"
    assert [one["reproduces"] for one in done.json["attempts"]] == [True, False]
    # A third of the tokens must be one at least.
    assert done.json["minimal"]["characters"] == 3
    assert done.json["minimal"]["minimal"] is True
    the_test_fails_with(POISONED, done.json["test"], small, monkeypatch)
    assert "def test_sample_sample_0" in command("shadow", "replay", "sample-0", "--registry", small.folder).out


def test_replay_says_what_it_lacks(command: Command, store: FilePath, small: Any, tmp_path: FilePath) -> None:
    keep(store, finding(0), redacted(finding(1)))
    for sample_id, folder, code, words in (
        ("nothing", small.folder, 3, "no finding"),
        ("sample-1", small.folder, 3, "without its text"),
        ("sample-0", tmp_path / "empty", 4, "not registered here"),
    ):
        done = command("shadow", "replay", sample_id, "--registry", folder)
        assert done.code == code
        assert words in done.err
        assert "quick brown fox" not in done.err


def the_test_fails_with(fault: str, source: str, registry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The printed test passes on the engine as it is, and fails on one with the fault."""
    compile(source, "printed", "exec")

    def run_it() -> None:
        names: dict[str, Any] = {}
        exec(source, names)  # noqa: S102
        (test,) = (value for name, value in names.items() if name.startswith("test_"))
        test()

    run_it()
    load, injector = toksplice.load, Injector(CATALOGUE[fault], registry)

    def faulty(path: str, *, engine: bool = True) -> Any:
        tokenizer = load(path, engine=engine)
        if engine:
            session = tokenizer.session
            tokenizer.session = lambda *words, **names: injector.plant(  # type: ignore[method-assign]
                session(*words, **names), tokenizer.fingerprint
            )
        return tokenizer

    with monkeypatch.context() as patched:
        patched.setattr(toksplice, "load", faulty)
        with pytest.raises(AssertionError):
            run_it()


async def test_a_fault_of_history_is_found_isolated_and_made_small(
    tmp_path: FilePath, planted: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine whose cache gives wrong ids behind a long prefix: no text shows it on its own."""
    files = tmp_path / "files"
    files.mkdir()
    registry = make_registry(files)
    fault = Injector(CATALOGUE[HISTORY_FAULT], registry)
    async with stack(MemoryBroker(), tmp_path, faults=fault) as it:
        # In memory a record goes when everybody has read it; Kafka keeps it for a day.
        keeper = await it.broker.tail(
            [TopicPartition(REQUESTS, number) for number in range(PARTITIONS)], from_start=True
        )
        session = it.client.session("s", "test")
        await session.append("short, ")
        for number in range(5):
            await session.append(f"and {number} ")
        assert fault.struck == 5
        assert right(session)
        await session.append("é" * LONG_PREFIX_BYTES)
        await session.append(" the fox")
        assert not right(session)
        await it.breaker_is_open()
        await it.shadow.has_handled(8)
        assert it.shadow.health().counts == {"samples": 8, "reference": 8, "different": 1}
        source = TopicSource(it.broker, PARTITIONS)
        (row,) = await source.all()
        one = await source.get(row.sample_id)
        assert one is not None
        requests = await source.requests(one.sample)
        await keeper.stop()
    planted(HISTORY_FAULT)
    facts = await asyncio.to_thread(replayed, one, requests, registry, BOUNDS)
    tried = [(each["history"], each["engine"], each["reproduces"]) for each in facts["attempts"]]
    assert tried == [
        ("isolated", True, False),
        ("isolated", False, False),
        ("recorded", True, True),
        ("recorded", False, False),
    ]
    assert facts["attempts"][2]["steps"] == 8
    steps = facts["minimal"]["steps"]
    assert len(steps) == 2
    assert len(steps[1]["text"]) == 1
    # Nothing of the prefix can be left out: it is as long as the fault needs, to the character.
    assert LONG_PREFIX_BYTES <= len(steps[0]["text"].encode()) <= LONG_PREFIX_BYTES + 1
    the_test_fails_with(HISTORY_FAULT, facts["test"], registry, monkeypatch)
    # Without the requests, edits that are made up show it as well.
    facts = await asyncio.to_thread(replayed, one, [], registry, Bounds(1, 60))
    assert facts["by"] == "last change"
    assert facts["minimal"]["minimal"] is False


# Clear


async def open_breaker(broker: MemoryBroker, *tokenizers: str) -> None:
    producer = await broker.producer()
    for tokenizer in tokenizers:
        record = Control(tokenizer=tokenizer, breaker_open=True, sampling=0.25)
        await producer.send(CONTROL, record.encode(), key=tokenizer.encode())


async def state_of(broker: MemoryBroker) -> ControlState:
    state = ControlState(default_sampling=0)
    tail = await broker.tail([TopicPartition(CONTROL, number) for number in range(12)], from_start=True)
    while not await tail.caught_up():
        for record in await tail.fetch(max_records=100, timeout_s=0.1):
            state.apply(record)
    return state


def options(*words: str) -> Any:
    return build_parser("shadow").parse_args(["shadow", "clear", "--broker", URL, *words])


async def cleared(small: Any, *words: str) -> tuple[list[str], list[str]]:
    closed, left = await clear._clear(options(*words), small)
    return [control.tokenizer for control in closed], left


async def test_clear_closes_what_is_named_and_keeps_the_rate(broker: MemoryBroker, small: Any) -> None:
    fingerprint = small.resolve("test")
    await open_breaker(broker, fingerprint, "e" * 64)
    assert await cleared(small, "other", "--yes") == ([], [fingerprint, "e" * 64])
    assert await cleared(small, "test", "--yes") == ([fingerprint], ["e" * 64])
    state = await state_of(broker)
    assert not state.breaker_open(fingerprint)
    assert state.breaker_open("e" * 64)
    assert state.sampling(fingerprint) == 0.25
    # One that this machine does not have goes by its fingerprint.
    assert await cleared(small, "e" * 64, "--yes") == (["e" * 64], [])


async def test_clear_all_closes_the_one_for_all_too(broker: MemoryBroker, small: Any) -> None:
    await open_breaker(broker, "*", "d" * 64)
    assert sorted((await cleared(small, "--all", "--yes"))[0]) == ["*", "d" * 64]
    assert not (await state_of(broker)).breaker_open("d" * 64)
    assert await cleared(small, "--all", "--yes") == ([], [])


@pytest.mark.parametrize(("answer", "closes"), [("y\n", True), ("\n", False), ("no\n", False), ("", False)])
async def test_clear_asks(
    answer: str, closes: bool, broker: MemoryBroker, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_breaker(broker, "d" * 64)
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    assert bool((await cleared(small, "--all"))[0]) is closes
    assert (await state_of(broker)).breaker_open("d" * 64) is not closes


def test_clear_refuses_what_makes_no_sense(command: Command) -> None:
    for words, said in (
        (("--broker", URL), "name a tokenizer, or use --all"),
        (("test", "--all", "--broker", URL), "name a tokenizer, or use --all"),
        (("test", "--broker", URL), "say --yes"),
        (("test", "--broker", "memory://", "--yes"), "memory:// is seen from inside"),
    ):
        done = command("shadow", "clear", *words)
        assert done.code == 2
        assert said in done.err
