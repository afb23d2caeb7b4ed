"""The port for time: wall clock, monotonic clock, sleeping; tests and simulations own all three."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import Protocol


class Clock(Protocol):
    """Where every part of the pipeline reads the time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; comparable between machines, so right for deadlines on the wire."""

    def now_us(self) -> int:
        """Microseconds since the epoch."""

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back; right for durations within one process."""

    async def sleep(self, seconds: float) -> None:
        """Wait; `seconds` <= 0 only lets other tasks run."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class ManualClock:
    """A clock that stands still until a test moves it.

    `advance` wakes the sleepers that are due, in the order of their due times. A test that has to know that
    the code under test went to sleep awaits `sleeping(n)` first, which needs no waiting in real time:

        await clock.sleeping(1)
        clock.advance(5)
    """

    def __init__(self, *, now_ms: int = 1_700_000_000_000) -> None:
        self._now_us = now_ms * 1_000
        self._monotonic_us = 0
        self._order = itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._changed: asyncio.Future[None] | None = None

    def now_ms(self) -> int:
        return self._now_us // 1_000

    def now_us(self) -> int:
        return self._now_us

    def monotonic_s(self) -> float:
        return self._monotonic_us / 1_000_000

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due_us = self._monotonic_us + round(seconds * 1_000_000)
        heapq.heappush(self._sleepers, (due_us, next(self._order), future))
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        await future

    def advance(self, seconds: float) -> None:
        """Move both clocks forward and wake whoever is due by then."""
        if seconds < 0:
            raise ValueError(f"time only moves forward, not by {seconds} s")
        step_us = round(seconds * 1_000_000)
        self._now_us += step_us
        self._monotonic_us += step_us
        while self._sleepers and self._sleepers[0][0] <= self._monotonic_us:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)

    async def sleeping(self, count: int) -> None:
        """Return once at least `count` tasks sleep on this clock."""
        while sum(not future.done() for _, _, future in self._sleepers) < count:
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed
