"""Measures the shadow check: what it costs the answers, and how many of them it finds right.

    python benchmarks/shadow.py [--tokenizer NAME] [--pairs N] [--requests N] [--edits N] [--json OUT]
    python benchmarks/shadow.py --kafka kafka://host:port [...]

Not a test, but it ends with exit code 1 when an answer was found wrong. Everything runs in this process on the memory
broker, but for the checks, which run in processes of their own; with --kafka each worker is a process too, as in the
compose stack.

- cost: appends of 1,400 characters to sessions of 100,000, with sampling off and at 5% by turns in one running
  pipeline; p99 of the replies, the ratio of each pair, and the coverage that half a core of checking reached.
- edits (on the memory broker only): random edits of 50 to 2,000 characters, every answer sampled and checked. The load
  waits for the check.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cli.bench.machine import processor
from cli.options import positive
from cli.output import note, write_json
from cli.sample_sessions import sample_sessions
from cli.wiring import MEMORY_URL, SERVICES, choose_tokenizer, make_broker, open_registry, running, worker_settings
from pipeline.client import Client, ClientSession
from pipeline.faults import NO_FAULTS
from pipeline.ports import Broker, Record, TopicPartition
from pipeline.runtime import connect, make_worker
from pipeline.runtime import run as run_loop
from pipeline.worker import Worker
from schemas.health import Control, Health
from schemas.topics import CONTROL, HEALTH
from shadow.service import ShadowService
from shadow.settings import ShadowSettings
from toksplice.adversarial import Adversary, Stock
from toksplice.registry import Entry, Registry

RATE = 0.05
CONTEXT_CHARS = 100_000
APPEND_CHARS = 1_400
LANES = 2
"""Sessions that the appends go to by turns, one at a time."""
EDIT_CHARS = (50, 2_000)
EDITED_CHARS = 1_200
"""A text longer than this begins anew with the next edit."""
EDIT_LANES = 4
BACKLOG_MAX = 32
"""Samples that wait for their check before the load waits for them."""
QUIET_S = 3.0
"""Without another sample in so long, all were taken up; several heartbeats."""
SETTLE_S = 0.3
"""For a new sampling rate to reach every worker."""
DEADLINE_S = 120.0
CHECK_EVERYTHING = 64.0
"""Cores: more than there are, so that no sample is dropped."""


@dataclass(slots=True)
class Results:
    machine: dict[str, Any]
    cost: dict[str, Any] = field(default_factory=dict)
    edits: dict[str, Any] = field(default_factory=dict)


class WatchedShadow(ShadowService):
    """A shadow check that the load can wait for."""

    def __init__(self, registry: Registry, settings: ShadowSettings, store: str) -> None:
        super().__init__(registry, settings, store_path=store)
        self._one_more = asyncio.Event()

    async def handle(self, record: Record) -> Awaitable[None] | None:
        try:
            return await super().handle(record)
        finally:
            self._one_more.set()

    def checked(self) -> dict[str, int]:
        """What it did so far: samples, by tier, different, failed, dropped."""
        return dict(self.health().counts)

    async def has_taken_up(self, samples: int) -> None:
        """Return once it has taken up so many samples."""
        while self.checked().get("samples", 0) < samples:
            self._one_more.clear()
            await self._one_more.wait()


class Stack(ABC):
    """A running pipeline with its shadow check."""

    def __init__(self, broker: Broker, client: Client, tokenizer: Entry) -> None:
        self.client = client
        self.tokenizer = tokenizer
        self._broker = broker

    @abstractmethod
    def checked(self) -> dict[str, int]:
        """What the shadow check did so far: samples, by tier, different, failed, dropped."""

    @abstractmethod
    async def all_checked(self) -> None:
        """Return once every sample was taken up."""

    async def sample(self, rate: float) -> None:
        """Change the share of answers that are sampled, while it runs."""
        fingerprint = self.tokenizer.fingerprint
        producer = await self._broker.producer()
        control = Control(tokenizer=fingerprint, breaker_open=False, sampling=rate)
        await producer.send(CONTROL, control.encode(), key=fingerprint.encode())
        await producer.stop()
        await asyncio.sleep(SETTLE_S)

    async def session(self, name: str, text: str) -> ClientSession:
        session = self.client.session(name, self.tokenizer.name)
        await session.append(text, deadline_s=DEADLINE_S)
        return session


class Embedded(Stack):
    """All of it in this process."""

    def __init__(
        self, broker: Broker, workers: list[Worker], shadow: WatchedShadow, client: Client, tokenizer: Entry
    ) -> None:
        super().__init__(broker, client, tokenizer)
        self.shadow = shadow
        self._workers = workers

    def checked(self) -> dict[str, int]:
        return self.shadow.checked()

    async def all_checked(self) -> None:
        while (taken := self._taken()) > self.checked().get("samples", 0):
            await self.shadow.has_taken_up(taken)

    def _taken(self) -> int:
        """Samples that the workers took so far, less those that they could not send."""
        points = [point for worker in self._workers for point in worker.telemetry.points()]
        senders = {"cpu-fallback", "repair-worker"}
        taken = sum(p.value for p in points if p.name == "toksplice.shadow.samples")
        lost = sum(p.value for p in points if p.name == "toksplice.shadow.dropped" and _kind(p.job) in senders)
        return int(taken - lost)


class Distributed(Stack):
    """Workers in processes of their own; what they did is what their heartbeats say."""

    def __init__(self, broker: Broker, client: Client, tokenizer: Entry) -> None:
        super().__init__(broker, client, tokenizer)
        self._counts: dict[str, int] = {}

    async def follow_health(self) -> None:
        """Read heartbeats until cancelled."""
        partitions = [TopicPartition(HEALTH, number) for number in range(worker_settings().partitions)]
        tail = await self._broker.tail(partitions, from_start=False)
        while True:
            for record in await tail.fetch(max_records=100, timeout_s=1.0):
                health = Health.decode(record.value) if record.value else None
                if health is not None and health.kind == ShadowService.kind:
                    self._counts = dict(health.counts or {})

    def checked(self) -> dict[str, int]:
        return dict(self._counts)

    async def all_checked(self) -> None:
        """Once no more were taken up for some heartbeats: how many are under way nobody knows."""
        before = None
        while (now := self.checked().get("samples", 0)) != before or not now:
            before = now
            await asyncio.sleep(QUIET_S)


def _kind(job: str) -> str:
    return job.removeprefix("toksplice.").removeprefix("toksplice-")


async def _cost(stack: Stack, corpus: str, pairs: int, requests: int) -> dict[str, Any]:
    rng = random.Random(0)
    starts = [rng.randrange(len(corpus) - CONTEXT_CHARS) for _ in range(LANES)]
    sessions = [await stack.session(f"cost-{n}", corpus[s : s + CONTEXT_CHARS]) for n, s in enumerate(starts)]

    async def p99_us() -> float:
        latencies = []
        for number in range(requests):
            at = rng.randrange(len(corpus) - APPEND_CHARS)
            started = time.perf_counter_ns()
            await sessions[number % LANES].append(corpus[at : at + APPEND_CHARS], deadline_s=DEADLINE_S)
            latencies.append((time.perf_counter_ns() - started) / 1e3)
        for lane, session in enumerate(sessions):  # back to where they began, so that all runs are alike
            await session.truncate(len(corpus[starts[lane] : starts[lane] + CONTEXT_CHARS].encode()))
        return float(np.percentile(latencies, 99))

    await p99_us()  # the first answers are all sampled
    await stack.all_checked()
    before = stack.checked()
    found: dict[float, list[float]] = {0.0: [], RATE: []}
    for pair in range(pairs):
        for rate in (0.0, RATE) if pair % 2 else (RATE, 0.0):
            await stack.sample(rate)
            found[rate].append(await p99_us())
        note(f"pair {pair + 1} of {pairs}: p99 {found[0.0][-1] / 1e3:.2f} ms off, {found[RATE][-1] / 1e3:.2f} ms on")
    await stack.all_checked()
    counts = {name: count - before.get(name, 0) for name, count in stack.checked().items()}
    ratios = [on / off for on, off in zip(found[RATE], found[0.0], strict=True)]
    return {
        "pairs": pairs,
        "requests": requests,
        "p99_us_off": round(statistics.median(found[0.0])),
        "p99_us_on": round(statistics.median(found[RATE])),
        "ratio": round(statistics.median(ratios), 3),
        "coverage": round(counts.get("reference", 0) / max(1, counts["samples"]), 3),
        "checked": counts,
    }


async def _edits(stack: Embedded, count: int, seed: int) -> dict[str, Any]:
    await stack.sample(1.0)
    before, started_s = stack.checked(), time.perf_counter()
    earlier = before.get("samples", 0)
    done = 0

    async def lane(number: int) -> None:
        nonlocal done
        rng = random.Random(f"{seed}/{number}")
        adversary = Adversary(f"shadow/{seed}/{number}", Stock("shadow"))
        session = await stack.session(f"edits-{number}", adversary.text(1_000))
        while done < count:
            done += 1
            text = session.text
            new = adversary.text(rng.randint(*EDIT_CHARS))
            if len(text) > EDITED_CHARS:
                await session.update(new, deadline_s=DEADLINE_S)
            else:
                start = rng.randint(0, len(text)) if rng.random() < 0.5 else len(text)
                end = min(len(text), start + rng.choice((0, 0, 1, 7, 200)))
                first = len(text[:start].encode())
                await session.splice(first, first + len(text[start:end].encode()), new, deadline_s=DEADLINE_S)
            if done % BACKLOG_MAX == 0:
                await stack.shadow.has_taken_up(earlier + done - BACKLOG_MAX)
            if done % 10_000 == 0:
                note(f"{done:,} of {count:,} edits, {done / (time.perf_counter() - started_s):,.0f} a second")

    await asyncio.gather(*(lane(number) for number in range(EDIT_LANES)))
    await stack.all_checked()
    counts = {name: number - before.get(name, 0) for name, number in stack.checked().items()}
    seconds = time.perf_counter() - started_s
    return {
        "edits": done,
        "seed": seed,
        "per_second": round(done / seconds, 1),
        "chars": list(EDIT_CHARS),
        "checked": counts,
    }


def main() -> int:
    options = _options()
    registry = open_registry(options.registry)
    entry = choose_tokenizer(registry, options.tokenizer)
    registry.get(entry.fingerprint).explain()
    results = Results({"processor": processor(), "tokenizer": entry.name})
    if options.kafka:
        run_loop(_measure_distributed(entry, options, results))
    parts = []
    if options.pairs and not options.kafka:
        parts.append((ShadowSettings(cpu_share=options.cores), 0))
    if options.edits:
        parts.append((ShadowSettings(cpu_share=CHECK_EVERYTHING, processes=options.processes), options.edits))
    for shadow_settings, edits in parts:
        run_loop(_measure(registry, entry, shadow_settings, edits, options, results))
    write_json(asdict(results), options.json)
    wrong = sum(part.get("checked", {}).get("different", 0) for part in (results.cost, results.edits))
    return 1 if wrong else 0


async def _measure(
    registry: Registry,
    entry: Entry,
    shadow_settings: ShadowSettings,
    edits: int,
    options: argparse.Namespace,
    results: Results,
) -> None:
    settings = worker_settings()
    broker = make_broker(MEMORY_URL)
    shadow = WatchedShadow(registry, shadow_settings, options.store)
    services = [shadow if name == shadow.kind else make(registry, None, NO_FAULTS) for name, make in SERVICES.items()]
    sampling = replace(settings, sampling=RATE)
    workers = [make_worker(broker, service, sampling, keep_metrics=True) for service in services]
    async with running(broker, workers, settings), Client(broker, settings.partitions) as client:
        stack = Embedded(broker, workers, shadow, client, entry)
        if edits:
            results.edits = await _edits(stack, edits, options.seed)
        else:
            results.cost = await _cost(stack, _corpus(), options.pairs, options.requests)


async def _measure_distributed(entry: Entry, options: argparse.Namespace, results: Results) -> None:
    settings = worker_settings()
    broker = make_broker(options.kafka)
    await connect(broker, settings)
    with _processes(options):
        async with Client(broker, settings.partitions) as client:
            stack = Distributed(broker, client, entry)
            following = asyncio.create_task(stack.follow_health())
            results.cost = await _cost(stack, _corpus(), options.pairs, options.requests)
            following.cancel()
    await broker.stop()


@contextmanager
def _processes(options: argparse.Namespace) -> Iterator[None]:
    """A process for each worker, ended in the end."""
    environment = os.environ | {
        "TOKSPLICE_SAMPLING": str(RATE),
        "TOKSPLICE_SHADOW_CPU_SHARE": str(options.cores),
        "TOKSPLICE_SHADOW_STORE": str(Path(options.store).absolute()),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    registry = ["--registry", str(options.registry)] if options.registry else []
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "cli.main", "worker", name, "--broker", options.kafka, *registry],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        for name in SERVICES
    ]
    try:
        yield
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()


def _corpus() -> str:
    return "".join("".join(session.deltas()) for session in sample_sessions(40, seed=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures the shadow check; see the top of this file.")
    parser.add_argument("--tokenizer", default="gpt2", metavar="NAME")
    parser.add_argument("--registry", type=Path, metavar="DIR")
    parser.add_argument("--kafka", metavar="URL", help="kafka://host:port: measure the cost there, a process a worker")
    parser.add_argument("--pairs", type=int, default=20, metavar="N", help="of the cost (default 20); 0 leaves it out")
    parser.add_argument("--requests", type=positive, default=1_000, metavar="N", help="in each half of a pair")
    parser.add_argument("--edits", type=int, default=0, metavar="N", help="edits to check, all of them (default 0)")
    parser.add_argument("--cores", type=float, default=0.5, metavar="N", help="for checking, in the cost (default 0.5)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the edits (default 0)")
    parser.add_argument("--processes", type=positive, default=1, metavar="N", help="of the reference, for the edits")
    parser.add_argument("--store", default="quarantine.sqlite", metavar="FILE", help="where wrong answers are kept")
    parser.add_argument("--json", default="-", metavar="OUT", help="write the numbers to a file instead of stdout")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
