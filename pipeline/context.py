"""What the chassis lends to a service: answering, forwarding, following compacted topics, blocking work."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from pipeline.blocking import BlockingPool
from pipeline.clock import Clock
from pipeline.control import ControlView
from pipeline.errors import RecordTooLargeError
from pipeline.follower import Followers
from pipeline.ports import Headers, Producer, Record, TopicPartition
from pipeline.samples import Dropped, Evidence, Samples
from pipeline.settings import WorkerSettings
from pipeline.telemetry import Span, Telemetry
from schemas.codes import Code, Status
from schemas.errors import ProtocolError
from schemas.headers import CORRELATION_ID, TRACEPARENT, TRACESTATE, correlation_id, reply_partition
from schemas.health import PATH_SEPARATOR, PathStats
from schemas.limits import DEFAULT_LIMITS, Limits
from schemas.reply import Reply
from schemas.topics import REPLIES, partition_for, session_key

T = TypeVar("T")

RECENT_LATENCIES: Final = 512
"""Latest answers of each path and route that a heartbeat's percentiles are taken over."""

HEADROOM_BYTES: Final = 64 * 1024
"""Room left in a record for its key, its headers and the broker's own framing."""

ATTRIBUTE_PREFIX: Final = "toksplice."
"""Before the names of a span's own attributes: path, route, engine and reason of the answer to its record."""

_NONE: Final = "none"
"""Path, route and engine of an answer that has none."""


