"""Parts of the Kafka adapter that need no Kafka."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import TopicPartition
from aiokafka import errors as kafka

from pipeline.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    PipelineError,
    RecordTooLargeError,
    SettingsError,
    TopologyError,
)
from pipeline.kafka import KafkaSettings
from pipeline.kafka.budget import Budget
from pipeline.kafka.guard import limited, translate
from pipeline.kafka.stall import ROUNDS_LEFT_OUT, StallDetector

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)


class TestStallDetector:
    def test_behind_and_unmoved_through_two_windows_with_an_empty_fetch_is_a_hang(self) -> None:
        detector = StallDetector()
        found = []
        for _ in range(3):
            detector.fetched(0)
            found.append(detector.check({P0: 5, P1: 7}, {P0: 9, P1: 7}))
        assert found == [frozenset(), frozenset(), frozenset({P0})]

    def test_a_position_that_moves_is_alive(self) -> None:
        detector = StallDetector()
        for position in range(5):
            detector.fetched(0)
            assert not detector.check({P0: position}, {P0: 9})

    def test_a_caller_that_does_not_fetch_is_busy(self) -> None:
        detector = StallDetector()
        assert not any(detector.check({P0: 5}, {P0: 9}) for _ in range(5))

    def test_a_fetch_that_waits_longer_than_a_window_counts_when_it_ends(self) -> None:
        detector = StallDetector()
        found = []
        for check in range(9):
            if check % 3 == 2:
                detector.fetched(0)
            found.append(detector.check({P0: 5}, {P0: 9}))
        assert found == [frozenset()] * 5 + [frozenset({P0})] * 4

    def test_a_partition_left_out_of_many_full_fetches_hangs(self) -> None:
        detector = StallDetector()
        found = []
        for window in range(3):
            for _ in range(ROUNDS_LEFT_OUT * 2):
                detector.fetched(10)
            found.append(detector.check({P0: 5, P1: window}, {P0: 9, P1: 99}))
        assert found[-1] == frozenset({P0})

    def test_a_partition_without_a_position_hangs(self) -> None:
        detector = StallDetector()
        found = []
        for _ in range(3):
            detector.fetched(0)
            found.append(detector.check({}, {P0: 9}))
        assert found[-1] == frozenset({P0})

    def test_one_window_of_progress_starts_the_count_anew(self) -> None:
        detector = StallDetector()
        for position in (5, 5, 6, 6):
            detector.fetched(0)
            assert not detector.check({P0: position}, {P0: 9})


class TestBudget:
    async def test_what_does_not_fit_waits_in_order(self) -> None:
        budget = Budget(10)
        order: list[str] = []
        inside = asyncio.Event()
        leave = asyncio.Event()

        async def hold(name: str, size: int) -> None:
            async with budget.hold(size):
                order.append(name)
                inside.set()
                await leave.wait()

        tasks = [asyncio.create_task(hold("first", 8))]
        await inside.wait()
        # The small one would fit, but the large one came before it: nobody starves.
        tasks += [asyncio.create_task(hold("large", 6)), asyncio.create_task(hold("small", 1))]
        await asyncio.sleep(0)
        assert order == ["first"]
        leave.set()
        await asyncio.gather(*tasks)
        assert order == ["first", "large", "small"]

    async def test_more_than_everything_counts_as_everything(self) -> None:
        budget = Budget(10)
        async with budget.hold(1000):
            pass
        async with budget.hold(10):
            pass

    async def test_a_cancelled_waiter_leaves_no_trace(self) -> None:
        budget = Budget(10)
        async with budget.hold(10):
            waiting = asyncio.create_task(budget.hold(10).__aenter__())
            behind = asyncio.create_task(budget.hold(5).__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await behind


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (kafka.MessageSizeTooLargeError(), RecordTooLargeError),
            (kafka.UnknownTopicOrPartitionError(), TopologyError),
            (kafka.TopicAuthorizationFailedError("t"), BrokerRefusedError),
            (kafka.InvalidReplicationFactorError(), BrokerRefusedError),
            (kafka.RequestTimedOutError(), BrokerUnavailableError),
            (kafka.KafkaConnectionError("no route"), BrokerUnavailableError),
        ],
    )
    def test_the_librarys_errors_become_ours(self, error: kafka.KafkaError, kind: type[PipelineError]) -> None:
        ours = translate(error, "doing this")
        assert type(ours) is kind
        assert str(ours).startswith("doing this: ")

    async def test_a_time_limit_says_what_took_too_long(self) -> None:
        with pytest.raises(BrokerUnavailableError, match=r"waiting: no answer from the broker within 0\.01 s"):
            async with limited(0.01, "waiting"):
                await asyncio.Event().wait()


class TestSettings:
    def test_a_url_gives_the_servers_and_the_environment_the_rest(self) -> None:
        settings = KafkaSettings.from_url(
            "kafka://one:9092,two:9093/",
            {"TOKSPLICE_KAFKA_NAMESPACE": "staging-", "TOKSPLICE_KAFKA_BOOTSTRAP": "ignored:1"},
        )
        assert settings.servers == ["one:9092", "two:9093"]
        assert settings.namespace == "staging-"

    @pytest.mark.parametrize("url", ["memory://", "one:9092", "kafka://", "kafka://one"])
    def test_another_url_is_refused(self, url: str) -> None:
        with pytest.raises(SettingsError):
            KafkaSettings.from_url(url, {})

    def test_contradictions_are_refused(self) -> None:
        with pytest.raises(SettingsError, match="PLAINTEXT, SSL"):
            KafkaSettings(security_protocol="TLS")
        with pytest.raises(SettingsError, match="SASL_USERNAME"):
            KafkaSettings(security_protocol="SASL_SSL")

    def test_the_password_is_not_shown(self) -> None:
        word = "not-for-logs"
        settings = KafkaSettings(security_protocol="SASL_PLAINTEXT", sasl_username="me", sasl_password=word)
        assert word not in repr(settings)
        assert settings.connection_options()["sasl_plain_password"] == word
