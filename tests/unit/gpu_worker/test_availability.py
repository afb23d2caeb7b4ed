"""Why no GPU is used, in one line, wherever it is said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpu_worker.__main__ as program
from gpu_worker.availability import NoGpuError, why_not

ROOT = Path(__file__).parents[3]


def failing(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("open_device", "words"),
    [
        (failing(NoGpuError("no_cupy", "cupy is not installed")), "no GPU is used: cupy is not installed"),
        (failing(OSError("/secret/libcuda.so")), "no GPU is used: it cannot be opened (OSError)"),
        (lambda: "a device", None),
    ],
)
def test_the_obstacle_is_named_in_one_line(open_device: Callable[[], Any], words: str | None) -> None:
    assert why_not(open_device) == words


def test_the_worker_says_so_and_exits_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "why_not", lambda: "no GPU is used: made by a test")
    assert program.main(["--registry", "nowhere"]) == program.EXIT_UNAVAILABLE == 3
    assert capsys.readouterr().err == "no GPU is used: made by a test\n"


def test_with_a_device_it_runs_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[str] = []

    async def serve(broker: object, workers: list[Any], settings: object) -> None:
        served.extend(each.service.kind for each in workers)

    monkeypatch.setattr(program, "why_not", lambda: None)
    monkeypatch.setattr("pipeline.standalone.serve", serve)
    assert program.main(["--registry", str(tmp_path), "--broker", "kafka://localhost:1"]) == 0
    assert served == ["gpu-worker"]


@pytest.mark.skipif(why_not() is None, reason="there is a GPU here")
def test_as_a_program_it_says_why_there_is_none() -> None:
    done = subprocess.run([sys.executable, "-m", "gpu_worker"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == program.EXIT_UNAVAILABLE
    assert done.stderr.startswith("no GPU is used: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
