"""Runs a drill for `toksplice verify --faults`."""

from __future__ import annotations

import fnmatch
import logging
import tempfile
import time
from pathlib import Path
from typing import Final

from cli.drill.report import print_report, report
from cli.drill.run import Outcome, run_healthy, run_trial
from cli.drill.stack import stack
from cli.errors import CliError, ExitCode
from cli.output import progress_bar, write_json
from pipeline.runtime import run as run_loop
from shadow.faults.catalogue import CATALOGUE, Injection

HEALTHY_ANSWERS: Final = 200
"""Answers of each shape with nothing planted."""
SEED_DIGITS_MAX: Final = 18

_ALARMED: Final = ("shadow.alarm", "repair_worker.keeper")
"""Loggers that report what a drill provokes, hundreds of times."""


def run_drill(pattern: str, seed_word: str, json_target: str | None) -> int:
    """Plant every injection whose name matches `pattern`, and say what became of it. The exit code is CHECK_FAILED
    when one was not found, or a healthy answer was taken for wrong."""
    chosen = [injection for name, injection in CATALOGUE.items() if fnmatch.fnmatchcase(name, pattern)]
    if not chosen:
        raise CliError(ExitCode.USAGE, f"no injection is named like {pattern!r}")
    if not seed_word.isdecimal() or len(seed_word) > SEED_DIGITS_MAX:
        raise CliError(ExitCode.USAGE, f"with --faults, --seed is a whole number of up to {SEED_DIGITS_MAX} digits")
    seed, started = int(seed_word), time.monotonic()
    levels = {name: logging.getLogger(name).level for name in _ALARMED}
    for name in _ALARMED:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        outcome, fingerprint = run_loop(_drill(chosen, seed))
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
    facts = report(outcome, seed, fingerprint, time.monotonic() - started)
    if json_target is not None:
        write_json(facts, json_target)
    if json_target != "-":
        print_report(facts)
    return ExitCode.OK if outcome.ok else ExitCode.CHECK_FAILED


async def _drill(chosen: list[Injection], seed: int) -> tuple[Outcome, str]:
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="toksplice-drill-") as folder:
        async with stack(Path(folder)) as it:
            await run_healthy(it, HEALTHY_ANSWERS, seed, outcome)
            with progress_bar("planting faults", total=len(chosen)) as bar:
                for number, injection in enumerate(chosen):
                    await run_trial(it, injection, number, seed, outcome)
                    bar.advance()
            return outcome, it.fingerprint
