"""`bench repair`: what an edit costs, beside what it costs to encode the text again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cli.bench.corpus import Corpus, Fresh
from cli.bench.peers import OURS, REFERENCE, Lane
from cli.bench.rounds import Outcome, Runner, Subject, reference_of
from cli.bench.rows import RepairRow
from cli.bench.scenarios import APPENDS, CASES, MIDDLE, PLAIN, SIZES, Scenario, Work, Workshop, fitting
from cli.bench.statistic import count, p50, p99, ratio

WARM_UP = 0
"""The number of the round that is not kept; each lane's lazy work is done in it."""
CHARS_NEEDED = max(one.context_chars for one in APPENDS) + 3_000_000
"""A text of this length has every context, and new text for several rounds."""

_Outcomes = dict[tuple[Scenario, str], Outcome]


def scenarios_of(lane: Lane) -> tuple[Scenario, ...]:
    """What a lane takes part in."""
    if lane.keeps_state:
        return (*APPENDS, *SIZES, *CASES)
    if lane.contexts:
        return APPENDS[:2]
    return (PLAIN,)


def measure(
    subject: Subject, corpus: Corpus, found: Sequence[Runner], rounds: int, say: Callable[[str], None]
) -> list[RepairRow]:
    """All scenarios in every round, and in each scenario one lane after the other. Rows in the order of scenarios."""
    scenarios = fitting(_unique(*APPENDS, *SIZES, *CASES), len(corpus.text))
    fresh = Fresh(corpus.text[max(one.context_chars for one in scenarios) :])
    workshop = Workshop(corpus.text, fresh, subject.added_token)
    outcomes: _Outcomes = {}
    for number in range(rounds + 1):
        say(f"{subject.name}: repair, round {number} of {rounds}")
        for scenario in scenarios:
            if scenario.kind == "added" and not subject.added_token:
                continue
            _round(scenario, workshop, found, number, outcomes, last=number == rounds)
    return [_row(subject.name, scenario, one, outcomes) for scenario in scenarios for one in _lanes(scenario, found)]


def _unique(*scenarios: Scenario) -> tuple[Scenario, ...]:
    return tuple(dict.fromkeys(scenarios))


def _lanes(scenario: Scenario, found: Sequence[Runner]) -> list[Runner]:
    return [one for one in found if scenario in scenarios_of(one.lane)]


def _round(
    scenario: Scenario,
    workshop: Workshop,
    found: Sequence[Runner],
    number: int,
    outcomes: _Outcomes,
    *,
    last: bool,
) -> None:
    taking = _lanes(scenario, found)
    pieces = workshop.pieces(scenario, max(one.lane.steps for one in taking))
    works: dict[int, Work] = {}
    expected: dict[int, str] = {}
    for one in taking:
        steps = min(one.lane.steps, len(pieces))
        if steps not in works:
            works[steps] = workshop.work(scenario, pieces[:steps])
            if last:
                expected[steps] = _expected(reference_of(found), works[steps], scenario)
        outcome = outcomes.setdefault((scenario, one.lane.name), Outcome())
        outcome.take(partial(_edits, one, scenario, works[steps], number, outcome, expected.get(steps, "")))


def _edits(one: Runner, scenario: Scenario, work: Work, number: int, outcome: Outcome, expected: str) -> None:
    one.know(work.key, work.context)
    answer = one.ask("edits", context=work.key, special=scenario.special, before=work.before, timed=work.timed)
    if number != WARM_UP:
        outcome.samples[number] = answer["ns"]
    if expected:
        outcome.compare(answer["digest"], expected)


def _expected(reference: Runner, work: Work, scenario: Scenario) -> str:
    """The reference's digest of the text after a round: an empty context that gets all of it."""
    edit = (0, 0, work.final, 0, 0)
    digest: str = reference.ask("edits", context="", special=scenario.special, before=[], timed=[edit])["digest"]
    return digest


def _row(tokenizer: str, scenario: Scenario, one: Runner, outcomes: _Outcomes) -> RepairRow:
    name = one.lane.name
    outcome = outcomes.get((scenario, name), Outcome(reason="the tokenizer has no special token"))
    if outcome.reason or not outcome.samples:
        return _described(tokenizer, scenario, name, note=outcome.reason)
    samples = outcome.samples

    def times(other: Scenario, lane: str) -> float | None:
        base = outcomes.get((other, lane))
        return ratio(samples, base.samples) if base and base.samples else None

    return _described(
        tokenizer,
        scenario,
        name,
        samples=count(samples),
        p50_us=p50(samples) / 1e3,
        p99_us=p99(samples) / 1e3,
        times_ours=None if name == OURS else times(scenario, OURS),
        times_plain=times(PLAIN, name) if scenario.context_chars == MIDDLE and scenario != PLAIN else None,
        times_small=times(APPENDS[0], name) if scenario in APPENDS[1:] else None,
        exact=None if name == REFERENCE else outcome.exact,
    )


def _described(tokenizer: str, scenario: Scenario, lane: str, **figures: object) -> RepairRow:
    return RepairRow(
        tokenizer=tokenizer,
        case=scenario.case,
        context_chars=scenario.context_chars,
        edit_chars=scenario.edit_chars,
        lane=lane,
        **figures,  # type: ignore[arg-type]
    )
