"""Chains of adversarial edits on every family, each result compared with the reference."""

from __future__ import annotations

import families
import pytest

from cli.attack import Outcome, run_chain
from cli.oracle import Oracle
from toksplice import load

CHAINS = 8


def attack(name: str, *, engine: bool = False) -> Outcome:
    data = families.tokenizer_json(name)
    tokenizer, oracle = load(data, name=name, engine=engine), Oracle(data)
    total = Outcome()
    for number in range(CHAINS):
        total.merge(run_chain(tokenizer, oracle, seed=f"{name}-{number}"))
    return total


@pytest.mark.parametrize("name", families.CERTIFIED)
def test_certified_families_are_exact_and_spliced(name: str) -> None:
    outcome = attack(name)
    assert outcome.failures == []
    assert outcome.failed == 0
    assert outcome.cases > 100
    long = outcome.long_routes
    assert long["C"] >= 0.9 * (long["C"] + long["D"]), long


@pytest.mark.parametrize("name", families.ENGINE)
def test_the_engine_is_exact(name: str) -> None:
    outcome = attack(name, engine=True)
    assert outcome.failures == []
    assert outcome.failed == 0
    assert set(outcome.routes) == {"A"}


@pytest.mark.parametrize("name", families.WORDS)
def test_words_are_exact_and_spliced(name: str) -> None:
    outcome = attack(name)
    assert outcome.failures == []
    long = outcome.long_routes
    assert long["C"] >= 0.9 * (long["C"] + long["D"]), long


@pytest.mark.parametrize("name", families.REFERENCE_ONLY)
def test_other_families_are_exact_by_the_reference(name: str) -> None:
    outcome = attack(name)
    assert outcome.failures == []
    assert set(outcome.routes) == {"D"}
