"""`python -m consumers.cpu_fallback`: a CPU fallback worker of a distributed installation, until SIGTERM.

The same as `toksplice worker cpu-fallback`. Settings come from the environment.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from consumers.cpu_fallback.service import CpuFallbackService
from consumers.cpu_fallback.stand_in import make_stand_in
from pipeline import standalone
from pipeline.service import Service
from toksplice.registry import Registry


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worker; the exit code is 0 after a signal, 2 for settings that make no sense."""
    return standalone.main(
        "consumers.cpu_fallback", "Encode whole texts on the CPU.", _service, arguments, make_stand_in
    )


def _service(registry: Registry) -> Service:
    return CpuFallbackService(registry)


if __name__ == "__main__":
    sys.exit(main())
