"""The table of topics, and the clocks."""

from __future__ import annotations

import asyncio
import time

import pytest

from pipeline import errors
from pipeline.clock import ManualClock, SystemClock
from pipeline.errors import PipelineError, ReplyError
from pipeline.topology import BY_NAME, DEFAULT_PARTITIONS, TOPOLOGY, specs
from schemas import topics
from schemas.codes import Code


class TestTopology:
    def test_every_topic_of_the_schemas_is_described_once(self) -> None:
        assert sorted(topic.name for topic in TOPOLOGY) == sorted(topics.ALL)
        assert len(BY_NAME) == len(TOPOLOGY)

    def test_compaction_agrees_with_the_schemas(self) -> None:
        assert {topic.name for topic in TOPOLOGY if topic.compacted} == topics.COMPACTED

    def test_every_topic_has_a_writer_and_a_reader(self) -> None:
        assert all(topic.writers and (topic.groups or topic.tails) for topic in TOPOLOGY)

    def test_work_is_never_dropped_unread(self) -> None:
        work = (topics.REQUESTS, topics.REPAIR, topics.GPU, topics.CPU)
        assert not any(BY_NAME[name].drop_oldest for name in work)

    def test_the_partition_count_is_the_same_everywhere(self) -> None:
        assert {spec.partitions for spec in specs()} == {DEFAULT_PARTITIONS}
        assert {spec.partitions for spec in specs(5)} == {5}
        with pytest.raises(ValueError, match="at least one"):
            specs(0)


class TestErrors:
    def test_each_has_a_code_and_says_whether_to_retry(self) -> None:
        kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PipelineError)]
        assert len(kinds) > 8
        for kind in kinds:
            assert isinstance(kind.code, str)
            assert isinstance(kind.retriable, bool)
            assert kind.__name__ in (errors.__doc__ or "")

    def test_a_reply_error_carries_what_the_reply_said(self) -> None:
        error = ReplyError(Code.QUOTA_EXCEEDED, "over the budget", retriable=False)
        assert (error.code, error.retriable, str(error)) == (
            "quota_exceeded",
            False,
            "quota_exceeded: over the budget",
        )


class TestClocks:
    async def test_the_system_clock_is_the_machines(self) -> None:
        clock = SystemClock()
        before_us = time.time_ns() // 1000
        now_us = clock.now_us()
        assert before_us <= now_us <= clock.now_us()
        assert abs(clock.now_ms() - now_us // 1000) < 60_000
        start_s = clock.monotonic_s()
        await clock.sleep(-1)
        assert clock.monotonic_s() >= start_s

    async def test_a_manual_clock_wakes_sleepers_in_the_order_of_their_due_times(self) -> None:
        clock = ManualClock(now_ms=1000)
        woken: list[int] = []

        async def sleep(seconds: int) -> None:
            await clock.sleep(seconds)
            woken.append(seconds)

        tasks = [asyncio.create_task(sleep(seconds)) for seconds in (3, 1, 2)]
        await clock.sleeping(3)
        clock.advance(2)
        await asyncio.gather(tasks[1], tasks[2])
        assert woken == [1, 2]
        assert (clock.now_ms(), clock.now_us(), clock.monotonic_s()) == (3000, 3_000_000, 2.0)
        clock.advance(1)
        await tasks[0]
        assert woken == [1, 2, 3]

    async def test_a_manual_clock_forgets_cancelled_sleepers_and_never_goes_back(self) -> None:
        clock = ManualClock()
        task = asyncio.create_task(clock.sleep(1))
        await clock.sleeping(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await clock.sleeping(0)
        clock.advance(5)
        await clock.sleep(0)
        with pytest.raises(ValueError, match="forward"):
            clock.advance(-1)
