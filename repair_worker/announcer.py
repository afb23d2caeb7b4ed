"""The repair worker's side of the directory: one record when a session begins, a tombstone when it ends.

The directory is a hint for the classifier. A beginning is written before the answer to the session's first
change; ends wait in a bounded queue for the next round of housekeeping.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Any, Final

from pipeline.context import Context
from repair_worker.store import Entry, Identity, SessionStore
from schemas.state import SessionRecord, directory_key
from schemas.topics import SESSIONS, partition_for, session_key

IN_FLIGHT_MAX: Final = 64
"""Tombstones sent before the first of them is acknowledged."""

_log = logging.getLogger(__name__)


class Announcer:
    """Writes tokenize.sessions for one worker."""

    def __init__(self, ctx: Context, store: SessionStore[Any], *, tombstones_max: int) -> None:
        self._ctx = ctx
        self._store = store
        self._tombstones_max = tombstones_max
        self._ended: OrderedDict[Identity, None] = OrderedDict()

    async def announce(self, entry: Entry[Any]) -> None:
        """Write the session's record unless that was done. Raises BrokerUnavailableError."""
        if entry.announced or not entry.held:
            return
        identity = entry.identity
        record = SessionRecord(
            tenant=identity.tenant,
            session_id=identity.session_id,
            fingerprint=identity.fingerprint,
            add_special_tokens=identity.add_special_tokens,
            epoch=entry.epoch,
            worker=self._ctx.worker_id,
        )
        await self._send(identity, record.encode())
        entry.announced = True

    def ended(self, identity: Identity) -> None:
        """Have a tombstone written in the next `drain`."""
        self._ended[identity] = None
        if len(self._ended) > self._tombstones_max:
            self._ended.popitem(last=False)
            _log.warning("more than %d ended sessions wait for their tombstones: one dropped", self._tombstones_max)

    async def drain(self) -> None:
        """Write the waiting tombstones. Raises BrokerUnavailableError; what is not acknowledged keeps
        waiting."""
        while self._ended:
            batch = list(self._ended)[:IN_FLIGHT_MAX]
            await asyncio.gather(*(self._end(identity) for identity in batch))

    async def _end(self, identity: Identity) -> None:
        self._ended.pop(identity, None)
        # A session that began again in the meantime has announced itself, and must not be declared dead.
        if self._store.peek(identity) is not None:
            return
        try:
            await self._send(identity, None)
        except BaseException:
            self.ended(identity)
            raise

    async def _send(self, identity: Identity, value: bytes | None) -> None:
        await self._ctx.producer.send(
            SESSIONS,
            value,
            key=directory_key(*identity),
            partition=partition_for(session_key(identity.tenant, identity.session_id), self._ctx.partitions),
        )
