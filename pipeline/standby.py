"""A worker that works only while no worker of another kind is there, and reads that one's topics then.

A broker keeps the records of a topic whoever died. Where all workers of a kind are gone, what was sent to them
meanwhile would wait until one comes back. A standby joins their consumer group when their last heartbeat is too old,
and leaves it when one is heard again, so that it takes no record from a worker that is there.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from pipeline.clock import Clock, SystemClock
from pipeline.follower import Followers
from pipeline.ports import Broker, Record
from pipeline.service import Service
from pipeline.settings import WorkerSettings
from pipeline.telemetry import Telemetry
from pipeline.waiting import cancel
from pipeline.worker import Worker, make_worker_id
from schemas.errors import ProtocolError
from schemas.health import Health
from schemas.topics import HEALTH

_log = logging.getLogger(__name__)


class Standby:
    """Runs `service` while nobody of `kind` is heard of. To those who run workers it looks like one.

    It runs once. `ready` is set once it stands by, or its worker does its work.
    """

    def __init__(
        self,
        broker: Broker,
        service: Service,
        kind: str,
        settings: WorkerSettings,
        telemetry: Telemetry | None = None,
        clock: Clock | None = None,
        *,
        after_s: float,
    ) -> None:
        """`after_s`: age of a heartbeat from which on its worker is taken for gone. `settings` name this worker, or
        none."""
        self.service = service
        self.telemetry = telemetry or Telemetry.disabled()
        self.worker_id = settings.worker_id or make_worker_id(service.kind)
        self.ready = asyncio.Event()
        self._broker = broker
        self._kind = kind
        self._settings = replace(settings, worker_id=self.worker_id)
        self._clock = clock or SystemClock()
        self._after_s = after_s
        self._heartbeats: dict[bytes, int] = {}
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()

    def request_stop(self) -> None:
        """As `Worker.request_stop`."""
        self._stop.set()
        self._changed.set()

    async def run(self) -> None:
        """As `Worker.run`."""
        followers = Followers(self._broker, self._settings, self._clock)
        following = asyncio.create_task(followers.follow(HEALTH, self._heard), name="standby")
        try:
            await self._until_done(following)
            while not self._stop.is_set():
                if self._is_alone():
                    await self._stand_in()
                else:
                    self.ready.set()
                    await self._pause()
        finally:
            self.ready.clear()
            await cancel([following], self._settings.stop_s, self._clock)
            await followers.stop()

    # Who is there

    def _heard(self, record: Record) -> None:
        if record.key is None:
            return
        if record.value is None:
            self._heartbeats.pop(record.key, None)
        else:
            try:
                health = Health.decode(record.value)
            except ProtocolError:
                return
            if health.kind != self._kind:
                return
            self._heartbeats[record.key] = health.time_ms
        self._changed.set()

    def _is_alone(self) -> bool:
        """Whether no worker of the kind is there. Those that were not heard of for long are forgotten."""
        oldest_ms = self._clock.now_ms() - self._after_s * 1_000
        self._heartbeats = {key: time_ms for key, time_ms in self._heartbeats.items() if time_ms >= oldest_ms}
        return not self._heartbeats

    # Standing in

    async def _stand_in(self) -> None:
        """Run the worker until somebody of the kind is heard of, or this one is told to stop."""
        worker = Worker(self._broker, self.service, self._settings, self.telemetry, self._clock)
        running = asyncio.create_task(worker.run(), name=self.worker_id)
        ready = asyncio.create_task(worker.ready.wait())
        try:
            await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                self.ready.set()
                _log.info("no %s is there: %s stands in", self._kind, self.worker_id)
            while self._is_alone() and not self._stop.is_set() and not running.done():
                await self._pause(running)
        finally:
            ready.cancel()
            worker.request_stop()
            await running
        _log.info("%s stands in no more", self.worker_id)

    async def _pause(self, *others: asyncio.Task[None]) -> None:
        """Wait until something may have changed."""
        self._changed.clear()
        if self._stop.is_set():
            return
        changed = asyncio.create_task(self._changed.wait())
        alarm = asyncio.ensure_future(self._clock.sleep(self._settings.heartbeat_s))
        try:
            await asyncio.wait({changed, alarm, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            alarm.cancel()

    async def _until_done(self, task: asyncio.Task[None]) -> None:
        """Wait for `task`, unless this is told to stop first."""
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
