"""`toksplice up`: every worker in this process.

On the memory broker it serves the protocol over its own pipes: a request a line on stdin, a reply a line on
stdout, until stdin ends or SIGTERM comes. On Kafka it serves the topics until SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from cli.errors import CliError, ExitCode
from cli.home import state_folder
from cli.jsonlines import id_of_line, line_from_reply, request_from_line
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
    worker_settings,
)
from cli.worker import log_from_here_on
from pipeline.ports import Broker, Producer, Tail, TopicPartition
from pipeline.runtime import run as run_loop
from pipeline.runtime import serve, stop_on_signals
from schemas.errors import ProtocolError
from schemas.reply import Reply
from schemas.request import Request
from schemas.topics import REPLIES, REQUESTS, session_key

MAX_IN_FLIGHT = 256
"""Requests that are sent and not yet answered; further lines wait."""
MAX_LINE_BYTES = 64 * 1024 * 1024
READ_BYTES = 256 * 1024
DRAIN_S = 60.0
"""How long the end of stdin waits for the last answers."""
FETCH_S = 0.05

_Key = tuple[str, str, str | bytes]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_broker_argument(parser)
    add_tokenizer_arguments(parser)
    parser.add_argument("--state", type=Path, metavar="DIR", help="keep sessions here between runs")
    parser.add_argument("--no-state", action="store_true", help="keep nothing between runs")
    parser.add_argument("--json", action="store_true", help="with Kafka, write the log as JSON lines")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    registry = open_registry(options.registry)
    entry = choose_tokenizer(registry, options.tokenizer)
    settings = worker_settings()
    state = _state(options)
    if is_memory(options.broker):

        async def embedded() -> None:
            await asyncio.to_thread(registry.get, entry.fingerprint)  # or the first request would wait for it
            broker = make_broker(options.broker)
            workers = make_workers(broker, registry, settings, state)
            async with running(broker, workers, settings):
                await _Lines(broker, settings.partitions, options.tokenizer).serve(sys.stdin.fileno())

        run_loop(embedded())
        return ExitCode.OK

    async def distributed() -> None:
        broker = make_broker(options.broker)
        await serve(broker, make_workers(broker, registry, settings, state), settings)

    log_from_here_on(as_json=options.json)
    run_loop(distributed())
    return ExitCode.OK


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


class _Lines:
    """Carries lines to tokenize.requests and answers back. Replies come in the order in which they are ready."""

    def __init__(self, broker: Broker, partitions: int, tokenizer: str) -> None:
        self._broker = broker
        self._partitions = partitions
        self._tokenizer = tokenizer
        self._pending: Counter[_Key] = Counter()
        self._room = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._idle = asyncio.Event()
        self._idle.set()

    async def serve(self, source: int) -> None:
        """Until the descriptor `source` ends and everything is answered, or a signal asks to stop."""
        places = [TopicPartition(REPLIES, partition) for partition in range(self._partitions)]
        tail = await self._broker.tail(places, from_start=False)
        producer = await self._broker.producer()
        stop = asyncio.Event()
        note("ready: one JSON request a line on stdin")
        with stop_on_signals(stop):
            answering = asyncio.create_task(self._answer(tail))
            asking = asyncio.create_task(self._ask(source, producer))
            stopping = asyncio.create_task(stop.wait())
            tasks: set[asyncio.Task[Any]] = {answering, asking, stopping}
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in (answering, asking):
                    if task.done():
                        task.result()
                if not stop.is_set():
                    await self._drain(stopping, answering)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _drain(self, stopping: asyncio.Task[Any], answering: asyncio.Task[None]) -> None:
        idle = asyncio.create_task(self._idle.wait())
        try:
            done, _ = await asyncio.wait(
                {idle, stopping, answering}, timeout=DRAIN_S, return_when=asyncio.FIRST_COMPLETED
            )
            if answering in done:
                answering.result()
            if not done:
                note(f"{self._pending.total()} requests were not answered within {DRAIN_S:g} s")
        finally:
            idle.cancel()

    async def _ask(self, source: int, producer: Producer) -> None:
        number = 0
        async for line in lines_of(source):
            number += 1
            if not line.strip():
                continue
            try:
                request = request_from_line(line, number=number, tokenizer=self._tokenizer)
                value = request.encode()
            except ProtocolError as error:
                _write(Reply.failure(id_of_line(line, number), error.code, error.message))
                continue
            await self._room.acquire()
            self._pending[_key(request)] += 1
            self._idle.clear()
            await producer.send(REQUESTS, value, key=session_key(request.tenant, request.session_id))

    async def _answer(self, tail: Tail) -> None:
        while True:
            for record in await tail.fetch(max_records=MAX_IN_FLIGHT, timeout_s=FETCH_S):
                if record.value is None:
                    continue
                reply = Reply.decode(record.value)
                if self._pending[_key(reply)] <= 0:
                    continue  # delivered a second time
                self._pending[_key(reply)] -= 1
                self._room.release()
                _write(reply)
            self._pending = +self._pending
            if not self._pending:
                self._idle.set()


def _key(message: Request | Reply) -> _Key:
    return message.tenant, message.session_id, message.request_id


def _write(reply: Reply) -> None:
    sys.stdout.write(line_from_reply(reply) + "\n")
    sys.stdout.flush()


async def lines_of(descriptor: int) -> AsyncIterator[bytes]:
    """The lines of a blocking file, without holding up the event loop; one over MAX_LINE_BYTES comes in parts.

    The reading thread is a daemon, and reads the descriptor rather than `sys.stdin`: neither a read that never
    returns nor a lock that it holds may keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)

    def read() -> None:
        while True:
            chunk = os.read(descriptor, READ_BYTES)
            try:
                asyncio.run_coroutine_threadsafe(queue.put(chunk), loop).result()
            except (RuntimeError, CancelledError):
                return  # the loop has ended
            if not chunk:
                return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    rest = b""
    while chunk := await queue.get():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > MAX_LINE_BYTES:
            yield rest
            rest = b""
    if rest:
        yield rest
