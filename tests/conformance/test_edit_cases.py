"""Edits that break looser splice rules, on every family and on real vocabularies.

Each case runs as it is, and inside long texts, so that it meets the whole-text route and certified splices.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families import CERTIFIED, ENGINE, REFERENCE_ONLY, WORDS, family
from vocabularies import REAL, real

from toksplice import Tokenizer

CASES: list[dict[str, str]] = json.loads(Path(__file__).with_name("edit_cases.json").read_text())
PROSE = "The quick brown fox jumps over 12 lazy dogs.\ndef f(x):\n    return x + 1\n" * 30
#: Digits of another script, longer than any window rule of the field: the split's phase comes from their start.
DIGIT_RUNS = [("\u0661" * n, "\u0661" * n + "2 x") for n in (200, 201, 202, 2000, 2001)]
SURROUNDINGS = (("", ""), (PROSE + "x ", ""), ("", " " + PROSE), (PROSE, "\n" + PROSE))


def check(tokenizer: Tokenizer, old: str, new: str) -> tuple[set[str], set[str]]:
    """Make the edit in every surrounding, with the engine if it serves the tokenizer, and by the reference alone; the
    routes that served it."""
    routes: dict[bool, set[str]] = {True: set(), False: set()}
    for before, after in SURROUNDINGS:
        for special in (False, True):
            expected = tokenizer.reference.ids(before + new + after, add_special_tokens=special)
            for engine in {tokenizer.native is not None, False}:
                session = tokenizer.session(before + old + after, add_special_tokens=special, engine=engine)
                ids = session.ids.copy()
                patch = session.update(before + new + after)
                assert np.array_equal(session.ids, expected)
                assert np.array_equal(patch.apply(ids), expected)
                assert session.offsets().max(initial=0) <= session.length
                routes[engine].add(patch.route)
    return routes[True], routes[False]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
@pytest.mark.parametrize("name", CERTIFIED | WORDS | REFERENCE_ONLY)
def test_families(name: str, case: dict[str, str]) -> None:
    on_engine, on_reference = check(family(name), case["old"], case["new"])
    assert on_engine == ({"A"} if name in ENGINE else set())
    assert on_reference == ({"D"} if name in REFERENCE_ONLY else {"C", "D"})


@pytest.mark.parametrize("name", CERTIFIED)
def test_digit_phases(name: str) -> None:
    for old, new in DIGIT_RUNS:
        check(family(name), old, new)


@pytest.mark.vocabulary
@pytest.mark.parametrize("name", REAL)
def test_real_vocabularies(name: str) -> None:
    tokenizer = real(name)
    for case in CASES:
        on_engine, on_reference = check(tokenizer, case["old"], case["new"])
        assert (on_engine, on_reference) == ({"A"}, {"C", "D"})
    for old, new in DIGIT_RUNS:
        check(tokenizer, old, new)


@pytest.mark.wide
@pytest.mark.vocabulary
@pytest.mark.parametrize("case", ["splice_cases", "rule_cases"])
def test_published_counterexamples(case: str) -> None:
    """The wider collection beside the project, with the hash of each expected result."""
    from wide_cases import load_cases  # reads files that most checkouts do not have

    served = 0
    for entry in load_cases(case):
        tokenizer = real(entry.tokenizer) if entry.tokenizer in REAL else None
        if tokenizer is None:
            continue
        for engine in (True, False):
            session = tokenizer.session(entry.old, engine=engine)
            session.update(entry.new)
            assert len(session.ids) == entry.expected_len, entry
            assert entry.matches(session.ids), entry
        served += 1
    assert served >= 8


def test_cases_are_distinct() -> None:
    seen: set[Any] = {case["name"] for case in CASES}
    assert len(seen) == len(CASES) >= 25
