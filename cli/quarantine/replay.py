"""`toksplice shadow replay ID`: makes a wrong answer come again, makes it small, prints it as a test."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.table import Table

import toksplice
from cli.errors import CliError, ExitCode
from cli.output import note, stdout, write_json
from cli.quarantine.source import Source
from pipeline.ports import Broker
from pipeline.runtime import run as run_loop
from pipeline.samples import engine_version, library_versions
from pipeline.settings import from_env
from schemas.request import Request
from schemas.sample import Finding, Sample
from shadow.faults.injector import Injector
from shadow.faults.switch import DrillSettings
from shadow.history import recorded
from shadow.judge import Question, judge
from shadow.reproduce import ISOLATED, RECORDED, Case, Result, Subject, by_engine, by_reference, isolated, made_up, run
from shadow.shrink import Effort, Shrunk, shrink
from shadow.testcase import pytest_case
from toksplice import Session, Tokenizer, TokSpliceError
from toksplice.errors import UnknownTokenizerError
from toksplice.registry import Registry

DEFAULT_TRIES: Final = 2_000
DEFAULT_SECONDS: Final = 60

_FULL_ROUTE: Final = "D"

Opened = AbstractAsyncContextManager[tuple[Source, Broker | None]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much making a case small may cost."""

    tries: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to make the answer again, and what came of it."""

    history: str
    case: Case
    engine: bool
    result: Result

    def describe(self) -> dict[str, Any]:
        result = self.result
        return {
            "history": self.history,
            "steps": len(self.case.steps),
            "engine": self.engine,
            "route": result.route,
            "reproduces": result.reproduces,
            "difference": None if result.difference is None else str(result.difference),
            "kind": None if result.difference is None else result.difference.kind.value,
            "error": result.error,
        }


class Bench:
    """A tokenizer with and without its engine, and what is tried with it."""

    def __init__(self, tokenizer: Tokenizer, oracle: Tokenizer, injector: Injector | None = None) -> None:
        """injector: a fault to plant in the engine, for drills."""
        self.oracle = oracle
        self._injector = injector
        self._whole_text_route = tokenizer.whole_text_route
        self._engine = by_engine(tokenizer)
        self._reference = by_reference(tokenizer)

    def attempt(self, history: str, case: Case, *, engine: bool) -> Attempt:
        subject: Subject = self._by_engine if engine else self._reference
        route = self._whole_text_route if engine else _FULL_ROUTE
        return Attempt(history, case, engine, run(subject, case, self.oracle, route))

    def attempts(self, sample: Sample, requests: Sequence[Request]) -> list[Attempt]:
        """Every way, until one of the engine's comes out wrong: fresh, then by the recorded history or, without one,
        by those that are made up. What comes out wrong is made without the engine too, and the fresh text always."""
        cases = {ISOLATED: isolated(sample)}
        history = recorded(sample, requests)
        cases |= {RECORDED: history} if history is not None else made_up(sample, self.oracle)
        found: list[Attempt] = []
        for name, case in cases.items():
            found.append(self.attempt(name, case, engine=True))
            wrong = found[-1].result.reproduces
            # Edits without the engine may each encode a long text: they are made where they tell the two apart.
            if wrong or name == ISOLATED:
                found.append(self.attempt(name, case, engine=False))
            if wrong:
                break
        return found

    def smallest(self, attempt: Attempt, bounds: Bounds) -> Shrunk:
        """The smallest case that fails as the attempt did."""

        def fails(case: Case) -> bool:
            return bool(case.steps) and self.attempt("", case, engine=attempt.engine).result.reproduces

        return shrink(attempt.case, fails, Effort(bounds.tries, bounds.seconds))

    def _by_engine(self, text: str, *, add_special_tokens: bool) -> Session:
        session = self._engine(text, add_special_tokens=add_special_tokens)
        return session if self._injector is None else self._injector.plant(session, self.oracle.fingerprint)


def run_replay(opened: Opened, sample_id: str, registry: Registry, bounds: Bounds, *, as_json: bool) -> int:
    finding, requests = run_loop(_fetch(opened, sample_id))
    facts = replayed(finding, requests, registry, bounds)
    if as_json:
        write_json(facts)
    else:
        _print(facts)
    return ExitCode.CHECK_FAILED if facts["reproduces"] else ExitCode.OK


async def _fetch(opened: Opened, sample_id: str) -> tuple[Finding, list[Request]]:
    async with opened as (source, _):
        finding = await source.get(sample_id)
        if finding is None:
            raise CliError(ExitCode.INPUT, f"{source.where} has no finding {sample_id[:80]!r}: see `shadow report`")
        if finding.redacted:
            raise CliError(ExitCode.INPUT, "this finding was kept without its text (TOKSPLICE_SHADOW_TEXT=redact)")
        if not _is_text(finding.sample.text):
            raise CliError(ExitCode.INPUT, "the text of this finding is not UTF-8: no tokenizer can be asked about it")
        return finding, await source.requests(finding.sample)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def replayed(finding: Finding, requests: Sequence[Request], registry: Registry, bounds: Bounds) -> dict[str, Any]:
    """What comes of making the answer of a finding again. Blocks, for `bounds` and some encodings of the text.

    Raises CliError when the tokenizer is not registered, `toksplice.TokSpliceError` when it cannot be loaded.
    """
    sample = finding.sample
    try:
        path = registry.path(sample.fingerprint)
    except UnknownTokenizerError:
        named = sample.tokenizer or sample.fingerprint
        raise CliError(ExitCode.TOKENIZER, f"tokenizer {named[:80]!r} of this finding is not registered here") from None
    bench = Bench(toksplice.load(path), toksplice.load(path, engine=False), _drill(registry))
    attempts = bench.attempts(sample, requests)
    wrong = next((attempt for attempt in attempts if attempt.result.reproduces), None)
    small = None if wrong is None else bench.smallest(wrong, bounds)
    return {
        "sample_id": sample.sample_id,
        "tokenizer": sample.tokenizer,
        "fingerprint": sample.fingerprint,
        "path": sample.path.value,
        "route": sample.route.value,
        "found": {"kind": finding.kind.value, "token": finding.index, "tier": finding.tier.value},
        "recorded": _recorded(bench.oracle, sample),
        "versions": _versions(sample),
        "attempts": [attempt.describe() for attempt in attempts],
        "reproduces": wrong is not None,
        "by": None if wrong is None else wrong.history,
        "minimal": None if small is None else _describe(small),
        "test": None if small is None else pytest_case(small.case, sample, path),
    }


def _drill(registry: Registry) -> Injector | None:
    injection = from_env(DrillSettings).injection()
    if injection is None:
        return None
    note(f"DRILL: the engine has a fault planted ({injection.name})")
    return Injector(injection, registry)


def _recorded(oracle: Tokenizer, sample: Sample) -> dict[str, Any]:
    """Whether the answer as it was given is wrong by the reference of today."""
    try:
        difference = judge(oracle, Question.of(sample), engine=False)
    except TokSpliceError as error:
        return {"wrong": None, "difference": None, "error": error.code}
    return {"wrong": difference is not None, "difference": None if difference is None else str(difference), "error": ""}


def _versions(sample: Sample) -> dict[str, dict[str, str]]:
    """The versions that answered and those that replay, where they differ."""
    then = {"toksplice": sample.engine_version, **sample.libraries}
    now = {"toksplice": engine_version(), **dict(library_versions())}
    return {name: {"then": then[name], "now": now.get(name, "")} for name in then if then[name] != now.get(name)}


def _describe(small: Shrunk) -> dict[str, Any]:
    steps = small.case.settled().steps
    return {
        "steps": [asdict(step) for step in steps],
        "add_special_tokens": small.case.add_special_tokens,
        "characters": sum(len(step.text) for step in steps),
        "tries": small.tries,
        "minimal": small.minimal,
    }


def _print(facts: dict[str, Any]) -> None:
    out = stdout()
    found, as_given = facts["found"], facts["recorded"]
    out.print(
        f"sample {facts['sample_id']} of {facts['tokenizer'] or facts['fingerprint']}: path {facts['path']}, route "
        f"{facts['route']}, {found['kind']} at token {found['token']:,}",
        markup=False,
        soft_wrap=True,
    )
    verdict = {True: "wrong", False: "right", None: f"not judged ({as_given['error']})"}[as_given["wrong"]]
    out.print(f"as it was given: {verdict}. {as_given['difference'] or ''}".strip(), markup=False, soft_wrap=True)
    for name, versions in facts["versions"].items():
        out.print(f"{name}: {versions['then'] or '?'} then, {versions['now'] or '?'} now", markup=False)
    table = Table()
    for column in ("history", "edits", "with", "route", "result"):
        table.add_column(column, justify="right" if column == "edits" else "left")
    for one in facts["attempts"]:
        with_ = "engine" if one["engine"] else "reference"
        result = one["difference"] or (f"failed: {one['error']}" if one["error"] else "right")
        table.add_row(one["history"], f"{one['steps']:,}", with_, one["route"], result)
    out.print(table, markup=False)
    small = facts["minimal"]
    if small is None:
        out.print(
            "It does not come again: neither the text nor its history does it. Suspect the worker, its memory or "
            "its version, or what lay between it and the client.",
            markup=False,
            soft_wrap=True,
        )
        return
    size = f"{len(small['steps']):,} edits, {small['characters']:,} characters"
    how = "no part can be left out" if small["minimal"] else "there was no time to make it smaller"
    out.print(f"It comes again by the {facts['by']} history. Made small: {size} ({how}).\n", markup=False)
    out.print(facts["test"], markup=False, soft_wrap=True)
