"""What the live page shows, as plain values for JSON: numbers, words of the protocol and registered names only."""

from __future__ import annotations

from typing import Any, Final

from cli.live.history import Change, Histogram, History

WINDOW_S: Final = 300.0
"""What latencies, shares and rates are taken over."""
VERSION: Final = 1
"""Of the JSON's form."""

_DELTAS: Final = {"path": "repair", "status": "ok"}


def view(history: History, alerts: list[dict[str, Any]], *, now_ms: int, up_s: float) -> dict[str, Any]:
    """Everything on the page. `now_ms` is epoch milliseconds; durations in it are seconds, shares 0 to 1, and what
    cannot be said yet is None."""
    recent, ever = history.since(WINDOW_S), history.ever()
    return {
        "version": VERSION,
        "time_ms": now_ms,
        "up_s": round(up_s, 1),
        "window_s": round(min(WINDOW_S, recent.seconds), 1),
        "requests": {"total": ever.total("toksplice.requests"), "recent": recent.total("toksplice.requests")},
        "latency": _latency(recent, ever),
        "routes": _mix(recent, "path", "route", "engine"),
        "reasons": _mix(recent, "path", "reason"),
        "statuses": _mix(recent, "status"),
        "sessions": _sessions(recent, ever),
        "queues": _queues(ever),
        "shadow": _shadow(recent, ever),
        "alerts": alerts,
    }


def _latency(recent: Change, ever: Change) -> list[dict[str, Any]]:
    """By path, from the classifier's read to the acknowledged answer."""
    name = "toksplice.request.duration"
    lately = recent.histogram(name, ("path",))
    return [
        {"path": path, "total": total.count, **_quantiles(lately.get((path,), Histogram((), ())))}
        for (path,), total in sorted(ever.histogram(name, ("path",)).items())
    ]


def _quantiles(histogram: Histogram) -> dict[str, float | None]:
    return {
        "recent": histogram.count,
        **{f"p{q}_s": histogram.quantile(q / 100) for q in (50, 95, 99)},
    }


def _mix(recent: Change, *labels: str) -> list[dict[str, Any]]:
    """Answers by `labels`, the most frequent first."""
    counts = {group: count for group, count in recent.increase("toksplice.requests", labels).items() if count}
    total = sum(counts.values())
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    return [{**dict(zip(labels, group, strict=True)), "count": n, "share": n / total} for group, n in rows]


def _sessions(recent: Change, ever: Change) -> dict[str, Any]:
    hits, misses = recent.total("toksplice.requests", **_DELTAS), recent.total("toksplice.need_text")
    return {
        "held": _sum(ever, "toksplice.sessions"),
        "bytes": _sum(ever, "toksplice.session.bytes"),
        "hit_rate": _share(hits, hits + misses),
        "evictions": ever.total("toksplice.session.evictions"),
    }


def _queues(ever: Change) -> list[dict[str, Any]]:
    lags = ever.gauge("toksplice.consumer.lag", ("topic",))
    depths = ever.gauge("toksplice.queue.depth", ("topic",))
    return [
        {"topic": topic, "lag": lags.get((topic,), 0), "depth": depths.get((topic,), 0)}
        for (topic,) in sorted(lags.keys() | depths.keys())
    ]


def _shadow(recent: Change, ever: Change) -> dict[str, Any]:
    coverage = ever.gauge("toksplice.shadow.coverage", join=min).get(())
    breakers = ever.gauge("toksplice.breaker.open", ("tokenizer",), max)
    return {
        "coverage": coverage,
        "lag_s": ever.gauge("toksplice.shadow.lag", join=max).get(()),
        "samples": ever.total("toksplice.shadow.samples"),
        "dropped": ever.total("toksplice.shadow.dropped"),
        "checked": {
            f"{tier} {result}".strip(): count
            for (tier, result), count in sorted(ever.increase("toksplice.shadow.checked", ("tier", "result")).items())
            if count
        },
        "mismatches": ever.total("toksplice.shadow.mismatches"),
        "recent_mismatches": recent.total("toksplice.shadow.mismatches"),
        "open_breakers": sorted(tokenizer for (tokenizer,), is_open in breakers.items() if is_open),
    }


def _sum(change: Change, name: str) -> float:
    return sum(change.gauge(name).values())


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
