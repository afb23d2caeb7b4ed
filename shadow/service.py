"""The consumer of tokenize.shadow: each sampled answer is encoded again and compared.

Two tiers judge, each in processes of its own and within a budget of processor time. The reference is the one that
counts. What the budget does not pay for, the engine's own encoding of the whole text judges, at a hundredth of the
cost: it finds every fault of history, cache, splice and answer, and is blind to what the engine gets wrong on a fresh
text too. Its budget is small, so that it can never starve the reference. Whatever neither can pay for is
dropped and counted.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pipeline.context import Context
from pipeline.ports import Record
from pipeline.service import ServiceHealth
from pipeline.tokenizers import TokenizerNames, fingerprints
from pipeline.topology import SHADOW_GROUP
from schemas.codes import Code
from schemas.errors import ProtocolError
from schemas.reply import Engine
from schemas.sample import DifferenceKind, Sample, SampleHead, Tier
from schemas.topics import SHADOW
from shadow.alarm import Alarm
from shadow.budget import CpuBudget
from shadow.compare import Difference
from shadow.judge_process import NO_ENGINE, NO_SAMPLE
from shadow.judges import JudgeFailedError, Judges, command
from shadow.settings import Priority, ShadowSettings, TextPolicy
from shadow.store import QuarantineStore
from toksplice import TokSpliceError

ENGINE_SHARE: Final = 0.2
"""The engine's part of the processor time."""
ENGINE_PROCESSES: Final = 1
"""Enough for a tier that is a hundred times as fast."""
COVERAGE_SAMPLES: Final = 1000
"""Latest samples that the coverage is taken over."""

ZEROED_MAX: Final = 1024
"""Combinations of tokenizer, path and route that are remembered."""

BUDGET: Final = "budget"
UNKNOWN_TOKENIZER: Final = "unknown_tokenizer"

_log = logging.getLogger(__name__)


class TokenizerFiles(TokenizerNames, Protocol):
    """Where the files of tokenizers are."""

    def path(self, name_or_fingerprint: str) -> Path: ...


@dataclass(frozen=True, slots=True)
class _Found:
    """A wrong answer, in the sample at `offset` of a partition."""

    offset: int
    tier: Tier
    difference: Difference


