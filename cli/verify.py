"""`toksplice verify`: random and adversarial edits against the reference, at the level of the library."""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.table import Table

from cli.attack import EDITS_PER_CHAIN, LONG_CONTEXT_CHARS, Outcome, run_chain
from cli.errors import ExitCode
from cli.options import positive
from cli.oracle import Oracle
from cli.output import note, progress_bar, stdout, write_json
from cli.wiring import add_tokenizer_arguments, choose_tokenizer, open_registry

CASES_PER_CHAIN = 2 * EDITS_PER_CHAIN
"""Each edit is a case with special tokens and one without."""
MAX_JOBS = 64

_Chain = tuple[str, int]
"""Seed, and how many cases."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_tokenizer_arguments(parser)
    parser.add_argument("--cases", type=positive, default=2_000, metavar="N", help="cases to try (default 2000)")
    parser.add_argument("--seed", default="0", metavar="S", help="the same seed makes the same cases (default 0)")
    jobs = max(1, min(4, os.cpu_count() or 1))
    parser.add_argument("--jobs", type=positive, default=jobs, metavar="N", help=f"processes (default {jobs})")
    parser.add_argument("--json", action="store_true", help="write JSON to stdout, failures with their texts")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    registry = open_registry(options.registry)
    entry = choose_tokenizer(registry, options.tokenizer)
    registry.get(entry.fingerprint)  # a file that cannot be loaded is one clear error, here
    path = registry.path(entry.fingerprint)
    chains = [
        (f"{options.seed}/{number}", min(CASES_PER_CHAIN, options.cases - start))
        for number, start in enumerate(range(0, options.cases, CASES_PER_CHAIN))
    ]
    outcome = Outcome()
    jobs = min(options.jobs, len(chains), MAX_JOBS)
    with (
        progress_bar(f"verifying {entry.name}", total=len(chains)) as bar,
        # Closed at once on Ctrl-C, so that the processes end with the command.
        closing(_outcomes(path, chains, jobs)) as outcomes,
    ):
        for part in outcomes:
            outcome.merge(part)
            bar.advance()
    result = _summary(entry.name, entry.fingerprint, options.seed, outcome)
    if options.json:
        write_json(result)
    else:
        _print(result)
    return ExitCode.CHECK_FAILED if outcome.failed else ExitCode.OK


def _outcomes(path: Path, chains: list[_Chain], jobs: int) -> Generator[Outcome]:
    """The outcome of each chain, in the order in which they finish."""
    if jobs == 1:
        _start(path)
        yield from map(_run, chains)
        return
    # Fresh processes: a fork would copy the reference's locked thread pool.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_start, initargs=(path,)) as pool:
        waiting: set[Future[Outcome]] = {pool.submit(_run, chain) for chain in chains}
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in waiting:
                future.cancel()


_attack: dict[str, Any] = {}
"""This process's tokenizer and oracle; loading them takes longer than a chain."""


def _start(path: Path) -> None:
    import toksplice

    # One thread a process: the processes are the parallelism.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    data = path.read_bytes()
    _attack.update(tokenizer=toksplice.load(data), oracle=Oracle(data))


def _run(chain: _Chain) -> Outcome:
    seed, cases = chain
    return run_chain(_attack["tokenizer"], _attack["oracle"], seed=seed, cases=cases)


def _summary(name: str, fingerprint: str, seed: str, outcome: Outcome) -> dict[str, Any]:
    return {
        "tokenizer": name,
        "fingerprint": fingerprint,
        "seed": seed,
        "cases": outcome.cases,
        "failed": outcome.failed,
        "skipped": outcome.skipped,
        "by_kind": dict(sorted(outcome.kinds.items())),
        "by_route": dict(sorted(outcome.routes.items())),
        "long_context_chars": LONG_CONTEXT_CHARS,
        "by_route_long_contexts": dict(sorted(outcome.long_routes.items())),
        "failures": outcome.failures,
    }


def _print(result: dict[str, Any]) -> None:
    table = Table(title=f"{result['tokenizer']}: {result['cases']:,} cases, {result['failed']:,} failed")
    for column in ("route", "all contexts", f"contexts over {LONG_CONTEXT_CHARS:,} characters"):
        table.add_column(column, justify="left" if column == "route" else "right")
    for route, count in result["by_route"].items():
        long = result["by_route_long_contexts"]
        table.add_row(route, _share(count, result["by_route"]), _share(long.get(route, 0), long))
    stdout().print(table)
    if result["skipped"]:
        note(f"{result['skipped']} cases skipped: the reference itself fails on their texts")
    for failure in result["failures"][:3]:
        kind, start, end = failure["kind"], failure["start"], failure["end"]
        note(f"FAILED seed {failure['seed']} edit {failure['edit']}: {kind} [{start}, {end}) "
             f"{failure['insert'][:60]!r}: {'; '.join(failure['faults'])}")  # fmt: skip
    if result["failed"]:
        note("run again with --json to get the failures with their texts")


def _share(count: int, counts: dict[str, int]) -> str:
    return f"{count:,} ({count / max(1, sum(counts.values())):.1%})"
