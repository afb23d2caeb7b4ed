"""The consumer of tokenize.cpu-fallback: the whole text is encoded, then the session handed over, then the answer
given.

The native engine encodes where it serves the tokenizer, the reference everywhere else and while the breaker is open.

The order is the point. The state goes to the repair worker first and its acknowledgement is awaited, so that
a client that has the answer can send a delta at once and the repair worker is sure to have read the state
before it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from consumers.cpu_fallback.encode import Encoded, TokenizerSource, encode
from pipeline.context import Context
from pipeline.errors import RecordTooLargeError
from pipeline.faults import NO_FAULTS, Faults
from pipeline.ports import Record
from pipeline.samples import Trial
from pipeline.service import ServiceHealth
from pipeline.topology import CPU_GROUP
from schemas.codes import Code, Status
from schemas.errors import ProtocolError
from schemas.limits import INT_MAX
from schemas.reply import Path, Reply, Route
from schemas.request import Op
from schemas.topics import CPU, REPAIR
from schemas.work import Adopt, Served, Work, decode_work_record
from toksplice import TokSpliceError

FIRST_REVISION: Final = 1
ADOPT_TOO_LARGE: Final = "adopt_too_large"

_CODES: Final = {code.value: code for code in Code}
"""The protocol's code of a failure of the library, which names its own by the same words."""

_log = logging.getLogger(__name__)


def draw_epoch() -> int:
    """The name of a new session's life: 53 random bits, never 0."""
    return 1 + secrets.randbelow(INT_MAX)


class CpuFallbackService:
    """Encodes texts in full. Keeps nothing between records: sessions live in the repair worker."""

    kind = "cpu-fallback"
    topics: tuple[str, ...] = (CPU,)
    group = CPU_GROUP
    drains = True

    def __init__(
        self,
        tokenizers: TokenizerSource,
        *,
        draw_epoch: Callable[[], int] = draw_epoch,
        faults: Faults = NO_FAULTS,
    ) -> None:
        self._tokenizers = tokenizers
        self._faults = faults
        self._draw_epoch = draw_epoch
        self._fingerprints: tuple[str, ...] = ()
        self._ctx: Context

    async def start(self, ctx: Context) -> None:
        self._ctx = ctx
        ctx.tokenizer_name = self._tokenizers.name_of
        self._fingerprints = await ctx.run_blocking(_fingerprints, self._tokenizers)

    async def stop(self) -> None:
        """Nothing to release: work in a thread ends with its record."""

    async def partitions_assigned(self, partitions: frozenset[int]) -> None:
        """No state a partition."""

    async def partitions_lost(self, partitions: frozenset[int]) -> None:
        """No state a partition."""

    def health(self) -> ServiceHealth:
        return ServiceHealth(tokenizers=self._fingerprints)

    async def handle(self, record: Record) -> Awaitable[None] | None:
        if record.value is None:
            raise ProtocolError(Code.MALFORMED, "a record of this topic needs a value")
        work = decode_work_record(record.value, self._ctx.limits)
        if not isinstance(work, Work):
            raise ProtocolError(Code.MALFORMED, "sessions are the business of tokenize.repair-worker only", "kind")
        trial = self._ctx.samples.trial(work)
        await self._ctx.reply(
            record,
            await self._answer(record, work, trial),
            tokenizer=self._tokenizers.name_of(work.fingerprint),
            op=work.request.op.value,
            received_us=work.received_us,
            deadline_ms=work.request.deadline_ms,
            evidence=trial.evidence,
        )
        return None

    async def _answer(self, record: Record, work: Work, trial: Trial) -> Reply:
        """The reply to `work`; by then a session it began has been handed over."""
        started_us = self._ctx.clock.now_us()
        if work.request.op is not Op.TEXT:
            return self._failure(work, Code.UNKNOWN_SESSION, "only the repair worker holds sessions: send the text")
        if self._ctx.expired(work.request.deadline_ms):
            return self._failure(work, Code.EXPIRED, "the deadline passed before the text was encoded")
        try:
            by_reference = self._ctx.control.breaker_open(work.fingerprint)
            encoded = await self._ctx.run_blocking(encode, self._tokenizers, work, by_reference, self._faults)
        except TokSpliceError as error:
            _log.warning("a text of tokenizer %s was not encoded: %s", work.fingerprint[:12], error.code)
            code = _CODES.get(error.code, Code.INTERNAL)
            # The library's message may quote the text, so only what its code means is passed on.
            return self._failure(work, code, f"{code.meaning} {code.advice}")
        self._ctx.telemetry.characters_encoded.add(encoded.characters, {"engine": encoded.route.engine.value})
        if self._ctx.expired(work.request.deadline_ms):
            return self._failure(work, Code.EXPIRED, "the deadline passed while the text was encoded")
        epoch = 0
        if encoded.state is not None:
            epoch = self._draw_epoch()
            await self._hand_over(record, work, epoch, encoded.route, encoded.state)
        self._ctx.telemetry.characters_delivered.add(encoded.characters)
        reply = self._faults.answer(work, self._success(work, encoded, epoch, started_us))
        trial.after(reply)
        return reply

    async def _hand_over(self, record: Record, work: Work, epoch: int, route: Route, state: bytes) -> None:
        """Send the new session to its repair worker and wait for the acknowledgement.

        A state over the record limit is not sent: the answer is right all the same, and the client's next
        delta is asked for the text.
        """
        request = work.request
        adopt = Adopt(
            tenant=request.tenant,
            session_id=request.session_id,
            fingerprint=work.fingerprint,
            add_special_tokens=request.add_special_tokens,
            epoch=epoch,
            revision=FIRST_REVISION,
            state=state,
            served=Served(request_id=request.request_id, path=Path.CPU, reason=work.reason, route=route),
        )
        try:
            await self._ctx.forward(
                REPAIR,
                record,
                adopt.encode(self._ctx.write_limits),
                tenant=request.tenant,
                session_id=request.session_id,
            )
        except (ProtocolError, RecordTooLargeError) as error:
            _log.info("a session of %d bytes of state is not handed over: %s", len(state), error.code)
            self._ctx.telemetry.fallbacks.add(1, {"reason": ADOPT_TOO_LARGE})

    def _success(self, work: Work, encoded: Encoded, epoch: int, started_us: int) -> Reply:
        request = work.request
        return Reply(
            request_id=request.request_id,
            tenant=request.tenant,
            session_id=request.session_id,
            status=Status.OK,
            path=Path.CPU,
            reason=work.reason,
            route=encoded.route,
            epoch=epoch,
            revision=FIRST_REVISION if request.session_id else 0,
            length=encoded.length,
            ids=encoded.ids,
            total=encoded.total,
            offsets=encoded.offsets,
            fingerprint=work.fingerprint,
            encoded_chars=encoded.characters,
            timings={
                "queue_us": max(0, started_us - work.received_us),
                "tokenize_us": encoded.tokenize_us,
                "total_us": max(0, self._ctx.clock.now_us() - work.received_us),
            },
        )

    def _failure(self, work: Work, code: Code, message: str) -> Reply:
        request = work.request
        return Reply.failure(
            request.request_id,
            code,
            message,
            tenant=request.tenant,
            session_id=request.session_id,
            path=Path.CPU,
            reason=work.reason,
            fingerprint=work.fingerprint,
            timings={"total_us": max(0, self._ctx.clock.now_us() - work.received_us)},
        )


def _fingerprints(tokenizers: TokenizerSource) -> tuple[str, ...]:
    return tuple(sorted({tokenizers.resolve(name) for name in tokenizers.names()}))