class Context:
    """One worker's means of acting on the pipeline. All of it belongs to the event loop's thread."""

    def __init__(
        self,
        *,
        producer: Producer,
        telemetry: Telemetry,
        clock: Clock,
        settings: WorkerSettings,
        worker_id: str,
        control: ControlView,
        followers: Followers,
        pool: BlockingPool,
        make_producer: Callable[[], Awaitable[Producer]],
    ) -> None:
        """`make_producer` makes a further producer, for what must not stand before an answer."""
        self.producer = producer
        self.telemetry = telemetry
        self.clock = clock
        self.settings = settings
        self.worker_id = worker_id
        self.control = control
        self.partitions = settings.partitions
        self.limits: Limits = DEFAULT_LIMITS.of_records(settings.record_bytes)
        """For decoding what comes in."""
        self.write_limits: Limits = self.limits.of_records(settings.record_bytes - HEADROOM_BYTES)
        """For encoding what goes out, with room for key and headers."""
        self._followers = followers
        self._pool = pool
        self._spans: dict[tuple[TopicPartition, int], Span] = {}
        self._latencies: dict[str, tuple[int, deque[int]]] = {}
        self.tokenizer_name: Callable[[str], str] = lambda fingerprint: fingerprint
        """The registered name of a fingerprint, for metrics; the service sets it when it starts."""
        self.samples = Samples(
            make_producer=make_producer,
            telemetry=telemetry,
            clock=clock,
            settings=settings,
            worker_id=worker_id,
            control=control,
            pool=pool,
            limits=self.write_limits,
            tokenizer_name=lambda fingerprint: self.tokenizer_name(fingerprint),
        )
        """Where services report answers that may be sampled for checking."""

    # Answers

    async def reply(
        self,
        record: Record,
        reply: Reply,
        *,
        tokenizer: str = "",
        op: str = "",
        received_us: int | None = None,
        deadline_ms: int | None = None,
        evidence: Evidence | None = None,
    ) -> None:
        """Write the answer to `record` and return once the broker has acknowledged it.

        It goes to the partition that the record's reply-partition header asks for, else to the session's, and
        carries the record's correlation id and trace. An answer that does not fit a record is replaced by
        `rejected` / `text_too_large`; an `ok` that is later than `deadline_ms` by `expired`.

        Counts the answer in the request metrics, under `tokenizer` (registered name) and `op`; with
        `received_us` (when the classifier read the request, epoch microseconds) it also records the duration.
        With `evidence` of this very answer, a sample of it is written once it was acknowledged. Raises
        BrokerUnavailableError; the chassis then has the record handled again.
        """
        if reply.status is Status.OK and self.expired(deadline_ms):
            reply = _instead(reply, Code.EXPIRED, "the answer was ready after the deadline")
        value, reply = self._fit(reply)
        partition = self._reply_partition(record, reply)
        self._describe(record, reply)
        try:
            span = await self._send(
                REPLIES,
                record,
                value,
                partition=partition,
                tenant=reply.tenant,
                session_id=reply.session_id,
                headers=_correlation(record),
            )
        except BaseException:
            if evidence is not None:
                # When the record comes again the answer is a repeat, which is not sampled.
                self.samples.drop(Dropped.UNSENT)
            raise
        if evidence is not None:
            self.samples.offer(evidence, reply, self.telemetry.inject(_trace(record), span))
        self._count(reply, span, tokenizer=tokenizer, op=op, received_us=received_us)

    async def forward(self, topic: str, record: Record, value: bytes, *, tenant: str, session_id: str) -> None:
        """Write `value` to `topic` in the session's partition, with the headers of `record` and its trace;
        return after the acknowledgement.

        A one-off (`session_id` "") stays in the partition of `record`, so that one-offs of one tenant spread.
        Raises ProtocolError text_too_large for a value over the record limit, and BrokerUnavailableError.
        """
        if len(value) > self.write_limits.record_bytes:
            raise ProtocolError(Code.TEXT_TOO_LARGE, "the record would be over the record limit; send a shorter text")
        try:
            await self._send(
                topic,
                record,
                value,
                partition=self._session_partition(record, tenant, session_id),
                tenant=tenant,
                session_id=session_id,
                headers=record.headers,
            )
        except RecordTooLargeError as error:
            # A stranger's headers can be what makes the record too large; trying again would not help.
            raise ProtocolError(Code.TEXT_TOO_LARGE, str(error)) from error

    def expired(self, deadline_ms: int | None) -> bool:
        """True when there is a deadline (epoch milliseconds) and it has passed: check before the work
        starts."""
        return deadline_ms is not None and self.clock.now_ms() > deadline_ms

    # Other means

    async def run_blocking(self, fn: Callable[..., T], *args: Any) -> T:
        """`fn(*args)` on one of `settings.blocking_threads` threads: for anything over a millisecond."""
        return await self._pool.run(fn, *args)

    async def follow(self, topic: str, apply: Callable[[Record], None]) -> None:
        """Read all partitions of a compacted topic from the start, and on until the worker stops.

        `apply` gets each record (`value` None is a tombstone) on the event loop and must be quick and
        idempotent; an exception from it is logged and skips that record. Returns once everything that was in
        the topic has been applied; waits for the broker as long as that takes.
        """
        await self._followers.follow(topic, apply)

    # For the chassis

    def path_stats(self) -> dict[str, PathStats]:
        """Answers by path and route, for the heartbeat."""
        stats = {}
        for path, (count, recent) in self._latencies.items():
            ordered = sorted(recent)
            last = len(ordered) - 1
            stats[path] = PathStats(count=count, p50_us=ordered[last // 2], p99_us=ordered[last * 99 // 100])
        return stats

    def enter(self, record: Record, span: Span) -> None:
        """From here to `leave`, what is written for `record` continues in `span`, from whichever task."""
        self._spans[record.source, record.offset] = span

    def leave(self, record: Record) -> None:
        """The record is finished or given up."""
        self._spans.pop((record.source, record.offset), None)

    # Internals

    async def _send(
        self,
        topic: str,
        record: Record,
        value: bytes,
        *,
        partition: int,
        tenant: str,
        session_id: str,
        headers: Headers,
    ) -> Span:
        telemetry = self.telemetry
        parent = self._spans.get((record.source, record.offset))
        span = telemetry.start_send_span(
            topic,
            value,
            partition=partition,
            parent=parent,
            headers=record.headers,
            tenant=tenant,
            session_id=session_id,
        )
        try:
            await self.producer.send(
                topic,
                value,
                key=session_key(tenant, session_id) if session_id else None,
                partition=partition,
                headers=telemetry.inject(headers, span),
            )
        except BaseException as error:
            telemetry.fail(span, error)
            raise
        finally:
            span.end()
        return span

    def _describe(self, record: Record, reply: Reply) -> None:
        """Say on the record's span how its answer was made."""
        span = self._spans.get((record.source, record.offset))
        if span is None or not self.telemetry.tracing:
            return
        attributes = {f"{ATTRIBUTE_PREFIX}{key}": value for key, value in _made_by(reply).items()}
        span.set_attributes({**attributes, f"{ATTRIBUTE_PREFIX}reason": reply.reason})

    def _fit(self, reply: Reply) -> tuple[bytes, Reply]:
        most_bytes = self.write_limits.record_bytes
        if len(reply.ids) + len(reply.offsets or b"") <= most_bytes:
            try:
                return reply.encode(self.write_limits), reply
            except ProtocolError as error:
                if error.code is not Code.TEXT_TOO_LARGE:
                    # Not the record's fault, so it must not be answered as if it were.
                    raise ValueError(f"the service made a reply that breaks the protocol: {error}") from error
        small = _instead(
            reply,
            Code.TEXT_TOO_LARGE,
            f"the answer is over the record limit of {most_bytes} bytes; ask for less at a time",
        )
        return small.encode(self.write_limits), small

    def _session_partition(self, record: Record, tenant: str, session_id: str) -> int:
        if not session_id:
            return record.partition
        return partition_for(session_key(tenant, session_id), self.partitions)

    def _reply_partition(self, record: Record, reply: Reply) -> int:
        asked = reply_partition(record.headers, self.partitions)
        if asked is not None:
            return asked
        return self._session_partition(record, reply.tenant, reply.session_id)

    def _count(self, reply: Reply, span: Span, *, tokenizer: str, op: str, received_us: int | None) -> None:
        made = _made_by(reply)
        took_us = None if received_us is None else max(0, self.clock.now_us() - received_us)
        if took_us is not None:
            key = made["path"] if reply.route is None else PATH_SEPARATOR.join((made["path"], made["route"]))
            count, recent = self._latencies.get(key, (0, deque[int](maxlen=RECENT_LATENCIES)))
            recent.append(took_us)
            self._latencies[key] = (count + 1, recent)
        telemetry = self.telemetry
        if not telemetry.recording:
            return
        common = {**made, "status": reply.status.value, "tokenizer": tokenizer}
        telemetry.requests.add(1, {**common, "reason": reply.reason})
        if reply.status is Status.REJECTED and reply.code is not None:
            telemetry.rejections.add(1, {"code": reply.code.value})
        elif reply.status is Status.NEED_TEXT:
            telemetry.need_text.add(1)
        if reply.replayed:
            telemetry.replays.add(1)
        if took_us is not None:
            context = telemetry.exemplar_context(span)
            telemetry.request_duration.record(took_us / 1e6, {**common, "op": op}, context)


def _made_by(reply: Reply) -> dict[str, str]:
    """How an answer was made, as attributes."""
    path, route = reply.path, reply.route
    return {
        "path": path.value if path is not None else _NONE,
        "route": route.value if route is not None else _NONE,
        "engine": route.engine.value if route is not None else _NONE,
    }


def _instead(reply: Reply, code: Code, message: str) -> Reply:
    """The failure that replaces `reply`. It still tells the session's state: the change itself was made."""
    return Reply.failure(
        reply.request_id,
        code,
        message,
        tenant=reply.tenant,
        session_id=reply.session_id,
        path=reply.path,
        reason=reply.reason,
        epoch=reply.epoch,
        revision=reply.revision,
        length=reply.length,
        fingerprint=reply.fingerprint,
        timings=reply.timings,
    )


def _trace(record: Record) -> Headers:
    """The trace headers that came with a record."""
    return tuple((name, value) for name, value in record.headers if name in (TRACEPARENT, TRACESTATE))


def _correlation(record: Record) -> Headers:
    value = correlation_id(record.headers)
    return () if value is None else ((CORRELATION_ID, value),)
