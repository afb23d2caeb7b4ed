"""A peer's process: requests go in, answers come out, and what goes wrong has a reason."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from cli.bench.environments import PeerUnavailableError

ANSWER_TIMEOUT_S = 600.0
"""For one request; the slowest known is a reference that encodes 4.4 million characters in five seconds."""
STOP_TIMEOUT_S = 10.0
PROGRAM = Path(__file__).with_name("peer.py")

ONE_THREAD = {
    "RAYON_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}
"""Variables under which every peer runs: one core, and nothing fetched behind the benchmark's back."""


class PeerProcess:
    """One process. Use it as a context manager; afterwards the process is gone."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self._answer_timeout_s = answer_timeout_s
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(  # noqa: S603 - the command is ours
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **ONE_THREAD, **environment},
        )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._texts: set[str] = set()

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(at_once=kind is not None)

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises `PeerUnavailableError` with the peer's own reason, or when the process has died or does not answer.
        """
        line = json.dumps({"op": op, **fields}).encode() + b"\n"
        found = b""
        try:
            if self._process.stdin is not None:
                self._process.stdin.write(line)
                self._process.stdin.flush()
            found = self._lines.get(timeout=self._answer_timeout_s)
        except queue.Empty:
            self.close(at_once=True)
            raise PeerUnavailableError(f"no answer within {self._answer_timeout_s:g} s") from None
        except (OSError, ValueError):  # the pipe is broken, or closed already
            pass
        if not found:
            raise PeerUnavailableError(f"the process ended: {self._last_error()}")
        answer: dict[str, Any] = json.loads(found)
        if "error" in answer:
            raise PeerUnavailableError(str(answer["error"]))
        return answer

    def know(self, key: str, text: str) -> None:
        """Let the process keep `text` as `key`, once."""
        if key not in self._texts:
            self.ask("text", key=key, text=text)
            self._texts.add(key)

    def close(self, *, at_once: bool = False) -> None:
        """End the process, by force when it is `at_once` or does not end by itself; a second call does nothing."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is not None:
            with contextlib.suppress(OSError):
                stdin.close()
        if not at_once:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if stdout is not None:
            stdout.close()
        self._errors.close()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.put(line)
        self._lines.put(b"")

    def _last_error(self) -> str:
        if self._errors.closed:
            return "it was stopped"
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:400] if lines else f"exit code {code}"
