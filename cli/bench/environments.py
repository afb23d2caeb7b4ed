"""A virtual environment for each peer, made on demand with pip, and kept in the cache between runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from cli.bench.peers import Peer
from toksplice.sources import cache_folder

INSTALL_TIMEOUT_S = 900.0
"""For one environment; the largest download is some 100 MB."""
_READY = "ready"
"""The file that says that an environment is complete; it holds the requirements."""


class PeerUnavailableError(Exception):
    """A peer that cannot take part; the message is the reason that the table shows, without this machine's folders."""

    def __init__(self, reason: str) -> None:
        super().__init__(re.sub(f"{re.escape(str(bench_folder()))}\\S*/", "", reason))


def bench_folder() -> Path:
    """Where environments and peers' own files are kept."""
    return cache_folder() / "bench"


def python_of(peer: Peer, folder: Path) -> Path:
    """The Python that has `peer` installed; makes its environment under `folder` when there is none yet.

    Raises `PeerUnavailableError`.
    """
    if not peer.requirements:
        return Path(sys.executable)
    place = folder / f"{peer.name}-{sys.implementation.cache_tag}"
    wanted = "\n".join(peer.requirements)
    ready = place / _READY
    python = place / "bin" / "python"
    if ready.exists() and ready.read_text(encoding="utf-8") == wanted and python.exists():
        return python
    shutil.rmtree(place, ignore_errors=True)
    try:
        venv.create(place, with_pip=True)
        _install(python, peer.requirements)
        ready.write_text(wanted, encoding="utf-8")
    except (OSError, subprocess.SubprocessError) as error:
        raise PeerUnavailableError(f"no environment for {peer.name}: {error}") from error
    return python


def _install(python: Path, requirements: tuple[str, ...]) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    # What runs the command must not leak into the environment that is being made.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(  # noqa: S603 - the requirements are the table's
        [*command, *requirements],
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        env=environment,
        check=False,
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"pip ended with {done.returncode}"]
        raise PeerUnavailableError(f"pip cannot install {' '.join(requirements)}: {lines[-1]}")
