"""Measures the shadow check: what it costs the answers, and how many of them it finds right.

    python benchmarks/shadow.py [--tokenizer NAME] [--pairs N] [--requests N] [--sessions FILE] [--edits N] [--json OUT]
    python benchmarks/shadow.py --kafka kafka://host:port [...]

Not a test, but it ends with exit code 1 when an answer was found wrong. Everything runs in this process on the memory
broker, but for the checks, which run in processes of their own; with --kafka each worker is a process too, as in the
compose stack.

- cost: appends of 1,400 characters to sessions of 100,000, with sampling off and at 5% by turns in one running
  pipeline; p99 of the replies, the ratio of each pair, and the coverage that half a core of checking reached.
- sessions (in this process): recorded sessions turn by turn, every answer checked.
- edits (in this process): random edits of 50 to 2,000 characters, every answer sampled and checked. The load
  waits for the check.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from shadow_stacks import Embedded, Stack, distributed, embedded

from cli.bench.machine import processor
from cli.options import positive
from cli.output import note, write_json
from cli.sample_sessions import sample_sessions
from cli.sessions import read_sessions
from cli.wiring import choose_tokenizer, open_registry
from pipeline.runtime import run as run_loop
from shadow.settings import Priority, ShadowSettings
from toksplice.adversarial import Adversary, Stock
from toksplice.registry import Entry, Registry

RATE = 0.05
CONTEXT_CHARS = 100_000
APPEND_CHARS = 1_400
LANES = 2
"""Sessions that the appends go to by turns, one at a time."""
EDIT_CHARS = (50, 2_000)
EDITED_CHARS = 600
"""A text longer than this begins anew with the next edit."""
EDIT_LANES = 4
BACKLOG_MAX = 32
"""Samples that wait for their check before the load waits for them."""
LONG_BACKLOG_MAX = 4
"""The same for whole conversations."""
DEADLINE_S = 3600.0
CHECK_EVERYTHING = 64.0
"""Cores: more than there are, so that no sample is dropped."""


@dataclass(slots=True)
class Results:
    machine: dict[str, Any]
    cost: dict[str, Any] = field(default_factory=dict)
    sessions: dict[str, Any] = field(default_factory=dict)
    edits: dict[str, Any] = field(default_factory=dict)


async def _cost(stack: Stack, corpus: str, pairs: int, requests: int) -> dict[str, Any]:
    rng = random.Random(0)
    starts = [rng.randrange(len(corpus) - CONTEXT_CHARS) for _ in range(LANES)]
    sessions = [
        await stack.session(f"cost-{n}", corpus[s : s + CONTEXT_CHARS], DEADLINE_S) for n, s in enumerate(starts)
    ]

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


async def _sessions(stack: Embedded, file: Path) -> dict[str, Any]:
    started_s, sessions, answers = time.perf_counter(), 0, 0
    for conversation in read_sessions(file):
        session = stack.client.session(f"recorded-{sessions}", stack.tokenizer.name)
        for delta in conversation.deltas():
            await session.append(delta, deadline_s=DEADLINE_S)
            answers += 1
            await stack.shadow.has_taken_up(answers - LONG_BACKLOG_MAX)
        await session.close()
        sessions += 1
        note(f"{sessions} sessions, {answers:,} answers, {time.perf_counter() - started_s:,.0f} s")
    await stack.all_checked()
    return {"sessions": sessions, "answers": answers, "checked": stack.checked()}


async def _edits(stack: Embedded, count: int, seed: int) -> dict[str, Any]:
    started_s, done = time.perf_counter(), 0

    async def lane(number: int) -> None:
        nonlocal done
        rng = random.Random(f"{seed}/{number}")
        adversary = Adversary(f"shadow/{seed}/{number}", Stock("shadow"))
        session = await stack.session(f"edits-{number}", adversary.text(1_000), DEADLINE_S)
        while done < count:
            done += 1
            text = session.text
            # As many from 50 to 100 characters as from 1,000 to 2,000.
            new = adversary.text(round(math.exp(rng.uniform(*map(math.log, EDIT_CHARS)))))
            if len(text) > EDITED_CHARS:
                await session.update(new, deadline_s=DEADLINE_S)
            else:
                start = rng.randint(0, len(text)) if rng.random() < 0.5 else len(text)
                end = min(len(text), start + rng.choice((0, 0, 1, 7, 200)))
                first = len(text[:start].encode())
                await session.splice(first, first + len(text[start:end].encode()), new, deadline_s=DEADLINE_S)
            if done % BACKLOG_MAX == 0:
                await stack.shadow.has_taken_up(done - BACKLOG_MAX)
            if done % 10_000 == 0:
                note(f"{done:,} of {count:,} edits, {done / (time.perf_counter() - started_s):,.0f} a second")

    await asyncio.gather(*(lane(number) for number in range(EDIT_LANES)))
    await stack.all_checked()
    seconds = time.perf_counter() - started_s
    return {
        "edits": done,
        "seed": seed,
        "per_second": round(done / seconds, 1),
        "chars": list(EDIT_CHARS),
        "checked": stack.checked(),
    }


def main() -> int:
    options = _options()
    registry = open_registry(options.registry)
    entry = choose_tokenizer(registry, options.tokenizer)
    registry.get(entry.fingerprint).explain()
    results = Results({"processor": processor(), "tokenizer": entry.name})
    run_loop(_measure(registry, entry, options, results))
    write_json(asdict(results), options.json)
    wrong = sum(part.get("checked", {}).get("different", 0) for part in (results.cost, results.sessions, results.edits))
    return 1 if wrong else 0


async def _measure(registry: Registry, entry: Entry, options: argparse.Namespace, results: Results) -> None:
    if options.pairs and options.kafka:
        async with distributed(
            options.kafka, options.registry, entry, cores=options.cores, store=options.store, sampling=RATE
        ) as processes:
            results.cost = await _cost(processes, _corpus(), options.pairs, options.requests)
    elif options.pairs:
        settings = ShadowSettings(cpu_share=options.cores)
        async with embedded(registry, entry, settings, store=options.store, sampling=RATE) as stack:
            results.cost = await _cost(stack, _corpus(), options.pairs, options.requests)
    settings = ShadowSettings(cpu_share=CHECK_EVERYTHING, processes=options.processes, priority=Priority.LOW)
    if options.sessions:
        async with embedded(registry, entry, settings, store=options.store, sampling=1.0) as stack:
            results.sessions = await _sessions(stack, options.sessions)
    if options.edits:
        async with embedded(registry, entry, settings, store=options.store, sampling=1.0) as stack:
            results.edits = await _edits(stack, options.edits, options.seed)


def _corpus() -> str:
    return "".join("".join(session.deltas()) for session in sample_sessions(40, seed=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures the shadow check; see the top of this file.")
    parser.add_argument("--tokenizer", default="gpt2", metavar="NAME")
    parser.add_argument("--registry", type=Path, metavar="DIR")
    parser.add_argument("--kafka", metavar="URL", help="kafka://host:port: measure the cost there, a process a worker")
    parser.add_argument("--pairs", type=int, default=20, metavar="N", help="of the cost (default 20); 0 leaves it out")
    parser.add_argument("--requests", type=positive, default=1_000, metavar="N", help="in each half of a pair")
    parser.add_argument("--sessions", type=Path, metavar="FILE", help="replay recorded sessions, every answer checked")
    parser.add_argument("--edits", type=int, default=0, metavar="N", help="edits to check, all of them (default 0)")
    parser.add_argument("--cores", type=float, default=0.5, metavar="N", help="for checking, in the cost (default 0.5)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the edits (default 0)")
    parser.add_argument("--processes", type=positive, default=1, metavar="N", help="of the reference, for the edits")
    parser.add_argument("--store", default="quarantine.sqlite", metavar="FILE", help="where wrong answers are kept")
    parser.add_argument("--json", default="-", metavar="OUT", help="write the numbers to a file instead of stdout")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
