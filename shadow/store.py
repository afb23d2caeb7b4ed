"""Wrong answers in one SQLite file that only its owner can read, for `toksplice shadow` to report and replay.

The file is bounded by count and bytes: the findings that were made longest ago make room. `save` never raises for the
file, since the finding is on tokenize.quarantine as well; what people ask for raises `StoreError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import aiosqlite

from pipeline.errors import PipelineError
from schemas.codes import Code
from schemas.errors import ProtocolError
from schemas.sample import Finding

FORMAT: Final = 1
"""`PRAGMA user_version` of the file."""
_NEW: Final = 0
"""The same of a file that was just made."""
BUSY_S: Final = 5.0
"""Longest wait for another process that has the file locked, such as the command beside a running worker."""

_FILE_MODE: Final = 0o600
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS findings (
    sample_id TEXT PRIMARY KEY,
    time_ms INTEGER NOT NULL,
    tokenizer TEXT NOT NULL,
    path TEXT NOT NULL,
    route TEXT NOT NULL,
    kind TEXT NOT NULL,
    tier TEXT NOT NULL,
    token INTEGER NOT NULL,
    redacted INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    finding BLOB NOT NULL
)
"""
_INDEX: Final = "CREATE INDEX IF NOT EXISTS by_age ON findings (time_ms, sample_id, size_bytes)"
_INSERT: Final = "INSERT OR REPLACE INTO findings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_LIST: Final = """
SELECT sample_id, time_ms, tokenizer, path, route, kind, tier, token, redacted, size_bytes
FROM findings ORDER BY time_ms DESC, sample_id
"""
_GET: Final = "SELECT finding FROM findings WHERE sample_id = ?"
_DELETE: Final = "DELETE FROM findings WHERE sample_id = ?"
_CLEAR: Final = "DELETE FROM findings"
# The newest rows that fit together stay; both windows are over the index and touch no finding.
_TRIM: Final = """
DELETE FROM findings WHERE sample_id IN (
    SELECT sample_id FROM (
        SELECT
            sample_id,
            SUM(size_bytes) OVER newest AS up_to,
            COUNT(*) OVER newest AS number
        FROM findings
        WINDOW newest AS (ORDER BY time_ms DESC, sample_id ROWS UNBOUNDED PRECEDING)
    )
    WHERE up_to > ? OR number > ?
)
"""
_VACUUM: Final = "PRAGMA incremental_vacuum"
_EMPTY_LOG: Final = "PRAGMA wal_checkpoint(TRUNCATE)"

T = TypeVar("T")

_log = logging.getLogger(__name__)
# At DEBUG it logs the values of every statement, which are users' texts here.
logging.getLogger(aiosqlite.__name__).setLevel(logging.INFO)


class StoreError(PipelineError):
    """The file of wrong answers cannot be used."""

    code: str = Code.STORAGE_FULL


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Bounds of the file."""

    findings_max: int = 1000
    bytes_max: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Listed:
    """What a list shows of a finding. `index` is the first token that differs."""

    sample_id: str
    time_ms: int
    tokenizer: str
    path: str
    route: str
    kind: str
    tier: str
    index: int
    redacted: bool
    size_bytes: int


