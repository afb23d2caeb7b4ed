"""Names on the cluster against names in the pipeline: only here does the namespace go on and come off."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka import ConsumerRecord
from aiokafka import TopicPartition as KafkaTopicPartition

from pipeline.ports import Record, TopicPartition


class Names:
    """Puts `namespace` before every topic and group name, and takes it off again."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def outside(self, name: str) -> str:
        """The name of a topic or group on the cluster."""
        return self._namespace + name

    def inside(self, name: str) -> str:
        """The name of a topic in the pipeline."""
        return name.removeprefix(self._namespace)

    def partition_outside(self, source: TopicPartition) -> KafkaTopicPartition:
        """A partition as the library knows it."""
        return KafkaTopicPartition(self.outside(source.topic), source.partition)

    def partition_inside(self, source: KafkaTopicPartition) -> TopicPartition:
        """A partition as the pipeline knows it."""
        return TopicPartition(self.inside(source.topic), source.partition)

    def partitions_inside(self, sources: Iterable[KafkaTopicPartition]) -> frozenset[TopicPartition]:
        """Several of them."""
        return frozenset(self.partition_inside(source) for source in sources)

    def record(self, record: ConsumerRecord[bytes | None, bytes | None]) -> Record:
        """A record as the pipeline knows it. Kafka allows headers without a value; ours is empty then."""
        return Record(
            topic=self.inside(record.topic),
            partition=record.partition,
            offset=record.offset,
            key=record.key,
            value=record.value,
            headers=tuple((name, value or b"") for name, value in record.headers),
            timestamp_ms=record.timestamp,
        )
