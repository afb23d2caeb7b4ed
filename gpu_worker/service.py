"""The consumer of tokenize.gpu-worker: long texts are encoded on the device, many in one launch, and answered with
their offsets; their sessions are handed over as the CPU fallback hands over its own.

What the device cannot or should not encode goes down the ladder to tokenize.cpu-fallback, with the reason. The record
is finished only once that was acknowledged, so no text is lost, whatever fails.

Records are parked: those of a partition are worked on together, so that they can share a launch. Texts of one session
still pass one after the other.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from gpu_worker import batcher
from gpu_worker.batcher import Batcher, Launched
from gpu_worker.encoder import Encoder, Encoding, Refusal
from gpu_worker.encoders import Encoders, OpenDevice
from gpu_worker.finish import finish
from gpu_worker.reasons import Reason
from gpu_worker.settings import GpuSettings
from pipeline.context import Context
from pipeline.cost import GPU_PRIOR, CostMeter
from pipeline.failures import without_words
from pipeline.faults import NO_FAULTS, Faults
from pipeline.first_text import Encoded, FirstTexts, draw_epoch, pass_on, work_of
from pipeline.ports import Record
from pipeline.service import ServiceHealth
from pipeline.tokenizers import TokenizerSource
from pipeline.topology import GPU_GROUP
from schemas.codes import Code
from schemas.reply import Path
from schemas.topics import GPU, session_key
from schemas.work import Work

LOST: Final = "the device failed: texts go to the CPU"

_log = logging.getLogger(__name__)


class GpuService:
    """Encodes texts on a device. Keeps nothing between records: sessions live in the repair worker."""

    kind = "gpu-worker"
    topics: tuple[str, ...] = (GPU,)
    group = GPU_GROUP
    drains = True

    def __init__(
        self,
        tokenizers: TokenizerSource,
        open_device: OpenDevice,
        settings: GpuSettings | None = None,
        *,
        draw_epoch: Callable[[], int] = draw_epoch,
        faults: Faults = NO_FAULTS,
    ) -> None:
        self._tokenizers = tokenizers
        self._open_device = open_device
        self._settings = settings or GpuSettings()
        self._draw_epoch = draw_epoch
        self._faults = faults
        self._turns: weakref.WeakValueDictionary[bytes, asyncio.Lock] = weakref.WeakValueDictionary()
        self._ctx: Context
        self._texts: FirstTexts
        self._costs: CostMeter
        self._batcher: Batcher
        self.encoders: Encoders

    async def start(self, ctx: Context) -> None:
        """Raises what opening the device raises: without one there is nothing to serve."""
        self._ctx = ctx
        self._texts = FirstTexts(ctx, Path.GPU, self._tokenizers.name_of, self._draw_epoch)
        self._costs = CostMeter(GPU_PRIOR, ctx.clock)
        self._batcher = Batcher(self._launch, self._settings, ctx.clock)
        self.encoders = Encoders(
            self._open_device,
            self._tokenizers,
            run_blocking=ctx.run_blocking,
            clock=ctx.clock,
            tokenizers_max=self._settings.tokenizers_max,
            rescan_s=self._settings.rescan_s,
        )
        ctx.tokenizer_name = self._tokenizers.name_of
        await self.encoders.open()
        self._batcher.start()

    async def stop(self) -> None:
        await self._batcher.stop(self._ctx.settings.stop_s)
        await self.encoders.close(self._ctx.settings.stop_s)

    async def partitions_assigned(self, partitions: frozenset[int]) -> None:
        """No state a partition."""

    async def partitions_lost(self, partitions: frozenset[int]) -> None:
        """No state a partition."""

    def health(self) -> ServiceHealth:
        lost = self.encoders.is_lost
        return ServiceHealth(
            tokenizers=self.encoders.served, ready=not lost, detail=LOST if lost else "", costs=self._costs.costs()
        )

    async def handle(self, record: Record) -> Awaitable[None] | None:
        return self._serve(record, work_of(record, self._ctx.limits))

    async def _serve(self, record: Record, work: Work) -> None:
        """Answer `work` or pass it on; returns after the acknowledgement."""
        async with self._turn(work):
            started_us = self._ctx.clock.now_us()
            trial = self._ctx.samples.trial(work)
            if (refusal := self._texts.refusal(work)) is not None:
                await self._texts.answer(record, work, refusal)
                return
            encoded = await self._encode(work)
            if isinstance(encoded, Reason):
                await pass_on(self._ctx, record, work, encoded.value)
                return
            if encoded is None:
                reply = self._texts.failure(work, Code.EXPIRED, "the deadline passed before the text was encoded")
            else:
                reply = await self._texts.finish(record, work, encoded, started_us)
            if reply.code is None:
                reply = self._faults.answer(work, reply)
                trial.after(reply)
            await self._texts.answer(record, work, reply, trial.evidence)

    @asynccontextmanager
    async def _turn(self, work: Work) -> AsyncIterator[None]:
        """Texts of one session come one after the other: the last one's answer is to be the last."""
        request = work.request
        if not request.session_id:
            yield
            return
        key = session_key(request.tenant, request.session_id)
        lock = self._turns.setdefault(key, asyncio.Lock())
        async with lock:
            yield

    async def _encode(self, work: Work) -> Encoded | Reason | None:
        """The text of `work`, encoded; why it is the CPU's; or None when its deadline passed first."""
        text = (work.request.text or "").encode()
        if len(text) < self._settings.text_bytes_min:
            return Reason.SHORT_TEXT
        if self._ctx.control.breaker_open(work.fingerprint):
            return Reason.BREAKER_OPEN
        if self.encoders.is_lost:
            return Reason.DEVICE_ERROR
        if self.encoders.get(work.fingerprint) is None:
            return Reason.NOT_SERVED
        outcome = await self._batcher.encode(work.fingerprint, text, work.request.deadline_ms)
        if not isinstance(outcome, batcher.Encoded):
            return outcome
        try:
            return await self._finish(work, text, outcome)
        except Exception as error:
            _log.error("a text was encoded and not finished: %s", without_words(error))
            return Reason.FAILED

    async def _finish(self, work: Work, text: bytes, outcome: batcher.Encoded) -> Encoded:
        encoded, took_us = await self._ctx.run_blocking(
            finish, self._tokenizers, work, text, outcome.encoding, outcome.launch_us, self._faults
        )
        self._costs.note(
            work.fingerprint,
            outcome.launch_bytes,
            encoded.tokenize_us,
            busy_us=outcome.launch_us / outcome.launch_texts + took_us,
        )
        return encoded

    async def _launch(self, fingerprint: str, texts: Sequence[bytes]) -> Launched | Reason:
        """For the batcher: one launch. The device is given up when it says that it failed."""
        encoder = self.encoders.get(fingerprint)
        if encoder is None:
            return Reason.DEVICE_ERROR if self.encoders.is_lost else Reason.NOT_SERVED
        launched = await self._ctx.run_blocking(_timed, encoder, texts)
        if Refusal.DEVICE_ERROR in launched.answers:
            self.encoders.lose()
        else:
            self._observe(fingerprint, launched)
        return launched

    def _observe(self, fingerprint: str, launched: Launched) -> None:
        telemetry = self._ctx.telemetry
        labels = {"tokenizer": self._tokenizers.name_of(fingerprint)}
        telemetry.gpu_launch_duration.record(launched.took_us / 1e6, labels)
        telemetry.gpu_launch_texts.record(len(launched.answers), labels)


def _timed(encoder: Encoder, texts: Sequence[bytes]) -> Launched:
    started_ns = time.perf_counter_ns()
    answers: list[Encoding | Refusal] = encoder.encode(texts)
    return Launched(answers, (time.perf_counter_ns() - started_ns) // 1_000)
