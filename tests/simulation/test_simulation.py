"""The whole pipeline on the memory broker, driven by seeded clients while everything that may go wrong does.

Commits are lost, acknowledgements are lost, records are written twice, workers stop and come back without what they
had in memory, partitions move between two repair workers, sessions are evicted and expire. With a GPU worker, its
device refuses texts, fails in launches, fails for good and comes back, and the worker comes and goes. Whatever
happens:

- every call of every client ends with an answer, and the client's ids are the reference's for its text;
- no reply reaches a client twice, although the topic holds repeats;
- over all replies of all clients, (epoch, revision) names one text;
- what waits in the dead letters is nothing.

One run is one thread and one clock that the test moves, so a seed tells the whole story but for the real time that an
idle fetch waits.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from gpu_kit import EagerGpu, FakeDevice
from worker_kit import NAME, NOW_MS, TinyRegistry, base_of, ids_of, patched, reference_ids

from consumers.classifier.service import ClassifierService
from consumers.classifier.settings import ClassifierSettings
from consumers.cpu_fallback.service import CpuFallbackService
from consumers.cpu_fallback.stand_in import GPU_KIND, StandInService
from gpu_worker.encoder import Encoding, Refusal
from gpu_worker.encoders import MakeEncoder
from gpu_worker.settings import GpuSettings
from pipeline.client import Client, ClientSession
from pipeline.clock import ManualClock
from pipeline.errors import BrokerUnavailableError
from pipeline.memory import MemoryBroker, MemoryCluster
from pipeline.ports import Consumer, Headers, Producer, RebalanceListener, Tail, TopicPartition, TopicSpec
from pipeline.runtime import Runnable
from pipeline.service import Service
from pipeline.settings import ClientSettings, WorkerSettings
from pipeline.standby import Standby
from pipeline.telemetry import Telemetry
from pipeline.topology import specs
from pipeline.worker import Worker
from repair_worker.service import RepairService
from repair_worker.settings import RepairSettings
from schemas.codes import Status
from schemas.reply import Path, Reply
from schemas.request import Base, Op, Request
from schemas.topics import DLQ, REPLIES, REQUESTS

T = TypeVar("T")

PARTITIONS = 3
CLIENTS = 3
CALLS = 25
GUARD_S = 60.0
LONG = "A text that is long enough for the GPU worker of these tests. " * 2
WORDS = ("fox ", "the dog", "é", "\n", "<|end|>", "1234", " on, and on", "def f():", "ж", "  ", "'s", "quick")


class InlinePool:
    """Stands in for the pool of threads, so that one run is one thread."""

    def __init__(self, threads: int, *, name: str) -> None:
        """Nothing to start."""

    async def run(self, fn: Callable[..., T], *arguments: Any) -> T:
        await asyncio.sleep(0)
        result = fn(*arguments)
        await asyncio.sleep(0)
        return result

    def close(self) -> None:
        """Nothing to end."""


class Chaos:
    """What goes wrong, and how often; all of it drawn from one seed. `written` notes what was written, by topic."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.on = True
        self.written: dict[str, list[bytes]] = defaultdict(list)

    def strikes(self, share: float) -> bool:
        return self.on and self.rng.random() < share


class ChaosProducer:
    """Fails before or after it writes, unless `reliable`, and writes twice."""

    def __init__(self, inner: Producer, chaos: Chaos, *, reliable: bool) -> None:
        self._inner = inner
        self._chaos = chaos
        self._failures = 0.0 if reliable else 0.03

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> int:
        if self._chaos.strikes(self._failures):
            raise BrokerUnavailableError("simulated: not written")
        self._chaos.written[topic].append(value or b"")
        offset = await self._inner.send(topic, value, key=key, partition=partition, headers=headers)
        if self._chaos.strikes(0.05):
            await self._inner.send(topic, value, key=key, partition=partition, headers=headers)
        if self._chaos.strikes(self._failures):
            raise BrokerUnavailableError("simulated: written, and not acknowledged")
        return offset

    async def stop(self) -> None:
        await self._inner.stop()


class ChaosConsumer:
    """Loses commits, or all of them, so that after a rebalance or a restart records come again, behind newer ones."""

    def __init__(self, inner: Consumer, chaos: Chaos) -> None:
        self._inner = inner
        self._chaos = chaos
        self.resume, self.pause = inner.resume, inner.pause
        self.fetch, self.lag = inner.fetch, inner.lag
        self.assignment, self.stop = inner.assignment, inner.stop
        self._lost = chaos.rng.choice([0.1, 1.0])

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._chaos.strikes(self._lost):
            return
        await self._inner.commit(offsets)


