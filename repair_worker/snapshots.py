"""Snapshots of sessions in one SQLite file, so that an embedded pipeline finds its sessions again after a
restart.

Snapshots are written behind the answers and may lag: what is restored is a state that the session once had,
and its next change gets a new epoch, so a delta of the time that was lost can never apply to it.

Nothing here may hurt an answer. Every failure of the file is counted, shown in the worker's health, and
otherwise means only that there is no snapshot.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sqlite3
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import aiosqlite
import msgpack  # type: ignore[import-untyped]
from opentelemetry.metrics import Counter

from repair_worker.history import Remembered, RequestId
from repair_worker.settings import SnapshotSettings
from repair_worker.store import Identity
from schemas.codes import Code
from schemas.state import directory_key

FORMAT: Final = 1
"""`PRAGMA user_version` of the file. A file of another format is emptied: snapshots are only ever a shortcut.
"""
DAMAGED: Final = "damaged"
"""Failure code of a row that does not match its checksum, or whose state cannot be restored."""

_FILE_MODE: Final = 0o600
_DIGEST_BYTES: Final = 16
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS sessions (
    key BLOB PRIMARY KEY,
    epoch INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    origin_epoch INTEGER NOT NULL,
    history BLOB NOT NULL,
    state BLOB NOT NULL,
    digest BLOB NOT NULL,
    size_bytes INTEGER NOT NULL,
    written_ms INTEGER NOT NULL
)
"""
_INDEX: Final = "CREATE INDEX IF NOT EXISTS by_age ON sessions (written_ms, key, size_bytes)"
_SELECT: Final = """
SELECT epoch, revision, origin_epoch, history, state, digest FROM sessions WHERE key = ? AND written_ms >= ?
"""
_INSERT: Final = "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_DELETE: Final = "DELETE FROM sessions WHERE key = ?"
_DELETE_TOKENIZER: Final = "DELETE FROM sessions WHERE instr(key, ?) > 0"
_DELETE_ALL: Final = "DELETE FROM sessions"
_FORGET_OLD: Final = "DELETE FROM sessions WHERE written_ms < ?"
# The newest rows that fit together stay; the running sum is over the index and touches no state.
_FORGET_OLDEST: Final = """
DELETE FROM sessions WHERE key IN (
    SELECT key FROM (
        SELECT key, SUM(size_bytes) OVER (ORDER BY written_ms DESC, key ROWS UNBOUNDED PRECEDING) AS up_to
        FROM sessions
    )
    WHERE up_to > ?
)
"""
_VACUUM: Final = "PRAGMA incremental_vacuum(1024)"
"""Gives a bounded number of free pages back to the file system."""

T = TypeVar("T")


class RunBlocking(Protocol):
    """Runs a function in a thread, as `Context.run_blocking` does."""

    def __call__(self, fn: Callable[..., T], /, *args: Any) -> Awaitable[T]: ...


