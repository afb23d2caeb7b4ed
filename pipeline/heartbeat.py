"""What a worker tells about itself: heartbeats, gauges, and the watchdog over records that take too long."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pipeline.context import Context
from pipeline.errors import BrokerUnavailableError
from pipeline.partition_queue import PartitionQueue
from pipeline.ports import Consumer, TopicPartition
from pipeline.service import Service
from pipeline.telemetry import Telemetry
from schemas.health import Health
from schemas.limits import DEFAULT_LIMITS
from schemas.reply import clip
from schemas.topics import HEALTH

WATCHES_PER_LIMIT: Final = 4
"""How often the watchdog looks within one `handler_limit_s`."""

_log = logging.getLogger(__name__)


class Heartbeat:
    """Reports on one worker. `queues` is the worker's own mapping, read anew each time."""

    def __init__(
        self,
        context: Context,
        service: Service,
        queues: Mapping[TopicPartition, PartitionQueue],
        consumer: Consumer,
    ) -> None:
        self._context = context
        self._service = service
        self._queues = queues
        self._consumer = consumer
        self._stuck: tuple[str, ...] = ()

    async def beat(self) -> None:
        """Write one record to tokenize.health, set the gauges, then wait for the next turn.

        A beat that the broker does not take is dropped: the next one says more.
        """
        context = self._context
        health = self._health()
        try:
            await context.producer.send(HEALTH, health.encode(context.write_limits), key=context.worker_id.encode())
            await self._measure()
        except BrokerUnavailableError as error:
            _log.warning("heartbeat not written (%s)", error)
        await context.clock.sleep(context.settings.heartbeat_s)

    async def watch(self) -> None:
        """Look once for records that are over the handler limit, then wait for the next turn.

        Each such record is logged and counted once, and named in the health detail for as long as it lasts.
        """
        context = self._context
        await context.clock.sleep(context.settings.handler_limit_s / WATCHES_PER_LIMIT)
        stuck = []
        for source, queue in self._queues.items():
            found = queue.stuck()
            if found is None:
                continue
            offset, took_s, first = found
            place = f"{source.topic}/{source.partition} offset {offset}"
            stuck.append(f"{place} unfinished for {took_s:.0f} s")
            if first:
                context.telemetry.handlers_stuck.add(1, {"topic": source.topic})
                _log.error("%s: unfinished for %.0f s", place, took_s)
        self._stuck = tuple(stuck)

    @staticmethod
    async def retract(context: Context) -> None:
        """Remove the worker from tokenize.health: it left in good order and will not come back under this
        id."""
        await context.producer.send(HEALTH, None, key=context.worker_id.encode())

    def _health(self) -> Health:
        context = self._context
        service = self._service.health()
        detail = "; ".join(filter(None, (service.detail, *self._stuck)))
        return Health(
            worker=context.worker_id,
            kind=self._service.kind,
            tokenizers=service.tokenizers[: DEFAULT_LIMITS.entry_count],
            queue_depth=service.queue_depth + sum(queue.depth for queue in self._queues.values()),
            time_ms=context.clock.now_ms(),
            ready=service.ready,
            detail=clip(detail, DEFAULT_LIMITS.message_bytes),
            paths=context.path_stats(),
            counts=dict(service.counts) or None,
            costs=dict(service.costs) or None,
        )

    async def _measure(self) -> None:
        context, telemetry = self._context, self._context.telemetry
        for fingerprint in self._service.health().tokenizers:
            is_open = context.control.breaker_open(fingerprint)
            telemetry.breaker_open.set(int(is_open), {"tokenizer": context.tokenizer_name(fingerprint)})
        for source, queue in self._queues.items():
            telemetry.queue_depth.set(queue.depth, _where(source))
        for source, lag in (await self._consumer.lag()).items():
            telemetry.consumer_lag.set(lag, _where(source))


def clear_gauges(telemetry: Telemetry, source: TopicPartition) -> None:
    """Zero the gauges of a partition that is given up; a gauge keeps its last value for ever."""
    telemetry.queue_depth.set(0, _where(source))
    telemetry.consumer_lag.set(0, _where(source))


def _where(source: TopicPartition) -> dict[str, str]:
    return {"topic": source.topic, "partition": str(source.partition)}
