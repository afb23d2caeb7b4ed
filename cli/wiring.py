"""Builds what commands run: the registry, a broker from its URL, services and workers.

Nothing else imports both workers and brokers, so this is the one place where the parts meet.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from cli.errors import CliError, ExitCode
from cli.home import registry_folder, state_folder
from pipeline import runtime
from pipeline.clock import SystemClock
from pipeline.errors import SettingsError
from pipeline.faults import Faults
from pipeline.ports import Broker
from pipeline.runtime import Runnable, connect
from pipeline.service import Service
from pipeline.settings import WorkerSettings, from_env
from pipeline.topology import specs
from pipeline.waiting import within
from pipeline.worker import Worker
from toksplice.errors import UnknownTokenizerError
from toksplice.registry import Entry, Registry
from toksplice.sources import BUILT_IN, SOURCES, Fetcher

MEMORY_URL = "memory://"
KAFKA_SCHEME = "kafka://"
SNAPSHOT_FILE = "sessions.sqlite"
"""In the folder for state: sessions that are found again after a restart."""
QUARANTINE_FILE = "quarantine.sqlite"
"""In the folder for state, or the user's own without one: answers that the shadow check found wrong."""


# Tokenizers


def open_registry(folder: Path | None) -> Registry:
    """The registry in `folder`, or the user's own."""
    return Registry(folder if folder is not None else registry_folder())


def add_tokenizer_arguments(parser: argparse.ArgumentParser, default: str = BUILT_IN) -> None:
    """The options --tokenizer and --registry."""
    parser.add_argument(
        "--tokenizer", default=default, metavar="NAME", help=f"a name or fingerprint (default {default})"
    )
    parser.add_argument("--registry", type=Path, metavar="DIR", help="the registry's folder")


def choose_tokenizer(registry: Registry, name: str) -> Entry:
    """The entry of a name or fingerprint; the tokenizer that needs no download is registered when asked for.

    Raises `UnknownTokenizerError` that says how to get the tokenizer.
    """
    try:
        return registry.entry(name)
    except UnknownTokenizerError:
        if name == BUILT_IN:
            return fetch_tokenizer(registry, name)
        raise unknown_tokenizer(registry, name) from None


def unknown_tokenizer(registry: Registry, name: str) -> UnknownTokenizerError:
    """The error that every command ends in when no such tokenizer is registered."""
    known = ", ".join(registry.names()) or "none"
    if name in SOURCES:
        advice = f"`toksplice tokenizers fetch {name}` fetches it."
    else:
        advice = (
            "`toksplice tokenizers list` shows what can be fetched, `toksplice tokenizers add NAME FILE` registers "
            "a tokenizer.json of your own."
        )
    return UnknownTokenizerError(f"tokenizer {name[:80]!r} is not registered (registered: {known}). {advice}")


def fetch_tokenizer(registry: Registry, name: str) -> Entry:
    """Fetch a tokenizer from its pinned source and register it under its name. Blocks."""
    with Fetcher() as fetcher:
        return registry.add(name, fetcher.fetch(name))


# Brokers


def add_broker_argument(parser: argparse.ArgumentParser, default: str | None = MEMORY_URL) -> None:
    """The option --broker; required when there is no default."""
    parser.add_argument(
        "--broker",
        default=default,
        required=default is None,
        metavar="URL",
        help="kafka://host:port" if default is None else f"{MEMORY_URL} (default) or kafka://host:port",
    )


def is_memory(url: str) -> bool:
    """True for the broker that lives in this process."""
    return url == MEMORY_URL


def make_broker(url: str) -> Broker:
    """A broker that is not started yet. Raises `SettingsError` for a URL of another kind."""
    if is_memory(url):
        from pipeline.memory import MemoryBroker

        return MemoryBroker()
    if url.startswith(KAFKA_SCHEME):
        from pipeline.kafka import KafkaBroker, KafkaSettings

        return KafkaBroker(KafkaSettings.from_url(url))
    raise SettingsError(f"{url!r} is not a broker: use {MEMORY_URL} or {KAFKA_SCHEME}host:port")


@asynccontextmanager
async def connected(url: str, settings: WorkerSettings) -> AsyncIterator[Broker]:
    """A started broker whose topics exist. Unlike a worker, a command does not wait for a broker to appear.

    Raises `BrokerUnavailableError` and `TopologyError`.
    """
    broker = make_broker(url)
    await broker.start()
    try:
        await broker.ensure_topics(specs(settings.partitions))
        yield broker
    finally:
        await stop_broker(broker, settings)


async def stop_broker(broker: Broker, settings: WorkerSettings) -> None:
    """Stop within the time limit; a broker that hangs is left behind with the process."""
    try:
        await within(broker.stop(), settings.stop_s, SystemClock())
    except TimeoutError:
        return


# Workers


def _classifier(registry: Registry, state: Path | None, faults: Faults) -> Service:
    from consumers.classifier.service import ClassifierService
    from consumers.classifier.settings import ClassifierSettings

    return ClassifierService(registry, from_env(ClassifierSettings))


