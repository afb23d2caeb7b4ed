"""`python -m gpu_worker`: a GPU worker of a distributed installation, until SIGTERM.

The same as `toksplice worker gpu-worker`. Settings come from the environment. Without a device it says so in one line
and exits with 3, so that a process manager does not take it for a running worker.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gpu_worker.availability import open_gpu, why_not
from gpu_worker.service import GpuService
from gpu_worker.settings import GpuSettings
from pipeline import standalone
from pipeline.service import Service
from pipeline.settings import from_env
from toksplice.registry import Registry

EXIT_UNAVAILABLE = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worker; the exit code is 0 after a signal, 2 for settings that make no sense, 3 without a device."""
    reason = why_not()
    if reason is not None:
        sys.stderr.write(f"{reason}\n")
        return EXIT_UNAVAILABLE
    return standalone.main("gpu_worker", "Encode whole texts on a CUDA device.", _service, arguments)


def _service(registry: Registry) -> Service:
    return GpuService(registry, open_gpu, from_env(GpuSettings))


if __name__ == "__main__":
    sys.exit(main())
