"""`make gpu-check` on a device that is none: what it compares, what it writes, and how it ends."""

from __future__ import annotations

from pathlib import Path

import families
import pytest
from cuda_on_cpu import emulator
from fake_cupy import FakeCupy

from gpu_worker.cuda import NoDeviceError, open_device
from gpu_worker.device import Device
from tests import gpu_check

PAGE = Path(__file__).parents[3] / "docs" / "gpu.md"


def no_device() -> Device:
    raise NoDeviceError("no_device", "CUDA finds no device")


def fake_device() -> Device:
    return open_device(import_module=FakeCupy().importing)


def test_without_a_device_it_says_so_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    assert gpu_check.main(["--page", str(page)], no_device) == gpu_check.EXIT_NO_DEVICE
    assert capsys.readouterr().err == "nothing was checked: CUDA finds no device\n"
    assert not page.exists()


@pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))
@pytest.mark.parametrize("spoiled", [False, True])
def test_results_go_into_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoiled: bool) -> None:
    page, vocabulary, text = tmp_path / "page.md", tmp_path / "family.json", tmp_path / "text.txt"
    page.write_text(PAGE.read_text())
    vocabulary.write_bytes(families.tokenizer_json("cl100k"))
    text.write_text("Some text to measure with, and 12345 numbers.\n" * 30)
    monkeypatch.setattr(gpu_check, "LATENCY_CHARS", 3_000)
    monkeypatch.setattr(gpu_check, "CAPACITIES", (1 << 14,))
    monkeypatch.setattr(gpu_check, "sanitized", lambda tool: gpu_check.Row(tool, "nothing found"))
    if spoiled:
        monkeypatch.setattr(gpu_check.Checker, "check", _with_a_mistake)
    arguments = ["--tokenizer", str(vocabulary), "--text", str(text), "--page", str(page)]
    code = gpu_check.main([*arguments, "--strings", "20", "--rounds", "2"], fake_device)
    assert code == (gpu_check.EXIT_WRONG if spoiled else 0)
    before, after = PAGE.read_text(), page.read_text()
    assert after.partition(gpu_check.BEGIN)[0] == before.partition(gpu_check.BEGIN)[0]
    assert after.partition(gpu_check.END)[2] == before.partition(gpu_check.END)[2]
    results = after.partition(gpu_check.BEGIN)[2].partition(gpu_check.END)[0]
    assert "on a device that is none" in results
    assert f"adversarial texts equal to the reference | {1 if spoiled else 0} wrong of " in results
    assert "3,000 characters, bytes in, ids and offsets out | p50 " in results
    assert " GB/s |" in results
    assert [tool for tool in gpu_check.TOOLS if f"| {tool} | nothing found |" in results] == list(gpu_check.TOOLS)


def _with_a_mistake(self: gpu_check.Checker, texts: list[str], tally: gpu_check.Tally) -> list[object]:
    tally.texts += len(texts)
    tally.wrong.append(gpu_check.Wrong("ids", texts[0], 0))
    return []


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks\n")
    with pytest.raises(ValueError, match="no marks"):
        gpu_check.write(page, "content")
    assert page.read_text() == "no marks\n"


def test_a_sanitizer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check.shutil, "which", lambda name: None)
    assert gpu_check.sanitized("memcheck").figure == "not run: compute-sanitizer is not installed"


@pytest.mark.parametrize(("code", "right"), [(0, True), (9, False)])
def test_what_a_sanitizer_finds_makes_the_check_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, right: bool
) -> None:
    program = tmp_path / "compute-sanitizer"
    program.write_text(f"#!/bin/sh\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setattr(gpu_check.shutil, "which", lambda name: str(program))
    row = gpu_check.sanitized("racecheck")
    assert row.right is right
    assert "--tool racecheck" in row.what
