"""The workers that need no device as programs, as far as that goes without a broker."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import consumers.classifier.__main__ as classifier
import consumers.cpu_fallback.__main__ as cpu_fallback
import repair_worker.__main__ as repair
import shadow.__main__ as shadow
from consumers.classifier.settings import ClassifierSettings
from gpu_worker.settings import GpuSettings
from pipeline.runtime import BACKGROUND_NICENESS
from pipeline.settings import specs
from repair_worker.settings import RepairSettings, SnapshotSettings

WORKERS = [classifier, cpu_fallback, repair, shadow]


@pytest.mark.parametrize("worker", WORKERS)
def test_a_wrong_setting_is_one_line_and_exit_code_2(
    worker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOKSPLICE_PARTITIONS", "many")
    assert worker.main(["--registry", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("worker", WORKERS)
def test_a_registry_is_needed(worker: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        worker.main([])
    assert caught.value.code == 2
    assert "--registry" in capsys.readouterr().err


@pytest.mark.parametrize("worker", WORKERS)
def test_it_runs_its_worker_until_told_to_stop(
    worker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []
    stepped_back: list[int] = []

    async def serve(broker: object, workers: list[object], settings: object) -> None:
        served.extend(each.service.kind for each in workers)  # type: ignore[attr-defined]

    monkeypatch.setattr("pipeline.standalone.serve", serve)
    monkeypatch.setattr("os.nice", stepped_back.append)
    assert worker.main(["--registry", str(tmp_path), "--broker", "kafka://localhost:1"]) == 0
    beside = ["gpu-stand-in"] if worker is cpu_fallback else []
    assert served[1:] == beside
    assert len(served) == 1 + len(beside)
    assert stepped_back == ([BACKGROUND_NICENESS] if worker is shadow else []), "whoever answers comes first"


def test_every_setting_has_a_variable_of_its_own() -> None:
    classes = (ClassifierSettings, GpuSettings, RepairSettings, SnapshotSettings)
    variables = [spec.env for cls in classes for spec in specs(cls).values()]
    assert len(variables) == len(set(variables))
    assert all(variable.startswith("TOKSPLICE_") for variable in variables)


def test_the_settings_reach_the_parts_they_are_for() -> None:
    settings = RepairSettings(session_ttl_s=1.0, sessions_bytes_max=2, sessions_max=3, history_answers_max=4)
    store, history = settings.store(), settings.history()
    assert (store.ttl_s, store.bytes_max, store.sessions_max, history.answers_max) == (1.0, 2, 3, 4)
    router = ClassifierSettings(heartbeat_age_s_max=1.5, gpu_queue_depth_max=2).router()
    assert (router.heartbeat_age_ms_max, router.gpu_queue_depth_max) == (1500, 2)
