"""Measures the whole pipeline: client, broker, classifier, CPU fallback and repair worker, in one process.

    python benchmarks/pipeline.py [--kafka kafka://host:port] [--tokenizer NAME] [--quick] [--json OUT]

Not a test: it asserts nothing but that every answer came. Measured on the memory broker, and on Kafka when one
is named:

- append: appends of 1,400 characters to sessions of 100,000 and 1,000,000 characters, one at a time and
  eight at a time; in the same run the reference on the whole text of that length, so that the ratio compares
  like with like.
- mixed: the published mix of agent traffic, 96.4% and 99% appends and the rest cold starts, at several loads.
- wire: bytes of all records that one append causes, by topic, at several lengths of the context.

Times are the client's, from call to answer. All processes share this machine, so compare ratios, not numbers
from different machines.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import platform
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cli.bench.machine import processor
from cli.options import positive
from cli.oracle import Oracle
from cli.output import note, write_json
from cli.sample_sessions import sample_sessions
from cli.wiring import MEMORY_URL, choose_tokenizer, make_broker, make_workers, open_registry, running, worker_settings
from pipeline.client import Client, ClientSession
from pipeline.ports import Broker, Headers, Producer
from pipeline.runtime import run as run_loop

APPEND_CHARS = 1_400
CONTEXTS_CHARS = (100_000, 1_000_000)
WIRE_CONTEXTS_CHARS = (1_000, 10_000, 100_000, 1_000_000)
COLD_START_CHARS = (20_000,)
"""First texts that are all long."""
MEASURED_START_CHARS = (300, 480, 680, 800, 980, 1_560, 6_540, 7_320, 11_580, 20_300)
"""First texts as in 119 recorded coding-agent sessions: the middle of each tenth, in characters."""
MIXES = (0.964, 0.99)
"""Shares of appends in published agent traffic; the rest are cold starts."""
CONCURRENCIES = (1, 8)
MIXED_CONCURRENCIES = (1, 2, 8)
DEADLINE_S = 120.0
WIRE_APPENDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Requests of one kind. Latencies are microseconds."""

    broker: str
    what: str
    context_chars: int
    concurrency: int
    requests: int
    per_second: float
    p50_us: int
    p99_us: int
    reference_us: int | None = None
    ratio: float | None = None
    """How many times as long the reference takes for the whole text as the median request."""


@dataclass(slots=True)
class Results:
    """Everything that one run measured."""

    machine: dict[str, Any]
    timings: list[Timing] = field(default_factory=list)
    wire: list[dict[str, Any]] = field(default_factory=list)


class CountingProducer:
    """Counts the bytes of what it passes on: key, value and headers."""

    def __init__(self, producer: Producer, counts: Counter[str]) -> None:
        self._producer = producer
        self._counts = counts

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> int:
        self._counts[topic] += len(value or b"") + len(key or b"") + sum(len(n) + len(v) for n, v in headers)
        return await self._producer.send(topic, value, key=key, partition=partition, headers=headers)

    async def stop(self) -> None:
        await self._producer.stop()


