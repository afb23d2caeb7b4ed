"""What the tests of the repair worker share: a service on a bench, and sessions that were handed to it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path as FilePath
from typing import Any

from worker_kit import Bench, TinyRegistry, base_of, bench, ids_of, patched, reference_ids, tiny, work

from pipeline.faults import NO_FAULTS, Faults
from repair_worker.service import RepairService
from repair_worker.settings import RepairSettings, SnapshotSettings
from schemas.health import Control
from schemas.reply import Path, Reply, Route
from schemas.request import Base, Op, Want
from schemas.work import Adopt, Served

FIRST_EPOCH = 500
"""Epoch of the sessions that `adopt` hands over; the service itself draws 1000, 1001, ..."""


def adopt(text: str, *, epoch: int = FIRST_EPOCH, request_id: str = "first", **fields: Any) -> Adopt:
    """A session as the CPU worker hands it over."""
    given = {
        "session_id": "s",
        "fingerprint": tiny().fingerprint,
        "epoch": epoch,
        "revision": 1,
        "served": Served(request_id=request_id, path=Path.CPU, reason="short_text", route=Route.D),
    } | fields
    special = bool(given.get("add_special_tokens"))
    state = tiny().session(text, add_special_tokens=special).to_bytes()
    return Adopt(**({"state": state} | given))  # type: ignore[arg-type]


def first_base(text: str, epoch: int | None = FIRST_EPOCH) -> Base:
    """The state of a session that was just handed over."""
    return Base(revision=1, length=len(text.encode()), epoch=epoch)


class Follower:
    """A client of one session that checks every answer against the reference."""

    def __init__(self, it: Bench, text: str, **fields: Any) -> None:
        self.it = it
        self.fields = fields
        self.special = bool(fields.get("add_special_tokens"))
        self.text = text
        self.ids = reference_ids(text, add_special_tokens=self.special)
        self.base = first_base(text)
        self._numbers = itertools.count()

    async def send(self, op: Op, new_text: str, **fields: Any) -> Reply:
        """Send a change that should make the text `new_text`."""
        given = {"base": self.base} | self.fields | fields
        if op is Op.TEXT:
            given.pop("base")
        reply = await self.it.ask(work(f"f{next(self._numbers)}", op, **given))
        assert reply.code is None, reply.message
        whole = given.get("want") is Want.IDS
        self.ids = ids_of(reply) if whole else patched(self.ids, reply)
        self.text = new_text
        self.base = base_of(reply)
        assert self.ids == reference_ids(new_text, add_special_tokens=self.special)
        assert reply.total == len(self.ids)
        assert reply.length == len(new_text.encode())
        return reply

    async def append(self, text: str, **fields: Any) -> Reply:
        return await self.send(Op.APPEND, self.text + text, text=text, **fields)


@asynccontextmanager
async def repair_bench(
    *,
    snapshot_path: FilePath | None = None,
    snapshots: SnapshotSettings | None = None,
    registry: TinyRegistry | None = None,
    record_bytes: int = 32 * 1024 * 1024,
    sampling: float = 0.0,
    switched: Control | None = None,
    faults: Faults = NO_FAULTS,
    **changes: Any,
) -> AsyncIterator[Bench]:
    """A repair worker on a bench; `changes` are of its settings."""
    epochs = itertools.count(1000)
    service = RepairService(
        registry or TinyRegistry(),
        RepairSettings(**changes),
        snapshot_path=snapshot_path,
        snapshot_settings=snapshots,
        draw_epoch=lambda: next(epochs),
        faults=faults,
    )
    async with bench(service, record_bytes=record_bytes, sampling=sampling, switched=switched) as it:
        yield it
