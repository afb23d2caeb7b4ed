"""The Kafka adapter of `pipeline.ports.Broker`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from pipeline.errors import ClosedError
from pipeline.kafka.admin import admin_client, ensure_topics
from pipeline.kafka.consumer import KafkaConsumer
from pipeline.kafka.names import Names
from pipeline.kafka.producer import KafkaProducer
from pipeline.kafka.settings import KafkaSettings
from pipeline.kafka.tail import KafkaTail
from pipeline.ports import RebalanceListener, TopicPartition, TopicSpec

_Handle = TypeVar("_Handle", KafkaProducer, KafkaConsumer, KafkaTail)


class KafkaBroker:
    """See `pipeline.ports.Broker`. Each producer, consumer and tail has connections of its own."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._names = Names(settings.namespace)
        self._open: list[KafkaProducer | KafkaConsumer | KafkaTail] = []
        self._started = False

    @property
    def servers(self) -> tuple[str, ...]:
        """Where it was told to connect, `host:port` each."""
        return tuple(self._settings.servers)

    async def start(self) -> None:
        """See `pipeline.ports.Broker.start`."""
        async with admin_client(self._settings):
            self._started = True

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        """See `pipeline.ports.Broker.ensure_topics`."""
        self._check_usable()
        await ensure_topics(self._settings, self._names, specs)

    async def producer(self, *, batching: bool = False) -> KafkaProducer:
        """See `pipeline.ports.Broker.producer`."""
        self._check_usable()
        producer = KafkaProducer(self._settings, self._names, batching=batching)
        await producer.start()
        return self._remember(producer)

    async def consumer(
        self,
        topics: Sequence[str],
        *,
        group: str,
        on_assigned: RebalanceListener | None = None,
        on_revoked: RebalanceListener | None = None,
    ) -> KafkaConsumer:
        """See `pipeline.ports.Broker.consumer`."""
        self._check_usable()
        consumer = KafkaConsumer(
            self._settings,
            self._names,
            topics,
            group=group,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )
        await consumer.start()
        return self._remember(consumer)

    async def tail(self, partitions: Sequence[TopicPartition], *, from_start: bool) -> KafkaTail:
        """See `pipeline.ports.Broker.tail`."""
        self._check_usable()
        tail = KafkaTail(self._settings, self._names, partitions, from_start=from_start)
        await tail.start()
        return self._remember(tail)

    async def stop(self) -> None:
        """See `pipeline.ports.Broker.stop`."""
        self._started = False
        opened, self._open = self._open, []
        await asyncio.gather(*(one.stop() for one in opened))

    def _check_usable(self) -> None:
        if not self._started:
            raise ClosedError("this broker is not started, or was stopped")

    def _remember(self, one: _Handle) -> _Handle:
        self._open = [other for other in self._open if not other.closed]
        self._open.append(one)
        return one
