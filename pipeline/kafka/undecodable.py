"""Getting past a record that the client library cannot decode.

Kafka takes any bytes as the name of a header; the library insists on UTF-8 and raises from `getmany`, each
time again, and the partition would stand still for ever. Anyone who may write requests could do that. So
after such an error the partitions are read one record at a time until it is clear which record it is, and
that one is skipped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaTopicPartition

_log = logging.getLogger(__name__)

#: What the library raises for such a record.
UndecodableError = UnicodeDecodeError


class UndecodableSkipper:
    """Reads carefully while `searching`; `skipped` counts the records that were left out."""

    def __init__(self, what: str) -> None:
        self.skipped = 0
        self._what = what
        self._suspects: deque[KafkaTopicPartition] = deque()

    @property
    def searching(self) -> bool:
        """Whether there is a record to be found."""
        return bool(self._suspects)

    def search(self, sources: Iterable[KafkaTopicPartition]) -> None:
        """One of these partitions holds a record that cannot be decoded."""
        self._suspects = deque(sorted(sources))

    def clear(self) -> None:
        """The partitions are gone, and the search with them."""
        self._suspects.clear()

    async def read(self, inner: AIOKafkaConsumer, deadline_s: float, wait_s: float) -> list[Any]:
        """The next record of the library, if one comes; each partition gets `wait_s` to deliver it.

        One call asks for one record of one partition. So a call that raises has moved nothing, and the
        position is that of the record in question; and a call that returns one ends this, so no time limit
        can lose it.
        """
        loop = asyncio.get_running_loop()
        for source in list(self._suspects):
            self._suspects.rotate(-1)
            if source in inner.paused():
                continue
            try:
                batches = await inner.getmany(source, timeout_ms=round(wait_s * 1000), max_records=1)
            except UndecodableError as error:
                await self._skip(inner, source, error)
                break
            if records := [record for batch in batches.values() for record in batch]:
                return records
            if loop.time() >= deadline_s:
                break
        return []

    async def _skip(self, inner: AIOKafkaConsumer, source: KafkaTopicPartition, error: UndecodableError) -> None:
        offset = await inner.position(source)
        inner.seek(source, offset + 1)
        self.skipped += 1
        self._suspects.clear()
        _log.error(
            "%s: skipped the record at offset %d of partition %d of %s, which cannot be decoded: %s",
            self._what,
            offset,
            source.partition,
            source.topic,
            error.reason,
        )
