"""`toksplice verify --faults`, on a share of the catalogue; and the switch that plants a fault in a running worker."""

from __future__ import annotations

import json
import logging
from pathlib import Path as FilePath
from typing import Any

import pytest
from cli_kit import Command
from pipeline_kit import make_registry
from worker_kit import bench

from cli.drill import run as drill_run
from cli.drill import service
from cli.drill.run import BAR, Outcome, Trial, run_healthy
from cli.drill.stack import stack
from cli.wiring import SERVICES, make_broker, make_worker
from pipeline.errors import SettingsError
from pipeline.kafka import KafkaBroker, KafkaSettings
from pipeline.settings import WorkerSettings
from schemas.reply import Path
from schemas.sample import DifferenceKind
from shadow.faults.catalogue import CATALOGUE, Kind
from shadow.faults.injector import Injector
from shadow.faults.switch import CONFIRM_VARIABLE, FAULT_VARIABLE

REDUCED = [name for number, name in enumerate(CATALOGUE) if number % 11 == 3]
"""Every kind but the rarest, at all places, on all paths and shapes."""


def test_the_reduced_set_has_something_of_everything() -> None:
    chosen = [CATALOGUE[name] for name in REDUCED]
    assert {one.path for one in chosen} == {Path.REPAIR, Path.CPU}
    assert {one.shape for one in chosen} == {one.shape for one in CATALOGUE.values()}
    assert {one.place for one in chosen} == {one.place for one in CATALOGUE.values()}
    assert {one.kind for one in chosen} >= set(Kind) - {Kind.KEPT_IDS, Kind.FIRST_CHANGED, Kind.CACHE_AFTER_LONG_PREFIX}


def test_every_planted_fault_is_found_and_nothing_else(
    command: Command, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.drill.command.CATALOGUE", {name: CATALOGUE[name] for name in REDUCED})
    target = tmp_path / "out" / "faults.json"
    done = command("verify", "--faults", "--seed", 7, "--json", target)
    assert done.code == 0, done.err
    facts = json.loads(target.read_text())
    assert facts["injected"] == facts["detected"] == facts["within_bar"] == len(REDUCED)
    assert 1 <= facts["p50_requests"] <= facts["p90_requests"] <= facts["max_requests"] <= BAR == 39
    assert sum(facts["distribution"].values()) == len(REDUCED)
    assert sum(row["detected"] for row in facts["kinds"].values()) == len(REDUCED)
    assert facts["healthy"]["answers"] > 20 * facts["healthy"]["sampled"] / 2 > 0
    assert facts["healthy"]["detected"] == 0
    assert facts["failures"] == []
    assert all(one["struck"] == one["requests"] for one in facts["injections"])
    assert f"{len(REDUCED)} injections at 5% sampling" in done.out


def test_the_same_seed_finds_the_same(command: Command) -> None:
    pattern = "*/first/special_token.*/head"
    runs = [command("verify", "--faults", pattern, "--seed", seed, "--json") for seed in (3, 3, 4)]
    requests = [[one["requests"] for one in done.json["injections"]] for done in runs]
    assert requests[0] == requests[1] != requests[2]


def test_a_fault_that_is_not_found_fails_the_drill(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers stay right, so that nothing can be found: the drill says so and does not make it up."""
    monkeypatch.setattr(Injector, "answer", lambda self, work, reply: reply)
    name = "repair/append/id_dropped.one/head"
    done = command("verify", "--faults", name)
    assert done.code == 1
    assert f"NOT FOUND {name}: 0 of 39 answers were wrong" in done.err


async def test_a_healthy_answer_that_is_taken_for_wrong_is_a_false_alarm(tmp_path: FilePath) -> None:
    async with stack(tmp_path) as it:
        it.planted.now = Injector(CATALOGUE["cpu/one_off/id_dropped.one/head"], it.registry)
        outcome = Outcome()
        await run_healthy(it, drill_run.BLOCK, 0, outcome)
    assert outcome.false_alarms == 1
    assert not outcome.ok


def test_a_fault_that_spares_an_answer_is_none_that_stays() -> None:
    one = next(iter(CATALOGUE.values()))
    assert Trial(one, 0, 5, 5, DifferenceKind.DROPPED).ok
    assert not Trial(one, 0, 5, 4, DifferenceKind.DROPPED).ok
    assert not Trial(one, 0, 39, 39, None).ok


def test_a_drill_says_what_it_does_not_understand(command: Command) -> None:
    assert command("verify", "--faults", "nothing/*").code == 2
    assert command("verify", "--faults", "--seed", "words").code == 2
    assert command("verify", "--faults", "--seed", "9" * 5_000).code == 2
    assert command("verify", "--faults", "--tokenizer", "gpt2").code == 2


# The switch


@pytest.fixture
def registry(tmp_path: FilePath) -> Any:
    return make_registry(tmp_path)


def plant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(FAULT_VARIABLE, name)
    monkeypatch.setenv(CONFIRM_VARIABLE, name)


def test_without_the_switch_no_worker_has_a_fault(registry: Any) -> None:
    for name in SERVICES:
        worker = make_worker(name, make_broker("memory://"), registry, WorkerSettings())
        assert not isinstance(worker.service, service.Drilled)


def test_a_fault_is_planted_in_the_workers_of_its_path(registry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "repair/append/id_dropped.one/head")
    planted = {
        name
        for name in SERVICES
        if isinstance(make_worker(name, make_broker("memory://"), registry, WorkerSettings()).service, service.Drilled)
    }
    assert planted == {"repair-worker"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_worker_of_another_machine_s_broker_does_not_start(
    name: str, registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, "repair/append/id_dropped.one/head")
    near, far = (KafkaBroker(KafkaSettings.from_url(f"kafka://{host}:9092", {})) for host in ("127.0.0.1", "far"))
    make_worker(name, near, registry, WorkerSettings())
    with pytest.raises(SettingsError, match="unless the broker is on this machine"):
        make_worker(name, far, registry, WorkerSettings())
    with pytest.raises(SettingsError, match="no answer is sampled"):
        make_worker(name, near, registry, WorkerSettings(sampling=0))


async def test_a_drilled_worker_says_so(
    registry: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plant(monkeypatch, "cpu/first/id_dropped.one/head")
    drilled = make_worker("cpu-fallback", make_broker("memory://"), registry, WorkerSettings()).service
    with caplog.at_level(logging.WARNING):
        async with bench(drilled):
            assert drilled.health().detail.startswith("DRILL: answers are made wrong on purpose (cpu/first/")
            assert drilled.health().tokenizers
    assert "DRILL" in caplog.text
    assert (drilled.kind, drilled.drains) == ("cpu-fallback", True)
