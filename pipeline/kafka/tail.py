"""Reading partitions without a group, on Kafka: assigned by hand, positioned by hand."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaTopicPartition

from pipeline.kafka.guard import close, limited
from pipeline.kafka.names import Names
from pipeline.kafka.reader import KafkaReader
from pipeline.kafka.settings import KafkaSettings
from pipeline.ports import TopicPartition


class KafkaTail(KafkaReader):
    """See `pipeline.ports.Tail`. A replaced consumer goes on where the last one stopped."""

    def __init__(
        self,
        settings: KafkaSettings,
        names: Names,
        partitions: Sequence[TopicPartition],
        *,
        from_start: bool,
    ) -> None:
        super().__init__(settings, names, f"a tail of {', '.join(sorted({p.topic for p in partitions}))}")
        self._sources = [names.partition_outside(source) for source in partitions]
        self._from_start = from_start
        self._targets: dict[KafkaTopicPartition, int] = {}

    async def caught_up(self) -> bool:
        """See `pipeline.ports.Tail.caught_up`."""
        self._check_open()
        # The consumer's own position also passes what compaction left empty, which no record tells.
        positions = {**self._next, **await self._positions(self._sources)}
        return all(positions[source] >= target for source, target in self._targets.items())

    async def _open(self) -> AIOKafkaConsumer:
        settings = self._settings
        inner = self._new_consumer(group_id=None, request_timeout_ms=round(settings.request_timeout_s * 1000))
        try:
            async with limited(settings.start_timeout_s, f"opening {self._what}"):
                inner.assign(self._sources)
                await inner.start()
                if not self._next:
                    ends = await inner.end_offsets(self._sources)
                    starts = await inner.beginning_offsets(self._sources) if self._from_start else ends
                    self._targets, self._next = dict(ends), dict(starts)
                for source, offset in self._next.items():
                    inner.seek(source, offset)
        except BaseException:
            await close(inner, settings.stop_timeout_s)
            raise
        return inner
