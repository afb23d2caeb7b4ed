"""Why no GPU is used: every obstacle, without a GPU and without cupy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_worker.__main__ import EXIT_UNAVAILABLE, main
from gpu_worker.availability import Obstacle, probe


def importing(devices: Callable[[], int]) -> Callable[[str], Any]:
    """An import of a cupy that sees these devices."""

    def import_module(name: str) -> Any:
        assert name == "cupy"
        return SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=devices)))

    return import_module


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*arguments: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("import_module", "obstacle", "words"),
    [
        (failing(ModuleNotFoundError("cupy")), Obstacle.NO_CUPY, "not installed"),
        (failing(OSError("libcuda.so.1")), Obstacle.NO_CUPY, "cannot be loaded (OSError)"),
        (importing(failing(RuntimeError("driver"))), Obstacle.NO_DEVICE, "does not answer (RuntimeError)"),
        (importing(lambda: 0), Obstacle.NO_DEVICE, "no device"),
        (importing(lambda: 2), Obstacle.NO_KERNELS, "no tokenization kernels (2 CUDA device(s) present)"),
    ],
)
def test_the_first_obstacle_is_named_in_one_line(
    import_module: Callable[[str], Any], obstacle: Obstacle, words: str
) -> None:
    found = probe(import_module)
    assert found.obstacle is obstacle
    assert found.explanation.startswith("no GPU is used: ")
    assert words in found.explanation
    assert "\n" not in found.explanation


def test_the_worker_says_so_and_exits_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == EXIT_UNAVAILABLE == 3
    assert capsys.readouterr().err == f"{probe().explanation}\n"


def test_as_a_program_it_imports_cupy_only_to_look() -> None:
    done = subprocess.run([sys.executable, "-m", "gpu_worker"], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_UNAVAILABLE
    assert done.stderr.startswith("no GPU is used: ")
    assert done.stdout == ""
