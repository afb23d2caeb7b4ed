"""A pipeline in one object, for the tests of the client: every byte of a text is a token, and replies can be
bent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from chassis_kit import PARTITIONS, Journal, SpyBroker, started_broker

from pipeline.client import Client
from pipeline.client_state import common_prefix
from pipeline.clock import Clock
from pipeline.ports import Record, Tail, TopicPartition
from pipeline.settings import ClientSettings
from pipeline.telemetry import Telemetry
from schemas.codes import Code, Status
from schemas.headers import CORRELATION_ID, correlation_id, reply_partition
from schemas.reply import Path, Reply, Route
from schemas.request import Op, Request, Want
from schemas.topics import REPLIES, REQUESTS

Bend = Callable[[Request, Reply], Awaitable[list[Reply]]]


@dataclass
class State:
    """A session as the workers hold it."""

    epoch: int
    revision: int
    text: bytes


class FakePipeline:
    """Answers requests from a model of the protocol. `bend` may hold back, change, repeat or drop each reply.

    `requests` are what arrived, in order; `before` runs before a request is carried out and may answer in its
    place.
    """

    def __init__(self, broker: SpyBroker) -> None:
        self.broker = broker
        self.requests = Journal()
        self.sessions: dict[str, State] = {}
        self.bend: Bend | None = None
        self.before: Callable[[Request], Reply | None] | None = None
        self._epochs = 100
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ops(self) -> list[str]:
        return [request.op.value for request in self.requests.entries]

    async def run(self, tail: Tail) -> None:
        while True:
            for record in await tail.fetch(max_records=100, timeout_s=1):
                request = Request.decode(record.value or b"")
                self.requests.add(request)
                reply = (self.before and self.before(request)) or self.carry_out(request)
                task = asyncio.create_task(self._answer(record, request, reply))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _answer(self, record: Record, request: Request, reply: Reply) -> None:
        for one in [reply] if self.bend is None else await self.bend(request, reply):
            await self.send(record, one.encode())

    async def send(self, record: Record, value: bytes) -> None:
        partition = reply_partition(record.headers, PARTITIONS)
        name = correlation_id(record.headers)
        assert partition is not None
        assert name is not None
        producer = await self.broker.memory.producer()
        await producer.send(REPLIES, value, partition=partition, headers=((CORRELATION_ID, name),))

    def carry_out(self, request: Request) -> Reply:
        state = self.sessions.get(request.session_id)
        if request.op is Op.TEXT:
            return self._text(request, state)
        if request.op is Op.CLOSE:
            self.sessions.pop(request.session_id, None)
            return self._reply(request, State(0, 0, b""), b"")
        assert request.base is not None
        if state is None:
            return failure(request, Code.UNKNOWN_SESSION)
        base = request.base
        if (base.epoch, base.revision, base.length) != (state.epoch, state.revision, len(state.text)):
            return failure(request, Code.STALE_REVISION)
        if request.op is Op.FORK:
            self._epochs += 1
            copy = State(self._epochs, 1, state.text)
            self.sessions[request.new_session or ""] = copy
            return self._reply(request, copy, state.text)
        start = {Op.APPEND: len(state.text), Op.TRUNCATE: request.length}.get(request.op, request.start) or 0
        end = request.end if request.op is Op.SPLICE else len(state.text)
        old = state.text
        state.text = old[:start] + (request.text or "").encode() + old[end:]
        state.revision += 1
        return self._reply(request, state, old)

    def _text(self, request: Request, state: State | None) -> Reply:
        new = (request.text or "").encode()
        if state is None or not request.session_id:
            self._epochs += 1
            state, old = State(self._epochs, 1, new), b""
        else:
            old, state.text = state.text, new
            state.revision += 1
        if request.session_id:
            self.sessions[request.session_id] = state
        return self._reply(request, state, old)

    def _reply(self, request: Request, state: State, old: bytes) -> Reply:
        new = state.text
        a, b = np.frombuffer(old, np.uint8), np.frombuffer(new, np.uint8)
        left = right = 0
        if request.want is Want.PATCH:
            left = common_prefix(a, b)
            right = common_prefix(a[left:][::-1], b[left:][::-1])
        sent = b[left : len(b) - right].astype("<u4")
        spans = np.stack([np.arange(len(sent)), np.arange(1, len(sent) + 1)], axis=1) + left
        return Reply(
            request_id=request.request_id,
            tenant=request.tenant,
            session_id=request.session_id,
            status=Status.OK,
            path=Path.REPAIR,
            route=Route.C,
            reason="test",
            epoch=state.epoch,
            revision=state.revision,
            length=len(new),
            keep_left=left,
            ids=sent.tobytes(),
            keep_right=right,
            total=len(new),
            first_changed=left,
            offsets=spans.astype("<u4").tobytes() if request.offsets else None,
            fingerprint="f",
            timings={"tokenize_us": 5},
        )


def failure(request: Request, code: Code) -> Reply:
    return Reply.failure(request.request_id, code, "scripted", tenant=request.tenant, session_id=request.session_id)


def once(code: Code, *ops: Op) -> Callable[[Request], Reply | None]:
    """For `FakePipeline.before`: the first request of `ops` (of any, if none is named) fails with `code`."""
    left = [True]

    def before(request: Request) -> Reply | None:
        if not left or (ops and request.op not in ops):
            return None
        left.clear()
        return failure(request, code)

    return before


def bent_once(op: Op, **changes: Any) -> Bend:
    """For `FakePipeline.bend`: the first reply to `op` has these fields."""
    left = [True]

    async def bend(request: Request, reply: Reply) -> list[Reply]:
        if not left or request.op is not op:
            return [reply]
        left.clear()
        return [replace(reply, **changes)]

    return bend


@asynccontextmanager
async def pipeline(
    *, clock: Clock | None = None, telemetry: Telemetry | None = None, **changes: Any
) -> AsyncIterator[tuple[FakePipeline, Client]]:
    """A fake pipeline and a client of it, without pauses between tries."""
    quick: dict[str, Any] = {"retry_backoff_s": 0.0, "retry_backoff_max_s": 0.0, "fetch_timeout_s": 1.0}
    async with started_broker() as broker:
        fake = FakePipeline(broker)
        sources = [TopicPartition(REQUESTS, number) for number in range(PARTITIONS)]
        tail = await broker.memory.tail(sources, from_start=True)
        answering = asyncio.create_task(fake.run(tail))
        client = Client(broker, PARTITIONS, "acme", ClientSettings(**(quick | changes)), telemetry, clock)
        try:
            async with client:
                yield fake, client
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
