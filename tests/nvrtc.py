"""NVIDIA's run-time compiler, by its C interface: it needs no device and no driver."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass

PACKAGE = "nvidia-cuda-nvrtc"

_PROPERTIES = re.compile(r"Function properties for (\w+)\n.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)")
_REGISTERS = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the assembler made of a kernel. Memory in bytes, of a thread."""

    name: str
    registers: int
    stack: int
    spilled: int


def missing() -> str | None:
    """Why nothing can be compiled here, if it is so."""
    try:
        _library()
    except (importlib.metadata.PackageNotFoundError, OSError) as error:
        return f"{PACKAGE} cannot be loaded: {error}"
    return None


def compile_source(source: str, architecture: str, options: Sequence[str] = ()) -> list[Kernel]:
    """Compile for an architecture such as sm_90; raises `RuntimeError` with the compiler's words."""
    library = _library()
    program = ctypes.c_void_p()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None))
    try:
        given = [f"--gpu-architecture={architecture}", "--ptxas-options=-v", *options]
        array = (ctypes.c_char_p * len(given))(*(option.encode() for option in given))
        status = library.nvrtcCompileProgram(program, len(given), array)
        log = _log(library, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    if status != 0:
        raise RuntimeError(f"it does not compile for {architecture}:\n{log}")
    return [_kernel(part) for part in log.split("Compiling entry function")[1:]]


def _kernel(log: str) -> Kernel:
    properties, registers = _PROPERTIES.search(log), _REGISTERS.search(log)
    assert properties, log
    assert registers, log
    name, stack, stores, loads = properties.groups()
    return Kernel(name, int(registers[1]), int(stack), int(stores) + int(loads))


@functools.cache
def _library() -> ctypes.CDLL:
    files = importlib.metadata.distribution(PACKAGE).files or ()
    (path,) = (file for file in files if re.fullmatch(r"libnvrtc\.so\.\d+", file.name))
    return ctypes.CDLL(str(path.locate()))


def _check(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"the compiler cannot be started: status {status}")


def _log(library: ctypes.CDLL, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    _check(library.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check(library.nvrtcGetProgramLog(program, text))
    return text.value.decode()
