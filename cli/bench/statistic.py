"""Figures of many samples: medians and percentiles, and ratios that a busy moment of the machine cannot bend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

Samples = Mapping[int, Sequence[int]]
"""Round -> nanoseconds of each sample taken in it."""


def p50(samples: Samples) -> float:
    """The median of all samples, in nanoseconds."""
    return float(np.percentile(_all(samples), 50))


def p99(samples: Samples) -> float:
    """The 99th percentile of all samples, in nanoseconds; of few samples it is their largest."""
    return float(np.percentile(_all(samples), 99, method="higher"))


def ratio(samples: Samples, base: Samples) -> float | None:
    """How many times as long as `base`: the median of the ratios of both medians in each round.

    A round runs all lanes one after the other, so what else the machine does then falls on both. None when they share
    no round.
    """
    ratios = [
        median(samples[number]) / median(base[number])
        for number in sorted(samples.keys() & base.keys())
        if samples[number] and base[number]
    ]
    return float(median(ratios)) if ratios else None


def count(samples: Samples) -> int:
    """How many samples there are."""
    return sum(map(len, samples.values()))


def _all(samples: Samples) -> list[int]:
    return [value for values in samples.values() for value in values]
