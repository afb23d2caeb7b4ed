"""A CUDA device: the only module that imports cupy, and only when a device is asked for.

The kernels are compiled for the device when it is opened; cupy keeps what it compiled on disk. The launches of a
workspace are one CUDA graph, since starting ten kernels one by one takes longer than running them on a short text.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_worker.device import THREADS, Buffer, Bytes, DeviceError, Launch, OutOfDeviceMemoryError, kernel_source

#: Options of NVIDIA's run-time compiler; it adds the device's architecture.
COMPILER_OPTIONS = ("--std=c++17",)

#: What CUDA calls it, in its runtime and in its driver.
_OUT_OF_MEMORY = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY")


class NoDeviceError(Exception):
    """There is no device. The message is one line for people; `obstacle` is "no_cupy" or "no_device"."""

    def __init__(self, obstacle: str, reason: str) -> None:
        super().__init__(reason)
        self.obstacle = obstacle


def open_device(number: int = 0, *, import_module: Callable[[str], Any] = importlib.import_module) -> CudaDevice:
    """A device of this machine; raises `NoDeviceError`. Compiling for it the first time takes seconds.

    import_module: the seam for tests; it is asked for `cupy` and `cupyx`.
    """
    try:
        cupy, cupyx = import_module("cupy"), import_module("cupyx")
    except ImportError:
        raise NoDeviceError("no_cupy", "cupy is not installed (install this package with its extra 'gpu')") from None
    except Exception as error:  # a broken CUDA installation raises nearly anything while cupy loads
        reason = f"cupy is installed but cannot be loaded ({type(error).__name__})"
        raise NoDeviceError("no_cupy", reason) from error
    try:
        devices = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # without a driver cupy raises its own CUDARuntimeError
        reason = f"the CUDA driver does not answer ({type(error).__name__})"
        raise NoDeviceError("no_device", reason) from error
    if devices <= number:
        raise NoDeviceError("no_device", f"CUDA finds {devices} devices on this machine, and number {number} is wanted")
    try:
        return CudaDevice(cupy, cupyx, number)
    except Exception as error:  # the kernels do not compile for it, or it is taken by another process
        raise NoDeviceError("no_device", f"the device cannot be used ({type(error).__name__})") from error


class CudaDevice:
    """A `gpu_worker.device.Device`. Safe for several threads: all they do is ordered by one stream."""

    def __init__(self, cupy: Any, cupyx: Any, number: int) -> None:
        self._cupy = cupy
        self._cupyx = cupyx
        self._lock = threading.Lock()
        self._device = cupy.cuda.Device(number)
        with self._device:
            self._stream = cupy.cuda.Stream(non_blocking=True)
            self._module = cupy.RawModule(code=kernel_source(), options=COMPILER_OPTIONS, backend="nvrtc")
            self._module.get_function("clear_marks")  # compiles all of them, so that a fault shows now
            properties = cupy.cuda.runtime.getDeviceProperties(number)
        name = properties["name"]
        self.name = name.decode() if isinstance(name, bytes) else str(name)

    def constant(self, values: npt.NDArray[Any]) -> Buffer:
        raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        with self._ready():
            buffer = self._cupy.empty(raw.size, dtype=np.uint8)
            self._copy(buffer.data.ptr, raw.ctypes.data, raw.size, self._cupy.cuda.runtime.memcpyHostToDevice)
            self._stream.synchronize()
            return buffer

    def scratch(self, size_bytes: int) -> Buffer:
        with self._ready():
            # Zeros, so that a first run without any text, see `recorded`, has no work.
            return self._cupy.zeros(size_bytes, dtype=np.uint8)

    def staging(self, size_bytes: int) -> Bytes:
        with self._ready():
            host: Bytes = self._cupyx.empty_pinned(size_bytes, dtype=np.uint8)
            return host

    def upload(self, to: Buffer, host: Bytes) -> None:
        with self._ready():
            self._copy(to.data.ptr, host.ctypes.data, host.size, self._cupy.cuda.runtime.memcpyHostToDevice)

    def recorded(self, launches: Sequence[Launch]) -> Callable[[], None]:
        with self._ready():
            # Once without a graph: a kernel is loaded when it is first launched, which must not be while recording.
            self._launch(launches)
            self._stream.synchronize()
            self._stream.begin_capture()
            self._launch(launches)
            graph = self._stream.end_capture()
            graph.upload(self._stream)

        def run() -> None:
            with self._ready():
                graph.launch(self._stream)

        return run

    def download(self, *buffers: Buffer) -> list[npt.NDArray[np.uint32]]:
        with self._ready():
            # From cupy's pool of page-locked memory, to which it goes back when the caller drops it.
            hosts = [self._cupyx.empty_pinned(buffer.size // 4, dtype=np.uint32) for buffer in buffers]
            for buffer, host in zip(buffers, hosts, strict=True):
                self._copy(host.ctypes.data, buffer.data.ptr, host.nbytes, self._cupy.cuda.runtime.memcpyDeviceToHost)
            self._stream.synchronize()
            return hosts

    def _launch(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            self._module.get_function(launch.kernel)((launch.blocks,), (THREADS,), launch.arguments)

    def _copy(self, to: int, of: int, size_bytes: int, kind: int) -> None:
        if size_bytes:
            self._cupy.cuda.runtime.memcpyAsync(to, of, size_bytes, kind, self._stream.ptr)

    @contextmanager
    def _ready(self) -> Iterator[None]:
        """The device and its stream are this thread's, and cupy's errors are ours."""
        cuda = self._cupy.cuda
        with self._lock:
            try:
                with self._device, self._stream:
                    yield
            except cuda.memory.OutOfMemoryError as error:
                raise OutOfDeviceMemoryError(type(error).__name__) from error
            except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError) as error:
                if any(name in str(error) for name in _OUT_OF_MEMORY):
                    raise OutOfDeviceMemoryError(type(error).__name__) from error
                raise DeviceError(type(error).__name__) from error
