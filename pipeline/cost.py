"""What encoding a whole text takes, measured by the workers that do it and told in their heartbeats.

A text of x MiB is taken to cost a + b x microseconds. The line is fitted to what was measured by least squares, each
measurement in proportion to what the prior expects for its size, so that a short text counts as much as a long one.
Three things keep it defined, steady and current:

- The prior stands in for what was not measured, as two made-up measurements, of `PRIOR_BYTES`. Each weighs as much as
  one real one, so a few real ones outweigh them where there are some, and decide nothing where there are none.
- A measurement far above the line counts as `OUTLIER` times the line, so that one stall, or the first launch after a
  start, does not bar a worker; what is slow for good is believed after a few.
- What was measured is forgotten with a half-life, and the prior comes back. So a worker that was slow once, and is
  therefore not asked any more, is asked again after a while.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from pipeline.clock import Clock
from schemas.health import Cost
from schemas.limits import DEFAULT_LIMITS, INT_MAX, MIB

CPU_PRIOR: Final = Cost(fixed_us=50, mib_us=15_000, record_us=200)
"""A text on the native engine, before it was measured."""

GPU_PRIOR: Final = Cost(fixed_us=300, mib_us=1_500, record_us=200)
"""A text on a GPU, with the copies and the host's part, before it was measured."""

PRIOR_BYTES: Final = (4 * 1024, 1 * MIB)
"""Sizes at which the prior counts as measured once."""

HALF_LIFE_S: Final = 60.0
"""After this time a measurement counts half."""

OUTLIER: Final = 4.0
"""A measurement counts as no more than this many times what was expected of it."""

KEYS_MAX: Final = DEFAULT_LIMITS.entry_count
"""Tokenizers that are remembered, as many as a heartbeat can name; the one measured longest ago goes."""


def expected_us(cost: Cost, size_bytes: int, queue_depth: int = 0) -> float:
    """What a text of `size_bytes` is expected to take behind `queue_depth` records."""
    return cost.fixed_us + cost.mib_us * size_bytes / MIB + cost.record_us * queue_depth


@dataclass(slots=True)
class _Sums:
    """Sums over measurements of x MiB that took y microseconds, each weighed by u, its size's scale, and its age."""

    at_s: float
    u: float = 0.0
    ux: float = 0.0
    uxx: float = 0.0
    uy: float = 0.0
    uxy: float = 0.0
    busy: float = 0.0
    records: float = 0.0

    def add(self, size_bytes: int, y: float, prior: Cost) -> None:
        x, scale = size_bytes / MIB, expected_us(prior, size_bytes)
        u = 1 / (scale * scale)
        self.u += u
        self.ux += u * x
        self.uxx += u * x * x
        self.uy += u * y
        self.uxy += u * x * y

    def aged(self, now_s: float) -> _Sums:
        """The same at a later time."""
        f = 0.5 ** (max(0.0, now_s - self.at_s) / HALF_LIFE_S)
        values = (self.u, self.ux, self.uxx, self.uy, self.uxy, self.busy, self.records)
        return _Sums(now_s, *(f * value for value in values))


class CostMeter:
    """What one worker measured, by tokenizer."""

    def __init__(self, prior: Cost, clock: Clock) -> None:
        self._prior = prior
        self._clock = clock
        self._sums: OrderedDict[str, _Sums] = OrderedDict()

    def note(self, fingerprint: str, size_bytes: int, took_us: float, busy_us: float | None = None) -> None:
        """A text was ready `took_us` after `size_bytes` were begun. `busy_us`: its share of the worker's time, where
        others were encoded with it."""
        now_s = self._clock.monotonic_s()
        sums = self._sums.pop(fingerprint, _Sums(now_s)).aged(now_s)
        expected = self._fit(sums)
        sums.add(size_bytes, min(took_us, OUTLIER * expected_us(expected, size_bytes)), self._prior)
        sums.busy += min(took_us if busy_us is None else busy_us, OUTLIER * expected.record_us)
        sums.records += 1
        self._sums[fingerprint] = sums
        if len(self._sums) > KEYS_MAX:
            self._sums.popitem(last=False)

    def costs(self) -> dict[str, Cost]:
        """The present line of each tokenizer that was measured."""
        now_s = self._clock.monotonic_s()
        return {fingerprint: self._fit(sums.aged(now_s)) for fingerprint, sums in self._sums.items()}

    def _fit(self, measured: _Sums) -> Cost:
        sums, prior = replace(measured), self._prior
        for size_bytes in PRIOR_BYTES:
            sums.add(size_bytes, expected_us(prior, size_bytes), prior)
        fixed, slope = _line(sums)
        busy = (sums.busy + prior.record_us) / (sums.records + 1)
        return Cost(fixed_us=_whole(fixed), mib_us=_whole(slope), record_us=_whole(busy))


def _line(sums: _Sums) -> tuple[float, float]:
    """The best line that is nowhere under 0 and does not fall."""
    determinant = sums.u * sums.uxx - sums.ux * sums.ux  # over 0: the prior has two sizes
    fixed = (sums.uy * sums.uxx - sums.uxy * sums.ux) / determinant
    slope = (sums.u * sums.uxy - sums.ux * sums.uy) / determinant
    if fixed < 0:
        return 0.0, sums.uxy / sums.uxx
    if slope < 0:
        return sums.uy / sums.u, 0.0
    return fixed, slope


def _whole(value: float) -> int:
    return min(INT_MAX, max(0, round(value)))
