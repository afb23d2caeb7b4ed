"""Keeps the sessions of one repair worker: the store, and what follows from a session's coming and going.

Coming: a record in the directory; a snapshot that is looked up on a miss. Going: a metric, a tombstone in the
directory, an end to its snapshot. What need not happen before an answer happens in rounds of housekeeping.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import AsyncIterator

from pipeline.context import Context
from pipeline.errors import PipelineError
from pipeline.samples import Evidence
from pipeline.tokenizers import TokenizerSource
from repair_worker.announcer import Announcer
from repair_worker.beginnings import Beginnings
from repair_worker.changes import restore
from repair_worker.history import History
from repair_worker.settings import RepairSettings
from repair_worker.snapshots import Snapshot, SnapshotFile
from repair_worker.store import Cause, Entry, Identity, SessionStore
from toksplice import Session, TokSpliceError

_log = logging.getLogger(__name__)


class Keeper:
    """The sessions held. All of it belongs to the event loop's thread; sessions are touched only under their
    lock."""

    def __init__(
        self,
        ctx: Context,
        tokenizers: TokenizerSource,
        settings: RepairSettings,
        snapshots: SnapshotFile | None,
    ) -> None:
        self._ctx = ctx
        self._tokenizers = tokenizers
        self._settings = settings
        self._snapshots = snapshots
        self._store: SessionStore[Session] = SessionStore(
            settings.store(), monotonic_s=ctx.clock.monotonic_s, on_removed=self._removed
        )
        self._beginnings = Beginnings(settings.beginnings_bytes_max)
        self._announcer = Announcer(ctx, self._store, tombstones_max=settings.tombstones_max)
        self._dirty: dict[Identity, None] = {}
        """Sessions whose snapshot is behind, in the order in which they fell behind; never more than are
        held."""
        self._doubted: dict[str | None, None] = {}
        """Tokenizers, None for all, whose snapshots are still to be deleted."""
        self._lent: dict[Entry[Session], weakref.ref[Evidence]] = {}
        """Entries that share memory with a sample, and so weigh too little until it is gone."""
        self._housekeeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the snapshots and begin the rounds."""
        for cause in Cause:
            self._ctx.telemetry.session_evictions.add(0, {"cause": cause.value})
        if self._snapshots is not None:
            await self._snapshots.open()
        self._housekeeping = asyncio.create_task(self._rounds(), name="repair-worker housekeeping")

    async def stop(self) -> None:
        """Write what is behind. Without snapshots the sessions end here, and the directory is told so."""
        if self._housekeeping is not None:
            self._housekeeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._housekeeping
        if self._snapshots is None:
            for entry in self._store:
                self._store.remove(entry, Cause.LOST)
        else:
            while self._dirty and await self._write_snapshots(self._snapshots):
                pass
            await self._snapshots.close()
        with contextlib.suppress(PipelineError):
            await self._announcer.drain()

    @property
    def problem(self) -> str:
        """What does not work at the moment, for people; "" when all does."""
        return "" if self._snapshots is None else self._snapshots.problem

    def __len__(self) -> int:
        return len(self._store)

    # Sessions

    async def find(self, identity: Identity, partition: int) -> Entry[Session] | None:
        """The session, restored from its snapshot if there is one; now the most recently used."""
        entry = self._store.get(identity)
        if entry is not None or self._snapshots is None or not identity.session_id:
            return entry
        await self._forget_doubted(self._snapshots)
        snapshot = await self._snapshots.load(identity)
        if snapshot is None or not self._doubted.keys().isdisjoint((None, identity.fingerprint)):
            return self._store.get(identity)
        try:
            session = await self.restore(identity, snapshot.state)
        except TokSpliceError:
            await self._snapshots.drop_damaged(identity)
            return self._store.get(identity)
        # While this waited, a hand-over or another request may have brought the session.
        if (entry := self._store.get(identity)) is None:
            entry = Entry(
                identity=identity,
                partition=partition,
                session=session,
                length=session.length,
                epoch=snapshot.epoch,
                revision=snapshot.revision,
                origin_epoch=snapshot.origin_epoch,
                history=History(self._settings.history(), snapshot.history),
                # Changes after the snapshot are lost, and their revisions with them.
                renew=True,
            )
            self._store.put(entry)
        return entry

    async def restore(self, identity: Identity, state: bytes) -> Session:
        """The session in a snapshot or in a hand-over, not held yet. Raises `toksplice.TokSpliceError`."""
        return await self._ctx.run_blocking(restore, self._tokenizers, self._beginnings, identity, state)

    @contextlib.asynccontextmanager
    async def exclusive(self, entry: Entry[Session]) -> AsyncIterator[None]:
        """Nobody else touches the entry's session meanwhile, and it is not evicted; `entry.held` may still
        turn False while this waits."""
        with self._store.pinned(entry):
            async with entry.lock:
                yield

    def hold(self, entry: Entry[Session]) -> None:
        """Hold a session that was handed over, in place of the one of the same identity if there is one."""
        self._store.put(entry)
        if entry.held:
            self._dirty[entry.identity] = None

    def changed(self, entry: Entry[Session]) -> None:
        """Account for a change of the session or of its history. Call it under the session's lock."""
        self._store.settle(entry)
        if entry.held:
            self._dirty[entry.identity] = None

    def interrupted(self, entry: Entry[Session]) -> None:
        """Let go of a session whose change did not end, so that its state is unknown."""
        self._store.remove(entry, Cause.LOST)

    def doubt(self, identity: Identity) -> None:
        """A change of this session was not made that an earlier life of it may have made."""
        if (entry := self._store.peek(identity)) is not None:
            entry.renew = True

    def lent(self, entry: Entry[Session], evidence: Evidence) -> None:
        """A sample of this entry shares its memory for a while."""
        self._lent[entry] = weakref.ref(evidence)

    def doubt_tokenizer(self, fingerprint: str | None) -> None:
        """End every session of a tokenizer, or of all with None, since its breaker opened or closed.

        When it opens, the ids that sessions and clients have may be wrong. When it closes, what began meanwhile may
        still be of before, or on the slow path for ever. Clients are asked for the text either way.
        """
        doomed = [entry for entry in self._store if fingerprint in (None, entry.identity.fingerprint)]
        for entry in doomed:
            self._store.remove(entry, Cause.DOUBTED)
        self._beginnings.forget(fingerprint)
        if self._snapshots is not None:
            self._doubted[fingerprint] = None
        _log.warning("a breaker was turned: %d sessions let go", len(doomed))

    async def drop(self, identity: Identity) -> None:
        """End a session whose state is in doubt, if it is there. Raises BrokerUnavailableError."""
        if (entry := self._store.peek(identity)) is not None:
            self._store.remove(entry, Cause.DOUBTED)
        self._beginnings.forget(identity.fingerprint)
        if self._snapshots is not None:
            await self._snapshots.delete(identity)
        await self._announcer.drain()

    async def close(self, entry: Entry[Session]) -> None:
        """End a session at its client's wish. Raises BrokerUnavailableError."""
        self._store.remove(entry, Cause.CLOSE)
        if self._snapshots is not None:
            await self._snapshots.delete(entry.identity)
        await self._announcer.drain()

    async def announce(self, entry: Entry[Session]) -> None:
        """Tell the directory of the session, once. Raises BrokerUnavailableError."""
        await self._announcer.announce(entry)

    def doubt_partitions(self, partitions: frozenset[int]) -> None:
        """Records of these partitions may come again, older ones than a session's history remembers among them:
        what they change now they did not change, or not then, in another life."""
        for entry in self._store:
            if entry.partition in partitions:
                entry.renew = True

    def drop_partitions(self, partitions: frozenset[int]) -> None:
        """Let go of the sessions of partitions that another worker has now."""
        dropped = self._store.drop_partitions(partitions)
        if dropped:
            _log.info("%d sessions of %d lost partitions let go", dropped, len(partitions))

    # Housekeeping

    async def _rounds(self) -> None:
        while True:
            await self._ctx.clock.sleep(self._settings.housekeeping_s)
            try:
                await self.tidy()
            except PipelineError as error:
                _log.warning("housekeeping is put off: %s", type(error).__name__)
            except Exception as error:
                # A round that fails must not be the last one: nothing else would expire sessions.
                _log.error("a round of housekeeping failed: %s", type(error).__name__)

    async def tidy(self) -> None:
        """One round: expire idle sessions, set the gauges, write snapshots and tombstones."""
        self._store.sweep(self._settings.expiries_max)
        self._ctx.telemetry.sessions.set(len(self._store))
        self._ctx.telemetry.session_bytes.set(self._store.bytes_used)
        self._reweigh_lent()
        if self._snapshots is not None:
            await self._forget_doubted(self._snapshots)
            if self._dirty:
                await self._write_snapshots(self._snapshots)
        await self._announcer.drain()

    def _reweigh_lent(self) -> None:
        for entry, evidence in list(self._lent.items()):
            # The session may be read under its lock only; the next round comes.
            if not entry.lock.locked():
                self._store.reweigh(entry)
                if evidence() is None:
                    del self._lent[entry]

    async def _forget_doubted(self, snapshots: SnapshotFile) -> None:
        """Delete the snapshots of tokenizers in doubt; what the file refuses is tried again."""
        for fingerprint in list(self._doubted):
            if await snapshots.delete_tokenizer(fingerprint):
                self._doubted.pop(fingerprint, None)

    async def _write_snapshots(self, snapshots: SnapshotFile) -> bool:
        """Write one batch, the ones that are behind for longest first; False when the file failed."""
        for identity in list(self._dirty)[: snapshots.settings.batch_max]:
            entry = self._store.peek(identity)
            if entry is None:
                self._dirty.pop(identity, None)
                continue
            with self._store.pinned(entry):
                snapshot = await self._snapshot_of(entry)
            if snapshot is None:
                continue
            if not await snapshots.save(snapshot):
                if entry.held:
                    self._dirty[identity] = None
                return False
        await snapshots.trim()
        return True

    async def _snapshot_of(self, entry: Entry[Session]) -> Snapshot | None:
        """The session's present state, written out; None when it ended. The session's lock is held for a copy only:
        writing out a long text takes many times as long, and requests wait for the lock."""
        async with entry.lock:
            # Before the state is read: a change after this makes it dirty again.
            self._dirty.pop(entry.identity, None)
            if not entry.held:
                return None
            copy = await self._ctx.run_blocking(entry.session.fork)
            epoch, revision, history = entry.epoch, entry.revision, tuple(entry.history)
        state = await self._ctx.run_blocking(copy.to_bytes)
        del copy
        async with entry.lock:
            # A change made meanwhile was weighed while the copy shared its memory.
            self._store.reweigh(entry)
        if self._store.peek(entry.identity) is not entry:
            return None
        return Snapshot(
            identity=entry.identity,
            epoch=epoch,
            revision=revision,
            origin_epoch=entry.origin_epoch,
            state=state,
            history=history,
        )

    def _removed(self, entry: Entry[Session], cause: Cause) -> None:
        """Called by the store for every session that goes."""
        self._ctx.telemetry.session_evictions.add(1, {"cause": cause.value})
        if cause is Cause.REPLACED:
            return
        self._dirty.pop(entry.identity, None)
        self._announcer.ended(entry.identity)
