"""What `verify` says in the end: one entry a tokenizer, as JSON or as a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from cli.attack import RECORDED
from cli.outcome import CONTEXTS, LONG_CONTEXT_CHARS
from cli.output import note, stdout
from cli.verify_state import Done
from toksplice import Explanation
from toksplice.adversarial import RANDOM
from toksplice.attacks import ATTACKS

SHOWN_FAILURES = 3
SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class Subject:
    """A tokenizer that is verified."""

    name: str
    fingerprint: str
    explanation: Explanation


def entry(subject: Subject, done: Done) -> dict[str, Any]:
    """The report on one tokenizer."""
    outcome = done.outcome
    return {
        "tokenizer": subject.name,
        "fingerprint": subject.fingerprint,
        "engine": asdict(subject.explanation),
        "edits": outcome.edits,
        "reference_encodes": outcome.reference_encodes,
        "failed": outcome.failed,
        "skipped": outcome.skipped,
        "by_kind": dict(sorted(outcome.kinds.items())),
        "by_route": dict(sorted(outcome.routes.items())),
        "by_rule": _in_order(outcome.rules, (RECORDED, RANDOM, *ATTACKS)),
        "by_context_chars": _in_order(outcome.contexts, CONTEXTS),
        "by_special_tokens": dict(sorted(outcome.special_tokens.items())),
        "long_context_chars": LONG_CONTEXT_CHARS,
        "by_route_long_contexts": dict(sorted(outcome.long_routes.items())),
        "chars_in_texts": outcome.chars_in_texts,
        "chars_encoded": outcome.chars_encoded,
        "seconds": round(done.seconds, 1),
        "edits_per_second": round(outcome.edits / done.seconds) if done.seconds else 0,
        "failures": outcome.failures,
    }


def report(identity: dict[str, Any], entries: list[dict[str, Any]]) -> dict[str, Any]:
    """The whole report: what was run (of `run_identity`), and one entry a tokenizer."""
    run = {key: identity[key] for key in ("seed", "edits", "sessions", "reference_every", "versions")}
    return {**run, "tokenizers": entries}


def print_entry(report: dict[str, Any]) -> None:
    """The report on one tokenizer for a person: the table on stdout, failures on stderr."""
    heading = (
        f"{report['tokenizer']}: {report['edits']:,} edits, {report['failed']:,} failed, "
        f"{report['reference_encodes']:,} compared with the reference"
    )
    table = Table()
    for column in ("route", "all contexts", f"contexts over {LONG_CONTEXT_CHARS:,} characters"):
        table.add_column(column, justify="left" if column == "route" else "right")
    long = report["by_route_long_contexts"]
    for route, count in report["by_route"].items():
        table.add_row(route, _share(count, report["by_route"]), _share(long.get(route, 0), long))
    stdout().print(heading, markup=False, soft_wrap=True)
    stdout().print(table)
    if report["skipped"]:
        note(f"{report['skipped']} texts skipped: the reference itself fails on them")
    for failure in report["failures"][:SHOWN_FAILURES]:
        place = f"chain {failure['chain']} edit {failure['edit']}"
        edit = f"{failure['kind']} [{failure['start']}, {failure['end']}) {failure['insert'][:SHOWN_CHARS]!r}"
        note(f"FAILED seed {failure['seed']} {place} ({failure['rule']}): {edit}: {'; '.join(failure['faults'])}")
    if report["failed"]:
        note("run again with --json to get the failures with their texts")


def _in_order(counts: Counter[str], names: tuple[str, ...]) -> dict[str, int]:
    return {name: counts[name] for name in names if counts[name]}


def _share(count: int, counts: dict[str, int]) -> str:
    return f"{count:,} ({count / max(1, sum(counts.values())):.1%})"
