"""Readings of the process's metrics over the last minutes, and what has changed since one of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.readings import Point

STEP_S: Final = 5.0
"""Between two readings that are kept."""
SPAN_S: Final = 600.0
"""How far back they go: the longest range of an alert."""

_Key = tuple[str, str, str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Reading:
    """All series of the process at one time. `time_s` is on the monotonic clock."""

    time_s: float
    points: Mapping[_Key, Point]

    @classmethod
    def of(cls, time_s: float, points: Iterable[Point]) -> Reading:
        return cls(time_s, {(p.name, p.job, p.instance, p.labels): p for p in points})


@dataclass(frozen=True, slots=True)
class Histogram:
    """Measurements by bucket, `counts` as in `Point`, of one or more series."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]

    @property
    def count(self) -> float:
        return sum(self.counts)

    def quantile(self, q: float) -> float | None:
        """As Prometheus's histogram_quantile: linear within a bucket, the last bound above them all; None if empty."""
        rank, below, low = q * self.count, 0.0, 0.0
        if not self.count:
            return None
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if count and below + count >= rank:
                return low + (bound - low) * (rank - below) / count
            below, low = below + count, bound
        return self.bounds[-1] if self.bounds else None


class Change:
    """What happened between two readings. A series that the first lacks began at zero.

    Labels that are asked for and that a series lacks are "" there.
    """

    def __init__(self, before: Reading, after: Reading) -> None:
        self.seconds = after.time_s - before.time_s
        self._before = before
        self._after = after

    def increase(self, name: str, by: tuple[str, ...] = (), **where: str) -> dict[tuple[str, ...], float]:
        """How much a counter grew, by the values of the labels `by`; groups that did not grow are there with 0."""
        sums: dict[tuple[str, ...], float] = {}
        for key, point, group in self._select(name, by, where):
            before = self._before.points.get(key)
            sums[group] = sums.get(group, 0) + point.value - (before.value if before else 0)
        return sums

    def total(self, name: str, **where: str) -> float:
        """How much a counter grew in all."""
        return sum(self.increase(name, (), **where).values())

    def histogram(self, name: str, by: tuple[str, ...] = (), **where: str) -> dict[tuple[str, ...], Histogram]:
        """The measurements that a histogram took, by the values of the labels `by`."""
        found: dict[tuple[str, ...], Histogram] = {}
        for key, point, group in self._select(name, by, where):
            before = self._before.points.get(key)
            earlier = before.counts if before else (0,) * len(point.counts)
            known = found.get(group)
            sums = known.counts if known else (0.0,) * len(point.counts)
            grown = tuple(s + c - e for s, c, e in zip(sums, point.counts, earlier, strict=True))
            found[group] = Histogram(point.bounds, grown)
        return found

    def gauge(
        self, name: str, by: tuple[str, ...] = (), join: Callable[[Iterable[float]], float] = sum
    ) -> dict[tuple[str, ...], float]:
        """A gauge's last values, those of one group joined."""
        values: dict[tuple[str, ...], list[float]] = {}
        for _, point, group in self._select(name, by, {}):
            values.setdefault(group, []).append(point.value)
        return {group: join(found) for group, found in values.items()}

    def _select(
        self, name: str, by: tuple[str, ...], where: Mapping[str, str]
    ) -> Iterable[tuple[_Key, Point, tuple[str, ...]]]:
        for key, point in self._after.points.items():
            labels = {**dict(point.labels), "job": point.job}
            if point.name == name and all(labels.get(k, "") == v for k, v in where.items()):
                yield key, point, tuple(labels.get(label, "") for label in by)


class History:
    """The readings of the last `SPAN_S`, at most one for each `STEP_S`."""

    def __init__(self) -> None:
        self._kept: deque[Reading] = deque(maxlen=int(SPAN_S / STEP_S) + 1)
        self._last = Reading(0.0, {})

    def note(self, reading: Reading) -> None:
        """Take in the newest reading."""
        if not self._kept or reading.time_s - self._kept[-1].time_s >= STEP_S:
            self._kept.append(reading)
        self._last = reading

    def since(self, seconds: float) -> Change:
        """What happened in the last `seconds` or a `STEP_S` more, or since the first reading that is kept."""
        start_s = self._last.time_s - seconds
        before = self._kept[0] if self._kept else self._last
        for kept in self._kept:
            if kept.time_s > start_s:
                break
            before = kept
        return Change(before, self._last)

    def ever(self) -> Change:
        """What happened since the process began."""
        return Change(Reading(0.0, {}), self._last)
