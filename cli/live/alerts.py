"""The alerts of ops/prometheus-alerts.yml, said of one process by its own metrics.

Names, severities, thresholds and times are those of the file, which a test holds the two to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cli.live.history import Change, History

EVENTS_S: Final = 600.0
"""How long one event of a kind that should not happen at all is worth an alert."""
RATES_S: Final = 300.0
"""What shares of requests are taken over."""
CONSUMER_LAG_MAX: Final = 1_000
ERROR_SHARE_MAX: Final = 0.01
FALLBACK_SHARE_MAX: Final = 0.05
NEED_TEXT_SHARE_MAX: Final = 0.05
SHADOW_LAG_S_MAX: Final = 60
SHADOW_COVERAGE_MIN: Final = 0.1

NO_RULE: Final = "no_rule"
"""A fall-back that is no event: how a tokenizer is served that nothing but the reference can serve."""

GPU_LOST: Final = frozenset({"gpu_device_error", "gpu_worker_gone"})
"""Fall-backs that mean that a GPU is missing which was there."""

_Find = Callable[[History], list[str]]
"""What an alert is about, a phrase each; nothing when all is well."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One alert: it fires when `find` has found something for `for_s` seconds without a break."""

    name: str
    severity: str
    for_s: float
    summary: str
    find: _Find


class Alerts:
    """Which rules are broken, and since when. Ask at every reading: time passes by what is asked."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def judge(self, now_s: float, history: History) -> list[dict[str, Any]]:
        """Every broken rule as plain values: `firing` ones first, then `pending` ones. `now_s` is monotonic."""
        found = []
        for rule in RULES:
            subjects = rule.find(history)
            if not subjects:
                self._since.pop(rule.name, None)
                continue
            held_s = now_s - self._since.setdefault(rule.name, now_s)
            found.append(
                {
                    "name": rule.name,
                    "severity": rule.severity,
                    "state": "firing" if held_s >= rule.for_s else "pending",
                    "summary": rule.summary,
                    "subjects": subjects,
                    "held_s": round(held_s, 1),
                }
            )
        return sorted(found, key=lambda alert: alert["state"])


def _events(name: str, *by: str) -> _Find:
    """Each kind of event that happened at all."""

    def find(history: History) -> list[str]:
        grown = history.since(EVENTS_S).increase(name, by)
        return [_phrase(by, group) for group, count in sorted(grown.items()) if count > 0]

    return find


def _share_over(most: float, part: Callable[[Change], float]) -> _Find:
    """A share of all requests."""

    def find(history: History) -> list[str]:
        change = history.since(RATES_S)
        requests = change.total("toksplice.requests")
        share = part(change) / requests if requests else 0.0
        return [f"{share:.1%} of {requests:,.0f} requests"] if share > most else []

    return find


def _fallbacks(change: Change) -> float:
    by_reason = change.increase("toksplice.fallbacks", ("reason",))
    return sum(count for (reason,), count in by_reason.items() if reason != NO_RULE)


def _gpu_lost(history: History) -> list[str]:
    by_reason = history.since(EVENTS_S).increase("toksplice.fallbacks", ("reason",))
    return [f"reason {reason}" for (reason,), count in sorted(by_reason.items()) if count > 0 and reason in GPU_LOST]


def _consumer_behind(history: History) -> list[str]:
    lags = history.ever().gauge("toksplice.consumer.lag", ("topic",))
    return [f"{topic} {lag:,.0f} records" for (topic,), lag in sorted(lags.items()) if lag > CONSUMER_LAG_MAX]


def _breaker_open(history: History) -> list[str]:
    breakers = history.ever().gauge("toksplice.breaker.open", ("tokenizer",), max)
    return [_phrase(("tokenizer",), group) for group, is_open in sorted(breakers.items()) if is_open > 0]


def _shadow_behind(history: History) -> list[str]:
    lags = history.ever().gauge("toksplice.shadow.lag", join=max).values()
    return [f"{lag:,.0f} seconds" for lag in lags if lag > SHADOW_LAG_S_MAX]


def _shadow_coverage_low(history: History) -> list[str]:
    shares = history.ever().gauge("toksplice.shadow.coverage", join=min).values()
    return [f"{share:.0%} of the samples" for share in shares if share < SHADOW_COVERAGE_MIN]


def _phrase(labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ", ".join(f"{label} {value}" for label, value in zip(labels, values, strict=True) if value) or "one"


RULES: Final = (
    Rule(
        "TokSpliceShadowMismatch",
        "critical",
        0,
        "An answer differs from the reference.",
        _events("toksplice.shadow.mismatches", "tokenizer", "path", "route", "kind"),
    ),
    Rule(
        "TokSpliceBreakerOpen",
        "critical",
        0,
        "The reference answers everything, slowly, until an operator closes the breaker.",
        _breaker_open,
    ),
    Rule("TokSpliceShadowBehind", "warning", 300, "Answers are checked late.", _shadow_behind),
    Rule(
        "TokSpliceShadowCoverageLow",
        "warning",
        600,
        "Fewer than one in ten samples is checked by the reference.",
        _shadow_coverage_low,
    ),
    Rule(
        "TokSpliceErrors",
        "critical",
        300,
        "More than 1% of requests are answered with status error.",
        _share_over(ERROR_SHARE_MAX, lambda change: change.total("toksplice.requests", status="error")),
    ),
    Rule(
        "TokSpliceFallbacks",
        "warning",
        600,
        "More than 5% of requests leave the path that was meant for them.",
        _share_over(FALLBACK_SHARE_MAX, _fallbacks),
    ),
    Rule("TokSpliceGpuLost", "warning", 0, "Texts that were meant for a GPU went to the CPU.", _gpu_lost),
    Rule(
        "TokSpliceNeedText",
        "warning",
        600,
        "More than 5% of requests name a session that is not held.",
        _share_over(NEED_TEXT_SHARE_MAX, lambda change: change.total("toksplice.need_text")),
    ),
    Rule("TokSpliceConsumerBehind", "warning", 120, "A consumer is more than 1,000 records behind.", _consumer_behind),
    Rule(
        "TokSpliceDeadLetters",
        "warning",
        0,
        "Records went to tokenize.dlq.",
        _events("toksplice.dead_letters", "topic", "code"),
    ),
    Rule(
        "TokSpliceRecordsStuck",
        "warning",
        0,
        "Records stay unfinished past the handler limit.",
        _events("toksplice.handlers.stuck", "topic"),
    ),
    Rule(
        "TokSpliceSnapshotsFail",
        "warning",
        0,
        "Session snapshots fail: those sessions would not survive a restart.",
        _events("toksplice.snapshot.failures", "code"),
    ),
)
