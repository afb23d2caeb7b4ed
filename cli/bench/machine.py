"""What a measurement was made on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def processor() -> str:
    """The processor's name as the system gives it, and how many cores there are."""
    model = platform.processor() or platform.machine()
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{model}, {os.cpu_count()} cores"
