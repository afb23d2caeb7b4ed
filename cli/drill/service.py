"""Plants the fault of a drill in the workers of this process, and has them say so."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from pipeline.context import Context
from pipeline.errors import SettingsError
from pipeline.faults import NO_FAULTS, Faults
from pipeline.ports import Broker, Record
from pipeline.service import Service, ServiceHealth
from pipeline.settings import WorkerSettings, from_env
from schemas.reply import Path
from shadow.faults.catalogue import Injection
from shadow.faults.injector import Injector
from shadow.faults.switch import FAULT_VARIABLE, DrillSettings, check_place
from toksplice.registry import Registry

PATHS: Final = {"cpu-fallback": Path.CPU, "repair-worker": Path.REPAIR}
"""Workers that a fault can be planted in -> the path that they answer on."""

_log = logging.getLogger(__name__)


def drill_injection(broker: Broker, settings: WorkerSettings) -> Injection | None:
    """The fault that the environment asks for, None without one. Raises SettingsError where it may not be planted."""
    injection = from_env(DrillSettings).injection()
    if injection is not None:
        check_place(_servers(broker), settings.sampling)
    return injection


def drilled(name: str, injection: Injection | None, registry: Registry, make: Callable[[Faults], Service]) -> Service:
    """The service of a worker, with the fault in it if it is one of its path. `make` builds it around faults."""
    if injection is None or PATHS.get(name) is not injection.path:
        return make(NO_FAULTS)
    return Drilled(make(Injector(injection, registry)), injection.name)


class Drilled:
    """A service with a fault planted: it says so when it starts, and in every heartbeat."""

    def __init__(self, inner: Service, fault: str) -> None:
        self._inner = inner
        self._notice = f"DRILL: answers are made wrong on purpose ({fault})"

    @property
    def kind(self) -> str:
        return self._inner.kind

    @property
    def topics(self) -> tuple[str, ...]:
        return self._inner.topics

    @property
    def group(self) -> str:
        return self._inner.group

    @property
    def drains(self) -> bool:
        return self._inner.drains

    async def start(self, ctx: Context) -> None:
        _log.warning("%s: %s", ctx.worker_id, self._notice)
        await self._inner.start(ctx)

    async def stop(self) -> None:
        await self._inner.stop()

    async def handle(self, record: Record) -> Awaitable[None] | None:
        return await self._inner.handle(record)

    async def partitions_assigned(self, partitions: frozenset[int]) -> None:
        await self._inner.partitions_assigned(partitions)

    async def partitions_lost(self, partitions: frozenset[int]) -> None:
        await self._inner.partitions_lost(partitions)

    def health(self) -> ServiceHealth:
        health = self._inner.health()
        return replace(health, detail="; ".join(filter(None, (self._notice, health.detail))))


def _servers(broker: Broker) -> tuple[str, ...]:
    """The addresses of a broker, none for the one in memory. Raises SettingsError for one of another kind."""
    from pipeline.memory import MemoryBroker

    if isinstance(broker, MemoryBroker):
        return ()
    from pipeline.kafka import KafkaBroker

    if isinstance(broker, KafkaBroker):
        return broker.servers
    raise SettingsError(f"bad settings: {FAULT_VARIABLE}: drills are refused on a broker of this kind")
