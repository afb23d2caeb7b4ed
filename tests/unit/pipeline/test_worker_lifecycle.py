"""Starting, stopping, rebalances, heartbeats, the watchdog, and operators' control."""

from __future__ import annotations

import asyncio
import os
import signal
import weakref
from collections.abc import Awaitable, Sequence

import pytest
from chassis_kit import (
    GUARD_S,
    ScriptedService,
    SpyBroker,
    make_worker,
    pump,
    read,
    running,
    settings,
    started_broker,
    write,
)

from pipeline import runtime
from pipeline.blocking import BlockingPool
from pipeline.clock import ManualClock
from pipeline.context import Context
from pipeline.control import ControlState
from pipeline.memory import MemoryBroker
from pipeline.ports import Record, Tail, TopicPartition
from pipeline.service import ServiceHealth
from pipeline.telemetry import Telemetry
from schemas.health import Control, Cost, Health
from schemas.topics import CONTROL, HEALTH


async def test_a_shutdown_finishes_what_was_fetched_and_closes_in_order() -> None:
    release = asyncio.Event()

    async def handler(record: Record) -> None:
        await release.wait()

    async with started_broker() as broker:
        service = ScriptedService(handler)
        worker = make_worker(broker, service)
        async with running(worker) as task:
            await write(broker, *[b"x"] * 5)
            await service.begun.holds(1)
            await broker.memory.producer()  # The fetch that began the first record took all five.
            worker.request_stop()
            release.set()
            await task
        assert len(service.handled.entries) == 5
        assert max(broker.commits_of()) == 5
        assert service.calls.entries[-1] == "stop"
        assert broker.stops.entries == ["consumer", "producer"]


async def test_a_service_that_does_not_drain_gives_back_what_was_fetched() -> None:
    never = asyncio.Event()

    async def handler(record: Record) -> None:
        await never.wait()

    async with started_broker() as broker:
        service = ScriptedService(handler)
        service.drains = False
        worker = make_worker(broker, service)
        async with running(worker) as task:
            await write(broker, *[b"x"] * 5)
            await service.begun.holds(1)
            worker.request_stop()
            async with asyncio.timeout(GUARD_S):
                await task
        assert service.handled.entries == []
        assert broker.commits_of() == []
        assert service.calls.entries[-1] == "stop"


async def test_a_shutdown_commits_what_the_last_interval_finished() -> None:
    async with started_broker() as broker:
        service = ScriptedService()
        async with running(make_worker(broker, service, commit_interval_s=60.0)):
            await write(broker, b"a")
            await broker.committed(1)
            await write(broker, b"b")
            await service.handled.holds(2)
            assert broker.commits_of() == [1]
        assert broker.commits_of() == [1, 2]


async def test_a_shutdown_does_not_wait_for_a_stuck_handler_and_loses_nothing() -> None:
    clock = ManualClock()
    never = asyncio.Event()

    async def stuck(record: Record) -> None:
        if record.offset == 1:
            await never.wait()

    async with started_broker() as broker:
        service = ScriptedService(stuck)
        worker = make_worker(broker, service, clock=clock)
        task = asyncio.create_task(worker.run())
        await write(broker, b"a", b"b", b"c")
        await service.begun.holds(2)
        worker.request_stop()
        await pump(clock, task)
        assert max(broker.commits_of()) == 1
        second = ScriptedService()
        async with running(make_worker(broker, second)):
            handled = await second.handled.holds(2)
            assert [record.offset for record in handled] == [1, 2]


async def test_a_handler_that_ignores_its_cancellation_is_left_behind() -> None:
    clock = ManualClock()
    release = asyncio.Event()

    async def deaf(record: Record) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with started_broker() as broker:
        service = ScriptedService(deaf)
        worker = make_worker(broker, service, clock=clock)
        task = asyncio.create_task(worker.run())
        await write(broker, b"a")
        await service.begun.holds(1)
        worker.request_stop()
        await pump(clock, task)
        assert service.calls.entries[-1] == "stop"
        assert broker.commits_of() == []
        release.set()
        await service.handled.holds(1)


async def test_steps_of_the_shutdown_that_hang_or_fail_do_not_stop_the_next() -> None:
    clock = ManualClock()

    class Hanging(ScriptedService):
        async def stop(self) -> None:
            await asyncio.Event().wait()

    async with started_broker() as broker:
        worker = make_worker(broker, Hanging(), clock=clock)
        task = asyncio.create_task(worker.run())
        await worker.ready.wait()
        broker.send_errors[HEALTH] = [RuntimeError("odd")]
        worker.request_stop()
        await pump(clock, task)
        assert broker.stops.entries == ["consumer", "producer"]


