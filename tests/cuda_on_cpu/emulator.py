"""Compiles a .cu file with g++ behind cuda_on_cpu.hpp, and launches its kernels on numpy arrays."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

HEADER = Path(__file__).parent / "cuda_on_cpu.hpp"
#: Compiled kernels are kept here, by the hash of all that went into them.
CACHE = Path(__file__).parents[2] / ".cache" / "cuda_on_cpu"

COMPILER = os.environ.get("CXX", "g++")
#: -fsanitize with traps: an index beyond an array and a misaligned access stop the kernel, with no library to load.
FLAGS = (
    *(
        "-std=c++17",
        "-O2",
        "-shared",
        "-fPIC",
        "-Wall",
        "-Wno-unknown-pragmas",
        "-Wno-attributes",
        "-Wno-unused-function",
    ),
    *("-fsanitize=bounds-strict,alignment,shift,null", "-fsanitize-undefined-trap-on-error", "-U_FORTIFY_SOURCE"),
)

_KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(')
_INCLUDE = re.compile(r'#include "([^"]+)"')


class KernelFaultError(AssertionError):
    """A kernel did what no GPU would have reported."""


class Schedule(IntEnum):
    """The order in which threads, warps and blocks run; the numbers are the header's."""

    FORWARD = 0
    REVERSE = 1
    RANDOM = 2


def missing() -> str | None:
    """Why no kernel can be compiled here, if it is so."""
    return None if shutil.which(COMPILER) else f"{COMPILER} is not installed, which compiles kernels for the CPU"


class Module:
    """The kernels of one .cu file and of what it includes. `flags`: more options of the compiler."""

    def __init__(self, source: Path, flags: Sequence[str] = ()) -> None:
        names = _KERNEL.findall("".join(path.read_text() for path in _sources(source)))
        self._library = ctypes.CDLL(str(_compiled(source, names, [*FLAGS, *flags])))
        self.names = names

    def launch(
        self,
        name: str,
        blocks: int,
        threads: int,
        arguments: Sequence[object],
        schedule: Schedule = Schedule.FORWARD,
        seed: int = 1,
    ) -> None:
        """Run a grid. Arguments: numpy arrays are pointers, numpy scalars are values. Raises `KernelFaultError`."""
        values = [_value(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        launch = getattr(self._library, f"{name}_launch")
        launch.restype = ctypes.c_char_p
        fault = launch(blocks, threads, pointers, int(schedule), seed)
        if fault is not None:
            raise KernelFaultError(f"{name}: {fault.decode()}")


def agree(module: Module, name: str, blocks: int, threads: int, arguments: Sequence[object]) -> None:
    """Run a grid in every schedule on the same arrays, and leave the result in them.

    Raises `KernelFaultError` where the results differ: there is a race.
    """
    arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
    before = [array.copy() for array in arrays]
    results: list[list[np.ndarray[Any, Any]]] = []
    for schedule, seed in [(Schedule.FORWARD, 1), (Schedule.REVERSE, 1), (Schedule.RANDOM, 2), (Schedule.RANDOM, 3)]:
        for array, content in zip(arrays, before, strict=True):
            if not np.array_equal(array, content):
                array[...] = content
        module.launch(name, blocks, threads, arguments, schedule, seed)
        results.append([array.copy() for array in arrays])
    for other in results[1:]:
        if not all(np.array_equal(one, two) for one, two in zip(results[0], other, strict=True)):
            raise KernelFaultError(f"{name}: a race: the result depends on the schedule")


def _value(argument: object) -> Any:
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.ctypes.data)
    if isinstance(argument, np.generic):
        return np.ctypeslib.as_ctypes_type(argument.dtype)(argument.item())
    raise TypeError(f"a kernel takes numpy arrays and scalars, not {type(argument).__name__}")


def _sources(source: Path) -> list[Path]:
    """A file and all that it includes, each once."""
    found = [source]
    for path in found:
        included = [path.parent / name for name in _INCLUDE.findall(path.read_text())]
        found += [file for file in dict.fromkeys(included) if file not in found]
    return found


def _compiled(source: Path, names: Sequence[str], flags: Sequence[str]) -> Path:
    unit = f'#include "{HEADER}"\n#include "{source.resolve()}"\n'
    unit += "".join(f"CUDA_ON_CPU_KERNEL({name})\n" for name in names)
    parts = [COMPILER, *flags, *names, *(path.read_text() for path in [HEADER, *_sources(source)])]
    library = CACHE / f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:24]}.so"
    if not library.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            made = Path(folder) / "kernels.so"
            command = [COMPILER, *flags, "-x", "c++", "-", "-o", str(made)]
            done = subprocess.run(command, input=unit, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{source.name} does not compile for the CPU:\n{done.stderr}")
            made.replace(library)
    return library
