"""Why no GPU is used, in one line.

cupy is imported here and nowhere else in the project, and only when `probe` is called: a machine without it
loses nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Obstacle(StrEnum):
    """What stands between this process and the GPU; the first one met is reported."""

    NO_CUPY = "no_cupy"
    NO_DEVICE = "no_device"
    NO_KERNELS = "no_kernels"


@dataclass(frozen=True, slots=True)
class Availability:
    """Why the GPU is not used. Every obstacle is named with what would remove it."""

    obstacle: Obstacle
    explanation: str
    """One line for people."""


def probe(import_module: Callable[[str], Any] = importlib.import_module) -> Availability:
    """Find the first obstacle: cupy missing, no device, or no kernels in this version. Never raises.

    `import_module` is the seam for tests; it is asked for `cupy` only.
    """
    try:
        cupy = import_module("cupy")
    except ImportError:
        return Availability(
            Obstacle.NO_CUPY,
            "no GPU is used: cupy is not installed (install this package with its extra 'gpu')",
        )
    except Exception as error:  # a broken CUDA installation raises nearly anything while cupy loads
        return Availability(
            Obstacle.NO_CUPY,
            f"no GPU is used: cupy is installed but cannot be loaded ({type(error).__name__})",
        )
    try:
        devices = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # without a driver cupy raises its own CUDARuntimeError
        return Availability(
            Obstacle.NO_DEVICE,
            f"no GPU is used: the CUDA driver does not answer ({type(error).__name__})",
        )
    if devices == 0:
        return Availability(Obstacle.NO_DEVICE, "no GPU is used: CUDA finds no device on this machine")
    return Availability(
        Obstacle.NO_KERNELS,
        f"no GPU is used: this version has no tokenization kernels ({devices} CUDA device(s) present)",
    )
