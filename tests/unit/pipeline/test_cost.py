"""What a text is expected to take: the line that was measured, its prior, and its forgetting."""

from __future__ import annotations

import random

import pytest

from pipeline.clock import ManualClock
from pipeline.cost import CPU_PRIOR, GPU_PRIOR, HALF_LIFE_S, KEYS_MAX, OUTLIER, PRIOR_BYTES, CostMeter, expected_us
from schemas.health import Cost
from schemas.limits import MIB

PRIOR = Cost(fixed_us=100, mib_us=10_000, record_us=40)


def meter() -> tuple[CostMeter, ManualClock]:
    clock = ManualClock()
    return CostMeter(PRIOR, clock), clock


def test_a_text_takes_its_fixed_part_its_length_and_what_is_before_it() -> None:
    cost = Cost(fixed_us=100, mib_us=1_000, record_us=7)
    assert expected_us(cost, 0) == 100
    assert expected_us(cost, MIB // 2) == 600
    assert expected_us(cost, MIB // 2, queue_depth=3) == 621


def test_a_line_is_found_again_whatever_its_sizes_and_noise() -> None:
    dice = random.Random(1)
    costs, _ = meter()
    for _ in range(2_000):
        size = int(2 ** dice.uniform(11, 22))
        costs.note("f", size, (500 + 2_000 * size / MIB) * dice.uniform(0.98, 1.02))
    found = costs.costs()["f"]
    assert found.fixed_us == pytest.approx(500, rel=0.03)
    assert found.mib_us == pytest.approx(2_000, rel=0.03)


@pytest.mark.parametrize("size", [2_048, MIB])
def test_texts_of_one_size_say_what_that_size_takes(size: int) -> None:
    costs, _ = meter()
    for _ in range(200):
        costs.note("f", size, 5_000)
    assert expected_us(costs.costs()["f"], size) == pytest.approx(5_000, rel=0.05)


@pytest.mark.parametrize("size", PRIOR_BYTES)
def test_one_measurement_weighs_as_much_as_the_prior_s(size: int) -> None:
    costs, _ = meter()
    prior_us = expected_us(PRIOR, size)
    costs.note("f", size, 2 * prior_us)
    assert expected_us(costs.costs()["f"], size) == pytest.approx(1.5 * prior_us, rel=0.02)


def test_one_stall_does_not_bar_a_worker() -> None:
    costs, clock = meter()
    prior_us = expected_us(PRIOR, MIB)
    costs.note("f", MIB, 10_000 * prior_us)
    assert expected_us(costs.costs()["f"], MIB) == pytest.approx(prior_us * (1 + OUTLIER) / 2, rel=0.02)
    assert costs.costs()["f"].record_us == round(PRIOR.record_us * (1 + OUTLIER) / 2)
    clock.advance(5 * HALF_LIFE_S)
    assert expected_us(costs.costs()["f"], MIB) < 1.2 * prior_us


def test_what_is_slow_for_good_is_believed_soon() -> None:
    costs, _ = meter()
    for _ in range(15):
        costs.note("f", MIB, 100 * expected_us(PRIOR, MIB))
    assert expected_us(costs.costs()["f"], MIB) > 20 * expected_us(PRIOR, MIB)


def test_a_slow_time_is_forgotten_and_the_prior_comes_back() -> None:
    """So that a worker nobody asks any more, since it was slow once, is asked again."""
    costs, clock = meter()
    for _ in range(100):
        costs.note("f", MIB, 5_000_000)
    slow = expected_us(costs.costs()["f"], MIB)
    assert slow == pytest.approx(5_000_000, rel=0.2)
    clock.advance(40 * HALF_LIFE_S)
    assert expected_us(costs.costs()["f"], MIB) == pytest.approx(expected_us(PRIOR, MIB), rel=0.01)


def test_a_measurement_counts_half_after_its_half_life() -> None:
    costs, clock = meter()
    prior_us = expected_us(PRIOR, MIB)
    costs.note("f", MIB, 2 * prior_us)
    clock.advance(HALF_LIFE_S)
    assert expected_us(costs.costs()["f"], MIB) == pytest.approx(prior_us * (1 + 1 / 3), rel=0.02)


def test_what_is_new_counts_more_than_what_is_old() -> None:
    costs, clock = meter()
    for _ in range(1_000):
        costs.note("f", MIB, 1_000)
    clock.advance(10 * HALF_LIFE_S)
    for _ in range(1_000):
        costs.note("f", MIB, 9_000)
    assert expected_us(costs.costs()["f"], MIB) == pytest.approx(9_000, rel=0.01)


def test_a_line_never_falls_and_begins_nowhere_under_0() -> None:
    """Then the best flat line, or the best one through 0, stands in for the best one."""
    short, long = 4 * 1024, 8 * 1024
    falling, steep = meter()[0], meter()[0]
    for _ in range(2_000):
        for costs, short_us, long_us in ((falling, 400, 200), (steep, 50, 400)):
            costs.note("f", short, short_us)
            costs.note("f", long, long_us)
    weight = (expected_us(PRIOR, long) / expected_us(PRIOR, short)) ** 2
    flat, through_0 = falling.costs()["f"], steep.costs()["f"]
    assert (flat.fixed_us, flat.mib_us) == (pytest.approx((weight * 400 + 200) / (weight + 1), rel=0.03), 0)
    at_short = (weight * 50 + 2 * 400) / (weight + 4)
    assert (through_0.fixed_us, expected_us(through_0, short)) == (0, pytest.approx(at_short, rel=0.03))


def test_a_record_of_a_batch_keeps_the_worker_busy_for_its_share() -> None:
    costs, _ = meter()
    for _ in range(999):
        costs.note("f", 64 * 1_024, 800, busy_us=100)
    assert costs.costs()["f"].record_us == round((999 * 100 + PRIOR.record_us) / 1_000)
    for _ in range(9_000):
        costs.note("g", 64 * 1_024, 800)
    assert costs.costs()["g"].record_us == 800


def test_tokenizers_are_apart_and_bounded() -> None:
    costs, _ = meter()
    for number in range(KEYS_MAX + 5):
        costs.note(f"f{number}", MIB, 1_000 * (number + 1))
    found = costs.costs()
    assert list(found) == [f"f{number}" for number in range(5, KEYS_MAX + 5)]
    assert len({cost.mib_us for cost in found.values()}) > KEYS_MAX // 2
    costs.note("f5", MIB, 1)
    costs.note("new", MIB, 1)
    assert "f5" in costs.costs()
    assert "f6" not in costs.costs()


def test_nothing_that_can_be_measured_breaks_it() -> None:
    costs, _ = meter()
    for size, took in ((0, 0), (0, 10**12), (2**40, 0), (1, 1)):
        costs.note("f", size, took)
        assert all(value >= 0 for value in (costs.costs()["f"].fixed_us, costs.costs()["f"].mib_us))


def test_before_anything_is_measured_a_short_text_is_the_cpu_s_and_a_long_one_the_gpu_s() -> None:
    assert expected_us(CPU_PRIOR, 2_048) < expected_us(GPU_PRIOR, 2_048)
    assert expected_us(CPU_PRIOR, 64 * 1_024) > expected_us(GPU_PRIOR, 64 * 1_024)
