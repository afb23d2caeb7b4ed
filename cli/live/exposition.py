"""Metrics for a Prometheus that scrapes this process, under the names that the collector of the compose stack gives.

So every expression of the dashboards and alerts means the same against either (docs/operations.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.samples import Exemplar as PrometheusExemplar

from pipeline.readings import Exemplar, Kind, Point

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
"""OpenMetrics: the format that carries exemplars, which lead from a bucket to its trace."""

_UNITS: Final = {"s": "seconds", "By": "bytes"}
"""Units that become a part of a name; those in braces do not."""


def exposition(points: Iterable[Point]) -> bytes:
    """All of `points` in the OpenMetrics text format."""
    families: dict[str, Metric] = {}
    for point in points:
        name = family_name(point.name, point.unit, point.kind)
        family = families.setdefault(name, Metric(name, point.description, point.kind.value))
        _add(family, point)
    text: bytes = generate_latest(_Families(families.values()))  # type: ignore[no-untyped-call]
    return text


def family_name(name: str, unit: str, kind: Kind) -> str:
    """The collector's rule UnderscoreEscapingWithSuffixes, without a counter's `_total`: words joined by underscores,
    the unit at the end unless it is among them; a gauge without a unit is a ratio."""
    words = re.findall(r"[A-Za-z0-9]+", name)
    suffix = "ratio" if (unit, kind) == ("1", Kind.GAUGE) else _UNITS.get(unit)
    return "_".join([*words, suffix] if suffix and suffix not in words else words)


class _Families:
    """What `generate_latest` takes for a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def _add(family: Metric, point: Point) -> None:
    labels = {**dict(point.labels), "job": point.job, "instance": point.instance}
    if point.kind is not Kind.HISTOGRAM:
        suffix = "_total" if point.kind is Kind.COUNTER else ""
        family.add_sample(family.name + suffix, labels, point.value)
        return
    total, below = 0, float("-inf")
    for bound, count in zip((*point.bounds, float("inf")), point.counts, strict=True):
        total += count
        le = "+Inf" if bound == float("inf") else repr(float(bound))
        exemplar = _exemplar_within(point.exemplars, below, bound)
        family.add_sample(f"{family.name}_bucket", {**labels, "le": le}, total, exemplar=exemplar)
        below = bound
    family.add_sample(f"{family.name}_count", labels, total)
    family.add_sample(f"{family.name}_sum", labels, point.value)


def _exemplar_within(exemplars: Iterable[Exemplar], low: float, high: float) -> PrometheusExemplar | None:
    """The latest exemplar of the bucket (low, high]; the format takes one."""
    inside = [exemplar for exemplar in exemplars if low < exemplar.value <= high]
    if not inside:
        return None
    last = max(inside, key=lambda exemplar: exemplar.time_s)
    return PrometheusExemplar({"trace_id": last.trace_id}, last.value, last.time_s)
