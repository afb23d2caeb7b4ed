"""Samples of a worker's answers on their way to tokenize.shadow, behind the answers and never before them.

On the way of an answer there is only a count, and for the one in n that is sampled two forks of its session and an
entry in a bounded queue: nothing that grows with the context. A task of the chassis does the rest, on a producer of
its own, so that a large sample stands before no reply. Whatever goes wrong here costs the sample and is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from typing import Final

import numpy as np

from pipeline.blocking import BlockingPool
from pipeline.clock import Clock
from pipeline.control import ControlView
from pipeline.errors import BrokerUnavailableError, PipelineError, RecordTooLargeError
from pipeline.ports import Headers, Producer
from pipeline.sampling import Sampler
from pipeline.settings import WorkerSettings
from pipeline.telemetry import Telemetry
from schemas.codes import Code, Status
from schemas.errors import ProtocolError
from schemas.limits import Limits
from schemas.reply import Path, Reply
from schemas.request import Op
from schemas.sample import Sample
from schemas.topics import SHADOW, partition_for, session_key
from schemas.work import Work
from toksplice import Session
from toksplice.gather import Part, gather, little_endian
from toksplice.patch import common_prefix

ENTRY_BYTES: Final = 1024
"""What one waiting sample weighs besides its text and ids."""

_ID: Final = np.dtype("<u4")
_SAMPLE_ID_BYTES: Final = 16

_log = logging.getLogger(__name__)


class Dropped(StrEnum):
    """Why a sample that was taken does not arrive."""

    UNSENT = "unsent"
    """Its answer did not go out, or another one in its place."""
    QUEUE_FULL = "queue_full"
    TOO_LARGE = "too_large"
    BROKER = "broker"
    FAILED = "failed"


@functools.cache
def engine_version() -> str:
    """The version of this project, and so of its engine."""
    try:
        return metadata.version("toksplice")
    except metadata.PackageNotFoundError:
        return "unreleased"


@functools.cache
def library_versions() -> tuple[tuple[str, str], ...]:
    """The libraries that decide ids, with their versions."""
    return tuple((name, metadata.version(name)) for name in ("tokenizers", "numpy"))


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True, eq=False)
class Evidence:
    """What a sample is made of. The sessions are forks that nobody else reads.

    `session` is the state after the answer, None when the request's own text is it; `before` the state that the
    answer's patch applies to, None when there was none or it was not kept.
    """

    work: Work
    reply: Reply
    tokenizer: str
    session: Session | None
    before: Session | None
    certificate: str

    @property
    def size_bytes(self) -> int:
        """Bytes that the sample will have, about as many as it holds in memory until then."""
        reply = self.reply
        return ENTRY_BYTES + reply.length + _ID.itemsize * reply.total + len(reply.offsets or b"")


class Trial:
    """One request, from before its answer is made until it is known whether it is sampled. Made by `Samples.trial`."""

    def __init__(self, samples: Samples, work: Work) -> None:
        self._samples = samples
        self._work = work
        self._before: Session | None = None
        self.evidence: Evidence | None = None
        """Set once the answer is to be sampled."""

    def before(self, session: Session, *paths: Path, at_once: bool) -> None:
        """Keep the state that a patch will apply to, if an answer on one of `paths` may be sampled. O(1). Call it
        when nobody else touches the session. `at_once`: nothing is awaited until `after`.

        Other answers may be counted while this one is made on a thread, so it is known only afterwards whether it is
        the chosen one. A session on the reference is kept only when it would be the next, since its change then copies
        it.
        """
        samples, fingerprint = self._samples, self._work.fingerprint
        next_one = at_once or not session.native
        if samples.due(fingerprint, paths) if next_one else samples.wanted(fingerprint):
            self._before = session.fork()

    def after(self, reply: Reply, session: Session | None = None, certificate: str = "") -> None:
        """Count an answer that was made, and keep the state behind it if it is sampled. O(1)."""
        name = None if reply.path is None else self._samples.take(self._work.fingerprint, reply.path)
        if name is None:
            self._before = None
            return
        self.evidence = Evidence(
            work=self._work,
            reply=reply,
            tokenizer=name,
            session=None if session is None else session.fork(),
            before=self._before,
            certificate=certificate,
        )


@dataclass(frozen=True, slots=True)
class _Waiting:
    evidence: Evidence
    headers: Headers
    time_ms: int
    size_bytes: int


class Samples:
    """The samples of one worker. All of it belongs to the event loop's thread."""

    def __init__(
        self,
        *,
        make_producer: Callable[[], Awaitable[Producer]],
        telemetry: Telemetry,
        clock: Clock,
        settings: WorkerSettings,
        worker_id: str,
        control: ControlView,
        pool: BlockingPool,
        limits: Limits,
        tokenizer_name: Callable[[str], str],
    ) -> None:
        """`tokenizer_name` gives the registered name of a fingerprint."""
        self._make_producer = make_producer
        self._opening: asyncio.Task[Producer] | None = None
        """Gives the producer; a task, so that whoever is cancelled while it connects leaves nothing half open."""
        self._telemetry = telemetry
        self._clock = clock
        self._settings = settings
        self._worker_id = worker_id
        self._control = control
        self._pool = pool
        self._limits = limits
        self._tokenizer_name = tokenizer_name
        self.sampler = Sampler(settings.sampling_seed, worker_id, engine_version=engine_version())
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        for reason in Dropped:
            telemetry.shadow_dropped.add(0, {"reason": reason.value})

    def __len__(self) -> int:
        return len(self._waiting)

    # On the way of an answer

    def trial(self, work: Work) -> Trial:
        """Begin with a request."""
        return Trial(self, work)

    def wanted(self, fingerprint: str) -> bool:
        """Whether any answers of this tokenizer are sampled."""
        return self._control.sampling(fingerprint) > 0

    def due(self, fingerprint: str, paths: tuple[Path, ...]) -> bool:
        """Whether the next answer on one of `paths` is sampled."""
        return self.sampler.due(fingerprint, self._control.sampling(fingerprint), paths)

    def take(self, fingerprint: str, path: Path) -> str | None:
        """Count an answer. Returns the tokenizer's name when the answer is sampled, None when it is not."""
        if not self.sampler.take(fingerprint, self._control.sampling(fingerprint), path):
            return None
        name = self._tokenizer_name(fingerprint)
        self._telemetry.shadow_samples.add(1, {"tokenizer": name, "path": path.value, "result": "taken"})
        return name

    def offer(self, evidence: Evidence, sent: Reply, headers: Headers) -> None:
        """Have a sample written, now that its answer was acknowledged. `headers` name the trace of the answer."""
        if sent is not evidence.reply or sent.status is not Status.OK:
            self.drop(Dropped.UNSENT)
            return
        size_bytes = evidence.size_bytes
        settings = self._settings
        if (
            len(self._waiting) >= settings.sample_queue_records
            or self._bytes + size_bytes > settings.sample_queue_bytes
        ):
            self.drop(Dropped.QUEUE_FULL)
            return
        self._waiting.append(_Waiting(evidence, headers, self._clock.now_ms(), size_bytes))
        self._bytes += size_bytes
        self._arrived.set()

    def drop(self, reason: Dropped) -> None:
        """Count a sample that will not arrive."""
        self._telemetry.shadow_dropped.add(1, {"reason": reason.value})

    # Behind the answers

    async def send_next(self) -> None:
        """Wait for a sample and write it. Raises nothing but CancelledError."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        waiting = self._waiting.popleft()
        try:
            await self._send(waiting)
        except asyncio.CancelledError:
            # A worker that stops drains what waits.
            self._waiting.appendleft(waiting)
            self._bytes += waiting.size_bytes
            raise
        except (BrokerUnavailableError, OSError):
            self.drop(Dropped.BROKER)
        except (ProtocolError, RecordTooLargeError) as error:
            self.drop(Dropped.TOO_LARGE if error.code == Code.TEXT_TOO_LARGE else Dropped.FAILED)
        except Exception as error:
            _log.error("a sample could not be made: %s", type(error).__name__)
            self.drop(Dropped.FAILED)
        finally:
            # Only now: what is being written counts against the bound too.
            self._bytes -= waiting.size_bytes

    async def drain(self) -> None:
        """Write what waits, then close the producer; bounded by the caller."""
        while self._waiting:
            await self.send_next()
        opening, self._opening = self._opening, None
        if opening is not None:
            with contextlib.suppress(PipelineError):
                await (await opening).stop()

    async def _send(self, waiting: _Waiting) -> None:
        producer = await self._own_producer()
        value = await self._pool.run(sample_record, waiting.evidence, waiting.time_ms, self._worker_id, self._limits)
        request = waiting.evidence.work.request
        key = session_key(request.tenant, request.session_id) if request.session_id else None
        partition = None if key is None else partition_for(key, self._settings.partitions)
        await producer.send(SHADOW, value, key=key, partition=partition, headers=waiting.headers)

    async def _own_producer(self) -> Producer:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="the samples' producer")
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except Exception:
            self._opening = None
            raise

    async def _open(self) -> Producer:
        return await self._make_producer()


def sample_record(evidence: Evidence, time_ms: int, worker_id: str, limits: Limits) -> bytes:
    """The record of a sample: text, and ids as the client has them. Blocking: it costs what text and ids cost to copy,
    once, and while other threads run where the engine serves. Raises ProtocolError."""
    if evidence.size_bytes - ENTRY_BYTES > limits.record_bytes:
        raise ProtocolError(Code.TEXT_TOO_LARGE, "the sample would be over the record limit")
    text = _text_of_client(evidence)
    ids, same_until = _ids_of_client(evidence)
    sizes = {"text": sum(map(len, text)), "ids": sum(map(len, ids))}
    head = _head(evidence, time_ms, worker_id, same_until)
    before_text, before_ids, behind = head.encode_around(sizes, limits)
    return gather([before_text, *text, before_ids, *ids, behind])


def _head(evidence: Evidence, time_ms: int, worker_id: str, same_until: int) -> Sample:
    """A sample without its text and its ids."""
    work, reply = evidence.work, evidence.reply
    request, path, route = work.request, reply.path, reply.route
    if path is None or route is None:
        raise ValueError("an answer without path or route is no answer to check")
    return Sample(
        sample_id=secrets.token_hex(_SAMPLE_ID_BYTES),
        time_ms=time_ms,
        tenant=request.tenant,
        session_id=request.session_id,
        request_id=request.request_id,
        op=request.op,
        fingerprint=work.fingerprint,
        tokenizer=evidence.tokenizer,
        add_special_tokens=request.add_special_tokens,
        path=path,
        route=route,
        reason=reply.reason,
        epoch=reply.epoch,
        revision=reply.revision,
        text=b"",
        ids=b"",
        offsets=reply.offsets,
        restarts=None if evidence.session is None else evidence.session.restarts,
        keep_left=reply.keep_left,
        keep_right=reply.keep_right,
        first_changed=reply.first_changed,
        same_until=same_until,
        certificate=evidence.certificate,
        engine=route.engine.value,
        engine_version=engine_version(),
        libraries=dict(library_versions()),
        worker=worker_id,
    )


def _text_of_client(evidence: Evidence) -> tuple[Part, ...]:
    """The text after the answer, UTF-8. Where the text before is at hand the change is made on it once more, so that a
    session that is not in the state it is taken for shows."""
    request, before, session = evidence.work.request, evidence.before, evidence.session
    new = (request.text or "").encode()
    if request.op is Op.TEXT or session is None:
        return (new,)
    if before is None:
        return session.utf8_parts(0, session.length)
    match request.op:
        case Op.APPEND:
            return (*before.utf8_parts(0, before.length), new)
        case Op.SPLICE:
            start, end = request.start or 0, request.end or 0
            return (*before.utf8_parts(0, start), new, *before.utf8_parts(end, before.length))
        case Op.TRUNCATE:
            return before.utf8_parts(0, request.length or 0)
        case _:
            raise ValueError(f"{request.op.value} is no change of a text")


def _ids_of_client(evidence: Evidence) -> tuple[tuple[Part, ...], int]:
    """All ids after the answer, little-endian u32, by the protocol's rule, and how many at the start are as before.

    Where the state before is not at hand the one after stands in for it: it has the kept ids at the same places.
    """
    reply = evidence.reply
    base = evidence.session if evidence.before is None else evidence.before
    if base is None:
        return (reply.ids,), 0
    total = base.total
    left, right = min(reply.keep_left, total), max(0, total - reply.keep_right)
    ids = (*base.ids_parts(0, left), reply.ids, *base.ids_parts(right, total))
    if evidence.before is None:
        return ids, reply.first_changed
    # What is kept at the left is the same by the rule, so only what follows is compared.
    behind = np.frombuffer(reply.ids + little_endian(base.ids_between(right, total)), _ID)
    return ids, left + common_prefix(base.ids_between(left, total), behind.astype(np.uint32, copy=False))
