"""Making wrong answers come again: cases, histories, and making a case small."""

from __future__ import annotations

import ast
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from families import family
from shadow_kit import TEXT, sample

from schemas.request import Base, Op, Request
from schemas.sample import DifferenceKind
from shadow.history import recorded
from shadow.reproduce import Case, Step, by_engine, by_reference, isolated, made_up, run
from shadow.shrink import Effort, shrink
from shadow.testcase import pytest_case
from toksplice import Patch, Session
from toksplice.engine_session import EngineSession
from toksplice.errors import ReferenceFailedError


def case(*steps: Step) -> Case:
    return Case(steps, False)


def oracle() -> Any:
    return family("qwen", engine=False)


def request(number: int, op: Op, **fields: Any) -> Request:
    return Request(**({"request_id": f"r{number}", "session_id": "s", "tokenizer": "test", "op": op} | fields))


def base(length: int) -> Base:
    return Base(revision=1, length=length)


# Cases


def test_positions_are_cut_to_the_text_and_to_characters() -> None:
    settled = case(Step(5, 9, "añb"), Step(2, 99, "x"), Step(99, 1, "é"), Step(7, 7, "all", whole=True)).settled()
    assert settled.steps == (Step(0, 0, "añb"), Step(1, 4, "x"), Step(2, 2, "é"), Step(0, 4, "all", whole=True))
    assert settled.settled() == settled


def test_a_case_leads_to_the_text_that_a_session_has() -> None:
    pieces = ("\n", " ", "é", "the fox", "世界", "12 ")
    for seed in range(30):
        draw = random.Random(seed)
        steps = tuple(
            Step(draw.randrange(40), draw.randrange(40), "".join(draw.choices(pieces, k=3)), draw.random() < 0.2)
            for _ in range(6)
        )
        made = Case(steps, bool(seed % 2))
        for subject in (by_engine(family("llama3")), by_reference(family("llama3"))):
            result = run(subject, made, family("llama3", engine=False), "A")
            assert (result.difference, result.error) == (None, "")
        session = family("llama3").session(made.settled().steps[0].text)
        for step in made.settled().steps[1:]:
            session.splice(step.start, step.end, step.text)
        assert session.text == made.text


def test_the_route_is_that_of_the_last_edit() -> None:
    tokenizer = family("qwen")
    assert run(by_engine(tokenizer), case(Step(0, 0, TEXT)), oracle(), "A").route == "A"
    added = case(Step(0, 0, TEXT * 20), Step(9_999_999, 9_999_999, "and"))
    assert run(by_engine(tokenizer), added, oracle(), "?").route == "A"
    assert run(by_reference(oracle()), added, oracle(), "?").route in ("C", "D")


def test_it_is_the_client_s_ids_that_are_judged() -> None:
    """The session stays right, and its patch is wrong: only who follows the patches sees it."""

    class WrongPatches(EngineSession):
        def splice(self, start: int, end: int, text: str, *, force_full: bool = False) -> Patch:
            return wrong(super().splice(start, end, text, force_full=force_full))

        def update(self, text: str, *, force_full: bool = False) -> Patch:
            return wrong(super().update(text, force_full=force_full))

    def wrong(patch: Patch) -> Patch:
        return replace(patch, keep_left=patch.keep_left - 1, total=patch.total - 1)

    def subject(text: str, *, add_special_tokens: bool) -> Session:
        session = family("qwen").session(text)
        session.__class__ = WrongPatches
        return session

    edit = Step(10**6, 10**6, "and on")
    assert not run(subject, case(Step(0, 0, TEXT)), oracle(), "A").reproduces
    for change in (edit, Step(0, 0, TEXT + "and on", whole=True)):
        difference = run(subject, case(Step(0, 0, TEXT), change), oracle(), "A").difference
        assert difference is not None
        assert difference.kind is DifferenceKind.DROPPED


def test_a_refusal_is_told_and_is_no_reproduction() -> None:
    def refuses(text: str, *, add_special_tokens: bool) -> Any:
        raise ReferenceFailedError("no")

    result = run(refuses, case(Step(0, 0, "x")), oracle(), "A")
    assert (result.reproduces, result.error) == (False, "reference_failed")


# Histories


