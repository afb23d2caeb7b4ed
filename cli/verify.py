"""`toksplice verify`: random and adversarial edits at the level of the library, each result compared."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import toksplice
from cli.attack import EDITS_PER_CHAIN, Chain
from cli.errors import CliError, ExitCode
from cli.options import add_epilog, positive
from cli.output import Bar, note, progress_bar, stderr, write_json
from cli.sessions import read_sessions
from cli.verify_report import Subject, entry, print_entry, report
from cli.verify_state import CHAINS_PER_BATCH, Done, State, run_identity
from cli.verify_work import MAX_JOBS, Batch, Work, outcomes
from cli.wiring import choose_tokenizer, open_registry
from toksplice.registry import Registry
from toksplice.sources import BUILT_IN

DEFAULT_EDITS = 20_000
DEFAULT_REFERENCE_EVERY = 20
LINE_EVERY_S = 30.0
"""How often a line says how far the run has come, where no progress bar can."""

_EPILOG = """
Half of the edits are random and half attack a rule of the proofs, by name. Where a native engine serves the tokenizer,
each edited session is compared with a full encode by the engine, and every so many texts with one by the reference;
otherwise every text is compared with the reference. The seed decides the edits, whatever the number of processes.

  toksplice verify --tokenizer qwen3 --tokenizer ./tokenizer.json --edits 1000000 --state run.json --json
  toksplice verify --sessions sessions.jsonl.gz --reference-every 10     the turns of recorded sessions instead

With --faults nothing is edited: every fault of a catalogue is planted in a running pipeline whose answers are sampled
at 5%, and the shadow check has to find it within 39 answers. Only --seed and --json go with it.

  toksplice verify --faults --json faults.json
  toksplice verify --faults 'repair/append/id_*'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tokenizer",
        action="append",
        metavar="NAME",
        help=f"a name, a fingerprint or a tokenizer.json; may be given several times (default {BUILT_IN})",
    )
    parser.add_argument("--registry", type=Path, metavar="DIR", help="the registry's folder")
    parser.add_argument(
        "--edits",
        type=positive,
        default=DEFAULT_EDITS,
        metavar="N",
        help=f"edits to try with each tokenizer (default {DEFAULT_EDITS})",
    )
    parser.add_argument(
        "--sessions",
        type=Path,
        metavar="FILE",
        help="make the turns of these sessions instead of edits; see replay --help",
    )
    parser.add_argument("--seed", default="0", metavar="S", help="the same seed makes the same edits (default 0)")
    parser.add_argument(
        "--reference-every",
        type=positive,
        default=DEFAULT_REFERENCE_EVERY,
        metavar="K",
        help=f"compare every K-th text with the reference too (default {DEFAULT_REFERENCE_EVERY})",
    )
    jobs = max(1, min(4, os.cpu_count() or 1))
    parser.add_argument("--jobs", type=positive, default=jobs, metavar="N", help=f"processes (default {jobs})")
    parser.add_argument(
        "--state", type=Path, metavar="FILE", help="record what is done there; the same command goes on from it"
    )
    parser.add_argument(
        "--faults",
        nargs="?",
        const="*",
        metavar="GLOB",
        help="plant faults in a pipeline instead, those whose names match (default all)",
    )
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="OUT", help="write JSON to stdout or a file, failures with their texts"
    )
    add_epilog(parser, _EPILOG)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.faults is not None:
        from cli.drill.command import run_drill

        if options.tokenizer or options.sessions or options.state:
            raise CliError(
                ExitCode.USAGE, "--faults has a tokenizer and texts of its own: only --seed and --json go with it"
            )
        return run_drill(options.faults, options.seed, options.json)
    registry = open_registry(options.registry)
    files = [_file(registry, name) for name in dict.fromkeys(options.tokenizer or [BUILT_IN])]
    # A file that cannot be loaded is one clear error, here; and a large one is not kept while others are verified.
    subjects = [_subject(name, path) for name, path in files]
    batches = list(_batches(options.seed, options.edits) if options.sessions is None else _sessions(options.sessions))
    edits = sum(chain.edits for _, chains in batches for chain in chains)
    fingerprints = [subject.fingerprint for subject in subjects]
    identity = run_identity(options.seed, edits, options.reference_every, fingerprints, options.sessions)
    state = State(options.state, identity)
    reports = []
    for subject, (_, path) in zip(subjects, files, strict=True):
        done = state.done(subject.fingerprint)
        work = Work(path, options.seed, options.reference_every, options.sessions)
        _verify(subject, work, _Plan(batches, edits, options.jobs), state, done)
        reports.append(entry(subject, done))
        if options.json != "-":
            print_entry(reports[-1])
    if options.json is not None:
        write_json(report(identity, reports), options.json)
    return ExitCode.CHECK_FAILED if any(each["failed"] for each in reports) else ExitCode.OK


