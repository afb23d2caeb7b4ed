"""`python -m shadow`: a shadow worker of a distributed installation, until SIGTERM.

The same as `toksplice worker shadow`. Settings come from the environment, the file of findings among them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pipeline import standalone
from pipeline.service import Service
from pipeline.settings import from_env
from shadow.service import ShadowService
from shadow.settings import ShadowSettings
from toksplice.registry import Registry

DEFAULT_STORE = "quarantine.sqlite"
"""In the working directory: a process that holds nothing else knows no better place."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worker; the exit code is 0 after a signal, 2 for settings that make no sense."""
    return standalone.main("shadow", "Check sampled answers against the reference.", _service, arguments)


def _service(registry: Registry) -> Service:
    settings = from_env(ShadowSettings)
    return ShadowService(registry, settings, store_path=settings.store_path or DEFAULT_STORE)


if __name__ == "__main__":
    sys.exit(main())
