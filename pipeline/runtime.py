"""Running workers as a process: uvloop, signals, the broker's start and stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

import uvloop

from pipeline.clock import Clock, SystemClock
from pipeline.errors import BrokerUnavailableError
from pipeline.ports import Broker
from pipeline.service import Service
from pipeline.settings import TelemetrySettings, WorkerSettings, from_env
from pipeline.standby import Standby
from pipeline.telemetry import Telemetry
from pipeline.topology import specs
from pipeline.waiting import backoff, cancel, within
from pipeline.worker import Worker, make_worker_id

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
BACKGROUND_NICENESS: Final = 10
"""How far a process steps back whose work nobody waits for."""

T = TypeVar("T")

Runnable = Worker | Standby
"""What a process of the pipeline runs."""

_log = logging.getLogger(__name__)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on uvloop, as `asyncio.run` would."""
    return uvloop.run(main)


async def connect(broker: Broker, settings: WorkerSettings, clock: Clock | None = None) -> None:
    """Start the broker and create what topics are missing, for as long as it takes.

    Raises TopologyError when existing topics have another partition count.
    """
    clock = clock or SystemClock()
    pauses = backoff(settings.broker_backoff_s, settings.broker_backoff_max_s)
    while True:
        try:
            await broker.start()
            await broker.ensure_topics(specs(settings.partitions))
            return
        except BrokerUnavailableError as error:
            _log.warning("the broker is not there yet (%s)", error)
            await clock.sleep(next(pauses))


async def serve(
    broker: Broker, workers: Sequence[Runnable], settings: WorkerSettings, clock: Clock | None = None
) -> None:
    """Connect, run `workers` until SIGTERM or SIGINT, stop them gracefully, then stop the broker.

    One worker that fails stops the others; its error is raised at the end.
    """
    clock = clock or SystemClock()
    stop = asyncio.Event()
    with stop_on_signals(stop):
        stopping = asyncio.create_task(stop.wait(), name="stop")
        connecting = asyncio.create_task(connect(broker, settings, clock), name="connect")
        try:
            await asyncio.wait({connecting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if connecting.done():
                connecting.result()
                await _run_all(workers, stopping)
        finally:
            await cancel([stopping, connecting], settings.stop_s, clock)
            try:
                await within(broker.stop(), settings.stop_s, clock)
            except TimeoutError:
                _log.error("the broker did not stop in time and is left behind")


async def _run_all(workers: Sequence[Runnable], stopping: asyncio.Task[Any]) -> None:
    running = [asyncio.create_task(worker.run(), name=worker.worker_id) for worker in workers]
    try:
        await asyncio.wait({*running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for worker in workers:
            worker.request_stop()
        outcomes = await asyncio.gather(*running, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


@contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` on SIGTERM or SIGINT inside the block; the main thread only."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


def give_way(service: Service) -> None:
    """In a process that runs `service` alone: if nobody waits for its work, leave the processor to those who answer."""
    if not service.drains:
        os.nice(BACKGROUND_NICENESS)


def make_worker(broker: Broker, service: Service, settings: WorkerSettings, *, keep_metrics: bool = False) -> Worker:
    """A worker whose telemetry, from the environment, bears the worker's own name. Raises SettingsError."""
    named = replace(settings, worker_id=settings.worker_id or make_worker_id(service.kind))
    telemetry = Telemetry.create(
        from_env(TelemetrySettings), kind=service.kind, instance=named.worker_id, keep_metrics=keep_metrics
    )
    return Worker(broker, service, named, telemetry)


def make_standby(
    broker: Broker,
    service: Service,
    kind: str,
    settings: WorkerSettings,
    *,
    after_s: float,
    keep_metrics: bool = False,
) -> Standby:
    """A standby for the workers of `kind`, beside a worker with these settings, named and measured by itself. Raises
    SettingsError."""
    named = replace(settings, worker_id=make_worker_id(service.kind))
    telemetry = Telemetry.create(
        from_env(TelemetrySettings), kind=service.kind, instance=named.worker_id, keep_metrics=keep_metrics
    )
    return Standby(broker, service, kind, named, telemetry, after_s=after_s)