class QuarantineStore:
    """The file. Used on one event loop; `close` last. It is opened, or created, by whatever is done first.

    With `read_only` it is neither created nor changed in any way, whatever file the path names.
    """

    def __init__(
        self, path: str | os.PathLike[str], limits: StoreLimits | None = None, *, read_only: bool = False
    ) -> None:
        self.path = Path(path)
        self._read_only = read_only
        self._limits = limits or StoreLimits()
        self._connection: aiosqlite.Connection | None = None
        self.problem = ""
        """What the last use of the file failed of, for people; "" while all is well."""

    async def close(self) -> None:
        """Close the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error, OSError, ValueError):
                await connection.close()

    async def save(self, finding: Finding) -> bool:
        """Keep a finding, in place of one of the same sample; False when it could not be written or is over the
        bound."""
        encoded = finding.encode()
        sample = finding.sample
        row = (
            sample.sample_id,
            finding.time_ms,
            sample.tokenizer,
            sample.path.value,
            sample.route.value,
            finding.kind.value,
            finding.tier.value,
            finding.index,
            int(finding.redacted),
            len(encoded),
            encoded,
        )
        if len(encoded) > self._limits.bytes_max:
            _log.error("a finding of %d bytes is over the bound of the store", len(encoded))
            return False
        try:
            await self._write((_INSERT, row), (_TRIM, (self._limits.bytes_max, self._limits.findings_max)))
        except StoreError as error:
            _log.error("a finding is not stored: %s", error)
            return False
        return True

    async def list(self) -> tuple[Listed, ...]:
        """All findings, the latest first. Raises StoreError."""
        rows = await self._use(lambda connection: connection.execute_fetchall(_LIST))
        return tuple(_listed(tuple(row)) for row in rows)

    async def get(self, sample_id: str) -> Finding | None:
        """One finding; None when it is not there. Raises StoreError, also for one that is damaged."""
        rows = tuple(await self._use(lambda connection: connection.execute_fetchall(_GET, (sample_id,))))
        if not rows:
            return None
        try:
            return Finding.decode(rows[0][0])
        except (ProtocolError, TypeError) as error:
            raise StoreError(f"the finding {sample_id} in {self.path} is damaged: clear it") from error

    async def delete(self, sample_id: str) -> bool:
        """Forget one finding; False when it was not there. Raises StoreError."""
        return await self._write((_DELETE, (sample_id,))) > 0

    async def clear(self) -> int:
        """Forget all findings; returns how many. Raises StoreError."""
        return await self._write((_CLEAR, ()))

    async def _write(self, *statements: tuple[str, tuple[object, ...]]) -> int:
        """Run some statements as one transaction; returns how many rows the first one changed."""

        async def run(connection: aiosqlite.Connection) -> int:
            changed = []
            for sql, values in statements:
                async with connection.execute(sql, values) as cursor:
                    changed.append(cursor.rowcount)
            await connection.commit()
            await connection.execute_fetchall(_VACUUM)
            # Until then the log beside the file has what was deleted, and the file itself too.
            await connection.execute_fetchall(_EMPTY_LOG)
            return changed[0]

        return await self._use(run)

    async def _use(self, use: Callable[[aiosqlite.Connection], Awaitable[T]]) -> T:
        """What `use` returns. After a failure the next use opens the file anew."""
        try:
            result = await use(await self._connected())
        except asyncio.CancelledError:
            # In the middle of a transaction, which would keep the file locked for everybody else.
            await asyncio.shield(self.close())
            raise
        except (sqlite3.Error, OSError, ValueError) as error:
            # aiosqlite says ValueError for a connection that was closed under it.
            # Heartbeats say it, and they are UTF-8, which a path need not be.
            where = os.fsencode(self.path).decode("utf-8", "replace")
            self.problem = f"{where} cannot be used: {type(error).__name__}"
            await self.close()
            raise StoreError(f"{self.problem} ({error})") from error
        self.problem = ""
        return result

    async def _connected(self) -> aiosqlite.Connection:
        if self._connection is None:
            target = _existing(self.path) if self._read_only else _private(self.path).absolute().as_uri()
            connection = await aiosqlite.connect(target, uri=True, timeout=BUSY_S)
            try:
                await (self._check(connection) if self._read_only else self._prepare(connection))
            except BaseException:
                await connection.close()
                raise
            self._connection = connection
        return self._connection

    async def _check(self, connection: aiosqlite.Connection, *formats: int) -> None:
        """Raise sqlite3.DatabaseError for a file of another format than FORMAT or one of `formats`."""
        async with connection.execute("PRAGMA user_version") as cursor:
            row = await cursor.fetchone()
        if row is not None and row[0] not in (FORMAT, *formats):
            raise sqlite3.DatabaseError(f"the file has format {row[0]}, this version reads {FORMAT}")

    async def _prepare(self, connection: aiosqlite.Connection) -> None:
        await connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        await connection.execute("PRAGMA journal_mode = WAL")
        # What is deleted was somebody's text: it does not stay in free pages.
        await connection.execute("PRAGMA secure_delete = ON")
        await self._check(connection, _NEW)
        await connection.execute(_TABLE)
        await connection.execute(_INDEX)
        await connection.execute(f"PRAGMA user_version = {FORMAT}")
        await connection.commit()


def _listed(row: tuple[Any, ...]) -> Listed:
    *names, index, redacted, size_bytes = row
    sample_id, time_ms, tokenizer, path, route, kind, tier = names
    return Listed(sample_id, time_ms, tokenizer, path, route, kind, tier, index, bool(redacted), size_bytes)


def _existing(path: Path) -> str:
    """The URI of a file that is only read. Raises OSError for what is none, and might never be read to its end."""
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, "there is no such file", str(path))
    return f"{path.absolute().as_uri()}?mode=ro"


def _private(path: Path) -> Path:
    """Create the file, or make an existing one private: SQLite gives its side files the same mode."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, _FILE_MODE))
    path.chmod(_FILE_MODE)
    return path
