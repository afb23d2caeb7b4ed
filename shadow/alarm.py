"""What follows from a wrong answer: everybody is told, the tokenizer is barred, the session ends, the sample is kept.

The order is by urgency. Each step may fail with an unreachable broker; the sample is then handled again from the
start, so every step is idempotent.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from opentelemetry import trace

from pipeline.context import Context
from schemas.codes import Code
from schemas.errors import ProtocolError
from schemas.health import Control
from schemas.sample import Finding, Sample, Tier
from schemas.topics import CONTROL, QUARANTINE, REPAIR, partition_for, session_key
from schemas.work import Drop
from shadow.compare import Difference
from shadow.settings import TextPolicy
from shadow.store import QuarantineStore

EVENT = "toksplice.shadow.mismatch"
"""Name of the span event of a wrong answer, and of its error."""

_log = logging.getLogger(__name__)


class Alarm:
    """Acts on wrong answers for one shadow worker."""

    def __init__(self, ctx: Context, store: QuarantineStore, text_policy: TextPolicy) -> None:
        self._ctx = ctx
        self._store = store
        self._text_policy = text_policy

    async def raise_for(self, sample: Sample, tier: Tier, difference: Difference) -> None:
        """Do all of it. Raises BrokerUnavailableError."""
        self._tell(sample, tier, difference)
        await self._open_breaker(sample.fingerprint)
        await self._drop_session(sample)
        await self._keep(sample, tier, difference)
        self._ctx.telemetry.shadow_mismatches.add(
            1,
            {
                "tokenizer": sample.tokenizer,
                "path": sample.path.value,
                "route": sample.route.value,
                "kind": difference.kind.value,
            },
        )

    def _tell(self, sample: Sample, tier: Tier, difference: Difference) -> None:
        """A log line, and an event on the span of the check, which is in the trace of the answer. Neither has an id in
        it: ids are text to whoever has the vocabulary."""
        _log.error(
            "WRONG ANSWER by tokenizer %s, path %s, route %s, found by the %s: %s at token %d; sample %s of worker %s",
            sample.tokenizer or sample.fingerprint[:12],
            sample.path.value,
            sample.route.value,
            tier.value,
            difference.kind.value,
            difference.index,
            sample.sample_id,
            sample.worker,
        )
        span = trace.get_current_span()
        span.add_event(
            EVENT,
            {
                "toksplice.tokenizer": sample.tokenizer,
                "toksplice.path": sample.path.value,
                "toksplice.route": sample.route.value,
                "toksplice.kind": difference.kind.value,
                "toksplice.tier": tier.value,
                "toksplice.index": difference.index,
                "toksplice.sample": sample.sample_id,
            },
        )
        self._ctx.telemetry.fail(span, EVENT)

    async def _open_breaker(self, fingerprint: str) -> None:
        """Bar the tokenizer's fast paths on every worker. Only an operator takes that back. The breaker of all does not
        stand in for it: whoever closes that one knows nothing of this finding."""
        control = self._ctx.control
        if control.own_breaker_open(fingerprint):
            return
        # Whatever sampling was set stays; what was not, each worker goes on to decide by its own setting.
        record = Control(tokenizer=fingerprint, breaker_open=True, sampling=control.own_sampling(fingerprint))
        await self._ctx.producer.send(CONTROL, record.encode(), key=fingerprint.encode())

    async def _drop_session(self, sample: Sample) -> None:
        """End the session, in order with its requests: its next delta is asked for the text."""
        if not sample.session_id:
            return
        drop = Drop(
            tenant=sample.tenant,
            session_id=sample.session_id,
            fingerprint=sample.fingerprint,
            add_special_tokens=sample.add_special_tokens,
        )
        key = session_key(sample.tenant, sample.session_id)
        partition = partition_for(key, self._ctx.partitions)
        await self._ctx.producer.send(REPAIR, drop.encode(), key=key, partition=partition)

    async def _keep(self, sample: Sample, tier: Tier, difference: Difference) -> None:
        finding = Finding(
            sample=sample,
            tier=tier,
            kind=difference.kind,
            index=difference.index,
            answer_id=difference.answer_id,
            expected_id=difference.reference_id,
            answer_total=difference.answer_total,
            expected_total=difference.reference_total,
            text_bytes=len(sample.text),
            time_ms=self._ctx.clock.now_ms(),
            worker=self._ctx.worker_id,
        )
        if self._text_policy is TextPolicy.REDACT:
            finding = redacted(finding)
        await self._quarantine(finding)
        await self._store.save(finding)

    async def _quarantine(self, finding: Finding) -> None:
        limits = self._ctx.write_limits
        try:
            value = finding.encode(limits)
        except ProtocolError as error:
            if error.code is not Code.TEXT_TOO_LARGE:
                raise
            # The sample filled its record; the store has the whole of it.
            value = redacted(finding).encode(limits)
        sample = finding.sample
        key = session_key(sample.tenant, sample.session_id) if sample.session_id else None
        partition = None if key is None else partition_for(key, self._ctx.partitions)
        headers = self._ctx.telemetry.inject(())
        await self._ctx.producer.send(QUARANTINE, value, key=key, partition=partition, headers=headers)


def redacted(finding: Finding) -> Finding:
    """The finding without text, without any ids and offsets, which are text to whoever has the vocabulary, and without
    restarts, which are the shape of one."""
    sample = replace(finding.sample, text=b"", ids=b"", offsets=None, restarts=None)
    return replace(finding, sample=sample, answer_id=None, expected_id=None, redacted=True)