async def test_a_service_that_cannot_start_ends_the_worker_and_is_stopped() -> None:
    class Broken(ScriptedService):
        async def start(self, ctx: Context) -> None:
            raise OSError("no such file")

    async with started_broker() as broker:
        service = Broken()
        with pytest.raises(OSError, match="no such file"):
            await make_worker(broker, service).run()
        assert service.calls.entries == ["stop"]
        assert broker.stops.entries == ["producer"]


async def test_a_worker_waits_for_a_broker_that_is_not_there_yet() -> None:
    clock = ManualClock()
    async with started_broker() as broker:
        broker.memory.fail()
        service = ScriptedService()
        worker = make_worker(broker, service, clock=clock)
        task = asyncio.create_task(worker.run())
        await clock.sleeping(1)
        clock.advance(0.2)
        await clock.sleeping(1)
        assert not worker.ready.is_set()
        broker.memory.recover()
        await pump(clock, asyncio.ensure_future(worker.ready.wait()))
        worker.request_stop()
        await task


async def test_a_stop_during_the_start_is_heeded() -> None:
    async with started_broker() as broker:
        broker.memory.fail()
        worker = make_worker(broker, ScriptedService())
        task = asyncio.create_task(worker.run())
        worker.request_stop()
        async with asyncio.timeout(GUARD_S):
            await task


async def test_a_broker_that_goes_and_comes_back_loses_nothing() -> None:
    clock = ManualClock()
    async with started_broker() as broker:
        service = ScriptedService()
        async with running(make_worker(broker, service, clock=clock)):
            await write(broker, b"a")
            await broker.committed(1)
            broker.memory.fail()
            clock.advance(60)
            await clock.sleeping(2)
            broker.memory.recover()
            await write(broker, b"b")
            await pump(clock, asyncio.ensure_future(broker.committed(2)))
        assert [record.value for record in service.handled.entries] == [b"a", b"b"]


# Rebalances


async def test_a_rebalance_finishes_work_commits_and_tells_the_service() -> None:
    release = asyncio.Event()

    async def handler(record: Record) -> None:
        await release.wait()

    async with started_broker() as broker:
        first, second = ScriptedService(handler), ScriptedService()
        async with running(make_worker(broker, first)):
            await write(broker, b"a", b"b", partition=0)
            await write(broker, b"a", b"b", partition=1)
            await first.begun.holds(2)
            joining = asyncio.create_task(make_worker(broker, second, worker_id="w2").run())
            await broker.memory.producer()
            release.set()
            await first.calls.holds(4)
            await second.calls.until(lambda calls: len(calls) == 2)
            assert first.calls.entries == [
                "start",
                ("assigned", frozenset({0, 1})),
                ("lost", frozenset({1})),
                ("assigned", frozenset({0})),
            ]
            assert second.calls.entries == ["start", ("assigned", frozenset({1}))]
            await broker.committed(2, partition=0)
            await broker.committed(2, partition=1)
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
            handled = {(r.partition, r.offset) for r in [*first.handled.entries, *second.handled.entries]}
            assert handled == {(p, offset) for p in (0, 1) for offset in (0, 1)}
            assert second.calls.entries[-1] == "stop"


async def test_a_rebalance_commits_what_the_last_interval_finished() -> None:
    async with started_broker() as broker:
        first, second = ScriptedService(), ScriptedService()
        async with running(make_worker(broker, first, commit_interval_s=60.0)):
            await write(broker, b"a", partition=1)
            await broker.committed(1, partition=1)
            await write(broker, b"b", partition=1)
            await first.handled.holds(2)
            assert broker.commits_of(partition=1) == [1]
            async with running(make_worker(broker, second, worker_id="w2")):
                assert broker.commits_of(partition=1) == [1, 2]
                await write(broker, b"c", partition=1)
                [handled] = await second.handled.holds(1)
                assert handled.value == b"c"


async def test_a_rebalance_waits_for_a_stuck_record_only_so_long() -> None:
    clock = ManualClock()
    never = asyncio.Event()

    async def handler(record: Record) -> Awaitable[None] | None:
        async def wait() -> None:
            await never.wait()

        if record.partition == 1:
            return wait()
        await never.wait()
        return None

    async with started_broker() as broker:
        first, second = ScriptedService(handler), ScriptedService()
        async with running(make_worker(broker, first, clock=clock)):
            await write(broker, b"a", partition=0)
            await write(broker, b"a", partition=1)
            await first.begun.holds(2)
            joining = make_worker(broker, second, worker_id="w2")
            task = asyncio.create_task(joining.run())
            await pump(clock, asyncio.ensure_future(second.handled.holds(1)))
            assert [(r.partition, r.offset) for r in second.handled.entries] == [(1, 0)]
            never.set()
            joining.request_stop()
            await task
            await broker.committed(1, partition=0)


# Heartbeats, watchdog, control


