"""Texts of many requests in one launch: while the device is busy the next ones gather, and go together.

One launch runs at a time. It takes the texts of one tokenizer, in the order of their arrival, the oldest text's
tokenizer first. A text that arrives at an idle device is launched at once, unless the launch before had several
texts: then it waits for company, for a bounded time.

What waits is bounded in texts and bytes. Over a bound the *shortest* text is let go, whoever came last: it is the one
that the CPU encodes fastest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from gpu_worker.encoder import Encoding, Refusal
from gpu_worker.reasons import Reason
from gpu_worker.settings import GpuSettings
from pipeline.clock import Clock
from pipeline.failures import without_words
from pipeline.waiting import cancel, settle

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Launched:
    """The answers of one launch, in the order of its texts, and how long it took."""

    answers: Sequence[Encoding | Refusal]
    took_us: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """A text that was encoded, and the launch that it was in: its time, and its texts and bytes altogether."""

    encoding: Encoding
    launch_us: int
    launch_texts: int
    launch_bytes: int


Outcome = Encoded | Reason | None
"""What comes of a text. None: its deadline had passed before the launch."""

Launch = Callable[[str, Sequence[bytes]], Awaitable[Launched | Reason]]
"""Encodes texts of one tokenizer, by its fingerprint; a `Reason` when none of them can be."""


@dataclass(slots=True, eq=False)
class _Waiting:
    fingerprint: str
    text: bytes
    deadline_ms: int | None
    since_s: float
    outcome: asyncio.Future[Outcome]


class Batcher:
    """Gathers texts and has them launched. All of it belongs to the event loop's thread."""

    def __init__(self, launch: Launch, settings: GpuSettings, clock: Clock) -> None:
        self._launch = launch
        self._settings = settings
        self._clock = clock
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._filled: asyncio.Future[None] | None = None
        self._had_company = False
        """Whether the last launch had several texts."""
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Texts that wait for a launch."""
        return len(self._waiting)

    def start(self) -> None:
        """Begin to launch."""
        self._task = asyncio.create_task(self._run(), name="gpu launches")

    async def stop(self, limit_s: float) -> None:
        """Launch no more. Texts that still wait are let go of by those who wait for them."""
        if self._task is not None:
            await cancel([self._task], limit_s, self._clock)

    async def encode(self, fingerprint: str, text: bytes, deadline_ms: int | None = None) -> Outcome:
        """Have `text` encoded in one of the next launches. Raises nothing but CancelledError."""
        waiting = _Waiting(
            fingerprint, text, deadline_ms, self._clock.monotonic_s(), asyncio.get_running_loop().create_future()
        )
        self._waiting.append(waiting)
        self._bytes += len(text)
        self._shed()
        self._arrived.set()
        if self._filled is not None and self._is_full() and not self._filled.done():
            self._filled.set_result(None)
        try:
            return await waiting.outcome
        finally:
            self._remove(waiting)

    # What waits

    def _shed(self) -> None:
        settings = self._settings
        while len(self._waiting) > settings.waiting_texts_max or self._bytes > settings.waiting_bytes_max:
            shortest = min(self._waiting, key=lambda waiting: len(waiting.text))
            self._remove(shortest)
            _settle(shortest, Reason.SHED)

    def _remove(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            self._bytes -= len(waiting.text)

    def _batch(self) -> list[_Waiting]:
        """The texts that would be launched now."""
        settings = self._settings
        chosen: list[_Waiting] = []
        size_bytes = 0
        for waiting in self._waiting:
            if waiting.fingerprint != self._waiting[0].fingerprint:
                continue
            size_bytes += len(waiting.text)
            if chosen and size_bytes > settings.batch_bytes_max:
                break
            chosen.append(waiting)
            if len(chosen) == settings.batch_texts_max:
                break
        return chosen

    def _is_full(self) -> bool:
        """Whether waiting longer could add nothing to the next launch."""
        size_bytes = sum(len(waiting.text) for waiting in self._batch())
        return len(self._batch()) == self._settings.batch_texts_max or size_bytes >= self._settings.batch_bytes_max

    # Launching

    async def _run(self) -> None:
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            await self._gather()
            batch = self._batch()
            for waiting in batch:
                self._remove(waiting)
            late = [waiting for waiting in batch if self._is_late(waiting)]
            for waiting in late:
                _settle(waiting, None)
            in_time = [waiting for waiting in batch if waiting not in late]
            if in_time:
                await self._launch_all(in_time)

    async def _gather(self) -> None:
        """Wait for company while that is worth it."""
        left_s = self._waiting[0].since_s + self._settings.batch_wait_s - self._clock.monotonic_s()
        if not self._had_company or left_s <= 0 or self._is_full():
            return
        self._filled = asyncio.get_running_loop().create_future()
        try:
            await settle([self._filled], left_s, self._clock)
        finally:
            self._filled = None

    def _is_late(self, waiting: _Waiting) -> bool:
        return waiting.deadline_ms is not None and self._clock.now_ms() > waiting.deadline_ms

    async def _launch_all(self, batch: Sequence[_Waiting]) -> None:
        """Launch texts of one tokenizer, and tell each of them what came of it."""
        self._had_company = len(batch) > 1
        texts = [waiting.text for waiting in batch]
        try:
            launched = await self._launch(batch[0].fingerprint, texts)
            if isinstance(launched, Launched) and len(launched.answers) != len(texts):
                raise ValueError("a launch gave another number of answers than it had texts")
        except Exception as error:
            _log.error("a launch of %d texts failed: %s", len(texts), without_words(error))
            launched = Reason.FAILED
        if isinstance(launched, Reason):
            for waiting in batch:
                _settle(waiting, launched)
            return
        size_bytes = sum(map(len, texts))
        for waiting, answer in zip(batch, launched.answers, strict=True):
            if isinstance(answer, Refusal):
                _settle(waiting, Reason.of(answer))
            else:
                _settle(waiting, Encoded(answer, launched.took_us, len(texts), size_bytes))


def _settle(waiting: _Waiting, outcome: Outcome) -> None:
    """Tell who waits, unless they went away."""
    if not waiting.outcome.done():
        waiting.outcome.set_result(outcome)
