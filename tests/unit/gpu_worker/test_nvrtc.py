"""NVIDIA's compiler takes every kernel for every architecture that is named, and keeps all of it in registers."""

from __future__ import annotations

import re

import nvrtc
import pytest

from gpu_worker.cuda import COMPILER_OPTIONS
from gpu_worker.device import THREADS, kernel_source

if nvrtc.missing():
    pytest.skip(str(nvrtc.missing()), allow_module_level=True)

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
#: Of a multiprocessor, on every one of these architectures.
REGISTERS = 65_536
#: Blocks that a multiprocessor must have room for: fewer cannot hide how long memory takes.
BLOCKS = {"merge_long": 2}
BLOCKS_OTHERWISE = 4

SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) spills(const float* in, float* out) {
  float values[128];
  for (int i = 0; i < 128; i++) values[i] = in[threadIdx.x + i * 1024];
  for (int round = 0; round < 4; round++)
    for (int i = 0; i < 128; i++) values[i] = values[i] * values[(i * 7 + 1) % 128] + values[(i + 1) % 128];
  for (int i = 0; i < 128; i++) out[threadIdx.x + i * 1024] = values[i];
}
"""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_kernel_spills(architecture: str) -> None:
    kernels = nvrtc.compile_source(kernel_source(), architecture, COMPILER_OPTIONS)
    assert {kernel.name for kernel in kernels} == set(re.findall(r'extern "C".* (\w+)\(\n? ', kernel_source()))
    for kernel in kernels:
        assert (kernel.stack, kernel.spilled) == (0, 0), kernel
        assert kernel.registers * THREADS * BLOCKS.get(kernel.name, BLOCKS_OTHERWISE) <= REGISTERS, kernel


def test_a_kernel_that_spills_is_seen() -> None:
    (kernel,) = nvrtc.compile_source(SPILLING, "sm_90", COMPILER_OPTIONS)
    assert kernel.spilled > 0


def test_what_does_not_compile_says_so() -> None:
    with pytest.raises(RuntimeError, match=r'(?s)sm_90.*identifier "nothing" is undefined'):
        nvrtc.compile_source('extern "C" __global__ void broken() { nothing; }', "sm_90")
