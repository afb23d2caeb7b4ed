"""Chains of adversarial edits on every family: what `toksplice verify` runs at scale, reduced."""

from __future__ import annotations

import itertools

import families
import pytest

from cli.attack import EDITS_PER_CHAIN, Chain, run_chain
from cli.judge import Judge
from cli.oracle import Oracle
from cli.outcome import Outcome
from toksplice import Tokenizer
from toksplice.adversarial import RANDOM, Adversary, Stock
from toksplice.attacks import ATTACKS

CHAINS = 8
LONG_CHAINS = 3
REFERENCE_EVERY = 3
SPLICED_SHARE = 0.9
"""Least share of edits in contexts over 4,000 characters that a certificate or a cut serves: some of the attacks are
runs of hundreds of characters that hold no certain boundary."""


def numbers(name: str, stock: Stock) -> list[int]:
    """The first chains, of which the last few begin with a long text."""
    sizes = ((number, Adversary(f"{name}/{number}", stock).context_size()) for number in itertools.count(CHAINS))
    long = (number for number, size in sizes if 5_000 < size < 10_000)
    return [*range(CHAINS - LONG_CHAINS), *itertools.islice(long, LONG_CHAINS)]


def attack(name: str, tokenizer: Tokenizer) -> Outcome:
    judge = Judge(tokenizer, Oracle(families.tokenizer_json(name)), REFERENCE_EVERY)
    stock = Stock(name, judge.added_tokens)
    total = Outcome()
    for number in numbers(name, stock):
        total.merge(run_chain(tokenizer, judge, stock, Chain(name, number)))
    assert total.failures == []
    assert total.failed == 0
    assert total.edits > CHAINS * EDITS_PER_CHAIN // 2
    assert len(total.rules) > len(ATTACKS) // 2
    assert total.rules[RANDOM] > total.edits // 3
    return total


@pytest.mark.parametrize("name", families.ENGINE)
def test_the_engine_is_exact(name: str) -> None:
    outcome = attack(name, families.family(name))
    assert set(outcome.routes) == {"A"}
    assert outcome.edits == CHAINS * EDITS_PER_CHAIN
    # Every third edit of each chain. A text that the reference fails on is skipped, and the next one compared instead.
    assert outcome.reference_encodes >= CHAINS * (EDITS_PER_CHAIN // REFERENCE_EVERY) - outcome.skipped


@pytest.mark.parametrize("name", [*families.CERTIFIED, *families.WORDS])
def test_without_the_engine_texts_are_exact_and_spliced(name: str) -> None:
    outcome = attack(name, families.family(name, engine=False))
    assert outcome.reference_encodes == outcome.edits
    long = outcome.long_routes
    assert long["C"] >= SPLICED_SHARE * (long["C"] + long["D"]) > 0, long


@pytest.mark.parametrize("name", families.REFERENCE_ONLY)
def test_other_families_are_exact_by_the_reference(name: str) -> None:
    outcome = attack(name, families.family(name, engine=False))
    assert set(outcome.routes) == {"D"}
