"""The worker chassis: reads, orders, bounds, retries, commits and stops, for any `Service`.

One asyncio task per assigned partition handles its records in order; a fetch task fills their bounded queues
and pauses partitions whose queue is full, while polling goes on for the others. Offsets are committed up to
the lowest unfinished record, and a record is finished only once its answer is acknowledged, so a crash
repeats work and loses none. A broker that goes away is waited for; a handler that hangs is reported and left
behind at shutdown.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from pipeline.blocking import BlockingPool
from pipeline.clock import Clock, SystemClock
from pipeline.context import Context
from pipeline.control import ControlState
from pipeline.delivery import Delivery
from pipeline.errors import BrokerUnavailableError
from pipeline.failures import without_words
from pipeline.follower import Followers
from pipeline.heartbeat import Heartbeat, clear_gauges
from pipeline.partition_queue import PartitionQueue
from pipeline.ports import Broker, Consumer, Producer, Record, TopicPartition
from pipeline.samples import Samples
from pipeline.service import Service, ServiceHealth
from pipeline.settings import WorkerSettings
from pipeline.telemetry import Telemetry
from pipeline.waiting import backoff, cancel, within
from schemas.limits import DEFAULT_LIMITS
from schemas.reply import clip
from schemas.topics import CONTROL

__all__ = ["Context", "Service", "ServiceHealth", "Worker", "make_worker_id"]

T = TypeVar("T")

_log = logging.getLogger(__name__)


def make_worker_id(kind: str) -> str:
    """A name for a worker that no other has: kind, host and a random part."""
    return clip(f"{kind}-{socket.gethostname()}-{secrets.token_hex(4)}", DEFAULT_LIMITS.worker_bytes)


class Worker:
    """Runs one service on one broker. The broker is the caller's: started before `run`, stopped after it.

    A worker runs once. `ready` is set once records can be handled. `telemetry` is what it records. Times come from
    `clock`.
    """

    def __init__(
        self,
        broker: Broker,
        service: Service,
        settings: WorkerSettings | None = None,
        telemetry: Telemetry | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.service = service
        self.settings = settings or WorkerSettings()
        self.worker_id = self.settings.worker_id or make_worker_id(service.kind)
        self.ready = asyncio.Event()
        self._broker = broker
        self.telemetry = telemetry or Telemetry.disabled()
        self._clock = clock or SystemClock()
        self._stop = asyncio.Event()
        self._progress = asyncio.Event()
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._held: frozenset[TopicPartition] = frozenset()
        self._control = ControlState(default_sampling=self.settings.sampling)
        self._followers = Followers(broker, self.settings, self._clock)
        self._pool = BlockingPool(self.settings.blocking_threads, name=service.kind)
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._context: Context | None = None
        self._service_started = False

    def request_stop(self) -> None:
        """Ask `run` to shut down gracefully. Returns at once; call it from the event loop's thread."""
        self._stop.set()

    async def run(self) -> None:
        """Work until `request_stop`, then drain, commit and close, each within its limit.

        Cancelling it shuts down in the same way. Raises what `Service.start` raises, and TopologyError when
        the topics are missing.
        """
        startup = asyncio.create_task(self._start(), name=f"{self.service.kind} start")
        stopped = asyncio.create_task(self._stop.wait(), name=f"{self.service.kind} stop")
        loops: list[asyncio.Task[None]] = []
        committing: list[asyncio.Task[None]] = []
        try:
            await asyncio.wait({startup, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if startup.done():
                consumer, heartbeat, samples = startup.result()
                loops = [
                    self._loop("fetch", partial(self._fetch, consumer)),
                    self._loop("heartbeat", heartbeat.beat),
                    self._loop("watchdog", heartbeat.watch),
                    self._loop("samples", samples.send_next),
                ]
                committing = [self._loop("commit", self._commit_progress)]
                self.ready.set()
                _log.info("%s is ready", self.worker_id)
                await stopped
        finally:
            self.ready.clear()
            await self._shut_down([startup, stopped, *loops], committing)

    # Starting

    async def _start(self) -> tuple[Consumer, Heartbeat, Samples]:
        self._producer = await self._until_up("producer", self._broker.producer)
        context = Context(
            producer=self._producer,
            telemetry=self.telemetry,
            clock=self._clock,
            settings=self.settings,
            worker_id=self.worker_id,
            control=self._control,
            followers=self._followers,
            pool=self._pool,
            make_producer=self._broker.producer,
        )
        self._context = context
        self.telemetry.report_zero(self.service.kind, self.service.topics)
        # An open breaker must be known before the first record is handled, or a barred path could answer it.
        await self._followers.follow(CONTROL, self._control.apply)
        self._service_started = True
        await self.service.start(context)
        make = partial(
            self._broker.consumer,
            self.service.topics,
            group=self.service.group,
            on_assigned=partial(self._on_assigned, Delivery(self.service, context)),
            on_revoked=self._on_revoked,
        )
        self._consumer = consumer = await self._until_up("consumer", make)
        return consumer, Heartbeat(context, self.service, self._queues, consumer), context.samples

    async def _until_up(self, what: str, make: Callable[[], Awaitable[T]]) -> T:
        pauses = backoff(self.settings.broker_backoff_s, self.settings.broker_backoff_max_s)
        while True:
            try:
                return await make()
            except BrokerUnavailableError as error:
                _log.warning("no %s yet (%s)", what, error)
                await self._clock.sleep(next(pauses))

    def _loop(self, name: str, step: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return asyncio.create_task(self._forever(name, step), name=f"{self.service.kind} {name}")

    async def _forever(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat `step`. A failure is logged and followed by a pause that grows until a step succeeds."""
        pauses = backoff(self.settings.broker_backoff_s, self.settings.broker_backoff_max_s)
        while True:
            try:
                await step()
            except BrokerUnavailableError as error:
                _log.warning("%s: the broker is unavailable (%s)", name, error)
            except Exception as error:
                _log.error("%s failed; it goes on: %s", name, without_words(error))
            else:
                pauses = backoff(self.settings.broker_backoff_s, self.settings.broker_backoff_max_s)
                continue
            await self._clock.sleep(next(pauses))

    # Reading and committing

    async def _fetch(self, consumer: Consumer) -> None:
        records = await consumer.fetch(
            max_records=self.settings.fetch_max_records, timeout_s=self.settings.fetch_timeout_s
        )
        # From here on nothing waits: a rebalance in between could mix two assignments.
        batches: dict[TopicPartition, list[Record]] = defaultdict(list)
        for record in records:
            batches[record.source].append(record)
        for source, batch in batches.items():
            queue = self._queues.get(source)
            if queue is None:
                continue  # Revoked meanwhile: whoever holds the partition now gets these records.
            queue.offer(batch)
            if queue.full and not queue.paused:
                queue.paused = True
                consumer.pause(frozenset({source}))

    def _resume(self, queue: PartitionQueue) -> None:
        queue.paused = False
        if self._consumer is not None and self._queues.get(queue.source) is queue:
            self._consumer.resume(frozenset({queue.source}))

    async def _commit_progress(self) -> None:
        """Commit as soon as there is something to commit, then at most once in `commit_interval_s`."""
        await self._progress.wait()
        self._progress.clear()
        try:
            await self._commit(list(self._queues.values()))
        except BaseException:
            self._progress.set()
            raise
        await self._clock.sleep(self.settings.commit_interval_s)

    async def _commit(self, queues: list[PartitionQueue]) -> None:
        due = [(queue, low) for queue in queues if (low := queue.to_commit) is not None]
        offsets = {queue.source: low for queue, low in due}
        if not offsets or self._consumer is None:
            return
        await self._consumer.commit(offsets)
        for queue, low in due:
            queue.committed = low

    # Rebalances

    async def _on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Finish what is in work, drop what is queued (it comes again, here or elsewhere), commit."""
        self.telemetry.rebalances.add(1)
        queues = [queue for source, queue in self._queues.items() if source in partitions]
        await asyncio.gather(*(queue.abandon(self.settings.revoke_drain_s) for queue in queues))
        try:
            await self._commit(queues)
        except BrokerUnavailableError as error:
            _log.warning("offsets not committed at a rebalance (%s); those records come again", error)
        for queue in queues:
            self._queues.pop(queue.source, None)
            clear_gauges(self.telemetry, queue.source)

    async def _on_assigned(self, delivery: Delivery, partitions: frozenset[TopicPartition]) -> None:
        """Tell the service what it lost and what it holds, then start to work on what is held."""
        if self._stop.is_set():
            return  # Nobody would drain what is queued now; it stays uncommitted, for others.
        before = frozenset(source.partition for source in self._held)
        now = frozenset(source.partition for source in partitions)
        self._held = partitions
        if before - now:
            await self.service.partitions_lost(before - now)
        if now:
            await self.service.partitions_assigned(now)
        for source in partitions:
            self._queues[source] = PartitionQueue(
                source,
                delivery,
                self.settings,
                self._clock,
                on_progress=self._progress.set,
                on_room=self._resume,
            )

    # Stopping

    async def _shut_down(self, tasks: list[asyncio.Task[Any]], committing: list[asyncio.Task[None]]) -> None:
        settings = self.settings
        await self._step("the loops", cancel(tasks, settings.stop_s, self._clock), settings.stop_s * 2)
        # Committing goes on while what was fetched is finished.
        patient = self.service.drains
        queues = self._queues.values()
        drains = [queue.drain(settings.drain_s) if patient else queue.abandon(0) for queue in queues]
        limit_s = settings.drain_s + 2 * settings.stop_s
        await self._step("the partitions", asyncio.gather(*drains), limit_s)
        if self._context is not None:
            await self._step("the samples", self._context.samples.drain())
        await self._step("the commits", cancel(committing, settings.stop_s, self._clock), settings.stop_s * 2)
        await self._step("the last commit", self._commit(list(self._queues.values())))
        self._queues.clear()
        if self._service_started:
            await self._step("the service", self.service.stop())
        if self._consumer is not None:
            await self._step("the consumer", self._consumer.stop())
        await self._step("the followers", self._followers.stop(), settings.stop_s * 2)
        if self._producer is not None:
            if self._context is not None:
                await self._step("the health record", Heartbeat.retract(self._context))
            await self._step("the producer", self._producer.stop())
        self._pool.close()
        _log.info("%s has stopped", self.worker_id)

    async def _step(
        self, name: str, work: Coroutine[Any, Any, Any] | asyncio.Future[Any], limit_s: float | None = None
    ) -> None:
        """One step of the shutdown; no failure of one keeps the next from being tried."""
        try:
            await within(work, self.settings.stop_s if limit_s is None else limit_s, self._clock)
        except TimeoutError:
            _log.error("shutdown: %s did not end in time and is left behind", name)
        except BrokerUnavailableError as error:
            _log.warning("shutdown: %s: the broker is unavailable (%s)", name, error)
        except Exception as error:
            _log.error("shutdown: %s failed: %s", name, without_words(error))
