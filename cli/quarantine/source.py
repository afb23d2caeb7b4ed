"""Where findings come from: the file of a shadow worker on this machine, or tokenize.quarantine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from cli.errors import CliError, ExitCode
from cli.topics import records_of
from pipeline.ports import Broker
from schemas.errors import ProtocolError
from schemas.request import Request
from schemas.sample import Finding, Sample
from schemas.topics import QUARANTINE, REQUESTS, partition_for, session_key
from shadow.store import Listed, QuarantineStore, StoreError

REQUESTS_MAX: Final = 10_000
"""Requests of one session that are looked at; the latest ones up to the sample's."""


class Source(Protocol):
    """Findings, and the requests that led to them."""

    @property
    def where(self) -> str:
        """Names it for people."""

    async def all(self) -> list[Listed]:
        """All findings, the latest first."""

    async def get(self, sample_id: str) -> Finding | None:
        """One finding; None when it is not there."""

    async def requests(self, sample: Sample) -> list[Request]:
        """What the session's clients asked, in order, as far as it is still there."""


class FileSource:
    """The SQLite file. It is not made when it is not there, nor changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._store = QuarantineStore(path, read_only=True)

    @property
    def where(self) -> str:
        return str(self._path)

    async def all(self) -> list[Listed]:
        return [] if not self._path.exists() else list(await self._store.list())

    async def get(self, sample_id: str) -> Finding | None:
        return None if not self._path.exists() else await self._store.get(sample_id)

    async def requests(self, sample: Sample) -> list[Request]:
        return []

    async def close(self) -> None:
        await self._store.close()


class TopicSource:
    """The findings of every shadow worker of a broker."""

    def __init__(self, broker: Broker, partitions: int) -> None:
        self._broker = broker
        self._partitions = partitions

    @property
    def where(self) -> str:
        return QUARANTINE

    async def all(self) -> list[Listed]:
        # A sample that was handled twice was found twice; the latest counts.
        found = {finding.sample.sample_id: _listed(finding, size) async for finding, size in self._findings()}
        return sorted(found.values(), key=lambda row: (-row.time_ms, row.sample_id))

    async def get(self, sample_id: str) -> Finding | None:
        found = None
        async for finding, _ in self._findings():
            if finding.sample.sample_id == sample_id:
                found = finding
        return found

    async def requests(self, sample: Sample) -> list[Request]:
        if not sample.session_id:
            return []
        key = session_key(sample.tenant, sample.session_id)
        partition = partition_for(key, self._partitions)
        found: list[Request] = []
        async for record in records_of(self._broker, REQUESTS, [partition], "the session's requests"):
            try:
                request = Request.decode(record.value or b"")
            except ProtocolError:
                continue
            if (request.tenant, request.session_id) == (sample.tenant, sample.session_id):
                found = [*found[-REQUESTS_MAX + 1 :], request]
                if request.request_id == sample.request_id:
                    break
        return found

    async def _findings(self) -> AsyncIterator[tuple[Finding, int]]:
        async for record in records_of(self._broker, QUARANTINE, range(self._partitions), "the findings"):
            try:
                yield Finding.decode(record.value or b""), len(record.value or b"")
            except ProtocolError:
                continue


def _listed(finding: Finding, size_bytes: int) -> Listed:
    sample = finding.sample
    return Listed(
        sample_id=sample.sample_id,
        time_ms=finding.time_ms,
        tokenizer=sample.tokenizer,
        path=sample.path.value,
        route=sample.route.value,
        kind=finding.kind.value,
        tier=finding.tier.value,
        index=finding.index,
        redacted=finding.redacted,
        size_bytes=size_bytes,
    )


@asynccontextmanager
async def file_source(path: Path) -> AsyncIterator[Source]:
    """The findings in a file. Its failures end the command with STORAGE."""
    source = FileSource(path)
    try:
        yield source
    except StoreError as error:
        raise CliError(ExitCode.STORAGE, str(error)) from error
    finally:
        await source.close()