class ShadowService:
    """Checks sampled answers. Keeps nothing between records but the findings."""

    kind = "shadow"
    topics: tuple[str, ...] = (SHADOW,)
    group = SHADOW_GROUP
    drains = False

    def __init__(
        self,
        tokenizers: TokenizerFiles,
        settings: ShadowSettings | None = None,
        *,
        store_path: str | os.PathLike[str],
    ) -> None:
        self._tokenizers = tokenizers
        self._settings = settings or ShadowSettings()
        self._store = QuarantineStore(store_path, self._settings.store())
        self._counts: Counter[str] = Counter()
        self._zeroed: set[tuple[str, ...]] = set()
        """Tokenizer, path and route whose mismatches are reported as 0 until there are some."""
        self._files: dict[str, Path] = {}
        """Where registered tokenizers lie, by fingerprint: a file is what its name says, for ever."""
        self._unserved: set[str] = set()
        """Of these, those that the engine's judges refused."""
        self._found: dict[int, _Found] = {}
        """What was found wrong last in each partition and has not had all its consequences."""
        self._covered: deque[bool] = deque(maxlen=COVERAGE_SAMPLES)
        self._fingerprints: tuple[str, ...] = ()
        self._ctx: Context
        self._alarm: Alarm
        self._budgets: dict[Tier, CpuBudget] = {}
        self.judges: dict[Tier, Judges] = {}

    async def start(self, ctx: Context) -> None:
        self._ctx = ctx
        for reason in (BUDGET, UNKNOWN_TOKENIZER):
            ctx.telemetry.shadow_dropped.add(0, {"reason": reason})
        ctx.tokenizer_name = self._tokenizers.name_of
        settings = self._settings
        self._alarm = Alarm(ctx, self._store, TextPolicy(settings.text_policy))
        monotonic_s, cores = ctx.clock.monotonic_s, settings.cpu_share
        shares = {Tier.REFERENCE: 1 - ENGINE_SHARE, Tier.ENGINE: ENGINE_SHARE}
        processes = {Tier.REFERENCE: settings.processes, Tier.ENGINE: ENGINE_PROCESSES}
        for tier in Tier:
            self._budgets[tier] = CpuBudget(cores * shares[tier], settings.cpu_burst_s, monotonic_s)
            self.judges[tier] = Judges(
                ctx.clock,
                processes=processes[tier],
                limit_s=settings.check_limit_s,
                command=command(tier, Priority(settings.priority)),
            )
        self._fingerprints = await ctx.run_blocking(fingerprints, self._tokenizers)

    async def stop(self) -> None:
        for judges in self.judges.values():
            await judges.stop()
        await self._store.close()

    async def partitions_assigned(self, partitions: frozenset[int]) -> None:
        """A finding whose alarm did not get through is kept with its partition."""

    async def partitions_lost(self, partitions: frozenset[int]) -> None:
        for partition in partitions:
            self._found.pop(partition, None)

    def health(self) -> ServiceHealth:
        return ServiceHealth(tokenizers=self._fingerprints, detail=self._store.problem, counts=self._counts)

    async def handle(self, record: Record) -> Awaitable[None] | None:
        if record.value is None:
            raise ProtocolError(Code.MALFORMED, "a record of this topic needs a value")
        head = SampleHead.skim(record.value, self._ctx.limits)
        age_ms = self._ctx.clock.now_ms() - head.time_ms
        self._ctx.telemetry.shadow_lag.set(max(0, age_ms) / 1_000)
        found = self._found.get(record.partition)
        if found is not None and found.offset == record.offset:
            # Its alarm did not get through. A second check might not be paid for, and the first one counts.
            tier: Tier | None = found.tier
            await self._wrong(head, record, found.tier, found.difference)
        else:
            tier = await self._check(head, record, record.value)
        self._counts["samples"] += 1
        self._covered.append(tier is Tier.REFERENCE)
        self._ctx.telemetry.shadow_coverage.set(sum(self._covered) / len(self._covered))
        return None

    async def _check(self, head: SampleHead, record: Record, value: bytes) -> Tier | None:
        """Judge a sample and act on it; returns what judged it, None when nothing did."""
        try:
            path = await self._file(head.fingerprint)
        except TokSpliceError:
            self._drop(UNKNOWN_TOKENIZER)
            return None
        for tier in Tier:
            try:
                judged = await self._judged(tier, head.fingerprint, path, value)
            except JudgeFailedError as error:
                if error.code == NO_SAMPLE:
                    await self._sample(value)  # raises what is wrong with it
                _log.warning("a sample was not judged by the %s: %s", tier.value, error.code)
                self._count(head, tier, "failed")
                return None
            if judged is None:
                continue
            (difference,) = judged
            if difference is not None:
                await self._wrong(head, record, tier, difference)
                return tier
            if tier is Tier.REFERENCE and head.route.engine is Engine.NATIVE:
                await self._check_restarts(head, record, path, value)
            self._count(head, tier, "equal")
            return tier
        self._drop(BUDGET)
        return None

    async def _wrong(self, head: SampleHead, record: Record, tier: Tier, difference: Difference) -> None:
        """Have everything follow from a wrong answer. It is remembered until all of it has, for the broker may be away
        meanwhile and the record come again."""
        self._found[record.partition] = _Found(record.offset, tier, difference)
        await self._alarm.raise_for(await self._sample(record.value or b""), tier, difference)
        self._found.pop(record.partition, None)
        self._count(head, tier, "different")

    async def _file(self, fingerprint: str) -> Path:
        """The tokenizer's file. Raises TokSpliceError when it is not registered."""
        if fingerprint not in self._files:
            self._files[fingerprint] = await self._ctx.run_blocking(self._tokenizers.path, fingerprint)
        return self._files[fingerprint]

    async def _judged(self, tier: Tier, fingerprint: str, path: Path, value: bytes) -> tuple[Difference | None] | None:
        """A tier's judgement; None when its budget does not pay for it, or when no engine serves the tokenizer.
        Raises JudgeFailedError."""
        budget = self._budgets[tier]
        if budget.is_spent() or (tier is Tier.ENGINE and fingerprint in self._unserved):
            return None
        async with self.judges[tier].one() as one:
            if budget.is_spent():  # by those that this one waited for
                return None
            try:
                verdict = await one.ask(fingerprint, path, value, self._ctx.limits.record_bytes)
            except JudgeFailedError as error:
                budget.charge(error.cpu_s)
                if error.code == NO_ENGINE:
                    self._unserved.add(fingerprint)
                    return None
                raise
        budget.charge(verdict.cpu_s)
        return (verdict.difference,)

    async def _check_restarts(self, head: SampleHead, record: Record, path: Path, value: bytes) -> None:
        """Have the engine judge what the reference knows nothing of; as far as the engine's budget goes."""
        try:
            (difference,) = await self._judged(Tier.ENGINE, head.fingerprint, path, value) or (None,)
        except JudgeFailedError as error:
            _log.warning("the restart places of a sample were not judged: %s", error.code)
            return
        if difference is not None:
            await self._wrong(head, record, Tier.ENGINE, difference)

    async def _sample(self, value: bytes) -> Sample:
        return await self._ctx.run_blocking(Sample.decode, value, self._ctx.limits)

    def _count(self, head: SampleHead, tier: Tier, result: str) -> None:
        attributes = {"tokenizer": head.tokenizer, "path": head.path.value, "tier": tier.value, "result": result}
        self._ctx.telemetry.shadow_checked.add(1, attributes)
        self._counts["failed" if result == "failed" else tier.value] += 1
        self._counts["different"] += result == "different"
        self._report_zeros(head)

    def _report_zeros(self, head: SampleHead) -> None:
        """What was checked and never found wrong is 0, not unknown; the first fault is then an increase."""
        where = {"tokenizer": head.tokenizer, "path": head.path.value, "route": head.route.value}
        place = tuple(where.values())
        if place in self._zeroed:
            return
        if len(self._zeroed) >= ZEROED_MAX:
            self._zeroed.clear()
        self._zeroed.add(place)
        for kind in DifferenceKind:
            self._ctx.telemetry.shadow_mismatches.add(0, {**where, "kind": kind.value})

    def _drop(self, reason: str) -> None:
        self._ctx.telemetry.shadow_dropped.add(1, {"reason": reason})
        self._counts["dropped"] += 1
