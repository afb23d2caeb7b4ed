"""`python -m gpu_worker`: say why no GPU is used, and exit with 3."""

from __future__ import annotations

import sys

from gpu_worker.availability import probe

EXIT_UNAVAILABLE = 3


def main() -> int:
    """Print the reason on standard error and return the exit code."""
    sys.stderr.write(f"{probe().explanation}\n")
    return EXIT_UNAVAILABLE


if __name__ == "__main__":
    sys.exit(main())
