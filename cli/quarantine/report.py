"""`toksplice shadow report`: what was checked, what was found wrong, and what is barred for it."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from rich.table import Table

from cli.errors import ExitCode
from cli.output import note, printable, stdout, write_json, written_time
from cli.quarantine.breakers import open_breakers
from cli.quarantine.source import Source
from cli.topics import records_of
from cli.wiring import worker_settings
from pipeline.ports import Broker
from pipeline.runtime import run as run_loop
from schemas.errors import ProtocolError
from schemas.health import Health
from schemas.topics import HEALTH
from shadow.service import ShadowService
from shadow.store import Listed

_AXES: Final = ("tokenizer", "path", "route", "kind", "tier")
_COLUMNS: Final = ("sample", "time", "tokenizer", "path", "route", "kind", "token", "found by", "bytes")

Opened = AbstractAsyncContextManager[tuple[Source, Broker | None]]


def run_report(opened: Opened, limit: int, page: int, *, as_json: bool) -> int:
    facts = run_loop(_report(opened, limit, page))
    if as_json:
        write_json(facts)
    else:
        _print(facts)
    return ExitCode.OK


async def _report(opened: Opened, limit: int, page: int) -> dict[str, Any]:
    async with opened as (source, broker):
        rows = await source.all()
        facts = {
            "source": source.where,
            "total": len(rows),
            "page": page,
            "pages": max(1, -(-len(rows) // limit)),
            "counts": {axis: dict(Counter(getattr(row, axis) for row in rows).most_common()) for axis in _AXES},
            "findings": [_describe(row) for row in rows[(page - 1) * limit : page * limit]],
            "coverage": None,
            "open_breakers": None,
        }
        if broker is not None:
            partitions = worker_settings().partitions
            facts["coverage"] = await _coverage(broker, partitions)
            facts["open_breakers"] = sorted(await open_breakers(broker, partitions))
        return facts


async def _coverage(broker: Broker, partitions: int) -> dict[str, Any]:
    """What the shadow workers that run have counted since they started."""
    latest: dict[bytes, dict[str, int] | None] = {}
    async for record in records_of(broker, HEALTH, range(partitions), "the heartbeats"):
        key = record.key or b""
        latest[key] = None
        try:
            health = Health.decode(record.value or b"")
        except ProtocolError:
            continue
        if health.kind == ShadowService.kind:
            latest[key] = health.counts or {}
    counted = [counts for counts in latest.values() if counts is not None]
    sums = Counter({name: 0 for counts in counted for name in counts})
    for counts in counted:
        sums.update(counts)
    samples = sums.get("samples", 0)
    share = sums.get("reference", 0) / samples if samples else None
    return {"workers": len(counted), "counts": dict(sums), "by_reference": share}


def _describe(row: Listed) -> dict[str, Any]:
    return {
        "sample_id": row.sample_id,
        "time": written_time(row.time_ms),
        "tokenizer": row.tokenizer,
        "path": row.path,
        "route": row.route,
        "kind": row.kind,
        "tier": row.tier,
        "token": row.index,
        "redacted": row.redacted,
        "size_bytes": row.size_bytes,
    }


def _print(facts: dict[str, Any]) -> None:
    out = stdout()
    coverage = facts["coverage"]
    if coverage is not None:
        share = "none yet" if coverage["by_reference"] is None else f"{coverage['by_reference']:.1%}"
        counts = ", ".join(f"{count:,} {name}" for name, count in coverage["counts"].items())
        out.print(
            f"{coverage['workers']} shadow workers; by the reference: {share} ({counts or 'nothing'})", markup=False
        )
        breakers = ", ".join(facts["open_breakers"]) or "none"
        out.print(f"open breakers: {breakers}", markup=False, soft_wrap=True)
    for axis, counts in facts["counts"].items():
        if counts:
            line = ", ".join(f"{printable(name) or '?'} {count:,}" for name, count in counts.items())
            out.print(f"by {axis}: {line}", markup=False)
    table = Table(title=f"{facts['total']:,} findings, page {facts['page']} of {facts['pages']}")
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column in ("token", "bytes") else "left")
    for row in facts["findings"]:
        size = f"{row['size_bytes']:,}" + (" (redacted)" if row["redacted"] else "")
        words = [printable(row[key]) for key in ("sample_id", "time", "tokenizer", "path", "route", "kind")]
        table.add_row(*words, f"{row['token']:,}", row["tier"], size)
    out.print(table, markup=False)
    if coverage is None:
        note(
            f"from {facts['source']}; what was checked in all is told by running workers: use --broker or the live page"
        )
