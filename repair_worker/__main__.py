"""`python -m repair_worker`: a repair worker of a distributed installation, until SIGTERM.

The same as `toksplice worker repair-worker`. Settings come from the environment.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pipeline import standalone
from pipeline.service import Service
from pipeline.settings import from_env
from repair_worker.service import RepairService
from repair_worker.settings import RepairSettings
from toksplice.registry import Registry


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worker; the exit code is 0 after a signal, 2 for settings that make no sense."""
    return standalone.main("repair_worker", "Hold sessions and answer their changes.", _service, arguments)


def _service(registry: Registry) -> Service:
    return RepairService(registry, from_env(RepairSettings))


if __name__ == "__main__":
    sys.exit(main())
