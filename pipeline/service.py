"""What a worker's own code looks like to the chassis: the `Service` protocol.

A service decides and computes; `pipeline.worker.Worker` reads, orders, retries, commits and stops. A service
is written against `pipeline.context.Context` alone, so that it runs unchanged on every broker and in
simulations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pipeline.ports import Record
from schemas.health import Cost

if TYPE_CHECKING:
    from pipeline.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceHealth:
    """What a service tells about itself in every heartbeat.

    `queue_depth` counts records that the service itself holds back (the chassis adds its own queues);
    `tokenizers` are fingerprints it can serve; `ready` is False while it should get no work; `counts` are sums since
    the start, by name; `costs` what encoding whole texts takes, by fingerprint.
    """

    tokenizers: tuple[str, ...] = ()
    queue_depth: int = 0
    ready: bool = True
    detail: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    costs: Mapping[str, Cost] = field(default_factory=dict)


class Service(Protocol):
    """The code of one kind of worker."""

    @property
    def kind(self) -> str:
        """ "classifier", "cpu-fallback", "repair-worker", "gpu-worker" or "shadow"; part of metric and health
        records."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics it consumes."""

    @property
    def group(self) -> str:
        """Its consumer group."""

    @property
    def drains(self) -> bool:
        """Whether a shutdown first finishes what was fetched. False for work that nobody waits for: it is given
        back at once, and comes again."""

    async def start(self, ctx: Context) -> None:
        """Called once, before the first record; an exception here ends the worker."""

    async def stop(self) -> None:
        """Called once, after the last record; bounded by `WorkerSettings.stop_s`."""

    async def handle(self, record: Record) -> Awaitable[None] | None:
        """Work on one record; records of one partition come one at a time, in order.

        Returns None when the record is finished: its answer is acknowledged (`Context.reply` and
        `Context.forward` return after the ack) and its offset may be committed. Returns an awaitable when the
        record is parked: the next record of the partition is handled at once, and nothing from the parked
        record on is committed before the awaitable is done.

        What it raises, directly or from the awaitable:
        - ProtocolError: the record is wrong. Dead letter and `rejected` with its code, at once.
        - BrokerUnavailableError: handled again, with growing pauses, until the broker is back.
        - anything else: handled `max_attempts` times in all, then dead letter and `error` / `internal`.
        A record can therefore be handled more than once: handling must be idempotent per (session, request
        id).
        """

    async def partitions_assigned(self, partitions: frozenset[int]) -> None:
        """All partition numbers that are this worker's now, old and new, before any of their records are handled.

        Every partition begins again where it was last committed, so records that were handled may come again.
        """

    async def partitions_lost(self, partitions: frozenset[int]) -> None:
        """These partition numbers are no longer this worker's; none of their records is in work any more."""

    def health(self) -> ServiceHealth:
        """Called at every heartbeat; must not block."""
