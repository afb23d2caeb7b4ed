"""Sessions files, plain or gzip: a line each, {"session": NAME, "appends": [[ROLE, TEXT], ...]}."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cli.chat_template import ASSISTANT, request_deltas
from cli.errors import CliError, ExitCode

FORMAT = '{"session": NAME, "appends": [[ROLE, TEXT], ...]}'
MAX_LINE_BYTES = 256 * 1024 * 1024
"""One session; the longest known is 4 million characters."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One session of a file. `messages` are (role, text) in the order in which they were said."""

    name: str
    messages: tuple[tuple[str, str], ...]

    @property
    def requests(self) -> int:
        """How many requests the session makes: one before each assistant message."""
        return sum(role == ASSISTANT for role, _ in self.messages)

    def deltas(self) -> Iterator[str]:
        """The new text of each request; see `cli.chat_template`."""
        return request_deltas(self.messages)


def read_sessions(path: Path, limit: int | None = None) -> Iterator[Conversation]:
    """The sessions of a file, at most `limit`, one in memory at a time.

    Raises `CliError` (INPUT) that names the line that cannot be read.
    """
    number = 0
    try:
        with _open(path) as handle:
            while limit is None or number < limit:
                line = handle.readline(MAX_LINE_BYTES + 1)
                if not line:
                    return
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise ValueError(f"longer than {MAX_LINE_BYTES} bytes")
                if line.strip():
                    yield _conversation(json.loads(line), number)
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CliError(ExitCode.INPUT, f"{path}, line {max(number, 1)}: {error}") from error


def write_sessions(path: Path, sessions: Iterable[Conversation]) -> None:
    """Write a file that `read_sessions` reads; packed when its name ends in .gz. Raises `CliError` (STORAGE)."""
    lines = (json.dumps({"session": one.name, "appends": one.messages}, ensure_ascii=False) for one in sessions)
    data = "".join(f"{line}\n" for line in lines).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    except OSError as error:
        raise CliError(ExitCode.STORAGE, f"{path}: cannot be written ({error.strerror})") from error


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as handle:
        packed = handle.read(2) == b"\x1f\x8b"
    return io.BufferedReader(gzip.GzipFile(path)) if packed else path.open("rb")


def _conversation(document: Any, number: int) -> Conversation:
    appends = document.get("appends") if isinstance(document, dict) else None
    if not isinstance(appends, list):
        raise ValueError('not a session: an object with "appends", a list of [role, text], is needed')
    messages = []
    for entry in appends:
        if not (isinstance(entry, list) and len(entry) == 2 and all(isinstance(part, str) for part in entry)):
            raise ValueError('every entry of "appends" must be [role, text]')
        role, text = entry
        text.encode("utf-8")  # a lone surrogate is a ValueError here, not a surprise later
        messages.append((role, text))
    return Conversation(str(document.get("session", f"session-{number}")), tuple(messages))
