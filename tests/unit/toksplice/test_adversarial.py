"""Adversarial texts and edits: seeded, in bytes, of every kind, and with every attack."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from toksplice import alphabets, attacks
from toksplice.adversarial import (
    MAX_ADDED_TOKENS,
    MAX_CONTEXT_CHARS,
    MAX_EDIT_CHARS,
    RANDOM,
    Adversary,
    Edit,
    Stock,
)
from toksplice.attacks import ATTACKS, log_uniform

TOKENS = ("<|im_start|>", "<think>")
CASES = Path(__file__).parents[2] / "conformance" / "edit_cases.json"


@pytest.fixture(scope="module")
def stock() -> Stock:
    return Stock(0, TOKENS)


def edits(stock: Stock, chains: int, count: int = 47) -> Iterator[tuple[str, Edit]]:
    for seed in range(chains):
        adversary = Adversary(seed, stock)
        text = adversary.text(adversary.context_size())
        for edit in adversary.edits(text, count):
            yield text, edit
            text = edit.after


def test_the_same_seed_makes_the_same_edits(stock: Stock) -> None:
    assert list(edits(stock, 2)) == list(edits(Stock(0, TOKENS), 2))
    assert list(edits(stock, 2)) != list(edits(Stock(1, TOKENS), 2))
    assert Adversary(1, stock).text(300) != Adversary(2, stock).text(300)


def test_an_edit_says_what_it_does_in_bytes(stock: Stock) -> None:
    kinds = Counter[str]()
    for before, edit in edits(stock, 40):
        kinds[edit.kind] += 1
        data = before.encode()
        assert 0 <= edit.start <= edit.end <= len(data)
        assert (data[: edit.start] + edit.insert.encode() + data[edit.end :]).decode() == edit.after
        if edit.kind == "append":
            assert edit.start == edit.end == len(data)
        if edit.kind == "insert":
            assert edit.start == edit.end
        if edit.kind == "delete":
            assert edit.insert == ""
        if edit.kind == "truncate":
            assert (edit.insert, edit.end) == ("", len(data))
    assert set(kinds) == {"append", "insert", "splice", "delete", "truncate", "update", "undo", "fork"}


def test_an_undo_leads_back_to_a_text_that_was(stock: Stock) -> None:
    seen: set[str] = set()
    undone = 0
    for before, edit in edits(stock, 20):
        seen.add(before)
        if edit.kind == "undo":
            undone += 1
            assert edit.after in seen
    assert undone > 0


def test_half_of_the_edits_attack_and_every_rule_is_attacked(stock: Stock) -> None:
    rules = Counter(edit.rule for _, edit in edits(stock, 60))
    assert 0.4 < rules[RANDOM] / rules.total() < 0.6
    assert set(rules) == {RANDOM, *(f"R{number}" for number in range(11))}


def test_edits_and_contexts_have_the_lengths_that_are_promised(stock: Stock) -> None:
    contexts, inserts = Counter[int](), Counter[int]()
    for before, edit in edits(stock, 150):
        if edit.kind != "undo":  # which may bring a whole text back
            assert len(edit.insert) <= MAX_EDIT_CHARS
            inserts[len(str(len(edit.insert)))] += 1
        contexts[len(str(len(before)))] += 1
        # An attack on a context within the limit may lead through as many forms as it has.
        assert len(before) <= MAX_CONTEXT_CHARS + 5 * MAX_EDIT_CHARS
    assert set(contexts) == {1, 2, 3, 4, 5}
    assert min(contexts.values()) > contexts.total() // 100
    assert set(inserts) == {1, 2, 3, 4}


def test_texts_have_the_size_asked_for_and_are_valid(stock: Stock) -> None:
    adversary = Adversary(0, stock)
    for size in (0, 1, 17, 4_500):
        text = adversary.text(size)
        assert len(text) == size
        text.encode()
    sizes = [adversary.context_size() for _ in range(300)]
    assert min(sizes) == 0
    assert MAX_CONTEXT_CHARS // 2 < max(sizes) <= MAX_CONTEXT_CHARS


def test_few_added_tokens_are_drawn_of_a_vocabulary_with_many() -> None:
    many = [f"<{n}>" for n in range(1_000)]
    stock = Stock(0, many)
    assert len(stock.added_tokens) == MAX_ADDED_TOKENS
    assert stock.tapes == Stock(0, many[::-1]).tapes


def test_without_added_tokens_something_that_looks_like_one_stands_in() -> None:
    assert all(Stock(0, ("",)).added_tokens)


def test_every_attack_leads_through_different_forms() -> None:
    for rule, found in ATTACKS.items():
        for attack in found:
            for seed in range(50):
                forms = attack(random.Random(seed), TOKENS)
                assert len(forms) > 1, (rule, attack)
                "".join(forms).encode()
            assert len(set(forms)) > 1, (rule, attack)


def test_the_attacks_are_documented_by_the_rule() -> None:
    documented = [line.split()[0] for line in (attacks.__doc__ or "").splitlines() if line.startswith("R")]
    assert documented == list(ATTACKS)


def test_the_characters_of_known_counterexamples_are_among_the_alphabets(stock: Stock) -> None:
    made = set("".join(stock.tapes))
    for seed in range(300):
        for found in ATTACKS.values():
            for attack in found:
                made.update(*attack(random.Random(seed), TOKENS))
    cases = json.loads(CASES.read_text(encoding="utf-8"))
    needed = set("".join(case["old"] + case["new"] for case in cases))
    assert {char for char in needed if not char.isascii()} <= made


def test_there_are_ten_scripts_and_more() -> None:
    assert len(alphabets.SCRIPTS) >= 10


def test_numbers_of_every_order_are_as_likely() -> None:
    rng = random.Random(0)
    orders = Counter(len(str(log_uniform(rng, 999))) for _ in range(3_000))
    assert set(orders) == {1, 2, 3}
    assert min(orders.values()) > 800
