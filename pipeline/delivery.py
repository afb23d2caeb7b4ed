"""One record from the first try to its end: handled, answered with a failure, or in the dead letters.

`Delivery.process` never raises (but CancelledError) and never gives up silently: whatever a service does with
a record, the record ends in exactly one of three ways, and only then may its offset be committed.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from typing import Final

from pipeline.context import Context
from pipeline.errors import BrokerUnavailableError
from pipeline.ports import Record
from pipeline.service import Service
from pipeline.telemetry import Span
from pipeline.waiting import backoff
from schemas.codes import Code
from schemas.deadletter import DeadLetter
from schemas.errors import ProtocolError
from schemas.headers import correlation_id
from schemas.reply import Reply
from schemas.request import Identity, peek_identity
from schemas.topics import CPU, DLQ, GPU, REPAIR, REQUESTS
from schemas.work import Work, decode_work_record

WORK_TOPICS: Final = frozenset({REPAIR, GPU, CPU})

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Progress:
    """What is known of one record in work."""

    record: Record
    span: Span
    broker_pauses: Iterator[float]
    retry_pauses: Iterator[float]
    tries: int = 0


class ParkedRecord:
    """A record whose service returned an awaitable."""

    def __init__(self, delivery: Delivery, progress: _Progress, awaitable: Awaitable[None]) -> None:
        self._delivery = delivery
        self._progress = progress
        self._awaitable = awaitable

    async def run(self) -> None:
        """See `partition_queue.Parked`."""
        await self._delivery.finish(self._progress, self._awaitable)

    def close(self) -> None:
        """See `partition_queue.Parked`."""
        if inspect.iscoroutine(self._awaitable):
            self._awaitable.close()
        self._delivery.leave(self._progress)


class Delivery:
    """Brings records of one service to their end."""

    def __init__(self, service: Service, context: Context) -> None:
        self._service = service
        self._context = context
        self._settings = context.settings
        self._telemetry = context.telemetry

    async def process(self, record: Record) -> ParkedRecord | None:
        """Handle one record until it is finished (None) or parked."""
        span = self._telemetry.start_process_span(record, group=self._service.group)
        self._context.enter(record, span)
        settings = self._settings
        progress = _Progress(
            record,
            span,
            backoff(settings.broker_backoff_s, settings.broker_backoff_max_s),
            backoff(settings.retry_backoff_s, settings.retry_backoff_max_s),
        )
        awaitable = None
        try:
            with self._telemetry.current(span):
                awaitable = await self._attempt(progress)
        finally:
            if awaitable is None:
                self.leave(progress)
        return None if awaitable is None else ParkedRecord(self, progress, awaitable)

    async def finish(self, progress: _Progress, awaitable: Awaitable[None]) -> None:
        """Bring a parked record to its end; a failure has it handled again, here, in place."""
        with self._telemetry.current(progress.span):
            parked: Awaitable[None] | None = awaitable
            while parked is not None:
                parked = await self._attempt(progress, parked)

    def leave(self, progress: _Progress) -> None:
        """The record is at its end, or given back to the broker."""
        self._context.leave(progress.record)
        progress.span.end()

    async def _attempt(self, progress: _Progress, parked: Awaitable[None] | None = None) -> Awaitable[None] | None:
        """Await `parked`, or handle the record, again until it succeeds or is given up.

        Returns what the service parked, or None when the record is finished.
        """
        while True:
            try:
                if parked is None:
                    return await self._service.handle(progress.record)
                await parked
                return None
            except BrokerUnavailableError as error:
                self._note(progress, error, "the broker is unavailable")
                pause_s = next(progress.broker_pauses)
            except ProtocolError as error:
                await self._reject(progress, error)
                return None
            except Exception as error:
                progress.tries += 1
                self._note(progress, error, f"try {progress.tries} failed")
                if progress.tries >= self._settings.max_attempts:
                    await self._give_up(progress, error)
                    return None
                pause_s = next(progress.retry_pauses)
            parked = None
            self._telemetry.retries.add(1, {"worker": self._service.kind})
            await self._context.clock.sleep(pause_s)

    def _note(self, progress: _Progress, error: Exception, what: str) -> None:
        """Log a failure by its type and place. Its text stays out: it could quote what a user wrote."""
        record = progress.record
        where = _place(error)
        _log.warning(
            "%s/%d/%d: %s: %s at %s",
            record.topic,
            record.partition,
            record.offset,
            what,
            type(error).__name__,
            where,
        )
        progress.span.add_event("failed try", {"error.type": type(error).__qualname__})

    # Giving up

    async def _reject(self, progress: _Progress, error: ProtocolError) -> None:
        self._telemetry.fail(progress.span, error.code.value)
        # A ProtocolError's message never quotes a value, so it can be passed on.
        await self._bury(progress, error.code, error.message, attempts=progress.tries + 1)
        await self._answer(progress, error.code, error.message)

    async def _give_up(self, progress: _Progress, error: Exception) -> None:
        self._telemetry.fail(progress.span, error)
        cause = f"{type(error).__qualname__} at {_place(error)}"
        await self._bury(progress, Code.INTERNAL, cause, attempts=progress.tries)
        await self._answer(progress, Code.INTERNAL, "a worker failed on this record in every try")

    async def _bury(self, progress: _Progress, code: Code, error: str, *, attempts: int) -> None:
        record = progress.record
        limits = self._context.write_limits
        letter = DeadLetter(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            code=code,
            error=error,
            attempt=attempts,
            time_ms=self._context.clock.now_ms(),
            worker=self._context.worker_id,
            key=record.key,
            value=record.value or b"",
            headers=record.headers,
        )
        value = letter.fit(limits).encode(limits)
        headers = self._telemetry.inject((), progress.span)

        pauses = backoff(self._settings.broker_backoff_s, self._settings.broker_backoff_max_s)
        while True:
            try:
                # The partition is the record's own, so that the dead letters of a session stay in order.
                await self._context.producer.send(DLQ, value, partition=record.partition, headers=headers)
                break
            except Exception as failure:
                # However long it takes: going on without the dead letter would lose the record.
                _log.warning("%s cannot be written (%s); trying again", DLQ, type(failure).__name__)
                await self._context.clock.sleep(next(pauses))
        self._telemetry.dead_letters.add(1, {"topic": record.topic, "code": code.value})

    async def _answer(self, progress: _Progress, code: Code, message: str) -> None:
        who = _sender(progress.record)
        if who is None:
            return
        reply = Reply.failure(who.request_id, code, message, tenant=who.tenant, session_id=who.session_id)
        while True:
            try:
                await self._context.reply(progress.record, reply)
                break
            except BrokerUnavailableError as error:
                self._note(progress, error, "the broker is unavailable")
                await self._context.clock.sleep(next(progress.broker_pauses))
            except Exception as error:
                # The record is safe in the dead letters; its sender's deadline tells it the rest.
                self._note(progress, error, "the failure could not be answered")
                break


def _sender(record: Record) -> Identity | None:
    """Who waits for an answer to this record, if that can be read and anybody does."""
    value = record.value or b""
    if record.topic == REQUESTS:
        who = peek_identity(value)
    elif record.topic not in WORK_TOPICS:
        return None
    else:
        try:
            work = decode_work_record(value)
        except ProtocolError:
            who = None
        else:
            if not isinstance(work, Work):
                return None  # A hand-over: its request was, or will be, answered by the worker that wrote it.
            request = work.request
            who = Identity(request.request_id, request.tenant, request.session_id)
    if who is not None:
        return who
    correlation = correlation_id(record.headers)
    return None if correlation is None else Identity(_name(correlation), "", "")


def _name(correlation: bytes) -> str | bytes:
    try:
        return correlation.decode()
    except UnicodeDecodeError:
        return correlation


def _place(error: BaseException) -> str:
    """File and line that raised `error`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown place"
    return f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
