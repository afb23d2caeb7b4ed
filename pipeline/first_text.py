"""What every worker that encodes whole texts does once it has the tokens: hand the session over, then answer.

The order is the point. The state goes to the repair worker first and its acknowledgement is awaited, so that a client
that has the answer can send a delta at once and the repair worker is sure to have read the state before it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pipeline.context import Context
from pipeline.errors import RecordTooLargeError
from pipeline.ports import Record
from pipeline.samples import Evidence
from schemas.codes import Code, Status
from schemas.errors import ProtocolError
from schemas.limits import INT_MAX, Limits
from schemas.reply import Path, Reply, Route
from schemas.request import Op
from schemas.topics import CPU, REPAIR
from schemas.work import Adopt, Served, Work, decode_work_record

FIRST_REVISION: Final = 1
ADOPT_TOO_LARGE: Final = "adopt_too_large"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A whole text, encoded. `ids` and `offsets` are little-endian u32 as in a reply."""

    ids: bytes
    offsets: bytes | None
    total: int
    length: int
    """UTF-8 bytes of the text."""
    characters: int
    route: Route
    state: bytes | None
    """Snapshot of the session; None for a one-off."""
    tokenize_us: int


def draw_epoch() -> int:
    """The name of a new session's life: 53 random bits, never 0."""
    return 1 + secrets.randbelow(INT_MAX)


def work_of(record: Record, limits: Limits) -> Work:
    """The work in a record of a topic of whole texts. Raises ProtocolError for anything else."""
    if record.value is None:
        raise ProtocolError(Code.MALFORMED, "a record of this topic needs a value")
    work = decode_work_record(record.value, limits)
    if not isinstance(work, Work):
        raise ProtocolError(Code.MALFORMED, "sessions are the business of tokenize.repair-worker only", "kind")
    return work


async def pass_on(ctx: Context, record: Record, work: Work, reason: str) -> None:
    """Down the ladder, to the CPU fallback, which passes nothing on itself; returns after the acknowledgement."""
    ctx.telemetry.fallbacks.add(1, {"reason": reason})
    onward = replace(work, reason=reason, hops=work.hops + 1)
    await ctx.forward(
        CPU,
        record,
        onward.encode(ctx.write_limits),
        tenant=work.request.tenant,
        session_id=work.request.session_id,
    )


class FirstTexts:
    """Hands over and answers for one worker, whose answers bear `path`."""

    def __init__(
        self, ctx: Context, path: Path, name_of: Callable[[str], str], draw_epoch: Callable[[], int] = draw_epoch
    ) -> None:
        """`name_of` gives the registered name of a fingerprint."""
        self._ctx = ctx
        self._path = path
        self._name_of = name_of
        self._draw_epoch = draw_epoch

    def refusal(self, work: Work) -> Reply | None:
        """The answer to work that is not to be begun here, whatever can encode; None when it is."""
        if work.request.op is not Op.TEXT:
            return self.failure(work, Code.UNKNOWN_SESSION, "only the repair worker holds sessions: send the text")
        if self._ctx.expired(work.request.deadline_ms):
            return self.failure(work, Code.EXPIRED, "the deadline passed before the text was encoded")
        return None

    async def finish(self, record: Record, work: Work, encoded: Encoded, started_us: int) -> Reply:
        """The reply to `work`; by then a session that it began has been handed over, unless the deadline has passed."""
        self._ctx.telemetry.characters_encoded.add(encoded.characters, {"engine": encoded.route.engine.value})
        if self._ctx.expired(work.request.deadline_ms):
            return self.failure(work, Code.EXPIRED, "the deadline passed while the text was encoded")
        epoch = 0
        if encoded.state is not None:
            epoch = self._draw_epoch()
            await self._hand_over(record, work, epoch, encoded.route, encoded.state)
        self._ctx.telemetry.characters_delivered.add(encoded.characters)
        return self._success(work, encoded, epoch, started_us)

    async def answer(self, record: Record, work: Work, reply: Reply, evidence: Evidence | None = None) -> None:
        """Write the reply, and return once the broker has acknowledged it."""
        await self._ctx.reply(
            record,
            reply,
            tokenizer=self._name_of(work.fingerprint),
            op=work.request.op.value,
            received_us=work.received_us,
            deadline_ms=work.request.deadline_ms,
            evidence=evidence,
        )

    def failure(self, work: Work, code: Code, message: str) -> Reply:
        """The reply that says why there are no tokens."""
        request = work.request
        return Reply.failure(
            request.request_id,
            code,
            message,
            tenant=request.tenant,
            session_id=request.session_id,
            path=self._path,
            reason=work.reason,
            fingerprint=work.fingerprint,
            timings={"total_us": self._age_us(work)},
        )

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
            served=Served(request_id=request.request_id, path=self._path, reason=work.reason, route=route),
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
            path=self._path,
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
                "total_us": self._age_us(work),
            },
        )

    def _age_us(self, work: Work) -> int:
        return max(0, self._ctx.clock.now_us() - work.received_us)
