"""A `gpu_worker.device.Device` that runs the kernels on the CPU, and lets none of their mistakes pass.

Every buffer ends at a page that cannot be touched, constants cannot be written, and before each run all memory that
nothing was uploaded to is filled with nonsense.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_worker.device import KERNELS, THREADS, Buffer, Bytes, Launch

from .emulator import Module, Schedule

POISON = 0xCD
_PROT_NONE = 0
#: A buffer's address is a multiple of this, so its end can be short of the guard page by less.
ALIGNMENT = 16

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class CpuDevice:
    """`schedule`, `seed`: of the threads; may be changed between runs."""

    name = "cuda_on_cpu"

    def __init__(self, schedule: Schedule = Schedule.FORWARD, *, seed: int = 1) -> None:
        self.schedule = schedule
        self.seed = seed
        #: Kernels that ran, in their order; for tests to look at and to clear.
        self.ran: list[str] = []
        self._module = kernels()
        self._scratch: list[Bytes] = []

    def constant(self, values: npt.NDArray[Any]) -> Buffer:
        return protected(values)

    def scratch(self, size_bytes: int) -> Buffer:
        buffer = guarded(size_bytes)
        buffer[:] = POISON
        self._scratch.append(buffer)
        return buffer

    def staging(self, size_bytes: int) -> Bytes:
        return np.full(size_bytes, POISON, dtype=np.uint8)

    def upload(self, to: Buffer, host: Bytes) -> None:
        assert to.size == host.size
        self._scratch = [buffer for buffer in self._scratch if not np.may_share_memory(buffer, to)]
        to[:] = host

    def recorded(self, launches: Sequence[Launch]) -> Callable[[], None]:
        def run() -> None:
            for buffer in self._scratch:
                buffer[:] = POISON
            for launch in launches:
                self.ran.append(launch.kernel)
                self._module.launch(launch.kernel, launch.blocks, THREADS, launch.arguments, self.schedule, self.seed)

        return run

    def download(self, *buffers: Buffer) -> list[npt.NDArray[np.uint32]]:
        return [buffer.view(np.uint32).copy() for buffer in buffers]


@functools.cache
def kernels() -> Module:
    """The product's kernels, compiled for the CPU."""
    return Module(KERNELS)


def guarded(size_bytes: int) -> Bytes:
    """Zeros, with a page behind them that cannot be touched."""
    return _guarded(size_bytes)[1]


def protected(values: npt.NDArray[Any]) -> Bytes:
    """A copy that can only be read, with a page behind it that cannot be touched."""
    raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    memory, buffer = _guarded(raw.size)
    buffer[:] = raw
    _protect(memory, 0, len(memory) - mmap.PAGESIZE, mmap.PROT_READ)
    return buffer


def _guarded(size_bytes: int) -> tuple[mmap.mmap, Bytes]:
    room = -(-size_bytes // ALIGNMENT) * ALIGNMENT
    inside = -(-max(room, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, inside + mmap.PAGESIZE)
    _protect(memory, inside, mmap.PAGESIZE, _PROT_NONE)
    return memory, np.frombuffer(memory, dtype=np.uint8, count=size_bytes, offset=inside - room)


def _protect(memory: mmap.mmap, at: int, size_bytes: int, protection: int) -> None:
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + at
    if _libc.mprotect(address, size_bytes, protection) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
