"""Metrics of this process as plain values, for those who show them and should not need to know the SDK."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import DataPointT, Metric, MetricsData


class Kind(StrEnum):
    """What may be done with a value: counters and histograms only grow, gauges are as they are."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One measurement that a trace can explain: `value` in the instrument's unit, `time_s` since the epoch."""

    trace_id: str
    value: float
    time_s: float


@dataclass(frozen=True, slots=True)
class Point:
    """One series of one instrument.

    `labels` are the attributes it was recorded with; `job` and `instance` are the service's name and id. `value` is a
    counter's or gauge's, and a histogram's sum. `counts` are a histogram's measurements by bucket, not added up: one
    for each of `bounds` (upper, inclusive) and one for what is above them all.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    job: str
    instance: str
    labels: tuple[tuple[str, str], ...]
    value: float
    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    exemplars: tuple[Exemplar, ...] = ()


def points_of(data: MetricsData) -> list[Point]:
    """Every series in `data`."""
    found = []
    for resource in data.resource_metrics:
        attributes = resource.resource.attributes
        source = str(attributes.get("service.name", "")), str(attributes.get("service.instance.id", ""))
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                found += [_point(metric, point, *source) for point in metric.data.data_points]
    return found


def _point(metric: Metric, point: DataPointT, job: str, instance: str) -> Point:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint, Sum

    shared = Point(
        metric.name,
        Kind.COUNTER if isinstance(metric.data, Sum) else Kind.GAUGE,
        metric.unit or "",
        metric.description or "",
        job,
        instance,
        tuple(sorted((key, str(value)) for key, value in (point.attributes or {}).items())),
        value=0,
    )
    if isinstance(point, NumberDataPoint):
        return replace(shared, value=point.value)
    if not isinstance(point, HistogramDataPoint):
        raise TypeError(f"{metric.name}: no instrument of ours gives a {type(point).__name__}")
    return replace(
        shared,
        kind=Kind.HISTOGRAM,
        value=point.sum,
        bounds=tuple(point.explicit_bounds),
        counts=tuple(point.bucket_counts),
        exemplars=tuple(
            Exemplar(f"{exemplar.trace_id:032x}", exemplar.value, exemplar.time_unix_nano / 1e9)
            for exemplar in point.exemplars
            if exemplar.trace_id is not None
        ),
    )
