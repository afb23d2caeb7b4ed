"""The consumer of tokenize.repair-worker: finds the session, changes it, remembers the answer, answers.

The rules that keep it exact and idempotent:

- A change is made under the session's lock, and its new name (epoch, revision) and its answer are noted
  before anything else is awaited. A change that is interrupted leaves a session of unknown state, so that
  session is dropped.
- The answer is remembered before it is sent. When sending fails the record is handled again and finds it.
- (epoch, revision) never names two texts, although after a crash records are worked on again and may fare
  differently. Whatever could make a difference has the session draw a new random epoch with its next change: it was
  restored from a snapshot; a delta waited for its state; or a change was not made, by its deadline or a failure, that
  an earlier life may have made.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from pipeline.context import Context
from pipeline.errors import BrokerOverloadedError, RecordTooLargeError
from pipeline.faults import NO_FAULTS, Faults
from pipeline.first_text import FIRST_REVISION, draw_epoch, pass_on
from pipeline.ports import Record
from pipeline.samples import Evidence, Trial
from pipeline.service import ServiceHealth
from pipeline.tokenizers import TokenizerSource, fingerprints
from pipeline.topology import REPAIR_GROUP
from repair_worker import answers
from repair_worker.changes import (
    Change,
    Fit,
    apply,
    code_of,
    cut,
    fit,
    identity_of,
    is_brief,
    length_after,
)
from repair_worker.history import History
from repair_worker.keeper import Keeper
from repair_worker.settings import RepairSettings, SnapshotSettings
from repair_worker.snapshots import SnapshotFile
from repair_worker.store import Entry
from repair_worker.waiting import Parked, Waiting
from schemas.codes import Code
from schemas.errors import ProtocolError
from schemas.reply import Path, Reply
from schemas.request import Base, Op, Want
from schemas.topics import REPAIR
from schemas.work import Adopt, Drop, Work, decode_work_record
from toksplice import Certificate, Session, TokSpliceError

SESSION_NOT_HELD: Final = "session_not_held"
BREAKER_OPEN: Final = "breaker_open"
OVER_SPLICE_LIMIT: Final = "over_splice_limit"

_REFUSALS: Final = frozenset({"uncertified", "not_worth_it", "offsets_drift"})
"""Reasons of the library for a full encode after a certificate had been sought in vain."""

_SURE_REFUSALS: Final = frozenset({Code.BAD_POSITION, Code.INVALID_UTF8})
"""Codes of changes that no life of a session can have made."""

_log = logging.getLogger(__name__)


class RepairService:
    """Answers the changes of the sessions in this worker's partitions."""

    kind = "repair-worker"
    topics: tuple[str, ...] = (REPAIR,)
    group = REPAIR_GROUP
    drains = True

    def __init__(
        self,
        tokenizers: TokenizerSource,
        settings: RepairSettings | None = None,
        *,
        snapshot_path: str | os.PathLike[str] | None = None,
        snapshot_settings: SnapshotSettings | None = None,
        draw_epoch: Callable[[], int] = draw_epoch,
        faults: Faults = NO_FAULTS,
    ) -> None:
        """With `snapshot_path` sessions outlive the process; only for one worker that has every partition."""
        self._tokenizers = tokenizers
        self._settings = settings or RepairSettings()
        self._snapshot_path = snapshot_path
        self._snapshot_settings = snapshot_settings
        self._draw_epoch = draw_epoch
        self._faults = faults
        self._fingerprints: tuple[str, ...] = ()
        self._ctx: Context
        self._keeper: Keeper
        self._waiting: Waiting

    async def start(self, ctx: Context) -> None:
        self._ctx = ctx
        ctx.tokenizer_name = self._tokenizers.name_of
        snapshots = None
        if self._snapshot_path is not None:
            snapshots = SnapshotFile(
                self._snapshot_path,
                self._snapshot_settings,
                now_ms=ctx.clock.now_ms,
                ttl_s=self._settings.session_ttl_s,
                failures=ctx.telemetry.snapshot_failures,
                run_blocking=ctx.run_blocking,
            )
        self._keeper = Keeper(ctx, self._tokenizers, self._settings, snapshots)
        self._waiting = Waiting(ctx.clock, self._settings, fit_now=self._fit_now, serve=self._serve_waited)
        self._fingerprints = await ctx.run_blocking(fingerprints, self._tokenizers)
        for outcome in ("accepted", "refused"):
            ctx.telemetry.certificates.add(0, {"outcome": outcome})
        await self._keeper.start()
        ctx.control.on_breaker(self._keeper.doubt_tokenizer)

    async def stop(self) -> None:
        await self._keeper.stop()

    async def partitions_assigned(self, partitions: frozenset[int]) -> None:
        self._keeper.doubt_partitions(partitions)

    async def partitions_lost(self, partitions: frozenset[int]) -> None:
        self._waiting.drop_partitions(partitions)
        self._keeper.drop_partitions(partitions)

    def health(self) -> ServiceHealth:
        return ServiceHealth(tokenizers=self._fingerprints, queue_depth=len(self._waiting), detail=self._keeper.problem)

    async def handle(self, record: Record) -> Awaitable[None] | None:
        if record.value is None:
            raise ProtocolError(Code.MALFORMED, "a record of this topic needs a value")
        message = decode_work_record(record.value, self._ctx.limits)
        if isinstance(message, Adopt):
            await self._adopt(record, message)
            return None
        if isinstance(message, Drop):
            await self._keeper.drop(identity_of(message))
            return None
        parked = await self._serve(record, message)
        if parked is not None:
            return self._waiting.outcome(parked)
        await self._waiting.settle(identity_of(message))
        return None

    # Hand-over

    async def _adopt(self, record: Record, adopt: Adopt) -> None:
        identity = identity_of(adopt)
        current = await self._keeper.find(identity, record.partition)
        if current is not None and _is_duplicate(current, adopt):
            await self._keeper.announce(current)
        else:
            try:
                session = await self._keeper.restore(identity, adopt.state)
            except TokSpliceError as error:
                raise ProtocolError(code_of(error), "the state handed over cannot be restored", "state") from error
            entry = Entry(
                identity=identity,
                partition=record.partition,
                session=session,
                length=session.length,
                epoch=adopt.epoch,
                revision=adopt.revision,
                origin_epoch=adopt.epoch,
                # The client may still repeat requests that it made of the session before.
                history=History(self._settings.history(), () if current is None else current.history),
            )
            if adopt.served is not None:
                reply = answers.served(adopt, adopt.served, length=session.length)
                entry.history.remember_elided(reply, session.total)
            self._keeper.hold(entry)
            await self._keeper.announce(entry)
        await self._waiting.settle(identity)

    # One request

    async def _serve(self, record: Record, work: Work, *, may_wait: bool = True) -> Parked | None:
        """Answer `work`, or return it parked; with not `may_wait` it is always answered."""
        started_us = self._ctx.clock.now_us()
        identity = identity_of(work)
        trial = self._ctx.samples.trial(work)
        if self._ctx.expired(work.request.deadline_ms):
            self._keeper.doubt(identity)
            await self._answer(record, work, answers.failed(work, None, Code.EXPIRED, "the deadline has passed"))
            return None
        while (entry := await self._keeper.find(identity, record.partition)) is not None:
            async with self._keeper.exclusive(entry):
                # Closed or replaced while this waited for the lock: look again.
                if entry.held:
                    # Whether a delta that waited is in time can turn out differently in another life.
                    entry.renew |= not may_wait
                    reply = await self._with_session(record, work, entry, started_us, trial)
                    if reply is None:
                        if may_wait and (parked := self._waiting.park(record, work)) is not None:
                            return parked
                        reply = self._stale(work, entry)
                    break
        else:
            return await self._without_session(record, work, may_wait)
        if work.request.op is Op.CLOSE:
            await self._keeper.close(entry)
        else:
            await self._keeper.announce(entry)
        await self._answer(record, work, reply, trial.evidence)
        return None

    async def _without_session(self, record: Record, work: Work, may_wait: bool) -> Parked | None:
        request = work.request
        if request.op is Op.TEXT:
            await self._pass_on(record, work)
            return None
        if request.op is Op.CLOSE:
            await self._answer(record, work, answers.closed(work, None))
            return None
        others_wait = bool(self._waiting.of(identity_of(work)))
        if (
            may_wait
            and request.base is not None
            and fit(request.base, None, others_wait=others_wait) is Fit.TO_COME
            and (parked := self._waiting.park(record, work)) is not None
        ):
            return parked
        reply = answers.failed(work, None, Code.UNKNOWN_SESSION, "the session is not held: send the whole text")
        await self._answer(record, work, reply)
        return None

    async def _pass_on(self, record: Record, work: Work) -> None:
        """A whole text whose session is not held is the CPU worker's, which hands the new session over."""
        if work.hops >= self._settings.hops_max:
            _log.error("a request was passed on %d times", work.hops)
            message = "the request was passed on too often"
            await self._answer(record, work, answers.failed(work, None, Code.INTERNAL, message))
            return
        await pass_on(self._ctx, record, work, SESSION_NOT_HELD)

    async def _with_session(
        self, record: Record, work: Work, entry: Entry[Session], started_us: int, trial: Trial
    ) -> Reply | None:
        """The reply to `work` on a session that is held and locked; None when its base may still come."""
        request = work.request
        if (repeat := await self._repeated(work, entry)) is not None:
            # Where the history reaches less far back, the same record would have made a change.
            entry.renew = True
            return repeat
        if request.op is Op.CLOSE:
            return answers.closed(work, entry)
        if request.base is not None and request.op is not Op.TEXT:
            match fit(request.base, _state(entry), others_wait=False):
                case Fit.TO_COME:
                    return None
                case Fit.STALE:
                    return self._stale(work, entry)
        length = length_after(request, entry.length)
        if length > self._text_bytes_max:
            message = f"a session's text may have {self._text_bytes_max} bytes"
            entry.renew = True
            return self._remembered(entry, answers.failed(work, entry, Code.TEXT_TOO_LARGE, message))
        try:
            if request.op is Op.FORK:
                return await self._fork(record, work, entry)
            return await self._change(work, entry, length, started_us, trial)
        except TokSpliceError as error:
            _log.info("a change by tokenizer %s was refused: %s", work.fingerprint[:12], error.code)
            code = code_of(error)
            entry.renew |= code not in _SURE_REFUSALS
            # The library's message may quote the text, so only what its code means is passed on.
            return self._remembered(entry, answers.failed(work, entry, code, f"{code.meaning} {code.advice}"))

    async def _repeated(self, work: Work, entry: Entry[Session]) -> Reply | None:
        """The remembered answer when `work` repeats a request, or `stale_revision` when it cannot be given
        again."""
        remembered = entry.history.recall(work.request.request_id)
        if remembered is None:
            return None
        kept = remembered.reply()
        if answers.ids_missing(remembered, kept, work.request):
            if (kept.epoch, kept.revision) != (entry.epoch, entry.revision):
                return answers.failed(
                    work,
                    entry,
                    Code.STALE_REVISION,
                    "this request was answered before, and its session has moved on",
                )
            total = kept.total if remembered.elided_total is None else remembered.elided_total
            ids = await self._ctx.run_blocking(
                cut, entry.session, kept.keep_left, total - kept.keep_right, work.request.offsets
            )
            kept = answers.completed(kept, total, ids)
        return replace(kept, replayed=True)

    async def _change(self, work: Work, entry: Entry[Session], length: int, started_us: int, trial: Trial) -> Reply:
        """Change the session, whose text then has `length` bytes, and note the answer. Raises TokSpliceError with the
        session as it was."""
        forced = self._force_reason(work, entry, length)
        barred = forced is BREAKER_OPEN
        brief = forced is None and is_brief(entry.session, work.request)
        trial.before(entry.session, Path.REPAIR, Path.CPU, at_once=brief and self._faults is NO_FAULTS)
        try:
            if self._faults is not NO_FAULTS:
                entry.session = await self._ctx.run_blocking(self._faults.state, work, entry.session)
            if barred:
                # Whoever opened the breaker doubts what ran until now, the engine too.
                entry.session = await self._ctx.run_blocking(entry.session.on_reference)
            # What the client has may be wrong as well, so behind a breaker nothing of it is kept.
            if brief:
                change = apply(entry.session, work.request, False)
            else:
                change = await self._ctx.run_blocking(apply, entry.session, work.request, forced is not None, barred)
        except TokSpliceError:
            raise
        except BaseException:
            self._keeper.interrupted(entry)
            raise
        # From here to the end nothing is awaited: name, answer and accounts change together with the session.
        if entry.renew:
            entry.epoch = self._draw_epoch()
            entry.renew = False
        entry.revision += 1
        entry.length = change.length
        reason = self._observe(work, change, forced)
        timings = {
            "queue_us": max(0, started_us - work.received_us),
            "tokenize_us": change.tokenize_us,
            "total_us": self._age_us(work),
        }
        reply = self._faults.answer(work, answers.changed(work, entry, change, reason, timings))
        trial.after(reply, entry.session, _on_what(change))
        if trial.evidence is not None:
            self._keeper.lent(entry, trial.evidence)
        return self._remembered(entry, reply)

    async def _fork(self, record: Record, work: Work, entry: Entry[Session]) -> Reply:
        """Hand a copy of the session to its own repair worker, and note the answer. The session stays as it
        is."""
        request = work.request
        session = entry.session
        adopt = Adopt(
            tenant=request.tenant,
            session_id=request.new_session or "",
            fingerprint=work.fingerprint,
            add_special_tokens=request.add_special_tokens,
            epoch=self._draw_epoch(),
            revision=FIRST_REVISION,
            state=await self._ctx.run_blocking(session.to_bytes),
        )
        try:
            value = adopt.encode(self._ctx.write_limits)
            await self._ctx.forward(REPAIR, record, value, tenant=request.tenant, session_id=adopt.session_id)
        except BrokerOverloadedError:
            # Waiting could be for ever: where the copy goes may be the partition that this very record holds up.
            message = "the partition of the new session is full"
            return self._remembered(entry, answers.failed(work, entry, Code.OVERLOADED, message))
        except (ProtocolError, RecordTooLargeError):
            message = "the session is too large to be handed over: start the new one by its text"
            return self._remembered(entry, answers.failed(work, entry, Code.TEXT_TOO_LARGE, message))
        ids = None
        if request.want is Want.IDS:
            ids = await self._ctx.run_blocking(cut, session, 0, session.total, request.offsets)
        timings = {"total_us": self._age_us(work)}
        reply = answers.forked(work, adopt, total=session.total, length=entry.length, ids=ids, timings=timings)
        return self._remembered(entry, reply)

    async def _answer(self, record: Record, work: Work, reply: Reply, evidence: Evidence | None = None) -> None:
        await self._ctx.reply(
            record,
            reply,
            tokenizer=self._tokenizers.name_of(work.fingerprint),
            op=work.request.op.value,
            received_us=work.received_us,
            deadline_ms=work.request.deadline_ms,
            evidence=evidence,
        )

    async def _fit_now(self, parked: Parked) -> Fit:
        """How the base of a waiting delta relates to its session by now."""
        entry = await self._keeper.find(parked.identity, parked.record.partition)
        base = parked.work.request.base
        if base is None:
            return Fit.STALE
        return fit(base, None if entry is None else _state(entry), others_wait=True)

    async def _serve_waited(self, record: Record, work: Work) -> None:
        await self._serve(record, work, may_wait=False)

    # Small matters

    @property
    def _text_bytes_max(self) -> int:
        # A text that one request cannot carry could never be sent again after its session is gone.
        return min(self._settings.session_text_bytes_max, self._ctx.limits.text_bytes)

    def _force_reason(self, work: Work, entry: Entry[Session], length: int) -> str | None:
        """Why this change must be made by the reference on the whole text; None when it may be spliced."""
        if self._ctx.control.breaker_open(work.fingerprint):
            return BREAKER_OPEN
        if length > self._settings.splice_text_bytes_max and not entry.session.native:
            return OVER_SPLICE_LIMIT
        return None

    def _observe(self, work: Work, change: Change, forced: str | None) -> str:
        """Record what the change took; returns the reason for its path."""
        telemetry, patch = self._ctx.telemetry, change.patch
        telemetry.characters_encoded.add(patch.chars_encoded, {"engine": change.route.engine.value})
        telemetry.characters_delivered.add(len(work.request.text or ""))
        if isinstance(patch.certificate, Certificate):
            telemetry.certificates.add(1, {"outcome": "accepted"})
            telemetry.certificate_doublings.record(patch.certificate.doublings)
        elif patch.reason in _REFUSALS:
            telemetry.certificates.add(1, {"outcome": "refused"})
        if patch.route != "D":
            return work.reason
        reason = forced or patch.reason
        telemetry.fallbacks.add(1, {"reason": reason})
        return reason

    def _stale(self, work: Work, entry: Entry[Session]) -> Reply:
        message = "the session is in another state than the base names: send the whole text"
        return self._remembered(entry, answers.failed(work, entry, Code.STALE_REVISION, message))

    def _remembered(self, entry: Entry[Session], reply: Reply) -> Reply:
        """Note `reply` for repeats of its request. A retriable failure is not noted: trying again is its
        remedy."""
        if not reply.retriable:
            entry.history.remember(reply)
        self._keeper.changed(entry)
        return reply

    def _age_us(self, work: Work) -> int:
        return max(0, self._ctx.clock.now_us() - work.received_us)


def _on_what(change: Change) -> str:
    """What a splice was accepted on, for a sample."""
    certificate = change.patch.certificate
    return "" if certificate is None else str(certificate)


def _state(entry: Entry[Session]) -> Base:
    """The state of a session, as a delta would name it."""
    return Base(revision=entry.revision, length=entry.length, epoch=entry.epoch)


def _is_duplicate(current: Entry[Session], adopt: Adopt) -> bool:
    """True when this hand-over was taken before: the same state again, or the same request worked on again."""
    if current.origin_epoch == adopt.epoch:
        return True
    return adopt.served is not None and current.history.recall(adopt.served.request_id) is not None
