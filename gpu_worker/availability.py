"""The device to encode on, or why there is none, in one line.

cupy is imported by `gpu_worker.cuda` and nowhere else in the project, and only when a device is asked for: a machine
without it loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from gpu_worker.encoders import MakeEncoder


class NoGpuError(Exception):
    """No GPU is used. The message is one line for people; `obstacle` a stable word."""

    def __init__(self, obstacle: str, reason: str) -> None:
        super().__init__(f"no GPU is used: {reason}")
        self.obstacle = obstacle


def open_gpu() -> MakeEncoder:
    """This machine's first CUDA device. Blocks; raises `NoGpuError`."""
    from gpu_worker.chain import Chain
    from gpu_worker.cuda import NoDeviceError, open_device
    from gpu_worker.program import compile_for

    try:
        device = open_device()
    except NoDeviceError as error:
        raise NoGpuError(error.obstacle, str(error)) from error
    return lambda tokenizer: Chain(device, compile_for(tokenizer))


def why_not(open_device: Callable[[], object] = open_gpu) -> str | None:
    """One line that says why no GPU is used; None when there is one. Never raises.

    `open_device` is the seam for tests.
    """
    try:
        open_device()
    except NoGpuError as error:
        return str(error)
    except Exception as error:  # a broken CUDA installation raises nearly anything
        return f"no GPU is used: it cannot be opened ({type(error).__name__})"
    return None
