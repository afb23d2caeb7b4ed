"""That the attacks bite: each rule's attacks break a splice that keeps every token left of the edit."""

from __future__ import annotations

from collections import Counter

import families
import numpy as np
import pytest

from cli.oracle import U32, Oracle, OracleFailedError
from toksplice.adversarial import RANDOM, Adversary, Stock
from toksplice.attacks import ATTACKS

CHAINS = 40
CHARS = 60
EDITS = 47
RULES: dict[str, tuple[str, ...]] = {
    "qwen": ("R0", "R1", "R3", "R5", "R6"),
    "o200k": ("R1", "R4"),
    "deepseek": ("R1", "R2", "R3"),
    "neox": ("R5",),
    "stripping": ("R5",),
    "llama2": ("R7",),
    "bert": ("R8", "R9"),
    "claude": ("R6", "R10"),
}
"""Family -> the rules that a splice without any rule breaks on it."""


def encoded(oracle: Oracle, text: str) -> tuple[U32, U32] | None:
    """Ids and spans of `text`, or None when the reference itself fails on it."""
    try:
        return oracle.encode(text, add_special_tokens=False)
    except OracleFailedError:
        return None


def broken_by(name: str) -> Counter[str]:
    """How many edits of each rule change a token that lies left of the edit."""
    oracle = Oracle(families.tokenizer_json(name))
    stock = Stock(name, oracle.added_tokens)
    broken: Counter[str] = Counter()
    for seed in range(CHAINS):
        adversary = Adversary(seed, stock)
        text = adversary.text(CHARS)
        before = encoded(oracle, text)
        for edit in adversary.edits(text, EDITS):
            after = encoded(oracle, edit.after)
            if before is not None and after is not None:
                kept = int((before[1][:, 1] <= edit.start).sum())
                broken[edit.rule] += not np.array_equal(before[0][:kept], after[0][:kept])
            before = after
    return broken


@pytest.mark.parametrize("name", RULES)
def test_the_attacks_break_a_splice_without_rules(name: str) -> None:
    broken = broken_by(name)
    assert broken[RANDOM] > 0
    assert [rule for rule in RULES[name] if not broken[rule]] == []


def test_every_rule_is_broken_somewhere() -> None:
    assert {rule for rules in RULES.values() for rule in rules} == set(ATTACKS)