def _cpu_fallback(registry: Registry, state: Path | None, faults: Faults) -> Service:
    from consumers.cpu_fallback.service import CpuFallbackService

    return CpuFallbackService(registry, faults=faults)


def _repair_worker(registry: Registry, state: Path | None, faults: Faults) -> Service:
    from repair_worker.service import RepairService
    from repair_worker.settings import RepairSettings, SnapshotSettings

    return RepairService(
        registry,
        from_env(RepairSettings),
        snapshot_path=None if state is None else state / SNAPSHOT_FILE,
        snapshot_settings=from_env(SnapshotSettings),
        faults=faults,
    )


def _gpu_worker(registry: Registry, state: Path | None, faults: Faults) -> Service:
    from gpu_worker.availability import open_gpu
    from gpu_worker.service import GpuService
    from gpu_worker.settings import GpuSettings

    return GpuService(registry, open_gpu, from_env(GpuSettings), faults=faults)


def _shadow(registry: Registry, state: Path | None, faults: Faults) -> Service:
    from shadow.service import ShadowService
    from shadow.settings import ShadowSettings

    settings = from_env(ShadowSettings)
    return ShadowService(registry, settings, store_path=quarantine_path(settings.store_path, state))


def quarantine_path(setting: str, state: Path | None = None) -> Path:
    """Where wrong answers are kept, by the setting of the shadow worker and the folder for state. The file is there
    only once an answer was wrong; then it is kept, whether or not sessions are."""
    return Path(setting) if setting else (state or state_folder()) / QUARANTINE_FILE


SERVICES: dict[str, Callable[[Registry, Path | None, Faults], Service]] = {
    "classifier": _classifier,
    "cpu-fallback": _cpu_fallback,
    "gpu-worker": _gpu_worker,
    "repair-worker": _repair_worker,
    "shadow": _shadow,
}
"""Worker name -> how to build its service from the registry, a folder for state that outlives the process, and the
faults of a drill."""

GPU_WORKER = "gpu-worker"
"""The one of these that needs a device, and runs only where there is one."""


def why_no_gpu() -> str | None:
    """One line that says why this machine's workers use no GPU; None when they do."""
    from gpu_worker.availability import why_not

    return why_not()


def worker_settings() -> WorkerSettings:
    """The chassis' settings, from the environment. Raises `SettingsError`."""
    return from_env(WorkerSettings)


def make_worker(
    name: str,
    broker: Broker,
    registry: Registry,
    settings: WorkerSettings,
    state: Path | None = None,
    *,
    keep_metrics: bool = False,
) -> Worker:
    """One worker on a broker, without what stands by beside it. Raises `SettingsError` for a wrong setting."""
    from cli.drill.service import drill_injection, drilled

    injection = drill_injection(broker, settings)
    service = drilled(name, injection, registry, partial(SERVICES[name], registry, state))
    return runtime.make_worker(broker, service, settings, keep_metrics=keep_metrics)


def make_standbys(name: str, broker: Broker, settings: WorkerSettings, *, keep_metrics: bool = False) -> list[Runnable]:
    """What stands by beside a worker. Raises `SettingsError` for a wrong setting."""
    from consumers.cpu_fallback.service import CpuFallbackService
    from consumers.cpu_fallback.stand_in import make_stand_in

    if name != CpuFallbackService.kind:
        return []
    return [make_stand_in(broker, settings, keep_metrics=keep_metrics)]


def make_workers(
    broker: Broker,
    registry: Registry,
    settings: WorkerSettings,
    state: Path | None = None,
    *,
    keep_metrics: bool = False,
    gpu: bool = False,
    shared: bool = False,
) -> list[Runnable]:
    """Every worker once, that of the GPU only when there is one. With `state`, sessions are kept in that folder between
    runs; with `keep_metrics`, the live page can show what they do. `shared`: the broker may have workers elsewhere, so
    that somebody has to stand in for those when they die."""
    if settings.worker_id:
        raise CliError(ExitCode.USAGE, "TOKSPLICE_WORKER_ID names one worker; it cannot be set to run them all")
    workers: list[Runnable] = []
    for name in SERVICES:
        if gpu or name != GPU_WORKER:
            workers.append(make_worker(name, broker, registry, settings, state, keep_metrics=keep_metrics))
        if gpu or shared:
            workers += make_standbys(name, broker, settings, keep_metrics=keep_metrics)
    return workers


@asynccontextmanager
async def running(broker: Broker, workers: Sequence[Runnable], settings: WorkerSettings) -> AsyncIterator[None]:
    """Run workers beside the block: it begins when all are ready, and they stop gracefully when it ends.

    A worker that fails cancels the block; its error is raised.
    """
    await connect(broker, settings)
    try:
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(worker.run(), name=worker.worker_id)
            try:
                for worker in workers:
                    await worker.ready.wait()
                yield
            finally:
                for worker in workers:
                    worker.request_stop()
    finally:
        await stop_broker(broker, settings)
