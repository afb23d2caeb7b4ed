"""The emulation of a GPU: what kernels compute, and each kind of mistake that it must report."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cuda_on_cpu import emulator
from cuda_on_cpu.device import guarded, protected
from cuda_on_cpu.emulator import KernelFaultError, Module, Schedule, agree

if emulator.missing():
    pytest.skip(str(emulator.missing()), allow_module_level=True)

U32 = npt.NDArray[np.uint32]
SOURCE = Path(__file__).parent / "faults.cu"
#: Fibers by a switch of our own, and by that of the C library, which other processors have.
FLAGS = {"own switch": (), "ucontext": ("-DCUDA_ON_CPU_UCONTEXT",)}


@functools.cache
def module(fibers: str = "own switch") -> Module:
    return Module(SOURCE, FLAGS[fibers])


def zeros(count: int) -> U32:
    return np.zeros(count, dtype=np.uint32)


def in_guarded(count: int) -> U32:
    """Zeros right before a page that cannot be touched."""
    return guarded(4 * count).view(np.uint32)


@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize("fibers", FLAGS)
def test_barriers_and_shared_memory(schedule: Schedule, fibers: str) -> None:
    values, out = np.arange(192, dtype=np.uint32), zeros(192)
    module(fibers).launch("reverse_block", 3, 64, [values, out], schedule, seed=5)
    assert (out.reshape(3, 64) == values.reshape(3, 64)[:, ::-1]).all()


@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize("fibers", FLAGS)
def test_warp_operations(schedule: Schedule, fibers: str) -> None:
    values = np.random.default_rng(3).integers(0, 1000, 64).astype(np.uint32)
    out = zeros(64 * 8)
    module(fibers).launch("warp_operations", 1, 64, [values, out], schedule, seed=9)
    for warp, found in zip(values.reshape(2, 32), out.reshape(2, 32, 8), strict=True):
        lanes = np.arange(32)
        expected = [
            warp[np.where(lanes >= 1, lanes - 1, lanes)],
            warp[np.where(lanes + 3 < 32, lanes + 3, lanes)],
            np.full(32, warp[5]),
            np.full(32, sum(1 << int(lane) for lane in lanes if warp[lane] & 1)),
            np.full(32, warp.min()),
            np.full(32, warp.max()),
            np.full(32, warp.sum()),
            np.repeat([warp[:16].sum(), warp[16:].sum()], 16),
        ]
        assert (found == np.stack(expected, axis=1)).all()


def test_atomics_bits_and_wide_values() -> None:
    counters = np.array([0, 0, 1000, 0], dtype=np.uint32)
    module().launch("atomics", 2, 64, [counters])
    assert counters.tolist() == [256, 0xFFFF_FFFF, 37, 63]
    out = zeros(5)
    module().launch("bits", 1, 1, [out])
    assert out.tolist() == [8, 5, 0, 31, 32]
    values, wide = np.arange(32, dtype=np.uint64) << np.uint64(40), np.zeros(32, dtype=np.uint64)
    module().launch("wide_values", 1, 32, [values, wide])
    assert (wide == values[::-1]).all()


@pytest.mark.parametrize("name", ["no_barrier", "last_one_wins", "last_block_wins"])
def test_a_race_gives_different_results(name: str) -> None:
    values, out = np.arange(64, dtype=np.uint32), zeros(64)
    arguments = [values, out] if name == "no_barrier" else [out]
    with pytest.raises(KernelFaultError, match="race"):
        agree(module(), name, 4, 64, arguments)


def test_what_is_no_race_agrees() -> None:
    values, out = np.arange(64, dtype=np.uint32), zeros(64)
    agree(module(), "reverse_block", 1, 64, [values, out])
    assert (out == values[::-1]).all()


@pytest.mark.parametrize("fibers", FLAGS)
@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("different_barriers", "divergence: threads of a block wait at different barriers"),
        ("exit_before_barrier", "divergence: others have exited before this barrier"),
        ("different_operations", "divergence: lanes of a warp meet in different operations"),
        ("lane_that_never_comes", "deadlock: a lane waits for one that never comes"),
        ("lane_not_in_its_mask", "divergence: a lane that is not among those it names"),
        ("shuffle_from_outside", "divergence: a shuffle from a lane that does not take part"),
    ],
)
def test_divergence_and_deadlock_are_reported(name: str, words: str, schedule: Schedule, fibers: str) -> None:
    with pytest.raises(KernelFaultError, match=rf"{name}: {words} \(block 0, thread \d+, line \d+\)"):
        module(fibers).launch(name, 1, 64, [zeros(64)], schedule)


def test_a_block_that_runs_without_end_is_reported() -> None:
    hasty = Module(SOURCE, ("-DCUDA_ON_CPU_RESUMES_MAX=10000",))
    with pytest.raises(KernelFaultError, match="runaway: a block that does not come to its end"):
        hasty.launch("endless_rounds", 1, 64, [zeros(1)])
    out = zeros(64)
    hasty.launch("reverse_block", 1, 64, [np.arange(64, dtype=np.uint32), out])
    assert out[0] == 63


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (lambda: module().launch("write_at", 1, 1, [in_guarded(16), np.uint32(16)]), "not the kernel's"),
        (lambda: module().launch("read_at", 1, 1, [in_guarded(16), zeros(1), np.uint32(16)]), "not the kernel's"),
        (lambda: module().launch("write_at", 1, 1, [read_only(), np.uint32(0)]), "not the kernel's"),
        (lambda: module().launch("shared_array", 1, 64, [zeros(1), np.uint32(1)]), "an index beyond an array"),
        (lambda: module().launch("misaligned", 1, 1, [words(), words(), np.uint32(4)]), "misaligned"),
        (lambda: module().launch("endless_recursion", 1, 1, [zeros(2), np.uint32(10**6)]), "not the kernel's"),
    ],
    ids=["write", "read", "constant", "shared", "misaligned", "stack"],
)
def test_overruns_are_reported(launch: Callable[[], Any], words: str) -> None:
    with pytest.raises(KernelFaultError, match=rf"{words}.* \(block 0, thread \d+"):
        launch()
    # The process lives, and so does the emulation.
    out = in_guarded(16)
    module().launch("write_at", 1, 1, [out, np.uint32(15)])
    assert out[15] == 1


def test_what_is_inside_is_no_overrun() -> None:
    out = zeros(1)
    module().launch("shared_array", 1, 64, [out, np.uint32(0)])
    assert out[0] == 12
    wide = np.zeros(1, dtype=np.uint64)
    module().launch("misaligned", 1, 1, [np.arange(16, dtype=np.uint8), wide, np.uint32(8)])
    assert wide.tobytes() == bytes(range(8, 16))
    module().launch("endless_recursion", 1, 1, [zeros(2), np.uint32(10)])


def test_shared_memory_holds_nonsense_when_a_block_starts() -> None:
    out = zeros(2)
    module().launch("uninitialised", 2, 1, [out])
    assert out.tolist() == [0xCDCDCDCD] * 2


def test_a_kernel_takes_arrays_and_scalars_only() -> None:
    with pytest.raises(TypeError, match="not int"):
        module().launch("write_at", 1, 1, [zeros(1), 0])


def test_what_does_not_compile_says_so(tmp_path: Path) -> None:
    source = tmp_path / "broken.cu"
    source.write_text('extern "C" __global__ void broken(int* out) { out[0] = nothing; }\n')
    with pytest.raises(RuntimeError, match=r"(?s)broken.cu does not compile.*nothing"):
        Module(source)


def test_a_changed_header_is_compiled_again(tmp_path: Path) -> None:
    source, part = tmp_path / "whole.cu", tmp_path / "part.cuh"
    source.write_text('#include "part.cuh"\nextern "C" __global__ void whole(unsigned* out) { out[0] = NUMBER; }\n')
    for number in (3, 4):
        part.write_text(f"#define NUMBER {number}\n")
        out = zeros(1)
        Module(source).launch("whole", 1, 1, [out])
        assert out[0] == number


def words() -> npt.NDArray[np.uint64]:
    return np.zeros(4, dtype=np.uint64)


def read_only() -> npt.NDArray[np.uint8]:
    return protected(np.zeros(64, dtype=np.uint8))
