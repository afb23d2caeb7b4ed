"""What only the memory adapter promises: that it stays within its bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from broker_kit import take, values

from pipeline.clock import ManualClock
from pipeline.errors import BrokerOverloadedError, BrokerUnavailableError
from pipeline.memory import MemoryBroker, MemoryLimits
from pipeline.ports import Record, TopicPartition, TopicSpec

WORK = TopicSpec(name="work", partitions=1)
KEPT = TopicSpec(name="kept", partitions=1, drop_oldest=True)
LATEST = TopicSpec(name="latest", partitions=1, compacted=True)
LIMITS = MemoryLimits(
    log_records=8, log_bytes=10_000, kept_records=3, kept_bytes=10_000, send_timeout_s=0.05, rebalance_timeout_s=1
)


@pytest.fixture
async def broker() -> AsyncIterator[MemoryBroker]:
    broker = MemoryBroker(LIMITS, clock=ManualClock(now_ms=1234))
    await broker.start()
    await broker.ensure_topics([WORK, KEPT, LATEST])
    yield broker
    await broker.stop()


async def retained(broker: MemoryBroker, topic: str) -> list[Record]:
    """What a new reader would find."""
    tail = await broker.tail([TopicPartition(topic, 0)], from_start=True)
    records: list[Record] = []
    while not await tail.caught_up():
        records += await tail.fetch(max_records=100, timeout_s=1)
    await tail.stop()
    return records


async def fill(broker: MemoryBroker, topic: str, count: int) -> None:
    producer = await broker.producer()
    for number in range(count):
        await producer.send(topic, str(number).encode(), key=b"k", partition=0)


class TestWork:
    async def test_a_full_partition_refuses_and_goes_on_when_its_group_has_read(self, broker: MemoryBroker) -> None:
        consumer = await broker.consumer(["work"], group="g")
        await fill(broker, "work", 8)
        producer = await broker.producer()
        with pytest.raises(BrokerOverloadedError) as caught:
            await producer.send("work", b"one too many", partition=0)
        assert (caught.value.code, caught.value.retriable) == ("overloaded", True)
        await take(consumer, 8)
        sending = asyncio.create_task(producer.send("work", b"waits", partition=0))
        await asyncio.sleep(0)
        await consumer.commit({TopicPartition("work", 0): 1})
        assert await sending == 8

    async def test_nothing_is_dropped_before_any_group_has_come(self, broker: MemoryBroker) -> None:
        with pytest.raises(BrokerOverloadedError):
            await fill(broker, "work", 9)
        consumer = await broker.consumer(["work"], group="late")
        assert len(await take(consumer, 8)) == 8

    async def test_bytes_count_too_but_a_single_record_always_fits(self, broker: MemoryBroker) -> None:
        producer = await broker.producer()
        await producer.send("work", bytes(20_000), partition=0)
        with pytest.raises(BrokerOverloadedError):
            await producer.send("work", b"x", partition=0)

    async def test_what_every_group_has_committed_is_dropped(self, broker: MemoryBroker) -> None:
        fast = await broker.consumer(["work"], group="fast")
        slow = await broker.consumer(["work"], group="slow")
        await fill(broker, "work", 6)
        await fast.commit({TopicPartition("work", 0): 6})
        await slow.commit({TopicPartition("work", 0): 4})
        assert [record.offset for record in await retained(broker, "work")] == [4, 5]

    async def test_a_tail_holds_records_back_only_while_there_is_room(self, broker: MemoryBroker) -> None:
        tail = await broker.tail([TopicPartition("work", 0)], from_start=True)
        consumer = await broker.consumer(["work"], group="g")
        await fill(broker, "work", 8)
        await consumer.commit({TopicPartition("work", 0): 8})
        assert len(await retained(broker, "work")) == 8
        await fill(broker, "work", 1)
        assert [record.offset for record in await take(tail, 1)] == [8]

    async def test_a_stopped_tail_holds_nothing_back(self, broker: MemoryBroker) -> None:
        tail = await broker.tail([TopicPartition("work", 0)], from_start=True)
        consumer = await broker.consumer(["work"], group="g")
        await fill(broker, "work", 5)
        await consumer.commit({TopicPartition("work", 0): 5})
        await tail.stop()
        assert await retained(broker, "work") == []


class TestKept:
    async def test_without_readers_the_newest_are_kept(self, broker: MemoryBroker) -> None:
        await fill(broker, "kept", 20)
        assert values(await retained(broker, "kept")) == [b"17", b"18", b"19"]

    async def test_unread_records_are_kept_up_to_the_logs_bound_and_then_the_oldest_go(
        self, broker: MemoryBroker
    ) -> None:
        tail = await broker.tail([TopicPartition("kept", 0)], from_start=True)
        await fill(broker, "kept", 8)
        assert len(await retained(broker, "kept")) == 8
        await fill(broker, "kept", 4)
        assert [record.offset for record in await take(tail, 8)] == list(range(4, 12))


class TestCompaction:
    async def test_a_compacted_log_holds_no_more_than_its_keys_need(self, broker: MemoryBroker) -> None:
        await fill(broker, "latest", 500)
        producer = await broker.producer()
        await producer.send("latest", b"other", key=b"o")
        found = {record.key: record.value for record in await retained(broker, "latest")}
        assert found == {b"k": b"499", b"o": b"other"}

    async def test_more_keys_than_fit_are_refused(self, broker: MemoryBroker) -> None:
        producer = await broker.producer()
        for number in range(8):
            await producer.send("latest", b"x", key=str(number).encode())
        with pytest.raises(BrokerOverloadedError):
            await producer.send("latest", b"x", key=b"ninth")
        # What is there can still be changed, and deleted to make room.
        await producer.send("latest", b"y", key=b"0")
        await producer.send("latest", None, key=b"1")
        await producer.send("latest", b"x", key=b"ninth")
        found = {record.key for record in await retained(broker, "latest")}
        assert found == {b"0", b"2", b"3", b"4", b"5", b"6", b"7", b"ninth"}

    async def test_a_tombstone_stays_until_every_reader_has_seen_it(self, broker: MemoryBroker) -> None:
        tail = await broker.tail([TopicPartition("latest", 0)], from_start=True)
        producer = await broker.producer()
        await producer.send("latest", b"x", key=b"gone")
        assert values(await take(tail, 1)) == [b"x"]
        await producer.send("latest", None, key=b"gone")
        await fill(broker, "latest", 300)
        first = await take(tail, 1)
        assert (first[0].key, first[0].value) == (b"gone", None)
        await fill(broker, "latest", 300)
        assert [record.key for record in await retained(broker, "latest")][-1] == b"k"
        assert b"gone" not in {record.key for record in await retained(broker, "latest")}

    async def test_records_need_a_key(self, broker: MemoryBroker) -> None:
        producer = await broker.producer()
        with pytest.raises(ValueError, match="key"):
            await producer.send("latest", b"x", partition=0)


class TestCluster:
    async def test_the_clock_is_the_brokers(self, broker: MemoryBroker) -> None:
        await fill(broker, "work", 1)
        assert [record.timestamp_ms for record in await retained(broker, "work")] == [1234]

    async def test_a_listener_that_hangs_is_left_behind(
        self, broker: MemoryBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def hang(_: frozenset[TopicPartition]) -> None:
            await asyncio.Event().wait()

        quick = MemoryBroker(MemoryLimits(rebalance_timeout_s=0.05))
        await quick.start()
        await quick.ensure_topics([WORK])
        await quick.consumer(["work"], group="g", on_revoked=hang)
        await quick.consumer(["work"], group="g")
        await quick.stop()
        assert "took over 0.05 s" in caplog.text

    async def test_a_test_chooses_the_error(self, broker: MemoryBroker) -> None:
        producer = await broker.producer()
        error = BrokerUnavailableError("the cable is cut")
        with broker.unreachable(error), pytest.raises(BrokerUnavailableError, match="cable"):
            await producer.send("work", b"x", partition=0)
        assert await producer.send("work", b"x", partition=0) == 0