class ChaosBroker:
    """A broker whose producers and consumers are the ones above."""

    def __init__(self, cluster: MemoryCluster, chaos: Chaos, *, reliable: bool = False) -> None:
        self.inner = MemoryBroker(cluster=cluster)
        self.chaos = chaos
        self.reliable = reliable

    async def start(self) -> None:
        await self.inner.start()

    async def ensure_topics(self, wanted: Sequence[TopicSpec]) -> None:
        await self.inner.ensure_topics(wanted)

    async def producer(self, *, batching: bool = False) -> Producer:
        return ChaosProducer(await self.inner.producer(batching=batching), self.chaos, reliable=self.reliable)

    async def consumer(
        self,
        topics: Sequence[str],
        *,
        group: str,
        on_assigned: RebalanceListener | None = None,
        on_revoked: RebalanceListener | None = None,
    ) -> Consumer:
        inner = await self.inner.consumer(topics, group=group, on_assigned=on_assigned, on_revoked=on_revoked)
        return ChaosConsumer(inner, self.chaos)

    async def tail(self, partitions: Sequence[TopicPartition], *, from_start: bool) -> Tail:
        return await self.inner.tail(partitions, from_start=from_start)

    async def stop(self) -> None:
        await self.inner.stop()


class ChaosDevice(FakeDevice):
    """Refuses texts, fails in launches, and fails for good."""

    def __init__(self, chaos: Chaos) -> None:
        super().__init__()
        self._chaos = chaos

    def open(self) -> MakeEncoder:
        if self._chaos.strikes(0.3) and self.opened:
            raise OSError("simulated: the device is away")
        return super().open()

    def launched(self, texts: Sequence[bytes]) -> None:
        super().launched(texts)
        if self._chaos.strikes(0.05):
            raise RuntimeError("simulated: a launch failed")

    def answered(self, answer: Encoding | Refusal) -> Encoding | Refusal:
        if self._chaos.strikes(0.1):
            return self._chaos.rng.choice(list(Refusal))
        return answer


class Staff:
    """The workers, by place; each can be replaced by a fresh one while the others go on."""

    def __init__(self, cluster: MemoryCluster, chaos: Chaos, clock: ManualClock) -> None:
        self._cluster = cluster
        self._chaos = chaos
        self._clock = clock
        self._numbers = iter(range(10**6))
        self._at_work: dict[str, tuple[Runnable, asyncio.Task[None]]] = {}

    def service(self, place: str) -> Service:
        epochs = random.Random(self._chaos.rng.random())

        def draw_epoch() -> int:
            return epochs.randrange(1, 2**53)

        if place == "classifier":
            return ClassifierService(TinyRegistry(), ClassifierSettings(gpu_text_bytes_min=60))
        if place == "stand-in":
            return StandInService()
        if place == "gpu":
            gpu = GpuSettings(text_bytes_min=80, batch_texts_max=3, waiting_texts_max=4, rescan_s=3.0)
            return EagerGpu(TinyRegistry(), ChaosDevice(self._chaos).open, gpu, draw_epoch=draw_epoch)
        if place.startswith("cpu"):
            return CpuFallbackService(TinyRegistry(), draw_epoch=draw_epoch)
        settings = RepairSettings(
            session_ttl_s=20.0, sessions_max=4, history_answers_max=8, history_inline_bytes_max=40, park_s=0.2
        )
        return RepairService(TinyRegistry(), settings, draw_epoch=draw_epoch)

    async def begin(self, place: str) -> None:
        broker = ChaosBroker(self._cluster, self._chaos)
        await broker.start()
        settings = WorkerSettings(
            worker_id=f"{place}-{next(self._numbers)}",
            partitions=PARTITIONS,
            fetch_timeout_s=0.01,
            commit_interval_s=0.0,
            retry_backoff_s=0.01,
            broker_backoff_s=0.01,
            broker_backoff_max_s=0.02,
        )
        worker: Runnable
        if place == "stand-in":
            worker = Standby(broker, self.service(place), GPU_KIND, settings, clock=self._clock, after_s=10.0)
        else:
            worker = Worker(broker, self.service(place), settings, Telemetry.disabled(), self._clock)
        task = asyncio.create_task(worker.run(), name=place)
        self._at_work[place] = worker, task
        ready = asyncio.create_task(worker.ready.wait())
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            task.result()

    async def end(self, place: str) -> None:
        worker, task = self._at_work.pop(place)
        worker.request_stop()
        await task

    async def replace_someone(self, *others: str) -> None:
        """Stop one worker and start a fresh one in its place, or let a second repair worker, or one of the others, come
        or go."""
        place = self._chaos.rng.choice(["classifier", "cpu", "repair", "repair", "repair-2", *others])
        if place not in ("repair-2", *others):
            await self.end(place)
            await self.begin(place)
        elif place in self._at_work:
            await self.end(place)
        else:
            await self.begin(place)

    async def end_all(self) -> None:
        for place in list(self._at_work):
            await self.end(place)


