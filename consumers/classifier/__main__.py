"""`python -m consumers.classifier`: the classifier of a distributed installation, until SIGTERM.

The same as `toksplice worker classifier`. Settings come from the environment.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from consumers.classifier.service import ClassifierService
from consumers.classifier.settings import ClassifierSettings
from pipeline import standalone
from pipeline.service import Service
from pipeline.settings import from_env
from toksplice.registry import Registry


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worker; the exit code is 0 after a signal, 2 for settings that make no sense."""
    return standalone.main("consumers.classifier", "Route requests to the workers.", _service, arguments)


def _service(registry: Registry) -> Service:
    return ClassifierService(registry, from_env(ClassifierSettings))


if __name__ == "__main__":
    sys.exit(main())