def _file(registry: Registry, name: str) -> tuple[str, Path]:
    """The name and the tokenizer.json of what --tokenizer says."""
    path = Path(name)
    if path.suffix == ".json" or len(path.parts) > 1:
        return name, path
    registered = choose_tokenizer(registry, name)
    return registered.name, registry.path(registered.fingerprint)


def _subject(name: str, path: Path) -> Subject:
    tokenizer = toksplice.load(path)
    return Subject(name, tokenizer.fingerprint, tokenizer.explain())


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is run for each tokenizer, and in how many processes."""

    batches: list[Batch]
    edits: int
    jobs: int


def _verify(subject: Subject, work: Work, plan: _Plan, state: State, done: Done) -> None:
    """Run the batches that are left, and add what comes of them to `done`."""
    batches = [batch for batch in plan.batches if batch[0] not in done.batches]
    if not batches:
        return
    started, before = time.monotonic(), done.seconds
    jobs = min(plan.jobs, len(batches), MAX_JOBS)
    with (
        progress_bar(f"verifying {subject.name}", total=plan.edits) as bar,
        # Closed at once on Ctrl-C, so that the processes end with the command.
        closing(outcomes(work, batches, jobs)) as finished,
    ):
        progress = _Progress(subject.name, plan.edits, done, bar)
        for number, outcome in finished:
            done.batches.add(number)
            done.outcome.merge(outcome)
            done.seconds = before + time.monotonic() - started
            state.record()
            progress.show()


class _Progress:
    """Says how far a tokenizer has come: by the bar on a terminal, by a line now and then elsewhere."""

    def __init__(self, name: str, edits: int, done: Done, bar: Bar) -> None:
        self._name, self._edits, self._done, self._bar = name, edits, done, bar
        self._lines = not stderr().is_terminal
        self._shown = 0
        self._next_line_s = time.monotonic() + LINE_EVERY_S

    def show(self) -> None:
        """Show what is done by now."""
        outcome = self._done.outcome
        self._bar.advance(outcome.edits - self._shown)
        self._shown = outcome.edits
        if self._lines and time.monotonic() >= self._next_line_s:
            self._next_line_s = time.monotonic() + LINE_EVERY_S
            speed = outcome.edits / self._done.seconds
            note(
                f"{self._name}: {outcome.edits:,} of {self._edits:,} edits, {outcome.failed:,} failed, "
                f"{outcome.reference_encodes:,} compared with the reference, {speed:,.0f} edits/s"
            )


def _batches(seed: str, edits: int) -> Iterable[Batch]:
    chains = (
        Chain(seed, number, min(EDITS_PER_CHAIN, edits - start))
        for number, start in enumerate(range(0, edits, EDITS_PER_CHAIN))
    )
    return enumerate(iter(lambda: tuple(islice(chains, CHAINS_PER_BATCH)), ()))


def _sessions(path: Path) -> Iterable[Batch]:
    """A batch for each session. Raises `CliError` for a file that cannot be read."""
    try:
        turns = [conversation.requests for conversation in read_sessions(path)]
    except OSError as error:
        raise CliError(ExitCode.INPUT, f"{path}: cannot be read ({error.strerror})") from error
    return enumerate((Chain(path.name, number, count),) for number, count in enumerate(turns))