_log = logging.getLogger(__name__)
# At DEBUG it logs the values of every statement, which are users' texts here.
logging.getLogger(aiosqlite.__name__).setLevel(logging.INFO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One session as it is kept: a state, its name, and the answers that led to it."""

    identity: Identity
    epoch: int
    revision: int
    origin_epoch: int
    state: bytes
    history: tuple[tuple[RequestId, Remembered], ...] = ()

    @property
    def key(self) -> bytes:
        return directory_key(*self.identity)


class SnapshotFile:
    """The file. Used by one worker on one event loop; `open` first, `close` last. No method raises for the
    file."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: SnapshotSettings | None = None,
        *,
        now_ms: Callable[[], int],
        ttl_s: float,
        failures: Counter,
        run_blocking: RunBlocking,
    ) -> None:
        """`ttl_s`: rows written longer ago are neither restored nor kept. `failures` counts by attribute
        `code`. `run_blocking` computes checksums, which takes milliseconds for long texts."""
        self._path = Path(path)
        self.settings = settings or SnapshotSettings()
        self._now_ms = now_ms
        self._ttl_ms = round(ttl_s * 1_000)
        self._failures = failures
        for code in (Code.QUOTA_EXCEEDED.value, Code.STORAGE_FULL.value, DAMAGED):
            failures.add(0, {"code": code})
        self._run_blocking = run_blocking
        self._connection: aiosqlite.Connection | None = None
        self.problem = ""
        """What the last use of the file failed of, for people; "" while all is well."""

    async def open(self) -> None:
        """Open or create the file, readable by its owner only. Later uses try again if this fails."""
        await self._use("opened", _nothing)

    async def close(self) -> None:
        """Close the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error, OSError, ValueError):
                await connection.close()

    async def load(self, identity: Identity) -> Snapshot | None:
        """The session's snapshot; None when there is none that is young enough and undamaged."""
        key = directory_key(*identity)
        oldest_ms = self._now_ms() - self._ttl_ms

        async def select(connection: aiosqlite.Connection) -> tuple[object, ...] | None:
            async with connection.execute(_SELECT, (key, oldest_ms)) as cursor:
                row = await cursor.fetchone()
            return None if row is None else tuple(row)

        row = await self._use("read", select)
        if row is None:
            return None
        try:
            return await self._run_blocking(_parse, identity, key, row)
        except (ValueError, TypeError, msgpack.UnpackException):
            await self.drop_damaged(identity)
            return None

    async def save(self, snapshot: Snapshot) -> bool:
        """Keep `snapshot` in place of an older one; False when it could not be written. `trim` makes room."""
        history = _pack(snapshot.history)
        size_bytes = len(snapshot.state) + len(history)
        if size_bytes > self.settings.bytes_max:
            self._failures.add(1, {"code": Code.QUOTA_EXCEEDED.value})
            return await self.delete(snapshot.identity)
        row = (
            snapshot.key,
            snapshot.epoch,
            snapshot.revision,
            snapshot.origin_epoch,
            history,
            snapshot.state,
            await self._run_blocking(_digest, snapshot, history),
            size_bytes,
            self._now_ms(),
        )
        return await self._write((_INSERT, row))

    async def delete(self, identity: Identity) -> bool:
        """Forget the session; False when the file failed."""
        return await self._write((_DELETE, (directory_key(*identity),)))

    async def delete_tokenizer(self, fingerprint: str | None) -> bool:
        """Forget every session of a tokenizer, or of all with None; False when the file failed."""
        if fingerprint is None:
            return await self._write((_DELETE_ALL, ()))
        # The fingerprint stands between two NULs in the key, and neither tenant nor session id holds one.
        return await self._write((_DELETE_TOKENIZER, (b"\0%s\0" % fingerprint.encode(),)))

    async def trim(self) -> bool:
        """Delete what is too old, then what was written longest ago, until the rest fits `bytes_max`."""
        oldest_ms = self._now_ms() - self._ttl_ms
        return await self._write(
            (_FORGET_OLD, (oldest_ms,)), (_FORGET_OLDEST, (self.settings.bytes_max,)), (_VACUUM, ())
        )

    async def drop_damaged(self, identity: Identity) -> None:
        """Forget a session whose snapshot turned out to be damaged, and count it."""
        _log.warning("a damaged session snapshot is dropped")
        self._failures.add(1, {"code": DAMAGED})
        await self.delete(identity)

    async def _write(self, *statements: tuple[str, tuple[object, ...]]) -> bool:
        """Run some statements as one transaction; False when that failed."""

        async def run(connection: aiosqlite.Connection) -> bool:
            for sql, values in statements:
                # Fetched to its end: an open statement would keep the transaction from being committed.
                await connection.execute_fetchall(sql, values)
            await connection.commit()
            return True

        return await self._use("written", run) is True

    async def _use(self, what: str, use: Callable[[aiosqlite.Connection], Awaitable[T]]) -> T | None:
        """What `use` returns; None after a failure of the file, which is counted and goes no further.

        A half-done transaction is given up with its connection; the next use opens a new one.
        """
        try:
            result = await use(await self._connected())
        except (sqlite3.Error, OSError, ValueError) as error:
            # aiosqlite says ValueError for a connection that was closed under it.
            self.problem = f"snapshots cannot be {what}: {type(error).__name__}"
            self._failures.add(1, {"code": Code.STORAGE_FULL.value})
            _log.warning("%s (%s)", self.problem, error)
            await self.close()
            return None
        self.problem = ""
        return result

    async def _connected(self) -> aiosqlite.Connection:
        if self._connection is None:
            connection = await aiosqlite.connect(_private(self._path), timeout=self.settings.busy_s)
            try:
                await _prepare(connection)
            except BaseException:
                await connection.close()
                raise
            self._connection = connection
        return self._connection


async def _nothing(connection: aiosqlite.Connection) -> None:
    """For a use that only needs the file to be open."""


async def _prepare(connection: aiosqlite.Connection) -> None:
    await connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    await connection.execute("PRAGMA journal_mode = WAL")
    # A crash of the machine may lose the last snapshots, never damage the file.
    await connection.execute("PRAGMA synchronous = NORMAL")
    async with connection.execute("PRAGMA user_version") as cursor:
        row = await cursor.fetchone()
    if row is not None and row[0] not in (0, FORMAT):
        _log.warning("session snapshots of format %d are dropped; this version writes %d", row[0], FORMAT)
        await connection.execute("DROP TABLE IF EXISTS sessions")
    await connection.execute(_TABLE)
    await connection.execute(_INDEX)
    await connection.execute(f"PRAGMA user_version = {FORMAT}")
    await connection.commit()


def _private(path: Path) -> Path:
    """Create the file, or make an existing one private: SQLite gives its side files the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, _FILE_MODE))
    path.chmod(_FILE_MODE)
    return path


def _pack(history: tuple[tuple[RequestId, Remembered], ...]) -> bytes:
    packed: bytes = msgpack.packb([[request_id, answer.encoded, answer.elided_total] for request_id, answer in history])
    return packed


def _digest(snapshot: Snapshot, history: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    digest.update(struct.pack("<QQQ", snapshot.epoch, snapshot.revision, snapshot.origin_epoch))
    for part in (snapshot.key, history, snapshot.state):
        digest.update(struct.pack("<Q", len(part)))
        digest.update(part)
    return digest.digest()


def _parse(identity: Identity, key: bytes, row: tuple[object, ...]) -> Snapshot:
    """The snapshot in a row. Raises ValueError, TypeError or msgpack's errors for a damaged one."""
    epoch, revision, origin_epoch, packed, state, digest = row
    if not (isinstance(epoch, int) and isinstance(revision, int) and isinstance(origin_epoch, int)):
        raise TypeError("a number of the row is not one")
    if not (isinstance(packed, bytes) and isinstance(state, bytes)):
        raise TypeError("a part of the row is not bytes")
    bare = Snapshot(identity=identity, epoch=epoch, revision=revision, origin_epoch=origin_epoch, state=state)
    try:
        expected = _digest(bare, packed)
    except struct.error as error:
        raise ValueError("a number of the row is out of range") from error
    if bare.key != key or digest != expected:
        raise ValueError("the row does not match its checksum")
    history = tuple(
        (request_id, Remembered(encoded=encoded, elided_total=total))
        for request_id, encoded, total in msgpack.unpackb(packed)
    )
    return Snapshot(
        identity=identity,
        epoch=epoch,
        revision=revision,
        origin_epoch=origin_epoch,
        state=state,
        history=history,
    )
