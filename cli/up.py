"""`toksplice up`: every worker in this process.

On the memory broker it serves the protocol over its own pipes: a request a line on stdin, a reply a line on
stdout, until stdin ends or SIGTERM comes. On Kafka it serves the topics until SIGTERM. Beside either, a web page on
loopback shows what the workers do.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from cli.errors import CliError, ExitCode
from cli.home import state_folder
from cli.line_server import LineServer
from cli.live.http import DEFAULT_ADDRESS, Address
from cli.options import add_epilog
from cli.output import note
from cli.wiring import (
    add_broker_argument,
    add_tokenizer_arguments,
    choose_tokenizer,
    is_memory,
    make_broker,
    make_workers,
    open_registry,
    running,
    unknown_tokenizer,
    why_no_gpu,
    worker_settings,
)
from cli.worker import log_from_here_on
from pipeline.runtime import Runnable, serve
from pipeline.runtime import run as run_loop

_EPILOG = """
JSON lines (memory:// only): one request a line on stdin, one reply a line on stdout, until stdin ends.

  {"session_id": "s", "text": "Hello"}
  {"session_id": "s", "op": "append", "text": " you", "base": {"revision": 1, "length": 5}}
  {"text": "a one-off, kept nowhere"}

Fields are those of docs/protocol.md; ids are an array of numbers, offsets an array of [start, end]. What may
be left out of a request: v, op (default text), session_id (default none: a one-off), tokenizer (default
--tokenizer), request_id (default line-N, N counting the lines from 1). base names the session's state before
the change: copy revision, length and epoch from its last reply (length in UTF-8 bytes).

Lines of one session are handed in one at a time, in order: each waits for the reply to the one before it.
Replies are in order within a session only; match them by request_id.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_broker_argument(parser)
    add_tokenizer_arguments(parser)
    parser.add_argument("--state", type=Path, metavar="DIR", help="keep sessions here between runs")
    parser.add_argument("--no-state", action="store_true", help="keep nothing between runs")
    parser.add_argument("--no-gpu", action="store_true", help="use no GPU, whether or not there is one")
    parser.add_argument("--json", action="store_true", help="with Kafka, write the log as JSON lines")
    parser.add_argument(
        "--dashboard",
        metavar="HOST:PORT|off",
        help=f"where on loopback the live page is (default {DEFAULT_ADDRESS}, or a free port while that is taken)",
    )
    add_epilog(parser, _EPILOG)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    registry = open_registry(options.registry)
    entry = choose_tokenizer(registry, options.tokenizer)
    settings = worker_settings()
    state = _state(options)
    dashboard = _dashboard(options.dashboard)
    gpu = _gpu(options)
    if is_memory(options.broker):

        async def embedded() -> None:
            await asyncio.to_thread(registry.get, entry.fingerprint)  # or the first request would wait for it
            broker = make_broker(options.broker)
            workers = make_workers(broker, registry, settings, state, keep_metrics=bool(dashboard), gpu=gpu)
            async with running(broker, workers, settings), _live_page(workers, dashboard):
                lines = LineServer(
                    broker,
                    settings.partitions,
                    options.tokenizer,
                    explain_unknown=lambda name: str(unknown_tokenizer(registry, name)),
                )
                await lines.serve(sys.stdin.fileno())

        run_loop(embedded())
        return ExitCode.OK

    async def distributed() -> None:
        broker = make_broker(options.broker)
        workers = make_workers(broker, registry, settings, state, keep_metrics=bool(dashboard), gpu=gpu, shared=True)
        async with _live_page(workers, dashboard):
            await serve(broker, workers, settings)

    log_from_here_on(as_json=options.json)
    run_loop(distributed())
    return ExitCode.OK


def _gpu(options: argparse.Namespace) -> bool:
    """Whether a GPU is used; says in one line why not."""
    if options.no_gpu:
        return False
    reason = why_no_gpu()
    if reason is not None:
        note(reason)
    return reason is None


def _dashboard(text: str | None) -> tuple[Address, ...]:
    """Where the live page may be, the first free one; nowhere when it is off. Raises `CliError`."""
    if text == "off":
        return ()
    if text is None:
        return (DEFAULT_ADDRESS, replace(DEFAULT_ADDRESS, port=0))
    try:
        return (Address.parse(text),)
    except ValueError as error:
        raise CliError(ExitCode.USAGE, f"--dashboard: {error}") from None


@asynccontextmanager
async def _live_page(workers: Sequence[Runnable], addresses: Sequence[Address]) -> AsyncIterator[None]:
    """The live page beside the block, at the first of `addresses` that is free. Raises `CliError` if none is."""
    if not addresses:
        yield
        return
    from cli.live.page import live_page

    async with AsyncExitStack() as stack:
        telemetries = [worker.telemetry for worker in workers]
        for address in addresses:
            try:
                url = await stack.enter_async_context(live_page(telemetries, address))
            except OSError as error:
                problem = error
                continue
            note(f"live page: {url}")
            break
        else:
            raise CliError(ExitCode.USAGE, f"--dashboard: {address} cannot be listened on ({problem.strerror})")
        yield


def _state(options: argparse.Namespace) -> Path | None:
    """The folder for sessions, which only the user may read: it holds their texts.

    On Kafka it must be asked for: snapshots are right only for a process that has every partition.
    """
    if options.no_state or (options.state is None and not is_memory(options.broker)):
        return None
    folder: Path = options.state or state_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(ExitCode.STORAGE, f"{folder}: cannot be used for state ({error.strerror})") from error
    return folder
