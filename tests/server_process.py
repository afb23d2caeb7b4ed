"""What the servers that tests start have in common: until when to wait for one, and how to end it."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from typing import Final

POLL_S: Final = 0.1


def takes_connections(port: int) -> bool:
    """Whether something listens on a port of loopback."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def wait_until(
    is_ready: Callable[[], bool],
    process: subprocess.Popen[bytes],
    *,
    name: str,
    limit_s: float,
    stop: Callable[[], None],
    log_tail: Callable[[], str],
) -> None:
    """Return once the server is ready. Raises RuntimeError with the end of its log when it ends before, or when it is
    not ready in time; then it is stopped."""
    deadline = time.monotonic() + limit_s
    while not is_ready():
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with {process.returncode}:\n{log_tail()}")
        if time.monotonic() > deadline:
            stop()
            raise RuntimeError(f"{name} was not ready in {limit_s} s:\n{log_tail()}")
        time.sleep(POLL_S)


def end(process: subprocess.Popen[bytes], limit_s: float) -> None:
    """End a process, by force when it does not by itself."""
    process.terminate()
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
