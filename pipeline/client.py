"""The client: joins replies to requests, keeps sessions, and mends what goes wrong on the way.

    async with Client(broker, tenant="acme") as client:
        session = client.session("conversation-7", "qwen3")
        await session.append("You are a helpful agent.")
        answer = await session.append(" Hello!")     # only the new text travels
        session.ids                                  # all ids, numpy u32

        answer = await client.encode("one-off text", "qwen3")

Any producer that writes the wire format is served as well; nothing in the workers knows of this class.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from pipeline.client_session import ClientSession
from pipeline.client_state import Answer, encode_text, inconsistent, new_request_id, raise_for_failure
from pipeline.clock import Clock, SystemClock
from pipeline.errors import BrokerUnavailableError, ClosedError, DeadlineError, ReplyError
from pipeline.ports import Broker, Headers, Producer, Record, Tail, TopicPartition
from pipeline.settings import ClientSettings
from pipeline.telemetry import Span, Telemetry
from pipeline.waiting import backoff, cancel, within
from schemas.codes import Code, Status
from schemas.errors import ProtocolError
from schemas.headers import CORRELATION_ID, REPLY_PARTITION, correlation_id
from schemas.reply import Reply
from schemas.request import Op, Request, Want, peek_identity
from schemas.topics import DEFAULT_PARTITIONS, REPLIES, REQUESTS, partition_for, session_key

__all__ = ["Answer", "Client", "ClientSession"]

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Client:
    """Sends requests and waits for their replies. The broker is the caller's: started before, stopped after.

    It reads one partition of tokenize.replies, drawn at random, from before its first send, and asks workers
    to answer there. Calls may run concurrently; at most `settings.max_pending` are in flight, the rest wait.
    Every call has a deadline, which travels with the request.

    Calls raise:
    - DeadlineError: no answer in time.
    - ReplyError: the pipeline refused, with the protocol's code and advice.
    - BrokerUnavailableError, RecordTooLargeError: the request could not be written.
    - ClosedError: the client was closed.
    """

    def __init__(
        self,
        broker: Broker,
        partitions: int = DEFAULT_PARTITIONS,
        tenant: str = "",
        settings: ClientSettings | None = None,
        telemetry: Telemetry | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.tenant = tenant
        self.partitions = partitions
        self.settings = settings or ClientSettings()
        self.reply_partition = secrets.randbelow(partitions)
        self._broker = broker
        self._telemetry = telemetry or Telemetry.disabled()
        self._clock = clock or SystemClock()
        self._pending: dict[bytes, asyncio.Future[Reply]] = {}
        self._slots = asyncio.Semaphore(self.settings.max_pending)
        self._producer: Producer | None = None
        self._tail: Tail | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Open the client. Raises BrokerUnavailableError."""
        source = TopicPartition(REPLIES, self.reply_partition)
        self._tail = tail = await self._broker.tail([source], from_start=False)
        try:
            self._producer = await self._broker.producer()
        except BaseException:
            await tail.stop()
            raise
        for cause in ("unknown", "malformed"):
            self._telemetry.client_dropped_replies.add(0, {"cause": cause})
        self._telemetry.client_resends.add(0, {"cause": Status.NEED_TEXT.value})
        self._reader = asyncio.create_task(self._read(tail), name="client replies")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Fail calls in flight with ClosedError and let go of the broker, within `settings.stop_s` a step."""
        producer, tail, reader = self._producer, self._tail, self._reader
        self._producer = self._tail = self._reader = None
        self._fail_pending()
        if reader is not None:
            await cancel([reader], self.settings.stop_s, self._clock)
        for part in (tail, producer):
            if part is None:
                continue
            try:
                await within(part.stop(), self.settings.stop_s, self._clock)
            except Exception as failure:
                _log.warning("closing the client: %s", type(failure).__name__)

    def session(self, session_id: str, tokenizer: str, add_special_tokens: bool = False) -> ClientSession:
        """A session of this client's tenant, empty so far. Nothing is sent until its first change.

        Use one object a session: a second one knows nothing of the first one's text, and each makes the other
        send its whole text again. Raises ValueError for an empty id, which means "no session" on the wire.
        """
        if not session_id:
            raise ValueError("a session needs an id; use encode() for a text without a session")
        return ClientSession(self, session_id, tokenizer, add_special_tokens)

    async def encode(
        self,
        text: str,
        tokenizer: str,
        add_special_tokens: bool = False,
        *,
        offsets: bool = False,
        deadline_s: float | None = None,
    ) -> Answer:
        """Tokenize one text without a session; `Answer.ids` has all its ids."""
        content = encode_text(text)

        async def call(deadline_ms: int) -> Answer:
            request = Request(
                request_id=new_request_id(),
                tenant=self.tenant,
                tokenizer=tokenizer,
                add_special_tokens=add_special_tokens,
                op=Op.TEXT,
                text=text,
                want=Want.IDS,
                offsets=offsets,
                deadline_ms=deadline_ms,
            )
            reply = raise_for_failure(await self.exchange(request))
            if reply.length != len(content):
                raise inconsistent(reply)
            return Answer.of(reply, np.empty(0, np.uint32), resent=False)

        return await self.bounded("encode", call, deadline_s)

    # For sessions

    async def bounded(self, name: str, call: Callable[[int], Coroutine[Any, Any, T]], deadline_s: float | None) -> T:
        """Run `call(deadline_ms)` in a span of its own, within the deadline. Raises DeadlineError after
        it."""
        limit_s = self.settings.deadline_s if deadline_s is None else deadline_s
        begun_s = self._clock.monotonic_s()
        deadline_ms = self._clock.now_ms() + int(limit_s * 1_000)
        status = "cancelled"
        with self._telemetry.span(f"toksplice {name}"):
            try:
                result = await within(call(deadline_ms), limit_s, self._clock)
                status = Status.OK.value
                return result
            except TimeoutError:
                status = Status.EXPIRED.value
                raise DeadlineError(f"{name}: no answer within {limit_s:g} s") from None
            except Exception as error:
                status = str(getattr(error, "code", Code.INTERNAL))
                raise
            finally:
                took_s = self._clock.monotonic_s() - begun_s
                self._telemetry.request_e2e_duration.record(took_s, {"status": status})

    async def exchange(self, request: Request) -> Reply:
        """Send `request` and return its reply, whatever its status; retriable failures are sent again.

        A request that may or may not have been written goes again under its own id, so that it cannot be
        carried out twice; one that was refused for now goes under a new one. At most `settings.max_retries`
        times.
        """
        pauses = backoff(self.settings.retry_backoff_s, self.settings.retry_backoff_max_s)
        retries_left = self.settings.max_retries
        while True:
            try:
                reply = await self._exchange_once(request)
            except BrokerUnavailableError as error:
                if not retries_left:
                    raise
                cause = error.code
            else:
                if not (reply.retriable and reply.status is Status.ERROR and retries_left):
                    return reply
                cause = str(reply.code)
                request = replace(request, request_id=new_request_id())
            retries_left -= 1
            self.count_resend(cause)
            await self._clock.sleep(next(pauses))

    def count_resend(self, cause: str) -> None:
        """A request had to be sent again; `cause` is a code or status."""
        self._telemetry.client_resends.add(1, {"cause": cause})

    # Sending

    async def _exchange_once(self, request: Request) -> Reply:
        name = _wire_name(request.request_id)
        try:
            value = request.encode()
        except ProtocolError as error:
            raise ReplyError(error.code, error.message, retriable=False) from error
        async with self._slots:
            producer = self._producer
            if producer is None:
                raise ClosedError("the client is closed")
            future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            self._pending[name] = future
            try:
                await self._send(producer, request, name, value)
                return await future
            finally:
                del self._pending[name]
                if not future.cancel() and not future.cancelled():
                    future.exception()  # Marks it as seen, in case sending failed too.

    async def _send(self, producer: Producer, request: Request, name: bytes, value: bytes) -> None:
        telemetry = self._telemetry
        # A one-off has no session to stay in line with: without a key the partitions share the load.
        key = session_key(request.tenant, request.session_id) if request.session_id else None
        partition = None if key is None else partition_for(key, self.partitions)
        span: Span = telemetry.start_send_span(
            REQUESTS, value, partition=partition, tenant=request.tenant, session_id=request.session_id
        )
        headers: Headers = (
            (CORRELATION_ID, name),
            (REPLY_PARTITION, b"%d" % self.reply_partition),
        )
        try:
            await producer.send(
                REQUESTS,
                value,
                key=key,
                partition=partition,
                headers=telemetry.inject(headers, span),
            )
        except BaseException as error:
            telemetry.fail(span, error)
            raise
        finally:
            span.end()

    # Receiving

    async def _read(self, tail: Tail) -> None:
        """Hand each reply to the call that waits for it, until the client is closed or the broker stops."""
        settings = self.settings
        pauses = backoff(settings.retry_backoff_s, settings.retry_backoff_max_s)
        while True:
            try:
                records = await tail.fetch(max_records=settings.fetch_max_records, timeout_s=settings.fetch_timeout_s)
            except ClosedError:
                _log.warning("the broker was stopped under the client")
                self._fail_pending()
                return
            except Exception as error:
                _log.warning("reading replies failed (%s); trying again", type(error).__name__)
                await self._clock.sleep(next(pauses))
                continue
            pauses = backoff(settings.retry_backoff_s, settings.retry_backoff_max_s)
            for record in records:
                self._receive(record)

    def _receive(self, record: Record) -> None:
        value = record.value or b""
        name = correlation_id(record.headers)
        if name is None:
            who = peek_identity(value)
            name = None if who is None else _wire_name(who.request_id)
        future = None if name is None else self._pending.get(name)
        if future is None or future.done():
            # Another client's, a second copy, or too late: looked up by header, so it costs no decoding.
            self._telemetry.client_dropped_replies.add(1, {"cause": "unknown"})
            return
        span = self._telemetry.start_process_span(record)
        try:
            reply = Reply.decode(value)
        except ProtocolError as error:
            self._telemetry.client_dropped_replies.add(1, {"cause": "malformed"})
            self._telemetry.fail(span, error.code.value)
            future.set_exception(
                ReplyError(Code.INTERNAL, f"the reply cannot be read: {error.code.value}", retriable=False)
            )
        else:
            future.set_result(reply)
        finally:
            span.end()

    def _fail_pending(self) -> None:
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ClosedError("the client was closed before the answer came"))


def _wire_name(request_id: str | bytes) -> bytes:
    return request_id.encode() if isinstance(request_id, str) else request_id
