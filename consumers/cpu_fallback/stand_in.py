"""Stands in for the GPU workers when none is there: what was sent to them goes on to the CPU.

A classifier can send a text to tokenize.gpu-worker until it has heard that the last GPU worker is gone. The records
that this worker finds there, and those that a worker had not finished when it died, are passed on unread, in their
order.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from pipeline.context import Context
from pipeline.first_text import pass_on, work_of
from pipeline.ports import Broker, Record
from pipeline.runtime import make_standby
from pipeline.service import ServiceHealth
from pipeline.settings import WorkerSettings
from pipeline.standby import Standby
from pipeline.topology import GPU_GROUP
from schemas.topics import GPU

GPU_KIND: Final = "gpu-worker"
GONE: Final = "gpu_worker_gone"
"""The reason of what it passes on."""

AFTER_S: Final = 10.0
"""Age of the last heartbeat of a GPU worker at which it is taken for gone: some heartbeats, and less than the time for
which the classifier counts on it."""


class StandInService:
    """Passes on what the GPU workers should have encoded."""

    kind = "gpu-stand-in"
    topics: tuple[str, ...] = (GPU,)
    group = GPU_GROUP
    drains = True

    def __init__(self) -> None:
        self._ctx: Context

    async def start(self, ctx: Context) -> None:
        self._ctx = ctx

    async def stop(self) -> None:
        """Nothing to release."""

    async def partitions_assigned(self, partitions: frozenset[int]) -> None:
        """No state a partition."""

    async def partitions_lost(self, partitions: frozenset[int]) -> None:
        """No state a partition."""

    def health(self) -> ServiceHealth:
        return ServiceHealth()

    async def handle(self, record: Record) -> Awaitable[None] | None:
        await pass_on(self._ctx, record, work_of(record, self._ctx.limits), GONE)
        return None


def make_stand_in(
    broker: Broker, settings: WorkerSettings, *, keep_metrics: bool = False, after_s: float = AFTER_S
) -> Standby:
    """The standby that belongs beside every CPU fallback. Raises SettingsError."""
    return make_standby(broker, StandInService(), GPU_KIND, settings, after_s=after_s, keep_metrics=keep_metrics)
