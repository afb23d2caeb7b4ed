"""What only the Kafka adapter has to do: outlive its client library, and processes that die."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from broker_factories import KafkaFactory
from broker_kit import PATIENCE_S, Membership, take, values

from pipeline.errors import BrokerUnavailableError, RecordTooLargeError
from pipeline.kafka import KafkaBroker, KafkaSettings
from pipeline.kafka.consumer import KafkaConsumer
from pipeline.ports import MAX_RECORD_BYTES, TopicPartition, TopicSpec

pytestmark = pytest.mark.broker

TOPIC = "kafka.only"
PARTITIONS = 4
ROOT = Path(__file__).parents[2]

# Reads two records of partition 0, commits the first, says so, and then does nothing more until it is killed.
MEMBER = f"""
import asyncio
from pipeline.kafka import KafkaBroker, KafkaSettings
from pipeline.ports import TopicPartition
from pipeline.settings import from_env

async def main():
    broker = KafkaBroker(from_env(KafkaSettings))
    await broker.start()
    consumer = await broker.consumer(["{TOPIC}"], group="g")
    records = []
    while len(records) < 2:
        records += await consumer.fetch(max_records=2 - len(records), timeout_s=1)
    await consumer.commit({{records[0].source: records[0].offset + 1}})
    print(records[0].partition, records[0].offset, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
async def broker(kafka_factory: KafkaFactory) -> KafkaBroker:
    broker = await kafka_factory()
    await broker.ensure_topics([TopicSpec(name=TOPIC, partitions=PARTITIONS)])
    return broker


async def until_replaced(consumer: KafkaConsumer) -> list[bytes | None]:
    """Fetch, as a worker would, until the consumer behind `consumer` was replaced; what came meanwhile."""
    seen: list[bytes | None] = []
    async with asyncio.timeout(PATIENCE_S):
        while consumer.replacements == 0:
            seen += values(await consumer.fetch(max_records=10, timeout_s=0.1))
    return seen


class TestConsumer:
    async def test_a_consumer_that_hangs_in_silence_is_replaced(self, broker: KafkaBroker) -> None:
        told = Membership()
        consumer = await broker.consumer([TOPIC], group="g", on_assigned=told.on_assigned, on_revoked=told.on_revoked)
        producer = await broker.producer()
        await producer.send(TOPIC, b"before", partition=0)
        assert values(await take(consumer, 1)) == [b"before"]
        await consumer.commit({TopicPartition(TOPIC, 0): 1})
        # The library's fetching task ends without a word, as it does after some rebalances: no error, no records.
        consumer._inner._fetcher._fetch_task.cancel()
        await producer.send(TOPIC, b"after", partition=0)
        assert await until_replaced(consumer) == []
        assert values(await take(consumer, 1)) == [b"after"]
        assert [len(held) for held in told.revoked] == [PARTITIONS]
        assert [len(held) for held in told.assigned] == [PARTITIONS, PARTITIONS]

    async def test_a_tail_that_hangs_goes_on_where_it_was(self, broker: KafkaBroker) -> None:
        producer = await broker.producer()
        await producer.send(TOPIC, b"before", partition=0)
        tail = await broker.tail([TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)], from_start=True)
        assert values(await take(tail, 1)) == [b"before"]
        tail._inner._fetcher._fetch_task.cancel()
        await producer.send(TOPIC, b"after", partition=0)
        await producer.send(TOPIC, b"elsewhere", partition=1)
        assert sorted(values(await take(tail, 2)), key=str) == [b"after", b"elsewhere"]
        assert tail.replacements == 1

    async def test_an_idle_or_paused_consumer_is_left_alone(self, broker: KafkaBroker) -> None:
        consumer = await broker.consumer([TOPIC], group="g")
        producer = await broker.producer()
        await producer.send(TOPIC, b"x", partition=0)
        consumer.pause(frozenset({TopicPartition(TOPIC, 0)}))
        checks: list[object] = []
        check = consumer._stall.check

        def counted(*arguments: object) -> object:
            checks.append(arguments)
            return check(*arguments)  # type: ignore[arg-type]

        consumer._stall.check = counted  # type: ignore[assignment, method-assign]
        async with asyncio.timeout(PATIENCE_S):
            while len(checks) < 4:
                assert list(await consumer.fetch(max_records=1, timeout_s=0.1)) == []
        assert consumer.replacements == 0

    async def test_a_listener_may_pause_partitions_of_a_replaced_consumer(self, broker: KafkaBroker) -> None:
        told = Membership()

        async def on_assigned(partitions: frozenset[TopicPartition]) -> None:
            await told.on_assigned(partitions)
            if len(told.assigned) == 2:
                consumer.pause(frozenset({TopicPartition(TOPIC, 0)}))

        consumer = await broker.consumer([TOPIC], group="g", on_assigned=on_assigned)
        producer = await broker.producer()
        consumer._inner._fetcher._fetch_task.cancel()
        await producer.send(TOPIC, b"paused", partition=0)
        await producer.send(TOPIC, b"read", partition=1)
        await until_replaced(consumer)
        assert values(await take(consumer, 1)) == [b"read"]
        assert list(await consumer.fetch(max_records=1, timeout_s=0.2)) == []
        consumer.resume(frozenset({TopicPartition(TOPIC, 0)}))
        assert values(await take(consumer, 1)) == [b"paused"]

    async def test_a_member_that_is_killed_loses_nothing(
        self, broker: KafkaBroker, kafka_factory: KafkaFactory
    ) -> None:
        producer = await broker.producer()
        for number in range(PARTITIONS * 3):
            await producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS)
        environ = {**os.environ, **kafka_factory.environ(), "PYTHONPATH": str(ROOT)}
        member = await asyncio.create_subprocess_exec(
            sys.executable, "-c", MEMBER, env=environ, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert member.stdout is not None
            async with asyncio.timeout(PATIENCE_S):
                partition, offset = map(int, (await member.stdout.readline()).split())
        finally:
            member.send_signal(signal.SIGKILL)
            await member.communicate()
        committed = str(partition + PARTITIONS * offset).encode()
        survivor = await broker.consumer([TOPIC], group="g")
        everything = {str(number).encode() for number in range(PARTITIONS * 3)}
        assert set(values(await take(survivor, PARTITIONS * 3 - 1))) == everything - {committed}

    async def test_a_record_that_cannot_be_decoded_is_skipped(
        self, broker: KafkaBroker, kafka_factory: KafkaFactory, caplog: pytest.LogCaptureFixture
    ) -> None:
        producer = await broker.producer()
        for number in range(3):
            await producer.send(TOPIC, f"good {number}".encode(), partition=0)
            await producer.send(TOPIC, f"other {number}".encode(), partition=1)
        await write_undecodable(kafka_factory, partition=0)
        await producer.send(TOPIC, b"last", partition=0)
        expected = {b"good 0", b"good 1", b"good 2", b"other 0", b"other 1", b"other 2", b"last"}
        consumer = await broker.consumer([TOPIC], group="g")
        tail = await broker.tail([TopicPartition(TOPIC, n) for n in range(PARTITIONS)], from_start=True)
        for reader in (consumer, tail):
            records = await take(reader, len(expected))
            assert len(records) == len(expected)
            assert set(values(records)) == expected
            assert (reader.undecodable, reader.replacements) == (1, 0)
        assert "skipped the record at offset 3 of partition 0" in caplog.text


async def write_undecodable(factory: KafkaFactory, *, partition: int) -> None:
    """Write a record with a header whose name is not UTF-8, as other clients can."""

    class NotUtf8(str):
        def encode(self, *_: object) -> bytes:
            return b"\xff"

    producer = AIOKafkaProducer(bootstrap_servers=factory.server.bootstrap)
    await producer.start()
    try:
        records = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, 0, 1024)
        records.append(0, time.time_ns() // 1_000_000, None, b"bad", [(NotUtf8("x"), b"")])
        batch = producer.create_batch()
        batch._builder, batch._relative_offset = records, 1
        sent = await producer.send_batch(batch, factory.settings.namespace + TOPIC, partition=partition)
        await sent
    finally:
        await producer.stop()


class TestProducer:
    async def test_a_producer_that_lost_its_place_is_replaced_and_the_record_written_once(
        self, broker: KafkaBroker, kafka_factory: KafkaFactory
    ) -> None:
        producer = await broker.producer()
        await producer.send(TOPIC, b"1", partition=0)
        # A gap in the sequence numbers, as a batch leaves that the broker refused.
        outside = KafkaTopicPartition(kafka_factory.settings.namespace + TOPIC, 0)
        assert producer._inner is not None
        producer._inner._txn_manager.increment_sequence_number(outside, 1)
        assert await producer.send(TOPIC, b"2", partition=0) == 1
        assert producer.replacements == 1
        assert await producer.send(TOPIC, b"3", partition=0) == 2
        assert producer.replacements == 1

    async def test_it_goes_on_after_the_broker_refused_a_size(
        self, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        producer = await broker.producer()
        monkeypatch.setattr("pipeline.kafka.producer.MAX_RECORD_BYTES", MAX_RECORD_BYTES + 1024)
        assert producer._inner is not None
        producer._inner._max_request_size = MAX_RECORD_BYTES + 1024
        with pytest.raises(RecordTooLargeError):
            await producer.send(TOPIC, bytes(MAX_RECORD_BYTES), partition=0)
        assert await producer.send(TOPIC, b"small", partition=0) == 0

    async def test_many_of_the_largest_records_at_once_do_not_exceed_one_request(
        self, kafka_factory: KafkaFactory
    ) -> None:
        broker = await kafka_factory(send_timeout_s=60, request_timeout_s=30)
        await broker.ensure_topics([TopicSpec(name=TOPIC, partitions=PARTITIONS)])
        producer = await broker.producer()
        large = bytes(MAX_RECORD_BYTES - 128)
        sent = [producer.send(TOPIC, large, partition=partition) for partition in range(PARTITIONS)]
        assert await asyncio.gather(*sent) == [0] * PARTITIONS


class TestBroker:
    async def test_no_broker_is_an_error_within_the_limit(self) -> None:
        # Port 9 is "discard": nothing listens there.
        broker = KafkaBroker(KafkaSettings(bootstrap="127.0.0.1:9", start_timeout_s=2))
        with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:9"):
            await broker.start()

    async def test_namespaces_do_not_see_each_other(self, broker: KafkaBroker, kafka_factory: KafkaFactory) -> None:
        other = await kafka_factory(namespace=kafka_factory.settings.namespace + "other-")
        await other.ensure_topics([TopicSpec(name=TOPIC, partitions=1)])
        producer = await broker.producer()
        await producer.send(TOPIC, b"x", partition=0)
        tail = await other.tail([TopicPartition(TOPIC, 0)], from_start=True)
        assert await tail.caught_up()