async def tick(clock: ManualClock) -> None:
    """Let time pass for ever, a little with each turn of the loop."""
    while True:
        await asyncio.sleep(0)
        clock.advance(0.002)


def change(rng: random.Random, text: str) -> tuple[str, str, int, int]:
    """A random change of `text`: its kind, the words, and the two byte positions it is about."""
    cuts = sorted(rng.choices(range(len(text) + 1), k=2))
    start, end = (len(text[:cut].encode()) for cut in cuts)
    kind = rng.choices(["append", "splice", "truncate", "update", "fork", "close", "rest"], [8, 4, 1, 3, 1, 1, 1])[0]
    return kind, "".join(rng.choices(WORDS, k=rng.randint(0, 30))), start, end


async def drive(client: Client, name: str, rng: random.Random, clock: ManualClock, shared: str) -> None:
    """One client at work on a few sessions, one of which another client writes to as well."""
    sessions: dict[str, ClientSession] = {}
    made = iter(range(10**6))
    for _ in range(CALLS):
        key = rng.choice(["a", "b", shared])
        if key not in sessions:
            session_id = key if key == shared else f"{name}-{key}-{next(made)}"
            sessions[key] = client.session(session_id, NAME, add_special_tokens=key == "b")
        session = sessions[key]
        kind, words, start, end = change(rng, session.text)
        if kind == "rest":
            await clock.sleep(rng.choice([0.1, 25.0]))
            continue
        if kind == "close":
            await session.close()
            del sessions[key]
            continue
        if kind == "fork":
            if key == shared:
                continue
            session = sessions[key] = await session.fork(f"{name}-{key}-{next(made)}")
        elif kind == "update":
            raw = session.text.encode()
            await session.update((raw[:start] + words.encode() + raw[end:]).decode())
        elif kind == "truncate":
            await session.truncate(end)
        elif kind == "splice":
            await session.splice(start, end, words)
        else:
            await session.append(words)
        assert session.ids.tolist() == reference_ids(session.text, add_special_tokens=session.add_special_tokens)
    once = await client.encode("one off, " + name, NAME)
    assert once.ids.tolist() == reference_ids("one off, " + name)


async def race(client: Client, rng: random.Random, clock: ManualClock) -> None:
    """Two hands on one session that send different words of equal length for the same state, in a hurry.

    After a lost commit the losing one can win: whether it then bears the name of the winner's text is what
    `check_names` looks for. Every one of these requests has to be answered too.
    """
    bases: list[Base] = []
    for number in range(CALLS):
        if not bases or rng.random() < 0.2:
            text = rng.choice(["race ", "RACE "])
            reply = await client.exchange(racing(f"t{number}", Op.TEXT, text=text))
            assert reply.status is Status.OK
            bases.append(base_of(reply))
        # Mostly the newest state, now and then one of the past.
        base = rng.choice([bases[-1], bases[-1], *bases[-4:]])
        hurry = [clock.now_ms() + rng.choice([20, 60, 200, 100_000]) for _ in range(2)]
        answers = await asyncio.gather(
            *(
                client.exchange(racing(f"{words}{number}", Op.APPEND, base=base, text=words, deadline_ms=deadline_ms))
                for words, deadline_ms in zip(rng.sample(["aa", "bb"], 2), hurry, strict=True)
            )
        )
        bases += [base_of(reply) for reply in answers if reply.status is Status.OK]


def racing(request_id: str, op: Op, **fields: Any) -> Request:
    return Request(request_id=request_id, session_id="raced", tokenizer=NAME, op=op, **fields)


def changed(request: Request, old: bytes) -> str:
    """The text that an accepted request makes of `old`."""
    text = request.text or ""
    match request.op:
        case Op.APPEND:
            new = old + text.encode()
        case Op.SPLICE:
            new = old[: request.start] + text.encode() + old[request.end :]
        case Op.TRUNCATE:
            new = old[: request.length]
        case Op.TEXT:
            new = text.encode()
        case _:
            new = old
    return new.decode()


