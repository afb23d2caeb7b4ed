"""The budget of processor time."""

from __future__ import annotations

from pipeline.clock import ManualClock
from shadow.budget import CpuBudget


def test_a_burst_is_saved_up_and_then_the_share_holds() -> None:
    clock = ManualClock()
    budget = CpuBudget(0.5, 2.0, clock.monotonic_s)
    assert not budget.is_spent()
    budget.charge(2.0)
    assert budget.is_spent()
    clock.advance(1)
    assert not budget.is_spent()
    budget.charge(3.5)
    clock.advance(6)
    assert budget.is_spent(), "what was overdrawn is paid back first"
    clock.advance(0.5)
    assert not budget.is_spent()
    clock.advance(1000)
    budget.charge(2.0)
    assert budget.is_spent(), "no more than a burst is saved up"


def test_over_time_no_more_is_spent_than_the_share() -> None:
    clock = ManualClock()
    budget = CpuBudget(0.5, 2.0, clock.monotonic_s)
    spent = 0.0
    for _ in range(10_000):
        if not budget.is_spent():
            budget.charge(0.3)
            spent += 0.3
        clock.advance(0.1)
    assert 0.5 * 1000 <= spent <= 0.5 * 1000 + 2.0 + 0.3


def test_no_share_is_no_checks() -> None:
    clock = ManualClock()
    budget = CpuBudget(0.0, 2.0, clock.monotonic_s)
    clock.advance(1000)
    assert budget.is_spent()
