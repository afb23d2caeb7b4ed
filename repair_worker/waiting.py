"""Deltas that arrived before the state they build on, first in first out for each session.

A parked delta leaves by exactly one of two ways, whichever takes it first: a change of its session settles
it, or its time runs out. `Parking.take` is the hand that decides; both ways call it before they do anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pipeline.clock import Clock
from pipeline.ports import Record
from repair_worker.changes import Fit, identity_of
from repair_worker.settings import RepairSettings
from repair_worker.store import Identity
from schemas.work import Work


@dataclass(slots=True, kw_only=True, eq=False)
class Parked:
    """One waiting delta."""

    identity: Identity
    record: Record
    work: Work
    patience_s: float
    """How long it may wait from now on."""
    settled: asyncio.Future[None] = field(repr=False)
    """Done once the delta was answered after the state arrived; carries the error when answering failed."""


class Parking:
    """The waiting deltas of all sessions; bounded in all and for each session."""

    def __init__(self, *, parked_max: int, session_parked_max: int) -> None:
        self._parked_max = parked_max
        self._session_parked_max = session_parked_max
        self._queues: dict[Identity, list[Parked]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def waiting(self, identity: Identity) -> tuple[Parked, ...]:
        """The deltas that wait for this session, oldest first."""
        return tuple(self._queues.get(identity, ()))

    def add(self, parked: Parked) -> bool:
        """Let `parked` wait; False when there is no room."""
        queue = self._queues.get(parked.identity, [])
        if self._count >= self._parked_max or len(queue) >= self._session_parked_max:
            return False
        queue.append(parked)
        self._queues[parked.identity] = queue
        self._count += 1
        return True

    def take(self, parked: Parked) -> bool:
        """Take `parked` out; False when someone else has already."""
        queue = self._queues.get(parked.identity, [])
        if parked not in queue:
            return False
        queue.remove(parked)
        self._count -= 1
        if not queue:
            del self._queues[parked.identity]
        return True

    def drop(self, gone: Callable[[Parked], bool]) -> int:
        """Cancel every waiting delta that `gone` picks; returns how many."""
        doomed = [parked for queue in self._queues.values() for parked in queue if gone(parked)]
        for parked in doomed:
            self.take(parked)
            parked.settled.cancel()
        return len(doomed)


class Waiting:
    """The waiting deltas of one repair worker, and what ends their waiting."""

    def __init__(
        self,
        clock: Clock,
        settings: RepairSettings,
        *,
        fit_now: Callable[[Parked], Awaitable[Fit]],
        serve: Callable[[Record, Work], Awaitable[None]],
    ) -> None:
        """`fit_now` compares a delta with its session; `serve` answers one, whatever the state is."""
        self._clock = clock
        self._park_s = settings.park_s
        self._parking = Parking(parked_max=settings.parked_max, session_parked_max=settings.session_parked_max)
        self._fit_now = fit_now
        self._serve = serve

    def __len__(self) -> int:
        return len(self._parking)

    def of(self, identity: Identity) -> tuple[Parked, ...]:
        """The deltas that wait for this session, oldest first."""
        return self._parking.waiting(identity)

    def park(self, record: Record, work: Work) -> Parked | None:
        """Let `work` wait, until its deadline at the latest; None when there is no room."""
        patience_s = self._park_s
        if work.request.deadline_ms is not None:
            patience_s = min(patience_s, (work.request.deadline_ms - self._clock.now_ms()) / 1_000)
        parked = Parked(
            identity=identity_of(work),
            record=record,
            work=work,
            patience_s=max(0.0, patience_s),
            settled=asyncio.get_running_loop().create_future(),
        )
        return parked if self._parking.add(parked) else None

    async def outcome(self, parked: Parked) -> None:
        """Return once the delta is answered: after a change of its session, or because its time has run out."""
        alarm = asyncio.ensure_future(self._clock.sleep(parked.patience_s))
        try:
            await asyncio.wait({alarm, parked.settled}, return_when=asyncio.FIRST_COMPLETED)
            if self._parking.take(parked):
                await self._serve(parked.record, parked.work)
            else:
                await parked.settled
        finally:
            alarm.cancel()
            self._parking.take(parked)

    async def settle(self, identity: Identity) -> None:
        """Answer the deltas that waited for what has just happened to this session, in the order they came.

        Each one answered may bring the state that another one waits for, so this goes on until nothing moves.
        """
        moved = True
        while moved:
            moved = False
            for parked in self._parking.waiting(identity):
                if await self._fit_now(parked) is not Fit.TO_COME and self._parking.take(parked):
                    moved = True
                    await self._settle(parked)

    def drop_partitions(self, partitions: frozenset[int]) -> None:
        """Forget the deltas of partitions that another worker has now."""
        self._parking.drop(lambda parked: parked.record.partition in partitions)

    async def _settle(self, parked: Parked) -> None:
        try:
            await self._serve(parked.record, parked.work)
        except Exception as error:
            # Its own task tells the chassis, which has it handled again.
            parked.settled.set_exception(error)
            parked.settled.exception()
        except BaseException:
            parked.settled.cancel()
            raise
        else:
            parked.settled.set_result(None)