def _name(session_id: str, request: Request, epoch: int | None, revision: int) -> tuple[Any, ...]:
    return session_id, request.add_special_tokens, epoch, revision


def check_names(requests: Sequence[bytes], replies: Sequence[bytes]) -> int:
    """Assert that (epoch, revision) names one text over all accepted answers; returns how many there were."""
    asked = {request.request_id: request for request in map(Request.decode, requests)}
    answers = [Reply.decode(reply) for reply in replies]
    states: dict[tuple[Any, ...], str] = {}
    accepted = [reply for reply in answers if reply.status is Status.OK and reply.session_id]
    # An answer can be written before the one whose state it builds on, so a few rounds may be needed.
    waiting = [reply for reply in accepted if asked[reply.request_id].op is not Op.CLOSE]
    while waiting:
        left = []
        for reply in waiting:
            request = asked[reply.request_id]
            old = ""
            if request.base is not None:
                base = _name(request.session_id, request, request.base.epoch, request.base.revision)
                if base not in states:
                    left.append(reply)
                    continue
                old = states[base]
            text = changed(request, old.encode())
            session_id = request.new_session or request.session_id
            name = _name(session_id, request, reply.epoch, reply.revision)
            assert states.setdefault(name, text) == text, "one name, two texts"
            expected = reference_ids(text, add_special_tokens=request.add_special_tokens)
            assert (reply.length, reply.total) == (len(text.encode()), len(expected))
            if request.base is not None:
                before = reference_ids(old, add_special_tokens=request.add_special_tokens)
                assert patched(before, reply) == expected
            elif reply.keep_left == reply.keep_right == 0:
                assert ids_of(reply) == expected
        assert len(left) < len(waiting), "an answer builds on a state that no answer told of"
        waiting = left
    return len(accepted)


@asynccontextmanager
async def pipeline(rng: random.Random) -> AsyncIterator[tuple[MemoryCluster, Staff, Chaos, ManualClock]]:
    clock = ManualClock(now_ms=NOW_MS)
    cluster = MemoryCluster(clock=clock)
    broker = MemoryBroker(cluster=cluster)
    await broker.start()
    await broker.ensure_topics(specs(PARTITIONS))
    chaos = Chaos(rng)
    staff = Staff(cluster, chaos, clock)
    ticking = asyncio.create_task(tick(clock))
    try:
        for place in ("classifier", "cpu", "repair"):
            await staff.begin(place)
        yield cluster, staff, chaos, clock
        chaos.on = False
        await staff.end_all()
    finally:
        ticking.cancel()
        await broker.stop()


@pytest.mark.parametrize(("seed", "gpu"), [*((seed, False) for seed in range(6)), *((seed, True) for seed in range(4))])
async def test_whatever_goes_wrong_every_answer_is_exact(seed: int, gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.worker.BlockingPool", InlinePool)
    rng = random.Random(seed)
    async with asyncio.timeout(GUARD_S), pipeline(rng) as (cluster, staff, chaos, clock):
        for place in ("stand-in", "gpu") if gpu else ():
            await staff.begin(place)
        settings = ClientSettings(deadline_s=1e6, fetch_timeout_s=0.01)
        clients = []
        for _ in range(CLIENTS):
            broker = ChaosBroker(cluster, chaos, reliable=True)
            await broker.start()
            clients.append(await Client(broker, PARTITIONS, settings=settings, clock=clock).__aenter__())
        # A run tests the GPU worker only once it has answered; at first it may not be there, or fail.
        while gpu and (await clients[0].encode(LONG, NAME)).path is not Path.GPU:
            pass
        driving = [
            asyncio.create_task(
                drive(client, f"client-{number}", random.Random(rng.random()), clock, f"shared-{number // 2}")
            )
            for number, client in enumerate(clients)
        ]
        driving.append(asyncio.create_task(race(clients[0], random.Random(rng.random()), clock)))
        while not all(task.done() for task in driving):
            await clock.sleep(rng.uniform(0.2, 2.0))
            if any(task.done() and task.exception() for task in driving):
                break
            await staff.replace_someone(*["gpu"] * 2 * gpu)
        await asyncio.gather(*driving)
        for client in clients:
            await client.close()
        assert chaos.written[DLQ] == []
        assert check_names(chaos.written[REQUESTS], chaos.written[REPLIES]) >= CLIENTS * CALLS // 2
