"""What commands write: results on stdout, as a table or as JSON; progress and errors on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from cli.errors import CliError, ExitCode

PIPE_COLUMNS = 200


def stdout() -> Console:
    """The console for results. Made on each call, because tests and pipes replace the stream."""
    # What is piped has no width of its own: tables must not be cut for it.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_COLUMNS
    return Console(file=sys.stdout, highlight=False, width=width)


def stderr() -> Console:
    """The console for progress, notes and errors."""
    return Console(file=sys.stderr, highlight=False)


def note(message: str) -> None:
    """One line for a person to read, on stderr."""
    stderr().print(message, markup=False, soft_wrap=True)


def write_json(payload: Any, target: str | Path = "-") -> None:
    """Write `payload` as JSON to a file, or to stdout for "-"."""
    text = json.dumps(payload, ensure_ascii=False, indent=2) + "\n"
    if str(target) == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(ExitCode.STORAGE, f"{target}: cannot be written ({error.strerror})") from error


def written_time(time_ms: int) -> str:
    """Epoch milliseconds as people read them, UTC."""
    try:
        return datetime.fromtimestamp(time_ms / 1e3, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a record may hold any number
        return f"{time_ms} ms"


def printable(word: str) -> str:
    """A word of a record as a terminal may show it: what would command the terminal is escaped."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in word)


class Bar:
    """One progress bar. Shown only when stderr is a terminal; otherwise every call does nothing."""

    def __init__(self, progress: Progress, description: str, total: float | None) -> None:
        self._progress = progress
        self._task = progress.add_task(description, total=total)

    def advance(self, steps: float = 1) -> None:
        self._progress.advance(self._task, steps)

    def say(self, description: str) -> None:
        """Change the words beside the bar."""
        self._progress.update(self._task, description=description)


@contextmanager
def progress_bar(description: str, total: float | None = None) -> Iterator[Bar]:
    """A bar with a known total, or a spinner while the total is None."""
    console = stderr()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield Bar(progress, description, total)
