"""What every adapter of `pipeline.ports` promises, on each of them."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict

import pytest
from broker_factories import BrokerFactory
from broker_kit import Membership, take, values

from pipeline.errors import BrokerUnavailableError, ClosedError, RecordTooLargeError, TopologyError
from pipeline.ports import MAX_RECORD_BYTES, Broker, TopicPartition, TopicSpec
from schemas.topics import partition_for

A = "contract.a"
B = "contract.b"
LATEST = "contract.latest"
PARTITIONS = 4

#: Longer than any limit of the test settings together with its tear-down.
BOUND_S = 10.0


def partitions_of(*topics: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS))


@pytest.fixture
async def broker(broker_factory: BrokerFactory) -> Broker:
    broker = await broker_factory()
    await broker.ensure_topics(
        [
            TopicSpec(name=A, partitions=PARTITIONS),
            TopicSpec(name=B, partitions=PARTITIONS),
            TopicSpec(name=LATEST, partitions=1, compacted=True),
        ]
    )
    return broker


class TestTopics:
    async def test_ensuring_the_same_topics_again_changes_nothing(self, broker: Broker) -> None:
        await broker.ensure_topics([TopicSpec(name=A, partitions=PARTITIONS)])

    async def test_another_partition_count_is_refused(self, broker: Broker) -> None:
        with pytest.raises(TopologyError, match=rf"{A} has 4 partitions, not 5"):
            await broker.ensure_topics([TopicSpec(name=A, partitions=5)])

    async def test_an_unknown_topic_or_partition_is_an_error(self, broker: Broker) -> None:
        producer = await broker.producer()
        with pytest.raises(TopologyError):
            await producer.send("contract.missing", b"x")
        with pytest.raises(TopologyError, match="partitions 0 to 3, not 4"):
            await producer.send(A, b"x", partition=4)


class TestProducing:
    async def test_offsets_count_up_within_a_partition(self, broker: Broker) -> None:
        producer = await broker.producer()
        assert [await producer.send(A, b"x", partition=2) for _ in range(3)] == [0, 1, 2]

    async def test_equal_keys_go_to_kafkas_murmur2_partition_on_every_topic(self, broker: Broker) -> None:
        producer = await broker.producer()
        keys = [f"tenant\0session-{number}".encode() for number in range(20)]
        for key in keys:
            await producer.send(A, key, key=key)
            await producer.send(B, key, key=key)
        tail = await broker.tail(sorted(partitions_of(A, B)), from_start=True)
        found = {(record.topic, record.key): record.partition for record in await take(tail, 2 * len(keys))}
        assert found == {(topic, key): partition_for(key, PARTITIONS) for topic in (A, B) for key in keys}

    async def test_everything_in_a_record_makes_the_round_trip(self, broker: Broker) -> None:
        producer = await broker.producer()
        headers = (("traceparent", b"00-ab-cd-01"), ("twice", b"\x00\xff"), ("twice", b""), ("é", b"x"))
        before_ms = time.time_ns() // 1_000_000
        await producer.send(A, b"value", key=b"key", partition=1, headers=headers)
        await producer.send(A, b"", partition=1)
        tail = await broker.tail([TopicPartition(A, 1)], from_start=True)
        full, empty = await take(tail, 2)
        assert (full.topic, full.partition, full.offset) == (A, 1, 0)
        assert (full.key, full.value, full.headers) == (b"key", b"value", headers)
        assert full.source == TopicPartition(A, 1)
        assert before_ms <= full.timestamp_ms <= time.time_ns() // 1_000_000
        assert (empty.key, empty.value, empty.headers) == (None, b"", ())

    @pytest.mark.parametrize("batching", [False, True])
    async def test_order_is_kept_within_a_partition(self, broker: Broker, batching: bool) -> None:
        producer = await broker.producer(batching=batching)
        sent = [str(number).encode() for number in range(200)]
        await asyncio.gather(*(producer.send(A, value, partition=int(value) % 2) for value in sent))
        tail = await broker.tail([TopicPartition(A, 0), TopicPartition(A, 1)], from_start=True)
        got: dict[int, list[bytes | None]] = defaultdict(list)
        for record in await take(tail, len(sent)):
            got[record.partition].append(record.value)
        assert got == {0: sent[0::2], 1: sent[1::2]}

    async def test_a_record_over_the_limit_is_refused_and_the_largest_is_not(self, broker: Broker) -> None:
        producer = await broker.producer()
        with pytest.raises(RecordTooLargeError):
            await producer.send(A, bytes(MAX_RECORD_BYTES), partition=0)
        largest = bytes(MAX_RECORD_BYTES - 128)
        assert await producer.send(A, largest, partition=0) == 0
        tail = await broker.tail([TopicPartition(A, 0)], from_start=True)
        (record,) = await take(tail, 1)
        assert record.value is not None
        assert len(record.value) == len(largest)
        assert await producer.send(A, b"next", partition=0) == 1

    async def test_a_tombstone_needs_a_key(self, broker: Broker) -> None:
        producer = await broker.producer()
        with pytest.raises(ValueError, match="key"):
            await producer.send(LATEST, None)

    async def test_nothing_works_after_stop_and_stop_twice_is_fine(self, broker: Broker) -> None:
        producer = await broker.producer()
        await producer.stop()
        await producer.stop()
        with pytest.raises(ClosedError):
            await producer.send(A, b"x")


class TestGroups:
    async def test_a_single_member_holds_and_reads_everything(self, broker: Broker) -> None:
        told = Membership()
        consumer = await broker.consumer([A, B], group="g", on_assigned=told.on_assigned, on_revoked=told.on_revoked)
        assert consumer.assignment() == partitions_of(A, B)
        assert told.assigned[-1] == partitions_of(A, B)
        assert told.revoked == []
        producer = await broker.producer()
        await producer.send(A, b"a", partition=3)
        await producer.send(B, b"b", partition=0)
        assert sorted(values(await take(consumer, 2)), key=str) == [b"a", b"b"]

    async def test_fetch_returns_at_most_what_is_asked_for_and_nothing_when_there_is_nothing(
        self, broker: Broker
    ) -> None:
        producer = await broker.producer()
        for number in range(5):
            await producer.send(A, str(number).encode(), partition=0)
        consumer = await broker.consumer([A], group="g")
        assert values(await take(consumer, 2)) == [b"0", b"1"]
        assert values(await take(consumer, 3)) == [b"2", b"3", b"4"]
        assert list(await consumer.fetch(max_records=1, timeout_s=0.01)) == []

    async def test_what_is_committed_stays_read_and_the_rest_comes_again(self, broker: Broker) -> None:
        producer = await broker.producer()
        for number in range(4):
            await producer.send(A, str(number).encode(), partition=0)
        first = await broker.consumer([A], group="g")
        assert values(await take(first, 4)) == [b"0", b"1", b"2", b"3"]
        await first.commit({TopicPartition(A, 0): 2})
        await first.stop()
        second = await broker.consumer([A], group="g")
        again = await take(second, 2)
        assert [(record.offset, record.value) for record in again] == [(2, b"2"), (3, b"3")]

    async def test_groups_do_not_share_their_offsets(self, broker: Broker) -> None:
        one = await broker.consumer([A], group="one")
        other = await broker.consumer([A], group="other")
        producer = await broker.producer()
        await producer.send(A, b"x", partition=0)
        assert values(await take(one, 1)) == [b"x"]
        await one.commit({TopicPartition(A, 0): 1})
        assert values(await take(other, 1)) == [b"x"]

    async def test_two_members_share_by_range_with_equal_partition_numbers_together(
        self, broker: Broker, broker_factory: BrokerFactory
    ) -> None:
        told_one, told_two = Membership(), Membership()
        one = await broker.consumer([A, B], group="g", on_assigned=told_one.on_assigned, on_revoked=told_one.on_revoked)
        second_client = await broker_factory()
        two = await second_client.consumer(
            [A, B], group="g", on_assigned=told_two.on_assigned, on_revoked=told_two.on_revoked
        )
        await told_one.until_held(PARTITIONS)
        await told_two.until_held(PARTITIONS)
        assert told_one.revoked[0] == partitions_of(A, B)
        assert one.assignment() | two.assignment() == partitions_of(A, B)
        assert not one.assignment() & two.assignment()
        for member in (one, two):
            numbers = {topic: {p for t, p in member.assignment() if t == topic} for topic in (A, B)}
            assert numbers[A] == numbers[B]
            assert numbers[A] in ({0, 1}, {2, 3})

    async def test_when_a_member_leaves_the_other_takes_over_what_it_did_not_commit(
        self, broker: Broker, broker_factory: BrokerFactory
    ) -> None:
        told = Membership()
        stays = await broker.consumer([A], group="g", on_assigned=told.on_assigned)
        leaves = await (await broker_factory()).consumer([A], group="g")
        await told.until_held(PARTITIONS // 2)
        producer = await broker.producer()
        for source in sorted(partitions_of(A)):
            await producer.send(A, b"first", partition=source.partition)
            await producer.send(A, b"second", partition=source.partition)
        taken = await take(leaves, PARTITIONS)
        await leaves.commit(dict.fromkeys({record.source for record in taken}, 1))
        await take(stays, PARTITIONS)
        await stays.commit(dict.fromkeys(stays.assignment(), 2))
        await leaves.stop()
        await told.until_held(PARTITIONS)
        again = await take(stays, PARTITIONS // 2)
        assert {(record.source, record.value) for record in again} == {(record.source, b"second") for record in taken}

    async def test_work_can_be_finished_and_committed_while_it_is_revoked(
        self, broker: Broker, broker_factory: BrokerFactory
    ) -> None:
        producer = await broker.producer()
        for source in partitions_of(A):
            await producer.send(A, b"old", partition=source.partition)
        done = Membership()

        async def on_revoked(partitions: frozenset[TopicPartition]) -> None:
            await one.commit(dict.fromkeys(partitions, 1))
            await done.on_revoked(partitions)

        one = await broker.consumer([A], group="g", on_assigned=done.on_assigned, on_revoked=on_revoked)
        await take(one, PARTITIONS)
        two = await (await broker_factory()).consumer([A], group="g")
        await done.until_held(PARTITIONS // 2)
        for source in partitions_of(A):
            await producer.send(A, b"new", partition=source.partition)
        assert values([*await take(one, 2), *await take(two, 2)]) == [b"new"] * PARTITIONS

    async def test_no_record_comes_before_the_listener_has_returned(self, broker: Broker) -> None:
        producer = await broker.producer()
        for source in partitions_of(A):
            await producer.send(A, b"x", partition=source.partition)
        told = Membership()
        may_go_on = asyncio.Event()

        async def on_assigned(partitions: frozenset[TopicPartition]) -> None:
            await told.on_assigned(partitions)
            if len(partitions) < PARTITIONS:
                await may_go_on.wait()

        one = await broker.consumer([A], group="g", on_assigned=on_assigned)
        joining = asyncio.create_task(broker.consumer([A], group="g", on_assigned=on_assigned))
        await told.until(lambda: len(told.assigned) == 3)
        assert list(await one.fetch(max_records=10, timeout_s=0.3)) == []
        assert not joining.done()
        may_go_on.set()
        two = await joining
        assert {record.source for record in await take(one, 2)} == one.assignment()
        assert {record.source for record in await take(two, 2)} == two.assignment()

    async def test_a_failing_listener_does_not_stop_the_group(
        self, broker: Broker, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def on_assigned(partitions: frozenset[TopicPartition]) -> None:
            raise RuntimeError("a mistake in a listener")

        consumer = await broker.consumer([A], group="g", on_assigned=on_assigned)
        producer = await broker.producer()
        await producer.send(A, b"x", partition=0)
        assert values(await take(consumer, 1)) == [b"x"]
        assert "failed: RuntimeError at test_broker_contract.py" in caplog.text
        assert "a mistake in a listener" not in caplog.text, "what an exception says can quote a user"

    async def test_commits_of_partitions_that_are_not_held_are_dropped(
        self, broker: Broker, broker_factory: BrokerFactory
    ) -> None:
        producer = await broker.producer()
        for source in partitions_of(A):
            await producer.send(A, b"x", partition=source.partition)
        told = Membership()
        one = await broker.consumer([A], group="g", on_assigned=told.on_assigned)
        two = await (await broker_factory()).consumer([A], group="g")
        await told.until_held(PARTITIONS // 2)
        await one.commit(dict.fromkeys(partitions_of(A), 1))
        assert {record.source for record in await take(two, 2)} == two.assignment()

    async def test_paused_partitions_return_nothing_until_they_are_resumed(self, broker: Broker) -> None:
        producer = await broker.producer()
        consumer = await broker.consumer([A], group="g")
        paused = frozenset({TopicPartition(A, 0)})
        consumer.pause(paused)
        for number in range(3):
            await producer.send(A, b"paused", partition=0)
            await producer.send(A, str(number).encode(), partition=1)
        assert values(await take(consumer, 3)) == [b"0", b"1", b"2"]
        assert list(await consumer.fetch(max_records=10, timeout_s=0.3)) == []
        consumer.resume(paused)
        assert values(await take(consumer, 3)) == [b"paused"] * 3

    async def test_pausing_what_is_not_held_is_ignored(self, broker: Broker) -> None:
        consumer = await broker.consumer([A], group="g")
        consumer.pause(frozenset({TopicPartition(B, 0), TopicPartition(A, 77)}))
        consumer.resume(frozenset({TopicPartition(B, 0)}))

    async def test_lag_counts_what_fetch_has_not_returned(self, broker: Broker) -> None:
        consumer = await broker.consumer([A], group="g")
        producer = await broker.producer()
        for _ in range(3):
            await producer.send(A, b"x", partition=0)
        assert await consumer.lag() == {
            TopicPartition(A, 0): 3,
            TopicPartition(A, 1): 0,
            TopicPartition(A, 2): 0,
            TopicPartition(A, 3): 0,
        }
        await take(consumer, 2)
        assert (await consumer.lag())[TopicPartition(A, 0)] == 1

    async def test_nothing_works_after_stop_and_stop_twice_is_fine(self, broker: Broker) -> None:
        consumer = await broker.consumer([A], group="g")
        await consumer.stop()
        await consumer.stop()
        assert consumer.assignment() == frozenset()
        with pytest.raises(ClosedError):
            await consumer.fetch(max_records=1, timeout_s=0.01)
        with pytest.raises(ClosedError):
            await consumer.commit({TopicPartition(A, 0): 1})
        with pytest.raises(ClosedError):
            await consumer.lag()

    async def test_a_fetch_that_waits_ends_when_the_consumer_is_stopped(self, broker: Broker) -> None:
        consumer = await broker.consumer([A], group="g")
        waiting = asyncio.create_task(consumer.fetch(max_records=1, timeout_s=60))
        await asyncio.sleep(0)
        async with asyncio.timeout(BOUND_S):
            await consumer.stop()
            assert list(await waiting) == []

    async def test_a_cancelled_fetch_loses_nothing(self, broker: Broker) -> None:
        consumer = await broker.consumer([A], group="g")
        producer = await broker.producer()
        waiting = asyncio.create_task(consumer.fetch(max_records=1, timeout_s=60))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await producer.send(A, b"x", partition=0)
        assert values(await take(consumer, 1)) == [b"x"]


class TestTails:
    async def test_from_the_start_it_reads_everything_and_knows_when_it_has(self, broker: Broker) -> None:
        producer = await broker.producer()
        for number in range(3):
            await producer.send(A, str(number).encode(), partition=0)
        tail = await broker.tail([TopicPartition(A, 0), TopicPartition(A, 1)], from_start=True)
        assert not await tail.caught_up()
        assert values(await take(tail, 2)) == [b"0", b"1"]
        assert not await tail.caught_up()
        await producer.send(A, b"later", partition=0)
        assert values(await take(tail, 1)) == [b"2"]
        assert await tail.caught_up()
        assert values(await take(tail, 1)) == [b"later"]

    async def test_from_the_end_it_reads_only_what_comes(self, broker: Broker) -> None:
        producer = await broker.producer()
        await producer.send(A, b"before", partition=0)
        tail = await broker.tail([TopicPartition(A, 0)], from_start=False)
        assert await tail.caught_up()
        await producer.send(A, b"after", partition=0)
        assert values(await take(tail, 1)) == [b"after"]

    async def test_an_empty_topic_is_caught_up_at_once(self, broker: Broker) -> None:
        tail = await broker.tail([TopicPartition(LATEST, 0)], from_start=True)
        assert await tail.caught_up()

    async def test_every_tail_sees_every_record(self, broker: Broker) -> None:
        tails = [await broker.tail([TopicPartition(A, 0)], from_start=False) for _ in range(2)]
        producer = await broker.producer()
        await producer.send(A, b"x", partition=0)
        assert [values(await take(tail, 1)) for tail in tails] == [[b"x"], [b"x"]]

    async def test_of_a_compacted_topic_the_last_record_of_each_key_is_there(self, broker: Broker) -> None:
        producer = await broker.producer()
        for number in range(200):
            await producer.send(LATEST, str(number).encode(), key=str(number % 3).encode())
        await producer.send(LATEST, None, key=b"0")
        tail = await broker.tail([TopicPartition(LATEST, 0)], from_start=True)
        state: dict[bytes | None, bytes | None] = {}
        async with asyncio.timeout(BOUND_S):
            while not await tail.caught_up():
                for record in await tail.fetch(max_records=50, timeout_s=1):
                    state[record.key] = record.value
        assert {key: value for key, value in state.items() if value is not None} == {
            b"1": b"199",
            b"2": b"197",
        }

    async def test_nothing_works_after_stop_and_stop_twice_is_fine(self, broker: Broker) -> None:
        tail = await broker.tail([TopicPartition(A, 0)], from_start=True)
        await tail.stop()
        await tail.stop()
        with pytest.raises(ClosedError):
            await tail.fetch(max_records=1, timeout_s=0.01)
        with pytest.raises(ClosedError):
            await tail.caught_up()


class TestWithoutABroker:
    async def test_calls_fail_within_their_bound_and_go_on_afterwards(
        self, broker: Broker, broker_factory: BrokerFactory
    ) -> None:
        producer = await broker.producer()
        consumer = await broker.consumer([A], group="g")
        await producer.send(A, b"before", partition=0)
        assert values(await take(consumer, 1)) == [b"before"]
        async with broker_factory.unreachable(), asyncio.timeout(2 * BOUND_S):
            with pytest.raises(BrokerUnavailableError) as caught:
                await producer.send(A, b"during", partition=0)
            assert (caught.value.code, caught.value.retriable) == ("broker_unavailable", True)
            with pytest.raises(BrokerUnavailableError):
                await consumer.commit({TopicPartition(A, 0): 1})
            with pytest.raises(BrokerUnavailableError):
                await consumer.lag()
            assert list(await consumer.fetch(max_records=1, timeout_s=0.05)) == []
        async with asyncio.timeout(2 * BOUND_S):
            while True:
                try:
                    await producer.send(A, b"after", partition=0)
                    break
                except BrokerUnavailableError:
                    continue
            seen: list[bytes | None] = []
            while b"after" not in seen:
                seen += values(await consumer.fetch(max_records=10, timeout_s=1))
        # The record of the failed call may be there too: it was not acknowledged, which is all that is known.
        assert set(seen) <= {b"before", b"during", b"after"}

    async def test_stop_is_bounded(self, broker: Broker, broker_factory: BrokerFactory) -> None:
        producer = await broker.producer()
        consumer = await broker.consumer([A], group="g")
        tail = await broker.tail([TopicPartition(A, 0)], from_start=True)
        async with broker_factory.unreachable():
            sending = asyncio.create_task(producer.send(A, b"x", partition=0))
            await asyncio.sleep(0)
            async with asyncio.timeout(BOUND_S):
                await broker.stop()
                await broker.stop()
            with pytest.raises((BrokerUnavailableError, ClosedError)):
                await sending
        with pytest.raises(ClosedError):
            await consumer.fetch(max_records=1, timeout_s=0.01)
        with pytest.raises(ClosedError):
            await tail.fetch(max_records=1, timeout_s=0.01)
        with pytest.raises(ClosedError):
            await broker.producer()
