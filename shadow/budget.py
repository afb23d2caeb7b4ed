"""A budget of processor seconds: a token bucket that fills with time and is emptied by what was measured."""

from __future__ import annotations

from collections.abc import Callable


class CpuBudget:
    """`cores` seconds of processor time a second, on average over `burst_s / cores` seconds or more.

    What a check costs is known only when it is done, so the level may fall below 0; then nothing is begun until the
    time that was overdrawn has passed.
    """

    def __init__(self, cores: float, burst_s: float, monotonic_s: Callable[[], float]) -> None:
        self._cores = cores
        self._burst_s = burst_s if cores else 0.0
        self._monotonic_s = monotonic_s
        self._level_s = self._burst_s
        self._seen_s = monotonic_s()

    def is_spent(self) -> bool:
        """True when nothing may be begun now."""
        self._fill()
        return self._level_s <= 0

    def charge(self, cpu_s: float) -> None:
        """Take what a check has cost."""
        self._fill()
        self._level_s -= cpu_s

    def _fill(self) -> None:
        now_s = self._monotonic_s()
        self._level_s = min(self._burst_s, self._level_s + self._cores * (now_s - self._seen_s))
        self._seen_s = now_s
