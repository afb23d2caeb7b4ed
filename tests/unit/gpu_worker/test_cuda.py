"""The CUDA device on a cupy without a GPU, and the way of a batch when a device fails."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import families
import pytest
from cuda_on_cpu import emulator
from fake_cupy import CUDADriverError, CUDARuntimeError, FakeCupy, OutOfMemoryError

from gpu_worker.chain import Chain
from gpu_worker.cuda import COMPILER_OPTIONS, NoDeviceError, open_device
from gpu_worker.encoder import Encoding, Refusal
from gpu_worker.packing import TILE
from gpu_worker.program import Program, compile_for

needs_compiler = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))
TEXT = "Some text, with <think> a token\n and 12345 more of it. "


@functools.cache
def program() -> Program:
    return compile_for(families.family("cl100k"))


def encoded(chain: Chain, text: str) -> list[int] | Refusal:
    (answer,) = chain.encode([text.encode()])
    return answer if isinstance(answer, Refusal) else answer.ids.tolist()


def reference(text: str) -> list[int]:
    return families.family("cl100k").reference.ids(text).tolist()


@needs_compiler
def test_a_batch_is_one_graph_and_two_synchronizations() -> None:
    cupy = FakeCupy()
    device = open_device(import_module=cupy.importing)
    assert device.name == "a device that is none"
    assert cupy.compiled == [COMPILER_OPTIONS]
    chain = Chain(device, program())
    assert encoded(chain, TEXT * 20) == reference(TEXT * 20)
    cupy.events.clear()
    texts = [TEXT, "", "another one", TEXT * 50]
    for text, answer in zip(texts, chain.encode([text.encode() for text in texts]), strict=True):
        assert isinstance(answer, Encoding)
        assert answer.ids.tolist() == reference(text)
    assert [event for event in cupy.events if event != "pin"] == [
        "up", "graph", "down", "synchronize", "down", "down", "down", "synchronize",
    ]  # fmt: skip


@needs_compiler
def test_answers_are_the_callers_own() -> None:
    chain = Chain(open_device(import_module=FakeCupy().importing), program())
    (first,) = chain.encode([TEXT.encode()])
    assert isinstance(first, Encoding)
    before = first.ids.tolist()
    chain.encode([b"something else altogether, and longer " * 9])
    assert first.ids.tolist() == before


@needs_compiler
def test_tokenizers_share_a_device_from_several_threads() -> None:
    device = open_device(import_module=FakeCupy().importing)
    chains = [Chain(device, program()), Chain(device, compile_for(families.family("deepseek")))]
    oracles = [families.family("cl100k"), families.family("deepseek")]
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(5):
            text = TEXT * (turn + number + 1)
            if encoded(chains[number % 2], text) != oracles[number % 2].reference.ids(text).tolist():
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


OUT_OF_MEMORY = CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
BROKEN = CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")


@needs_compiler
@pytest.mark.parametrize(
    ("event", "error"),
    [
        ("allocate", OutOfMemoryError()),
        ("pin", OUT_OF_MEMORY),
        ("allocate", CUDADriverError("CUDA_ERROR_OUT_OF_MEMORY")),
    ],
)
def test_without_memory_a_text_is_refused_and_the_next_one_tried(event: str, error: Exception) -> None:
    cupy = FakeCupy()
    chain = Chain(open_device(import_module=cupy.importing), program())
    cupy.failing[event] = error
    assert encoded(chain, TEXT) == Refusal.OUT_OF_MEMORY
    assert encoded(chain, TEXT) == reference(TEXT)


@needs_compiler
@pytest.mark.parametrize("event", ["up", "graph", "down", "synchronize", "classify"])
def test_a_device_that_fails_is_not_used_again(event: str) -> None:
    cupy = FakeCupy()
    chain = Chain(open_device(import_module=cupy.importing), program())
    cupy.failing[event] = BROKEN
    assert encoded(chain, TEXT) == Refusal.DEVICE_ERROR
    cupy.events.clear()
    assert encoded(chain, TEXT) == Refusal.DEVICE_ERROR
    assert cupy.events == []


@needs_compiler
def test_what_is_too_long_for_every_buffer_is_refused() -> None:
    chain = Chain(open_device(import_module=FakeCupy().importing), program(), capacities=(TILE, 4 * TILE))
    assert chain.text_bytes_max == 4 * TILE - 2
    longest = ("ab " * (2 * TILE))[: chain.text_bytes_max]
    assert encoded(chain, longest) == reference(longest)
    assert encoded(chain, longest + ".") == Refusal.TEXT_TOO_LONG
    answers = chain.encode([longest.encode(), (longest + ".").encode(), b"short", longest.encode()])
    assert [isinstance(answer, Encoding) for answer in answers] == [True, False, True, True]


# No device


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*arguments: object, **named: object) -> Any:
        raise error

    return fail


def without_driver() -> FakeCupy:
    cupy = FakeCupy()
    cupy.cuda.runtime.getDeviceCount = failing(CUDARuntimeError("cudaErrorInsufficientDriver"))
    return cupy


def that_cannot_be_used() -> FakeCupy:
    cupy = FakeCupy()
    cupy.RawModule = failing(RuntimeError("CompileException"))
    return cupy


@pytest.mark.parametrize(
    ("import_module", "obstacle", "words"),
    [
        (failing(ModuleNotFoundError("cupy")), "no_cupy", "not installed"),
        (failing(OSError("libcuda.so.1")), "no_cupy", r"cannot be loaded \(OSError\)"),
        (without_driver().importing, "no_device", r"does not answer \(CUDARuntimeError\)"),
        (FakeCupy(devices=0).importing, "no_device", "finds 0 devices"),
        (that_cannot_be_used().importing, "no_device", r"cannot be used \(RuntimeError\)"),
    ],
)
def test_why_there_is_no_device(import_module: Callable[[str], Any], obstacle: str, words: str) -> None:
    with pytest.raises(NoDeviceError, match=words) as caught:
        open_device(import_module=import_module)
    assert caught.value.obstacle == obstacle
    assert "\n" not in str(caught.value)
