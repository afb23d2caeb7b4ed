"""A cupy that has no GPU: its arrays are the emulation's guarded memory, and its kernels run on the CPU.

It has what `gpu_worker.cuda` uses and nothing else, keeps cupy's rules where breaking them would pass unseen here
(nothing but launches while a graph is recorded, copies by address, one stream), and can be told to fail.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda_on_cpu.device import guarded
from cuda_on_cpu.emulator import Module


class CUDARuntimeError(RuntimeError):
    """As in cupy.cuda.runtime."""


class CUDADriverError(RuntimeError):
    """As in cupy.cuda.driver."""


class OutOfMemoryError(MemoryError):
    """As in cupy.cuda.memory."""


class FakeArray:
    """An array of bytes on the device: only its size and its address can be seen."""

    def __init__(self, memory: npt.NDArray[np.uint8]) -> None:
        self.memory = memory
        self.size = memory.size
        self.data = SimpleNamespace(ptr=memory.ctypes.data)

    def __getitem__(self, part: slice) -> FakeArray:
        assert isinstance(part, slice)
        return FakeArray(self.memory[part])


class Graph:
    def __init__(self, cupy: FakeCupy, launches: Sequence[Callable[[], None]]) -> None:
        self._cupy = cupy
        self._launches = launches

    def upload(self, stream: Stream) -> None:
        assert stream is self._cupy.current

    def launch(self, stream: Stream) -> None:
        assert stream is self._cupy.current
        self._cupy.happens("graph")
        for launch in self._launches:
            launch()


class Stream:
    def __init__(self, cupy: FakeCupy) -> None:
        self._cupy = cupy
        self.ptr = id(self)
        self.recording: list[Callable[[], None]] | None = None

    def __enter__(self) -> None:
        assert self._cupy.current is None
        self._cupy.current = self

    def __exit__(self, *error: object) -> None:
        self._cupy.current = None

    def begin_capture(self) -> None:
        self.recording = []

    def end_capture(self) -> Graph:
        assert self.recording
        graph, self.recording = Graph(self._cupy, self.recording), None
        return graph

    def synchronize(self) -> None:
        assert self.recording is None
        self._cupy.happens("synchronize")


class FakeCupy:
    """The module. `events`: what happened, in order; `failing`: what raises when it happens next."""

    def __init__(self, devices: int = 1) -> None:
        self.events: list[str] = []
        self.failing: dict[str, Exception] = {}
        self.current: Stream | None = None
        self.compiled: list[tuple[str, ...]] = []
        runtime = SimpleNamespace(
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            CUDARuntimeError=CUDARuntimeError,
            getDeviceCount=lambda: devices,
            getDeviceProperties=lambda number: {"name": b"a device that is none"},
            memcpyAsync=self._copy,
        )
        self.cuda = SimpleNamespace(
            runtime=runtime,
            driver=SimpleNamespace(CUDADriverError=CUDADriverError),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            Device=lambda number: _Entered(),
            Stream=lambda non_blocking: Stream(self),
        )

    def happens(self, event: str) -> None:
        self.events.append(event)
        if event in self.failing:
            raise self.failing.pop(event)

    def importing(self, name: str) -> Any:
        """For `open_device`."""
        return {"cupy": self, "cupyx": SimpleNamespace(empty_pinned=self._pinned)}[name]

    def empty(self, size: int, dtype: type) -> FakeArray:
        return self._allocated(size, dtype, 0xCD)

    def zeros(self, size: int, dtype: type) -> FakeArray:
        return self._allocated(size, dtype, 0)

    def RawModule(self, code: str, options: tuple[str, ...], backend: str) -> RawModule:  # noqa: N802 - cupy's name
        assert backend == "nvrtc"
        self.compiled.append(options)
        return RawModule(self, code)

    def _allocated(self, size: int, dtype: type, content: int) -> FakeArray:
        assert dtype is np.uint8
        assert self.current is not None
        assert self.current.recording is None
        self.happens("allocate")
        memory = guarded(size)
        memory[:] = content
        return FakeArray(memory)

    def _pinned(self, size: int, dtype: type) -> npt.NDArray[Any]:
        self.happens("pin")
        return np.full(size, 0xCD, dtype=dtype)

    def _copy(self, to: int, of: int, size_bytes: int, kind: int, stream: int) -> None:
        assert self.current is not None
        assert stream == self.current.ptr
        assert self.current.recording is None
        self.happens("up" if kind == 1 else "down")
        ctypes.memmove(to, of, size_bytes)


class RawModule:
    def __init__(self, cupy: FakeCupy, code: str) -> None:
        assert "#include" not in code, "a part that cupy's cache would not see"
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "code.cu"
            source.write_text(code)
            self._module = Module(source)
        self._cupy = cupy

    def get_function(self, name: str) -> Callable[..., None]:
        assert name in self._module.names

        def function(grid: tuple[int], block: tuple[int], arguments: Sequence[Any]) -> None:
            values = [value.memory if isinstance(value, FakeArray) else value for value in arguments]
            stream = self._cupy.current
            assert stream is not None

            def launch() -> None:
                self._module.launch(name, grid[0], block[0], values)

            if stream.recording is None:
                self._cupy.happens(name)
                launch()
            else:
                stream.recording.append(launch)

        return function


class _Entered:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...
