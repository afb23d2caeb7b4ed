"""The consumer of tokenize.cpu-fallback: the whole text is encoded, then the session handed over, then the answer
given.

The native engine encodes where it serves the tokenizer, the reference everywhere else and while the breaker is open.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from consumers.cpu_fallback.encode import encode
from pipeline.context import Context
from pipeline.cost import CPU_PRIOR, CostMeter
from pipeline.faults import NO_FAULTS, Faults
from pipeline.first_text import Encoded, FirstTexts, draw_epoch, work_of
from pipeline.ports import Record
from pipeline.samples import Trial
from pipeline.service import ServiceHealth
from pipeline.tokenizers import TokenizerSource, fingerprints
from pipeline.topology import CPU_GROUP
from schemas.codes import Code
from schemas.reply import Path, Reply
from schemas.topics import CPU
from schemas.work import Work
from toksplice import TokSpliceError

_CODES: Final = {code.value: code for code in Code}
"""The protocol's code of a failure of the library, which names its own by the same words."""

_log = logging.getLogger(__name__)


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
        self._texts: FirstTexts
        self._costs: CostMeter

    async def start(self, ctx: Context) -> None:
        self._ctx = ctx
        self._texts = FirstTexts(ctx, Path.CPU, self._tokenizers.name_of, self._draw_epoch)
        self._costs = CostMeter(CPU_PRIOR, ctx.clock)
        ctx.tokenizer_name = self._tokenizers.name_of
        self._fingerprints = await ctx.run_blocking(fingerprints, self._tokenizers)

    async def stop(self) -> None:
        """Nothing to release: work in a thread ends with its record."""

    async def partitions_assigned(self, partitions: frozenset[int]) -> None:
        """No state a partition."""

    async def partitions_lost(self, partitions: frozenset[int]) -> None:
        """No state a partition."""

    def health(self) -> ServiceHealth:
        return ServiceHealth(tokenizers=self._fingerprints, costs=self._costs.costs())

    async def handle(self, record: Record) -> Awaitable[None] | None:
        work = work_of(record, self._ctx.limits)
        trial = self._ctx.samples.trial(work)
        await self._texts.answer(record, work, await self._answer(record, work, trial), trial.evidence)
        return None

    async def _answer(self, record: Record, work: Work, trial: Trial) -> Reply:
        """The reply to `work`; by then a session it began has been handed over."""
        started_us = self._ctx.clock.now_us()
        if (refusal := self._texts.refusal(work)) is not None:
            return refusal
        try:
            encoded = await self._encode(work)
        except TokSpliceError as error:
            _log.warning("a text of tokenizer %s was not encoded: %s", work.fingerprint[:12], error.code)
            code = _CODES.get(error.code, Code.INTERNAL)
            # The library's message may quote the text, so only what its code means is passed on.
            return self._texts.failure(work, code, f"{code.meaning} {code.advice}")
        reply = await self._texts.finish(record, work, encoded, started_us)
        if reply.code is None:
            reply = self._faults.answer(work, reply)
            trial.after(reply)
        return reply

    async def _encode(self, work: Work) -> Encoded:
        """Encode in a thread, and note what it took unless an open breaker forbade the engine."""
        by_reference = self._ctx.control.breaker_open(work.fingerprint)
        encoded, took_us = await self._ctx.run_blocking(_timed, self._tokenizers, work, by_reference, self._faults)
        if not by_reference:
            self._costs.note(work.fingerprint, encoded.length, took_us)
        return encoded


def _timed(source: TokenizerSource, work: Work, by_reference: bool, faults: Faults) -> tuple[Encoded, int]:
    """The text of `work`, encoded, and the microseconds that it took with all that belongs to the answer."""
    source.get(work.fingerprint)  # loading it is no part of what a text takes
    started_ns = time.perf_counter_ns()
    encoded = encode(source, work, by_reference, faults)
    return encoded, (time.perf_counter_ns() - started_ns) // 1_000
