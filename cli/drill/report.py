"""What a drill says in the end, as JSON or for a person."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.table import Table

from cli.drill.run import BAR, Outcome, Trial
from cli.drill.stack import SAMPLING
from cli.output import note, stdout
from shadow.faults.catalogue import Injection

PUBLISHED_REQUESTS: Final = 42
"""Requests within which the published system found 90% of its injections."""
BUCKET: Final = 5
"""Width of the bars of the distribution, in requests."""


def report(outcome: Outcome, seed: int, fingerprint: str, seconds: float) -> dict[str, Any]:
    """The whole report. `requests` count answers of an injection's stream, the one that was found included."""
    trials = outcome.trials
    counts = sorted(trial.requests for trial in trials if trial.found is not None)
    return {
        "seed": seed,
        "sampling": SAMPLING,
        "tokenizer": fingerprint,
        "injected": len(trials),
        "detected": len(counts),
        "bar_requests": BAR,
        "within_bar": sum(count <= BAR for count in counts),
        "within_published": sum(count <= PUBLISHED_REQUESTS for count in counts),
        "published_requests": PUBLISHED_REQUESTS,
        "p50_requests": _percentile(counts, 50),
        "p90_requests": _percentile(counts, 90),
        "max_requests": counts[-1] if counts else 0,
        "distribution": _distribution(counts),
        "kinds": _by(trials, "kind"),
        "paths": _by(trials, "path"),
        "shapes": _by(trials, "shape"),
        "places": _by(trials, "place"),
        "healthy": {
            "answers": outcome.healthy,
            "sampled": outcome.healthy_sampled,
            "detected": outcome.false_alarms,
        },
        "failures": [_describe(trial) for trial in trials if not trial.ok],
        "injections": [_describe(trial) for trial in trials],
        "seconds": round(seconds, 1),
    }


def print_report(facts: dict[str, Any]) -> None:
    """The same for a person: tables on stdout, failures on stderr."""
    out = stdout()
    out.print(
        f"{facts['injected']:,} injections at {facts['sampling']:.0%} sampling: {facts['detected']:,} detected, "
        f"half within {facts['p50_requests']} requests, 90% within {facts['p90_requests']}, all within "
        f"{facts['max_requests']}; {facts['healthy']['answers']:,} healthy answers, "
        f"{facts['healthy']['detected']:,} taken for wrong",
        markup=False,
        soft_wrap=True,
    )
    table = Table()
    for column in ("kind", "injected", "detected", "90% within", "all within"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for kind, row in facts["kinds"].items():
        table.add_row(kind, *(f"{row[key]:,}" for key in ("injected", "detected", "p90_requests", "max_requests")))
    out.print(table)
    for failure in facts["failures"]:
        note(
            f"NOT FOUND {failure['name']}: {failure['struck']} of {failure['requests']} answers were wrong, "
            f"found as {failure['found'] or 'nothing'}"
        )


def _describe(trial: Trial) -> dict[str, Any]:
    return {
        "name": trial.injection.name,
        "healthy_before": trial.lead,
        "requests": trial.requests,
        "struck": trial.struck,
        "found": trial.found,
    }


def _by(trials: Iterable[Trial], axis: str) -> dict[str, dict[str, int]]:
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(_value(trial.injection, axis), []).append(trial)
    return {value: _counts(group) for value, group in groups.items()}


def _value(injection: Injection, axis: str) -> str:
    return str(getattr(injection, axis))


def _counts(trials: Sequence[Trial]) -> dict[str, int]:
    counts = sorted(trial.requests for trial in trials if trial.found is not None)
    return {
        "injected": len(trials),
        "detected": len(counts),
        "p90_requests": _percentile(counts, 90),
        "max_requests": counts[-1] if counts else 0,
    }


def _percentile(counts: Sequence[int], percent: int) -> int:
    """The least count within which `percent` of the sorted `counts` lie; 0 of none."""
    return counts[math.ceil(len(counts) * percent / 100) - 1] if counts else 0


def _distribution(counts: Iterable[int]) -> dict[str, int]:
    """How many injections were found within 1 to 5 requests, 6 to 10, and so on."""
    bars = Counter((count - 1) // BUCKET for count in counts)
    return {f"{bar * BUCKET + 1}-{(bar + 1) * BUCKET}": bars[bar] for bar in range(max(bars, default=-1) + 1)}