@pytest.mark.parametrize("special", [False, True])
def test_made_up_histories_lead_to_the_sample_s_text(special: bool) -> None:
    text = "".join(f"line {number} of é\n" for number in range(700))
    one = sample(text, special=special, keep_left=100, keep_right=30)
    cases = made_up(one, oracle())
    assert list(cases) == ["last change", "appends", "lines"]
    for each in (isolated(one), *cases.values()):
        assert each.text == text
        assert each.add_special_tokens is special
    assert [len(each.steps) for each in cases.values()] == [2, -(-len(text) // 1_400), -(-700 // 3)]


@pytest.mark.parametrize(("left", "right"), [(0, 0), (10**6, 0), (0, 10**6), (5, 5), (3, 10**6)])
def test_the_last_change_may_lie_anywhere(left: int, right: int) -> None:
    one = sample("é fox " * 5, keep_left=left, keep_right=right)
    assert made_up(one, oracle())["last change"].text == "é fox " * 5


def test_the_history_is_what_was_asked_and_accepted() -> None:
    requests = [
        request(0, Op.TEXT, text="gone before"),
        request(1, Op.TEXT, text="ab"),
        request(2, Op.APPEND, text="cd", base=base(2)),
        request(3, Op.APPEND, text="stale", base=base(2)),
        request(2, Op.APPEND, text="cd", base=base(2)),
        request(4, Op.SPLICE, text="é", start=1, end=2, base=base(4)),
        request(5, Op.TRUNCATE, length=4, base=base(5)),
        request(6, Op.FORK, new_session="t", base=base(4)),
        request(1, Op.TEXT, text="ab"),
        request(7, Op.APPEND, text="!", base=base(4)),
        request(8, Op.APPEND, text="later", base=base(5)),
    ]
    found = recorded(sample("aéc!", request_id="r7"), requests)
    assert found is not None
    assert found.text == "aéc!"
    assert found.settled().steps == (
        Step(0, 0, "gone before", whole=True),
        Step(0, 11, "ab", whole=True),
        Step(2, 2, "cd"),
        Step(1, 2, "é"),
        Step(4, 5, ""),
        Step(4, 4, "!"),
    )


def test_a_history_that_does_not_lead_to_the_text_is_none() -> None:
    requests = [request(1, Op.TEXT, text="ab"), request(2, Op.APPEND, text="cd", base=base(2))]
    assert recorded(sample("abcx", request_id="r2"), requests) is None
    assert recorded(sample("abcd", request_id="r9"), requests) is None
    assert recorded(sample("abcd", request_id="r2"), requests[1:]) is None
    assert recorded(sample("abcd", request_id="r2"), requests) is not None


# Making small


def test_what_is_left_is_minimal() -> None:
    """The made-up fault needs two letters that one edit brings, and a digit of another."""

    def fails(each: Case) -> bool:
        return any("x" in step.text and "y" in step.text for step in each.steps) and "7" in each.text

    steps = [Step(10**6, 10**6, f"word {number} é") for number in range(50)]
    steps[20] = Step(10**6, 10**6, "aaaxaaaayaaa")
    small = shrink(Case(tuple(steps), False), fails, Effort(10_000, 60))
    assert small.minimal
    assert sorted(step.text for step in small.case.steps) == ["7", "xy"]
    assert small.case.settled() == small.case


def test_positions_follow_what_is_cut_away() -> None:
    def fails(each: Case) -> bool:
        return len(each.steps) == 2 and "(b)" in each.text

    small = shrink(case(Step(0, 0, "a" * 50 + "()" + "c" * 50), Step(51, 51, "b")), fails, Effort(10_000, 60))
    assert small.case.steps == (Step(0, 0, "()"), Step(1, 1, "b"))


def test_tries_are_bounded() -> None:
    tried = 0

    def fails(each: Case) -> bool:
        nonlocal tried
        tried += 1
        return each.text.count("x") > 3

    small = shrink(case(Step(0, 0, "abx" * 1_000)), fails, Effort(25, 60))
    assert (tried, small.tries, small.minimal) == (25, 25, False)
    assert small.case.text.count("x") > 3


def test_time_is_bounded() -> None:
    now_s = 0.0

    def fails(each: Case) -> bool:
        nonlocal now_s
        now_s += 1
        return "x" in each.text

    small = shrink(case(Step(0, 0, "ab" * 1_000 + "x")), fails, Effort(10_000, 5, lambda: now_s))
    assert (small.tries, small.minimal) == (5, False)


def test_whoever_wrote_the_sample_writes_no_code_into_its_test() -> None:
    wicked = 'a"""\nraise SystemExit\n"""\\N{nothing}²'
    odd = sample(sample_id=wicked, tokenizer=wicked, worker=wicked, engine=wicked, engine_version=wicked)
    source = pytest_case(isolated(odd), odd, Path("tokenizer.json"))
    docstring, imported, named, function = ast.parse(source).body
    assert isinstance(docstring, ast.Expr)
    assert isinstance(imported, ast.Import)
    assert isinstance(named, ast.Assign)
    assert isinstance(function, ast.FunctionDef)
