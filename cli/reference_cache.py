"""What the reference answered before: a SQLite file that `replay --verify` shares between runs.

One table, `reference(key, count, digest)`:
key     SHA-256 of  fingerprint hex, newline, "1" or "0" for add_special_tokens, newline, the text's UTF-8
count   the number of ids
digest  SHA-256 of the ids as little-endian u32

The fingerprint covers the tokenizer file and the library version, so an entry never goes stale.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from cli.errors import CliError, ExitCode

MAX_PARAMETERS = 500
"""Keys looked up in one statement."""
BUSY_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole tokenization, as small as can be: enough to tell whether another one is the same."""

    count: int
    digest: bytes

    @classmethod
    def of(cls, ids: npt.NDArray[np.uint32]) -> Answer:
        """The answer that holds these ids (any integer array of shape (tokens,))."""
        return cls(len(ids), hashlib.sha256(np.ascontiguousarray(ids, dtype="<u4").data).digest())


class RunningKey:
    """The key of a text that grows by appends, at the cost of what is new."""

    def __init__(self, fingerprint_hex: str, *, add_special_tokens: bool = False) -> None:
        self._hash = hashlib.sha256(f"{fingerprint_hex}\n{int(add_special_tokens)}\n".encode())

    def append(self, text: str) -> bytes:
        """The key after `text` was appended (32 bytes)."""
        self._hash.update(text.encode())
        return self._hash.copy().digest()


class ReferenceCache:
    """The file. Not for several threads; several processes may share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS reference"
                " (key BLOB PRIMARY KEY, count INTEGER NOT NULL, digest BLOB NOT NULL) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            raise CliError(ExitCode.STORAGE, f"{path}: no usable reference cache ({error})") from error

    def __enter__(self) -> ReferenceCache:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._db.close()

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Answer]:
        """What is known of these keys."""
        found: dict[bytes, Answer] = {}
        for start in range(0, len(keys), MAX_PARAMETERS):
            part = keys[start : start + MAX_PARAMETERS]
            marks = ",".join("?" * len(part))
            # Only question marks are put into the statement.
            query = f"SELECT key, count, digest FROM reference WHERE key IN ({marks})"  # noqa: S608
            for key, count, digest in self._run(query, part):
                found[key] = Answer(count, digest)
        return found

    def put(self, answers: Iterable[tuple[bytes, Answer]]) -> None:
        """Store answers; all of them or none."""
        rows = [(key, answer.count, answer.digest) for key, answer in answers]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO reference VALUES (?, ?, ?)", rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise CliError(ExitCode.STORAGE, f"{self.path}: cannot be written ({error})") from error

    def _run(self, query: str, values: Sequence[bytes]) -> list[tuple[bytes, int, bytes]]:
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise CliError(ExitCode.INPUT, f"{self.path}: cannot be read ({error})") from error
