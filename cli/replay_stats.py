"""From the samples of a replay to the numbers that are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from cli.replay_check import ReferenceTimes, Verdict
from cli.replay_run import Recording, Sample
from schemas.reply import Path, Route

MAX_MISMATCHES = 20
"""Mismatches that are listed; all are counted."""
COLUMNS = ("path", "route", "engine", "requests", "share", "p50 ms", "p99 ms", "full ms", "delivered", "tokenized")
LEFT_COLUMNS = 3
"""Columns of words; those after them are of numbers."""
CAPTION = (
    "p50, p99: the client's latency, from call to answer. full ms: the reference alone on the same requests' whole "
    "texts, median, from a measured sample. delivered, tokenized: characters."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way in which requests were answered. Times are microseconds, and the client's.

    `full_us` is the reference's: the median of what it takes for these requests' whole texts, estimated from the
    texts that it was timed on; None where nothing was measured.
    """

    path: str
    route: str
    engine: str
    requests: int
    share: float
    p50_us: int
    p99_us: int
    full_us: int | None
    delivered_chars: int
    encoded_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All numbers of one replay; `as_dict` is what --json writes.

    `spliced_after_first` is the share of splices (routes A, B and C) among the requests after each session's first.
    `reference_s` is the estimated time of the reference for every whole text; `tokenize_s` is what the workers
    took. None where nothing was measured.
    """

    tokenizer: str
    fingerprint: str
    broker: str
    sessions: int
    requests: int
    failed: int
    wall_s: float
    rows: tuple[Row, ...]
    context_chars: int
    delivered_chars: int
    encoded_chars: int
    spliced_after_first: float | None
    tokenize_s: float
    reference_s: float | None
    speed_up: float | None
    checked: int
    checked_from_cache: int
    reference_failed: int
    mismatches: int

    @property
    def ok(self) -> bool:
        """Every request was answered, and no answer differs from the reference's."""
        return self.mismatches == 0 and self.failed == 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def summarize(
    recording: Recording,
    verdict: Verdict | None,
    *,
    tokenizer: str,
    fingerprint: str,
    broker: str,
    reference: ReferenceTimes | None = None,
) -> Summary:
    """Put the numbers of one replay together."""
    samples = recording.samples
    seconds: Sequence[float | None] = (reference.seconds if reference else ()) or [None] * len(samples)
    groups: dict[tuple[str, str], list[tuple[Sample, float | None]]] = {}
    for sample, full_s in zip(samples, seconds, strict=True):
        groups.setdefault((sample.path, sample.route), []).append((sample, full_s))
    rows = [_row(path, route, group, len(samples)) for (path, route), group in groups.items()]
    reference_s = sum(reference.seconds) if reference and reference.seconds else None
    rows.sort(key=lambda row: -row.requests)
    later = [sample for sample in samples if sample.number > 0]
    tokenize_s = sum(sample.tokenize_us for sample in samples) / 1e6
    return Summary(
        tokenizer=tokenizer,
        fingerprint=fingerprint,
        broker=broker,
        sessions=recording.sessions,
        requests=len(samples) + recording.failed,
        failed=recording.failed,
        wall_s=recording.wall_s,
        rows=tuple(rows),
        context_chars=sum(sample.context_chars for sample in samples),
        delivered_chars=sum(sample.delivered_chars for sample in samples),
        encoded_chars=sum(sample.encoded_chars for sample in samples),
        spliced_after_first=sum(map(is_splice, later)) / len(later) if later else None,
        tokenize_s=tokenize_s,
        reference_s=reference_s,
        speed_up=reference_s / tokenize_s if reference_s and tokenize_s else None,
        checked=verdict.checked if verdict else 0,
        checked_from_cache=verdict.cached if verdict else 0,
        reference_failed=verdict.reference_failed if verdict else 0,
        mismatches=len(verdict.mismatches) if verdict else 0,
    )


def is_splice(sample: Sample) -> bool:
    """True for an answer made from the session's state and a proof, not by encoding the whole text."""
    return sample.path == Path.REPAIR and sample.route not in ("", Route.D)


def table(summary: Summary) -> Table:
    """The rows for a terminal."""
    title = f"{summary.sessions} sessions, {summary.requests:,} requests, {summary.tokenizer}"
    result = Table(title=title, caption=CAPTION, caption_justify="left", box=SIMPLE_HEAD)
    for number, column in enumerate(COLUMNS):
        result.add_column(column, justify="left" if number < LEFT_COLUMNS else "right", overflow="fold")
    for row in summary.rows:
        result.add_row(*cells(row))
    return result


def cells(row: Row) -> tuple[str, ...]:
    """One row as it is shown, in the order of `COLUMNS`."""
    return (
        row.path,
        row.route,
        row.engine,
        f"{row.requests:,}",
        f"{row.share:.1%}",
        f"{row.p50_us / 1e3:,.2f}",
        f"{row.p99_us / 1e3:,.2f}",
        "" if row.full_us is None else f"{row.full_us / 1e3:,.2f}",
        f"{row.delivered_chars:,}",
        f"{row.encoded_chars:,}",
    )


def sentences(summary: Summary) -> list[str]:
    """What the numbers say, one sentence each."""
    again = summary.context_chars / max(1, summary.encoded_chars)
    characters = (
        f"{summary.delivered_chars:,} characters were delivered and {summary.encoded_chars:,} tokenized, where "
        f"tokenizing every request in full takes {summary.context_chars:,} ({again:,.1f} times as many)."
    )
    said = [characters]
    if summary.reference_s is not None and summary.speed_up is not None:
        said.append(
            f"Tokenizing took {summary.tokenize_s:,.2f} s in the workers; the reference would have taken "
            f"{summary.reference_s:,.2f} s for the whole texts (measured on a sample of them): "
            f"{summary.speed_up:,.1f} times as long."
        )
    if summary.spliced_after_first is not None:
        said.append(f"{summary.spliced_after_first:.2%} of the requests after each session's first were splices.")
    if summary.checked:
        said.append(
            f"{summary.checked:,} answers compared with the reference (whole ids, {summary.checked_from_cache:,} of "
            f"them with cached results): {summary.mismatches:,} mismatches."
        )
    if summary.reference_failed:
        said.append(f"The reference itself failed on {summary.reference_failed:,} texts.")
    if summary.failed:
        said.append(f"{summary.failed:,} requests failed.")
    return said


def _row(path: str, route: str, group: Sequence[tuple[Sample, float | None]], total: int) -> Row:
    latencies = np.array([sample.latency_us for sample, _ in group])
    full = [full_s for _, full_s in group if full_s is not None]
    return Row(
        path=path,
        route=route,
        engine=Route(route).engine.value if route else "",
        requests=len(group),
        share=len(group) / total,
        p50_us=int(np.percentile(latencies, 50)),
        p99_us=int(np.percentile(latencies, 99)),
        full_us=round(float(np.median(full)) * 1e6) if full else None,
        delivered_chars=sum(sample.delivered_chars for sample, _ in group),
        encoded_chars=sum(sample.encoded_chars for sample, _ in group),
    )
