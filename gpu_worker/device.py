"""What kernels run on, as far as `gpu_worker.chain` needs to know: memory, launches, copies.

`gpu_worker.cuda` is one on a CUDA device; the tests have another one that runs the same kernels on the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

#: All kernels as one source.
KERNELS = Path(__file__).parent / "kernels" / "kernels.cu"
#: Threads of every block; THREADS in kernels/common.cuh.
THREADS = 256

_INCLUDE = re.compile(r'^#include "([^"]+)"$', re.MULTILINE)

Bytes = npt.NDArray[np.uint8]
Buffer = Any
"""Bytes on the device, from an address that any type may have; `buffer[i:j]` is a buffer too."""


class DeviceError(Exception):
    """The device failed, and what it holds is not to be relied on."""


class OutOfDeviceMemoryError(Exception):
    """The device has no memory for what was asked; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel on a grid of `blocks`. Arguments: buffers, for pointers, and numpy scalars."""

    kernel: str
    blocks: int
    arguments: tuple[Any, ...]


def kernel_source(path: Path = KERNELS) -> str:
    """The source of a file with all that it includes in place, each once: a compiler's cache sees when a part
    changes."""
    seen: set[Path] = set()

    def expanded(path: Path) -> str:
        seen.add(path)
        return _INCLUDE.sub(lambda found: included(path.parent / found[1]), path.read_text(encoding="utf-8"))

    def included(path: Path) -> str:
        return "" if path in seen else expanded(path)

    return expanded(path).replace("#pragma once\n", "")


class Device(Protocol):
    """Memory and launches are ordered: what is called later comes later. Raises `DeviceError`."""

    name: str

    def constant(self, values: npt.NDArray[Any]) -> Buffer:
        """A copy on the device, which kernels only read; raises `OutOfDeviceMemoryError`."""
        ...

    def scratch(self, size_bytes: int) -> Buffer:
        """Memory with nothing certain in it; raises `OutOfDeviceMemoryError`."""
        ...

    def staging(self, size_bytes: int) -> Bytes:
        """Host memory to upload from, page-locked where that is faster; raises `OutOfDeviceMemoryError`."""
        ...

    def upload(self, to: Buffer, host: Bytes) -> None:
        """Start a copy from staging memory. It may be written to again after the next download."""
        ...

    def recorded(self, launches: Sequence[Launch]) -> Callable[[], None]:
        """What starts these launches, one after the other, as often as it is called."""
        ...

    def download(self, *buffers: Buffer) -> list[npt.NDArray[np.uint32]]:
        """The contents of buffers as u32, the caller's own. Waits for the device, once."""
        ...
