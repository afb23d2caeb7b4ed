"""`toksplice top`: the workers of a broker, as their heartbeats tell."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.errors import CliError, ExitCode
from cli.output import stdout, write_json
from cli.wiring import add_broker_argument, connected, is_memory, worker_settings
from pipeline.ports import Tail, TopicPartition
from pipeline.runtime import run as run_loop
from pipeline.runtime import stop_on_signals
from schemas.errors import ProtocolError
from schemas.health import PATH_SEPARATOR, Health, PathStats
from schemas.reply import Route
from schemas.topics import HEALTH

MAX_WORKERS = 1_000
"""Workers that are shown; a worker that never comes back leaves its last heartbeat in the topic."""
FORGET_AFTER_S = 3_600
STALE_AFTER_S = 15.0
"""A worker whose last heartbeat is older is shown as gone."""
FETCH_S = 0.5
CATCH_UP_S = 10.0
"""How long `--once` and `--json` wait for the heartbeats that are there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_broker_argument(parser, default=None)
    parser.add_argument("--once", action="store_true", help="print one table and end")
    parser.add_argument("--json", action="store_true", help="write the heartbeats as JSON to stdout and end")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if is_memory(options.broker):
        raise CliError(ExitCode.USAGE, "memory:// is seen from inside its process only: name a Kafka broker")
    run_loop(_top(options))
    return ExitCode.OK


async def _top(options: argparse.Namespace) -> None:
    settings = worker_settings()
    async with connected(options.broker, settings) as broker:
        places = [TopicPartition(HEALTH, partition) for partition in range(settings.partitions)]
        tail = await broker.tail(places, from_start=True)
        board = Board(lambda: time.time_ns() // 1_000_000)
        if options.json or options.once:
            await _catch_up(tail, board)
            if options.json:
                write_json(board.as_dicts())
            else:
                stdout().print(board.render())
            return
        await _watch(tail, board)


async def _catch_up(tail: Tail, board: Board) -> None:
    try:
        async with asyncio.timeout(CATCH_UP_S):
            while not await tail.caught_up():
                await _read(tail, board)
    except TimeoutError:
        raise CliError(ExitCode.BROKER, f"the heartbeats could not be read within {CATCH_UP_S:g} s") from None


async def _watch(tail: Tail, board: Board) -> None:
    stop = asyncio.Event()
    with stop_on_signals(stop), Live(board.render(), console=stdout(), auto_refresh=False) as live:
        while not stop.is_set():
            await _read(tail, board)
            live.update(board.render(), refresh=True)


async def _read(tail: Tail, board: Board) -> None:
    for record in await tail.fetch(max_records=MAX_WORKERS, timeout_s=FETCH_S):
        board.note(record.key, record.value)


class Board:
    """The last heartbeat of each worker. `now_ms` is epoch milliseconds."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._workers: dict[str, Health] = {}

    def note(self, key: bytes | None, value: bytes | None) -> None:
        """Take in one record of tokenize.health; what cannot be read is left out."""
        if value is None:
            self._workers.pop((key or b"").decode("utf-8", "replace"), None)
            return
        try:
            health = Health.decode(value)
        except ProtocolError:
            return
        if health.worker in self._workers or len(self._workers) < MAX_WORKERS:
            self._workers[health.worker] = health

    def workers(self) -> list[Health]:
        """By kind and name; those not heard of for an hour are left out."""
        fresh = [health for health in self._workers.values() if self._age_s(health) < FORGET_AFTER_S]
        return sorted(fresh, key=lambda health: (health.kind, health.worker))

    def as_dicts(self) -> list[dict[str, Any]]:
        """Plain values, for JSON."""
        return [
            {
                "worker": health.worker,
                "kind": health.kind,
                "ready": health.ready,
                "age_s": round(self._age_s(health), 1),
                "stale": self._age_s(health) > STALE_AFTER_S,
                "queue_depth": health.queue_depth,
                "detail": health.detail,
                "tokenizers": list(health.tokenizers),
                "paths": {
                    key: {**_made_by(key), "count": stats.count, "p50_us": stats.p50_us, "p99_us": stats.p99_us}
                    for key, stats in health.paths.items()
                },
                "costs": {fingerprint: asdict(cost) for fingerprint, cost in (health.costs or {}).items()},
            }
            for health in self.workers()
        ]

    def render(self) -> Group:
        """The table for a terminal."""
        table = Table(title="Workers")
        for column in ("worker", "state", "path", "route", "engine"):
            table.add_column(column)
        for column in ("heard s ago", "queue", "answers", "p50 ms", "p99 ms"):
            table.add_column(column, justify="right")
        for health in self.workers():
            age_s = self._age_s(health)
            lines: list[tuple[str, PathStats | None]] = [*health.paths.items()] or [("", None)]
            for number, (key, stats) in enumerate(lines):
                first = number == 0
                table.add_row(
                    Text(health.worker if first else ""),
                    self._state(health) if first else Text(""),
                    *map(Text, _made_by(key).values()),
                    f"{age_s:.0f}" if first else "",
                    f"{health.queue_depth:,}" if first else "",
                    "" if stats is None else f"{stats.count:,}",
                    "" if stats is None else f"{stats.p50_us / 1e3:,.2f}",
                    "" if stats is None else f"{stats.p99_us / 1e3:,.2f}",
                )
        return Group(table) if self._workers else Group(table, Text("no worker has been heard of"))

    def _state(self, health: Health) -> Text:
        if self._age_s(health) > STALE_AFTER_S:
            return Text("gone", style="red")
        if not health.ready:
            return Text(f"not ready {health.detail}".strip(), style="yellow")
        # A worker that is ready and has something to say is in trouble or in a drill.
        return Text(f"ready {health.detail}".strip(), style="yellow" if health.detail else "green")

    def _age_s(self, health: Health) -> float:
        return max(0.0, (self._now_ms() - health.time_ms) / 1e3)


def _made_by(key: str) -> dict[str, str]:
    """What a key of `Health.paths` says: path, route and engine, "" for what there is none of."""
    path, _, route = key.partition(PATH_SEPARATOR)
    known = route in Route.__members__
    return {"path": path, "route": route, "engine": Route(route).engine.value if known else ""}
