"""Which answers are sampled: exactly one in n of every stream, and never two blocks without one."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from pipeline.sampling import FIRST_ANSWERS, STREAMS_MAX, Sampler, block_size, position

ONE_IN_20 = 0.05


def sampler(seed: int = 0, worker: str = "w", *, first_answers: int = 0, engine_version: str = "1") -> Sampler:
    return Sampler(seed, worker, engine_version=engine_version, first_answers=first_answers)


def taken(by: Sampler, answers: int, *, rate: float = ONE_IN_20, path: str = "repair", of: str = "f") -> list[bool]:
    return [by.take(of, rate, path) for _ in range(answers)]


def longest_gap(chosen: Iterable[bool]) -> int:
    """Most answers in a row of which none is sampled."""
    longest = run = 0
    for one in chosen:
        run = 0 if one else run + 1
        longest = max(longest, run)
    return longest


@pytest.mark.parametrize(
    ("rate", "size"), [(0.0, 0), (1.0, 1), (0.7, 1), (0.5, 2), (0.4, 2), (0.05, 20), (0.01, 100), (1 / 3, 3), (0.1, 10)]
)
def test_a_share_is_one_in_a_whole_number_and_never_less_than_asked(rate: float, size: int) -> None:
    assert block_size(rate) == size


@pytest.mark.parametrize("seed", range(5))
def test_exactly_one_of_each_20_is_sampled(seed: int) -> None:
    chosen = taken(sampler(seed), 20 * 500)
    assert [sum(chosen[at : at + 20]) for at in range(0, len(chosen), 20)] == [1] * 500
    places = {chosen[at : at + 20].index(True) for at in range(0, len(chosen), 20)}
    assert places == set(range(20)), "any place of a block may be the one"


def test_a_fault_that_stays_is_sampled_within_39_answers() -> None:
    """Whenever it begins: the longest run without a sample is 38, and runs that long do occur."""
    gaps = [longest_gap(taken(sampler(seed), 20 * 2000)) for seed in range(5)]
    assert max(gaps) == 38


def test_places_follow_from_seed_stream_and_block_alone() -> None:
    one = sampler(7)
    chosen = taken(one, 200)
    assert taken(sampler(7), 200) == chosen
    assert taken(sampler(8), 200) != chosen
    assert taken(sampler(7, "other worker"), 200) != chosen
    assert taken(sampler(7, engine_version="2"), 200) != chosen
    assert taken(sampler(7), 200, path="cpu") != chosen
    assert taken(sampler(7), 200, of="g") != chosen
    assert chosen[20:40].index(True) == position(7, "f\0001\0repair\0w", 1, 20)


def test_streams_do_not_disturb_each_other() -> None:
    alone = {(of, path): taken(sampler(), 200, of=of, path=path) for of in "fg" for path in ("repair", "cpu")}
    together = sampler()
    rng = random.Random(1)
    seen: dict[tuple[str, str], list[bool]] = {key: [] for key in alone}
    while any(len(chosen) < 200 for chosen in seen.values()):
        of, path = rng.choice([key for key, chosen in seen.items() if len(chosen) < 200])
        seen[of, path].append(together.take(of, ONE_IN_20, path))
    assert seen == alone


def test_due_tells_beforehand() -> None:
    """And never too little: an answer that is sampled was due."""
    for seed in range(20):
        by, rng = sampler(seed, first_answers=3), random.Random(seed)
        for _ in range(300):
            rate, path = rng.choice([0.0, 0.2, ONE_IN_20]), rng.choice(["repair", "cpu"])
            both = by.due("f", rate, ("repair", "cpu"))
            alone = by.due("f", rate, (path,))
            assert both or not alone
            assert by.take("f", rate, path) == alone


def test_the_rate_can_change_at_any_answer() -> None:
    by = sampler()
    assert sum(taken(by, 7)) <= 1
    assert taken(by, 10, rate=1.0) == [True] * 10
    assert taken(by, 50, rate=0.0) == [False] * 50
    chosen = taken(by, 100, rate=0.1)
    assert [sum(chosen[at : at + 10]) for at in range(0, 100, 10)] == [1] * 10


def test_the_first_answers_of_what_is_new_are_all_sampled() -> None:
    by = sampler(first_answers=FIRST_ANSWERS)
    assert all(taken(by, 60))
    assert all(taken(by, FIRST_ANSWERS - 60, path="cpu")), "of both paths together"
    assert sum(taken(by, 200)) == 10
    assert all(taken(by, 5, of="new"))
    assert not any(taken(sampler(first_answers=FIRST_ANSWERS), 200, rate=0.0)), "none is none"


def test_the_number_of_streams_is_bounded() -> None:
    by = sampler()
    for number in range(STREAMS_MAX + 10):
        by.take(f"f{number}", ONE_IN_20, "repair")
    assert len(by._streams) == STREAMS_MAX
    assert len(by._answers) == STREAMS_MAX
