"""The protocol over pipes, for `toksplice up`: a request a line in, a reply a line out.

Lines of one session are handed in one at a time, each after the reply to the one before it, so that a script
can write a `text` and its appends at once. Lines of different sessions go on beside each other.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from typing import Any

from cli.jsonlines import id_of_line, line_from_reply, request_from_line
from cli.output import note
from pipeline.ports import Broker, Producer, Tail, TopicPartition
from pipeline.runtime import stop_on_signals
from schemas.codes import Code
from schemas.errors import ProtocolError
from schemas.reply import Reply
from schemas.request import Op, Request
from schemas.topics import REPLIES, REQUESTS, session_key

MAX_OPEN_LINES = 256
"""Lines that were read and are not answered yet; while there are so many, no further one is read."""
MAX_OPEN_BYTES = 64 * 1024 * 1024
"""The same for their requests' sizes; one line more may go over it."""
MAX_LINE_BYTES = 64 * 1024 * 1024
READ_BYTES = 256 * 1024
REPLY_S = 60.0
"""How long a session's next line waits for a reply, and the end of stdin for the last ones."""
FETCH_S = 0.05

_Key = tuple[str, str, str | bytes]
_SessionName = tuple[str, str]


@dataclass(slots=True, eq=False)
class Line:
    """One request on its way. `sessions` are those that it reads or makes; a one-off has none."""

    request: Request
    value: bytes
    sessions: tuple[_SessionName, ...] = field(init=False)
    sent_s: float | None = None

    def __post_init__(self) -> None:
        request = self.request
        names = [request.session_id] if request.session_id else []
        if request.op is Op.FORK and request.new_session and request.new_session not in names:
            names.append(request.new_session)
        self.sessions = tuple((request.tenant, name) for name in names)


class Turns:
    """Whose turn it is: a line may go once it is the first in all of its sessions."""

    def __init__(self) -> None:
        self._queues: dict[_SessionName, deque[Line]] = {}

    def add(self, line: Line) -> list[Line]:
        """The lines that may go now that `line` is here: itself or none."""
        for name in line.sessions:
            self._queues.setdefault(name, deque()).append(line)
        return [line] if self._is_first(line) else []

    def done(self, line: Line) -> list[Line]:
        """The lines that may go now that `line` is answered. A second call for it does nothing."""
        heads: list[Line] = []
        for name in line.sessions:
            queue = self._queues.get(name)
            if not queue or queue[0] is not line:
                continue
            queue.popleft()
            if not queue:
                del self._queues[name]
            elif queue[0] not in heads:
                heads.append(queue[0])
        return [head for head in heads if self._is_first(head)]

    def _is_first(self, line: Line) -> bool:
        return all(self._queues[name][0] is line for name in line.sessions)


class LineServer:
    """Carries lines to tokenize.requests and answers back. Sessions' replies come as they are ready.

    `explain_unknown(name)` is the message for a tokenizer that is not registered.
    """

    def __init__(
        self, broker: Broker, partitions: int, tokenizer: str, explain_unknown: Callable[[str], str] | None = None
    ) -> None:
        self._broker = broker
        self._partitions = partitions
        self._tokenizer = tokenizer
        self._explain_unknown = explain_unknown
        self._turns = Turns()
        self._open: dict[_Key, deque[Line]] = {}
        self._open_lines = 0
        self._open_bytes = 0
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._count(0, 0)

    async def serve(self, source: int) -> None:
        """Until the descriptor `source` ends and everything is answered, or a signal asks to stop."""
        places = [TopicPartition(REPLIES, partition) for partition in range(self._partitions)]
        tail = await self._broker.tail(places, from_start=False)
        producer = await self._broker.producer()
        stop = asyncio.Event()
        note("ready: one JSON request a line on stdin")
        with stop_on_signals(stop):
            answering = asyncio.create_task(self._answer(tail, producer))
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
        """Wait for the last answers, for as long as some come."""
        idle = asyncio.create_task(self._idle.wait())
        try:
            while True:
                before = self._open_lines
                done, _ = await asyncio.wait(
                    {idle, stopping, answering}, timeout=REPLY_S, return_when=asyncio.FIRST_COMPLETED
                )
                if answering in done:
                    answering.result()
                if done:
                    return
                if self._open_lines >= before:
                    note(f"{self._open_lines} requests were not answered within {REPLY_S:g} s")
                    return
        finally:
            idle.cancel()

    async def _ask(self, source: int, producer: Producer) -> None:
        number = 0
        async for text in lines_of(source):
            number += 1
            if not text.strip():
                continue
            try:
                request = request_from_line(text, number=number, tokenizer=self._tokenizer)
                line = Line(request, request.encode())
            except ProtocolError as error:
                _write(Reply.failure(id_of_line(text, number), error.code, error.message))
                continue
            await self._room.wait()
            self._count(1, len(line.value))
            self._open.setdefault(_key(request), deque()).append(line)
            await self._send(self._turns.add(line), producer)

    async def _send(self, lines: list[Line], producer: Producer) -> None:
        for line in lines:
            line.sent_s = asyncio.get_running_loop().time()
            request = line.request
            await producer.send(REQUESTS, line.value, key=session_key(request.tenant, request.session_id))

    async def _answer(self, tail: Tail, producer: Producer) -> None:
        while True:
            for record in await tail.fetch(max_records=MAX_OPEN_LINES, timeout_s=FETCH_S):
                if record.value is None:
                    continue
                reply = Reply.decode(record.value)
                line = self._take(_key(reply))
                if line is None:
                    continue  # delivered a second time
                _write(self._worded(reply, line))
                await self._send(self._turns.done(line), producer)
                self._count(-1, -len(line.value))
            await self._give_up_waiting(producer)

    def _take(self, key: _Key) -> Line | None:
        """The oldest open line of this key, no longer open."""
        lines = self._open.get(key)
        if not lines or lines[0].sent_s is None:
            return None
        line = lines.popleft()
        if not lines:
            del self._open[key]
        return line

    async def _give_up_waiting(self, producer: Producer) -> None:
        """Let the next lines of a session go when a reply is overdue; it is still printed if it comes."""
        limit_s = asyncio.get_running_loop().time() - REPLY_S
        overdue = [
            line for lines in self._open.values() for line in lines if line.sent_s is not None and line.sent_s < limit_s
        ]
        for line in overdue:
            await self._send(self._turns.done(line), producer)

    def _worded(self, reply: Reply, line: Line) -> Reply:
        """The reply; for an unknown tokenizer with the message of the other commands, which says how to get it."""
        if reply.code is Code.UNKNOWN_TOKENIZER and self._explain_unknown is not None:
            return replace(reply, message=self._explain_unknown(line.request.tokenizer))
        return reply

    def _count(self, lines: int, size: int) -> None:
        self._open_lines += lines
        self._open_bytes += size
        room = self._open_lines < MAX_OPEN_LINES and self._open_bytes < MAX_OPEN_BYTES
        for event, state in ((self._room, room), (self._idle, self._open_lines == 0)):
            if state:
                event.set()
            else:
                event.clear()


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