async def health_of(broker: SpyBroker, count: int = 1) -> Health:
    records = await read(broker, HEALTH, count)
    assert records[-1].key == b"worker-1"
    return Health.decode(records[-1].value or b"")


async def test_a_heartbeat_tells_what_operators_and_the_classifier_ask() -> None:
    clock = ManualClock()
    async with started_broker() as broker:
        service = ScriptedService()
        async with running(make_worker(broker, service, clock=clock)):
            health = await health_of(broker)
            assert (health.worker, health.kind, health.ready) == ("worker-1", "classifier", True)
            assert (health.tokenizers, health.queue_depth) == (("f" * 64,), 3)
            assert (health.time_ms, health.detail) == (clock.now_ms(), "")
            assert health.costs is None
            costs = {"f" * 64: Cost(fixed_us=1, mib_us=2, record_us=3)}
            service.answer = ServiceHealth(ready=False, detail="no room", costs=costs)
            await clock.sleeping(2)
            clock.advance(2)
            health = await health_of(broker, 2)
            assert (health.ready, health.detail, health.costs) == (False, "no room", costs)
        records = await read(broker, HEALTH, 1)
        assert records[-1].value is None, "a worker that leaves takes its record along"


async def test_a_stuck_record_is_reported_once_and_shown_while_it_lasts() -> None:
    clock = ManualClock()
    release = asyncio.Event()
    telemetry = Telemetry.in_memory()

    async def handler(record: Record) -> None:
        await release.wait()

    async with started_broker() as broker:
        service = ScriptedService(handler)
        worker = make_worker(broker, service, clock=clock, telemetry=telemetry, handler_limit_s=8.0, heartbeat_s=1.0)
        async with running(worker):
            await write(broker, b"x")
            await service.begun.holds(1)
            for _ in range(12):
                await clock.sleeping(2)
                clock.advance(1)
            await clock.sleeping(2)
            [point] = telemetry.metric_points("toksplice.handlers.stuck")
            assert point.value == 1
            health = await health_of(broker, 1)
            assert "tokenize.requests/0 offset 0 unfinished for" in health.detail
            release.set()
            await broker.committed(1)
            for _ in range(3):
                await clock.sleeping(2)
                clock.advance(1)
            await clock.sleeping(2)
            assert (await health_of(broker, 1)).detail == ""


async def test_gauges_follow_the_partitions() -> None:
    clock = ManualClock()
    telemetry = Telemetry.in_memory()
    async with (
        started_broker() as broker,
        running(make_worker(broker, ScriptedService(), clock=clock, telemetry=telemetry)),
    ):
        await clock.sleeping(2)
        for name in ("toksplice.consumer.lag", "toksplice.queue.depth"):
            points = telemetry.metric_points(name)
            assert [point.value for point in points] == [0, 0]
            assert {(point.attributes or {})["partition"] for point in points} == {"0", "1"}


def switch(tokenizer: str, *, breaker_open: bool, sampling: float | None) -> bytes:
    return Control(tokenizer=tokenizer, breaker_open=breaker_open, sampling=sampling).encode()


async def test_control_is_known_before_the_first_record() -> None:
    seen: list[tuple[bool, float]] = []
    readable = asyncio.Event()

    async def handler(record: Record) -> None:
        control = service.ctx.control
        seen.append((control.breaker_open("fp"), control.sampling("fp")))

    async with started_broker() as broker:
        service = ScriptedService(handler)
        opened, tail = asyncio.Event(), broker.memory.tail

        async def slow_tail(partitions: Sequence[TopicPartition], *, from_start: bool) -> Tail:
            opened.set()
            await readable.wait()
            return await tail(partitions, from_start=from_start)

        broker.memory.tail = slow_tail  # type: ignore[assignment, method-assign]
        await write(broker, switch("fp", breaker_open=True, sampling=0.5), topic=CONTROL, key=b"fp")
        await write(broker, b"1")
        worker = make_worker(broker, service)
        task = asyncio.create_task(worker.run())
        await opened.wait()
        assert service.calls.entries == []
        readable.set()
        await service.handled.holds(1)
        worker.request_stop()
        await task
    assert seen == [(True, 0.5)]


def control_record(key: str, value: bytes | None) -> Record:
    return Record(topic=CONTROL, partition=0, offset=0, key=key.encode(), value=value, headers=(), timestamp_ms=0)


