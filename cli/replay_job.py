"""One replay from start to end, for `replay` and `demo`: workers, requests, comparison, numbers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cli.oracle import Oracle
from cli.output import progress_bar
from cli.reference_cache import ReferenceCache
from cli.replay_check import ReferenceTimes, Verdict, check, time_reference
from cli.replay_run import Recording, replay
from cli.replay_stats import Summary, summarize
from cli.sessions import Conversation
from cli.wiring import connected, is_memory, make_broker, make_workers, running, worker_settings
from pipeline.client import Client
from pipeline.ports import Broker
from pipeline.runtime import run as run_loop
from pipeline.settings import ClientSettings, TelemetrySettings, WorkerSettings, from_env
from pipeline.telemetry import Telemetry
from toksplice.registry import Entry, Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to replay, and how. `conversations` starts from the first at every call.

    On the memory broker the workers run in this process and keep nothing; on another they must be running.
    With `verify` every answer is compared with the reference, whose results are kept in `cache_path`.
    """

    registry: Registry
    entry: Entry
    broker_url: str
    conversations: Callable[[], Iterator[Conversation]]
    concurrency: int
    verify: bool
    cache_path: Path


@dataclass(frozen=True, slots=True)
class Result:
    """The numbers of a replay, and the answers that they come from."""

    summary: Summary
    recording: Recording
    verdict: Verdict | None
    reference: ReferenceTimes = field(default_factory=ReferenceTimes)


def run_job(job: Job) -> Result:
    """Do all of it. Blocks. Raises what the commands' table of exit codes knows."""
    return run_loop(_run(job))


async def _run(job: Job) -> Result:
    settings = worker_settings()
    with progress_bar("loading the tokenizer") as bar:
        if is_memory(job.broker_url):
            # Loaded before the clock runs: the first request should not pay for it.
            await asyncio.to_thread(lambda: job.registry.get(job.entry.fingerprint).explain())
        bar.say("counting requests")
        total = await asyncio.to_thread(lambda: sum(one.requests for one in job.conversations()))
    async with _pipeline(job, settings) as broker:
        recording = await _replay(job, broker, settings, total)
    with progress_bar("loading the reference"):
        data = await asyncio.to_thread(job.registry.path(job.entry.fingerprint).read_bytes)
        oracle = await asyncio.to_thread(Oracle, data)
    verdict = await _check(job, recording, oracle) if job.verify else None
    with progress_bar("timing the reference"):
        reference = await time_reference(recording.samples, job.conversations, oracle)
    summary = summarize(
        recording,
        verdict,
        tokenizer=job.entry.name,
        fingerprint=job.entry.fingerprint,
        broker=job.broker_url,
        reference=reference,
    )
    return Result(summary, recording, verdict, reference)


@asynccontextmanager
async def _pipeline(job: Job, settings: WorkerSettings) -> AsyncIterator[Broker]:
    if not is_memory(job.broker_url):
        async with connected(job.broker_url, settings) as broker:
            yield broker
        return
    broker = make_broker(job.broker_url)
    async with running(broker, make_workers(broker, job.registry, settings), settings):
        yield broker


async def _replay(job: Job, broker: Broker, settings: WorkerSettings, total: int) -> Recording:
    telemetry = Telemetry.create(from_env(TelemetrySettings))
    client = Client(broker, settings.partitions, settings=from_env(ClientSettings), telemetry=telemetry)
    with progress_bar("replaying", total=total) as bar:
        async with client:
            return await replay(
                client,
                job.conversations(),
                # By fingerprint: a remote registry may know the same file under another name.
                tokenizer=job.entry.fingerprint,
                fingerprint=job.entry.fingerprint,
                concurrency=job.concurrency,
                on_answer=bar.advance,
            )


async def _check(job: Job, recording: Recording, oracle: Oracle) -> Verdict:
    samples = recording.samples
    with (
        ReferenceCache(job.cache_path) as cache,
        progress_bar("comparing with the reference", total=len(samples)) as bar,
    ):
        return await check(samples, job.conversations, oracle, cache, bar.advance)