class CountingBroker:
    """A broker whose producers count. Everything else is the broker's own."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.counts: Counter[str] = Counter()

    async def producer(self, *, batching: bool = False) -> Producer:
        return CountingProducer(await self._broker.producer(batching=batching), self.counts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)


def main() -> None:
    options = _options()
    registry = open_registry(options.registry)
    entry = choose_tokenizer(registry, options.tokenizer)
    registry.get(entry.fingerprint).explain()
    oracle = Oracle(registry.path(entry.fingerprint).read_bytes())
    corpus = _corpus(max(WIRE_CONTEXTS_CHARS) + 400_000)
    results = Results(_machine(entry.name))
    count = 40 if options.quick else options.requests
    for url in (MEMORY_URL, *([options.kafka] if options.kafka else [])):
        bench = _Bench(url, entry.name, corpus, oracle, count, results)
        settings = worker_settings()

        async def measure(bench: _Bench = bench, url: str = url, settings: Any = settings) -> None:
            broker = CountingBroker(make_broker(url))
            workers = make_workers(broker, registry, settings)
            async with running(broker, workers, settings), Client(broker, settings.partitions) as client:
                await bench.run(client, broker.counts)

        run_loop(measure())
    if not options.kafka:
        note("Kafka is left out: name one with --kafka kafka://host:port")
    sys.stdout.write(markdown(results))
    if options.json:
        write_json(asdict(results), options.json)


@dataclass(slots=True)
class _Bench:
    url: str
    tokenizer: str
    corpus: str
    oracle: Oracle
    count: int
    results: Results
    _sessions: int = 0

    async def run(self, client: Client, counts: Counter[str]) -> None:
        for context in CONTEXTS_CHARS:
            reference_us = self._reference_us(context)
            for concurrency in CONCURRENCIES:
                note(f"{self.url}: appends at {context:,} characters, {concurrency} at a time")
                await self._appends(client, context, concurrency, reference_us)
        for share in MIXES:
            for lanes, sizes in itertools.product(MIXED_CONCURRENCIES, (MEASURED_START_CHARS, COLD_START_CHARS)):
                note(f"{self.url}: mixed load, {share:.1%} appends, {lanes} at a time, cold starts {max(sizes):,}")
                await self._mixed(client, share, lanes, sizes)
        for context in WIRE_CONTEXTS_CHARS:
            note(f"{self.url}: bytes on the wire at {context:,} characters")
            await self._wire(client, counts, context)

    async def _session(self, client: Client, context: int) -> ClientSession:
        self._sessions += 1
        session = client.session(f"bench-{os.getpid()}-{time.time_ns()}-{self._sessions}", self.tokenizer)
        start = random.Random(self._sessions).randrange(len(self.corpus) - context)
        await session.append(self.corpus[start : start + context], deadline_s=DEADLINE_S)
        return session

    def _delta(self, rng: random.Random) -> str:
        start = rng.randrange(len(self.corpus) - APPEND_CHARS)
        return self.corpus[start : start + APPEND_CHARS]

    async def _appends(self, client: Client, context: int, concurrency: int, reference_us: int) -> None:
        sessions = [await self._session(client, context) for _ in range(concurrency)]
        latencies: list[int] = []

        async def lane(number: int, session: ClientSession) -> None:
            rng = random.Random(number)
            for _ in range(self.count // concurrency):
                delta = self._delta(rng)
                started = time.perf_counter_ns()
                await session.append(delta, deadline_s=DEADLINE_S)
                latencies.append((time.perf_counter_ns() - started) // 1_000)

        started_s = time.perf_counter()
        await asyncio.gather(*(lane(number, session) for number, session in enumerate(sessions)))
        wall_s = time.perf_counter() - started_s
        self._note("append", context, concurrency, latencies, wall_s, reference_us)
        for session in sessions:
            await session.close(deadline_s=DEADLINE_S)

    async def _mixed(self, client: Client, share: float, lanes: int, sizes: Sequence[int]) -> None:
        sessions = [await self._session(client, CONTEXTS_CHARS[0]) for _ in range(lanes)]
        appends: list[int] = []
        cold: list[int] = []

        async def lane(number: int, session: ClientSession) -> None:
            rng = random.Random(number)
            for _ in range(self.count * 2 // lanes):
                is_append = rng.random() < share
                delta = self._delta(rng)
                started = time.perf_counter_ns()
                if is_append:
                    await session.append(delta, deadline_s=DEADLINE_S)
                    appends.append((time.perf_counter_ns() - started) // 1_000)
                else:
                    fresh = await self._session(client, rng.choice(sizes))
                    cold.append((time.perf_counter_ns() - started) // 1_000)
                    await fresh.close(deadline_s=DEADLINE_S)

        started_s = time.perf_counter()
        await asyncio.gather(*(lane(number, session) for number, session in enumerate(sessions)))
        wall_s = time.perf_counter() - started_s
        load = f"mixed {share:.1%}, starts to {max(sizes):,}"
        self._note(f"{load}: all", CONTEXTS_CHARS[0], lanes, appends + cold, wall_s)
        self._note(f"{load}: cold starts", int(np.mean(sizes)), lanes, cold, wall_s)
        for session in sessions:
            await session.close(deadline_s=DEADLINE_S)

    async def _wire(self, client: Client, counts: Counter[str], context: int) -> None:
        session = await self._session(client, context)
        rng = random.Random(0)
        before = counts.copy()
        for _ in range(WIRE_APPENDS):
            await session.append(self._delta(rng), deadline_s=DEADLINE_S)
        after = counts - before
        # Heartbeats go on meanwhile; they belong to no request.
        topics = {topic: round(size / WIRE_APPENDS) for topic, size in sorted(after.items()) if "health" not in topic}
        total = sum(topics.values())
        self.results.wire.append({"broker": self.url, "context_chars": context, "bytes": total, "by_topic": topics})
        await session.close(deadline_s=DEADLINE_S)

    def _reference_us(self, context: int) -> int:
        seconds = sorted(self.oracle.seconds(self.corpus[n * 1_000 : n * 1_000 + context]) for n in range(3))
        return round(seconds[1] * 1e6)

    def _note(
        self,
        what: str,
        context: int,
        concurrency: int,
        latencies: Sequence[int],
        wall_s: float,
        reference_us: int | None = None,
    ) -> None:
        if not latencies:
            return
        p50, p99 = (int(value) for value in np.percentile(latencies, [50, 99]))
        self.results.timings.append(
            Timing(
                broker=self.url,
                what=what,
                context_chars=context,
                concurrency=concurrency,
                requests=len(latencies),
                per_second=round(len(latencies) / wall_s, 1),
                p50_us=p50,
                p99_us=p99,
                reference_us=reference_us,
                ratio=round(reference_us / p50, 1) if reference_us else None,
            )
        )


def markdown(results: Results) -> str:
    """The tables as a page shows them."""
    lines = [f"{key}: {value}  " for key, value in results.machine.items()]
    lines += ["", "| broker | load | context | at a time | requests/s | p50 ms | p99 ms | reference ms | ratio |"]
    lines += ["|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for one in results.timings:
        reference = "" if one.reference_us is None else f"{one.reference_us / 1e3:,.1f}"
        ratio = "" if one.ratio is None else f"{one.ratio:,.1f}"
        lines.append(
            f"| {one.broker.partition(':')[0]} | {one.what} | {one.context_chars:,} | {one.concurrency} "
            f"| {one.per_second:,.0f} | {one.p50_us / 1e3:,.2f} | {one.p99_us / 1e3:,.2f} | {reference} | {ratio} |"
        )
    lines += ["", "| broker | context | bytes an append | times the new text |", "|---|---:|---:|---:|"]
    for row in results.wire:
        times = row["bytes"] / APPEND_CHARS
        lines.append(
            f"| {row['broker'].partition(':')[0]} | {row['context_chars']:,} | {row['bytes']:,} | {times:,.2f} |"
        )
    return "\n".join(lines) + "\n"


def _corpus(size_chars: int) -> str:
    """Agent-shaped text of at least this length."""
    parts: list[str] = []
    size = 0
    for number, session in enumerate(sample_sessions(40, seed=1)):
        text = "".join(session.deltas())
        parts.append(text)
        size += len(text)
        if size >= size_chars and number > 0:
            break
    return "".join(parts)


def _machine(tokenizer: str) -> dict[str, Any]:
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("tokenizers", "aiokafka", "uvloop", "numpy"))
    return {
        "processor": processor(),
        "python": platform.python_version(),
        "packages": packages,
        "tokenizer": tokenizer,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures the pipeline; see the top of this file.")
    parser.add_argument("--kafka", metavar="URL", help="kafka://host:port; its topics are created and used")
    parser.add_argument("--tokenizer", default="gpt2", metavar="NAME")
    parser.add_argument("--registry", type=Path, metavar="DIR")
    parser.add_argument("--requests", type=positive, default=400, metavar="N", help="of each kind (default 400)")
    parser.add_argument("--quick", action="store_true", help="40 requests of each kind")
    parser.add_argument("--json", metavar="OUT", help="write all numbers as JSON to a file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