def test_control_of_one_tokenizer_and_of_all() -> None:
    control = ControlState(default_sampling=0.25)

    def apply(key: str, value: bytes | None) -> tuple[bool, float]:
        control.apply(control_record(key, value))
        return control.breaker_open("fp"), control.sampling("fp")

    assert apply("other", switch("other", breaker_open=True, sampling=1.0)) == (False, 0.25)
    assert apply("*", switch("*", breaker_open=False, sampling=0.5)) == (False, 0.5)
    assert apply("fp", switch("fp", breaker_open=True, sampling=0.0)) == (True, 0.0)
    assert apply("fp", b"\xc1 unreadable") == (True, 0.0)
    assert apply("*", switch("*", breaker_open=True, sampling=1.0)) == (True, 0.0)
    assert apply("fp", switch("fp", breaker_open=False, sampling=0.0)) == (True, 0.0), "all is all"
    assert apply("*", switch("*", breaker_open=False, sampling=0.5)) == (False, 0.0)
    assert apply("fp", switch("fp", breaker_open=True, sampling=None)) == (True, 0.5), "it says nothing of sampling"
    assert apply("*", None) == (True, 0.25)
    assert apply("fp", None) == (False, 0.25)


def test_a_listener_hears_of_every_breaker_that_is_turned() -> None:
    control = ControlState(default_sampling=0.25)
    early: list[str | None] = []
    late: list[str | None] = []
    control.on_breaker(early.append)

    def turn(tokenizer: str, *, breaker_open: bool) -> None:
        control.apply(control_record(tokenizer, switch(tokenizer, breaker_open=breaker_open, sampling=0.5)))

    turn("fp", breaker_open=False)
    assert early == []
    turn("fp", breaker_open=True)
    turn("fp", breaker_open=True)
    assert early == ["fp"], "one that is open already does not open"
    turn("*", breaker_open=True)
    control.on_breaker(late.append)
    assert late == ["fp", None], "a listener that comes late hears of those that are open"
    early.clear()
    turn("fp", breaker_open=False)
    turn("fp", breaker_open=False)
    control.apply(control_record("other", None))
    control.apply(control_record("*", None))
    assert early == ["fp", None]


async def test_the_heartbeat_shows_open_breakers_by_name() -> None:
    clock, telemetry, service = ManualClock(), Telemetry.in_memory(), ScriptedService()
    service.answer = ServiceHealth(tokenizers=("f1", "f2"))
    async with started_broker() as broker:
        await write(broker, switch("f2", breaker_open=True, sampling=0.5), topic=CONTROL, key=b"f2")
        async with running(make_worker(broker, service, clock=clock, telemetry=telemetry)):
            service.ctx.tokenizer_name = {"f1": "one", "f2": "two"}.__getitem__
            await clock.sleeping(2)
            clock.advance(60)
            await clock.sleeping(2)
            points = telemetry.metric_points("toksplice.breaker.open")
            shown = {(point.attributes or {})["tokenizer"]: point.value for point in points}  # type: ignore[union-attr]
            assert {name: shown[name] for name in ("one", "two")} == {"one": 0, "two": 1}


async def test_an_idle_thread_keeps_nothing_of_what_it_last_worked_on() -> None:
    class Large:
        """Something whose end can be seen."""

    large, gone = Large(), asyncio.Event()
    weakref.finalize(large, asyncio.get_running_loop().call_soon_threadsafe, gone.set)
    pool = BlockingPool(1, name="test")
    await pool.run(lambda one: None, large)
    del large
    async with asyncio.timeout(GUARD_S):
        await gone.wait()
    pool.close()


# The process


async def test_serve_runs_workers_until_a_signal_and_stops_the_broker() -> None:
    broker = SpyBroker(MemoryBroker())
    service = ScriptedService()
    worker = make_worker(broker, service)
    serving = asyncio.create_task(runtime.serve(broker, [worker], settings()))
    await worker.ready.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(GUARD_S):
        await serving
    assert service.calls.entries[-1] == "stop"
    assert broker.stops.entries == ["consumer", "producer", "broker"]


async def test_serve_stops_the_others_and_raises_when_one_worker_fails() -> None:
    class Broken(ScriptedService):
        async def start(self, ctx: Context) -> None:
            await healthy.ready.wait()
            raise OSError("no such file")

    broker = SpyBroker(MemoryBroker())
    healthy = make_worker(broker, ScriptedService())
    with pytest.raises(OSError, match="no such file"):
        await runtime.serve(broker, [healthy, make_worker(broker, Broken())], settings())
    assert broker.stops.entries[-1] == "broker"


async def test_serve_waits_for_the_broker_and_heeds_a_signal_meanwhile() -> None:
    clock = ManualClock()
    broker = SpyBroker(MemoryBroker())
    broker.memory.fail()
    serving = asyncio.create_task(runtime.serve(broker, [], settings(), clock))
    await clock.sleeping(1)
    os.kill(os.getpid(), signal.SIGINT)
    async with asyncio.timeout(GUARD_S):
        await serving


def test_run_uses_uvloop() -> None:
    async def main() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert runtime.run(main()).startswith("uvloop")
