"""Comparing an answer with the reference's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadow.compare import SPELL_MAX, Ids, Spans, compare


def ids(*values: int) -> Ids:
    return np.array(values, np.uint32)


def spans(*pairs: tuple[int, int]) -> Spans:
    return np.array(pairs, np.uint32).reshape(-1, 2)


def test_equal_answers_have_no_difference() -> None:
    assert compare(ids(), ids()) is None
    assert compare(ids(1, 2), ids(1, 2)) is None
    same = spans((0, 1), (1, 3))
    assert compare(ids(1, 2), ids(1, 2), answer_spans=same, reference_spans=same.copy()) is None


def test_the_first_difference_is_described_with_both_tokens_and_their_place() -> None:
    found = compare(
        ids(1, 2, 3, 9),
        ids(1, 7, 8, 9),
        answer_spans=spans((0, 1), (1, 3), (3, 4), (4, 5)),
        reference_spans=spans((0, 1), (1, 2), (2, 4), (4, 5)),
    )
    assert found is not None
    assert (found.index, found.answer_id, found.reference_id) == (1, 2, 7)
    assert (found.answer_span, found.reference_span, found.byte_position) == ((1, 3), (1, 2), 1)
    assert (found.answer_total, found.reference_total) == (4, 4)
    assert str(found) == ("first difference at token 1 (byte 1): the answer has 2, the reference 7; 4 and 4 tokens")


@pytest.mark.parametrize(("answer", "reference"), [(ids(1), ids(1, 2)), (ids(1, 2), ids(1))])
def test_an_answer_that_ends_early_or_late(answer: Ids, reference: Ids) -> None:
    found = compare(answer, reference)
    assert found is not None
    assert (found.index, found.byte_position) == (1, None)
    assert {found.answer_id, found.reference_id} == {None, 2}
    assert "nothing" in str(found)


def test_spans_alone_can_differ() -> None:
    found = compare(ids(1, 2), ids(1, 2), answer_spans=spans((0, 1), (1, 2)), reference_spans=spans((0, 1), (1, 3)))
    assert found is not None
    assert (found.index, found.in_spans_only, found.byte_position) == (1, True, 1)
    assert "span is (1, 2), the reference's (1, 3)" in str(found)


def test_one_side_s_spans_place_a_difference_and_are_no_difference() -> None:
    assert compare(ids(1), ids(1), answer_spans=spans((0, 1))) is None
    found = compare(ids(1), ids(2), reference_spans=spans((4, 5)))
    assert found is not None
    assert (found.answer_span, found.byte_position) == (None, 4)


def test_spans_need_one_row_a_token() -> None:
    both = ids(1, 2)
    for wrong in (
        {"reference_spans": spans((0, 1))},
        {"answer_spans": spans((0, 1), (1, 2), (2, 3))},
        {"answer_spans": spans((0, 1), (1, 2)), "spans_from": 1},
        {"answer_spans": np.zeros((2, 3), np.uint32)},
    ):
        with pytest.raises(ValueError, match="one row a token"):
            compare(both, both, **wrong)


def test_an_answer_s_spans_may_be_those_of_a_stretch() -> None:
    all_spans = spans((0, 1), (1, 2), (2, 3), (3, 4))
    right = compare(
        ids(1, 2, 3, 4), ids(1, 2, 3, 4), answer_spans=all_spans[1:3], reference_spans=all_spans, spans_from=1
    )
    assert right is None
    off = compare(ids(1, 2, 3, 4), ids(1, 2, 3, 4), answer_spans=all_spans[:2], reference_spans=all_spans, spans_from=1)
    assert off is not None
    assert (off.kind, off.index, off.answer_span, off.reference_span) == ("offsets", 1, (0, 1), (1, 2))
    elsewhere = compare(ids(9, 2, 3, 4), ids(1, 2, 3, 4), answer_spans=all_spans[1:3], spans_from=1)
    assert elsewhere is not None
    assert (elsewhere.index, elsewhere.answer_span) == (0, None)


SPELLING = {1: "a", 2: "b", 3: "ab", 4: "c", 5: "bc", 90: "<s>", 91: "</s>"}


@pytest.mark.parametrize(
    ("kind", "answer", "reference", "specials"),
    [
        ("substituted", (1, 4, 2), (1, 2, 2), (0, 0)),
        ("substituted", (2, 1), (1, 2), (0, 0)),
        ("substituted", (1, 999, 4), (1, 2, 4), (0, 0)),
        ("dropped", (1, 4), (1, 2, 4), (0, 0)),
        ("dropped", (2, 2), (2, 2, 2), (0, 0)),
        ("dropped", (), (1,), (0, 0)),
        ("added", (1, 2, 2, 4), (1, 2, 4), (0, 0)),
        ("added", (1,), (), (0, 0)),
        ("moved_split", (3, 4), (1, 5), (0, 0)),
        ("moved_split", (1, 2, 4), (3, 4), (0, 0)),
        ("special_tokens", (1, 2), (90, 1, 2), (1, 0)),
        ("special_tokens", (91, 1, 2), (90, 1, 2), (1, 0)),
        ("special_tokens", (90, 90, 1), (90, 1), (1, 0)),
        ("special_tokens", (90, 1), (90, 1, 91), (1, 1)),
        ("special_tokens", (90, 1, 91, 91), (90, 1, 91), (1, 1)),
        ("dropped", (90, 2), (90, 1, 2), (1, 0)),
        ("substituted", (91, 2, 2), (90, 1, 2), (1, 0)),
    ],
)
def test_what_happened_is_named(
    kind: str, answer: tuple[int, ...], reference: tuple[int, ...], specials: tuple[int, int]
) -> None:
    found = compare(ids(*answer), ids(*reference), specials=specials, spell=SPELLING.get)
    assert found is not None
    assert found.kind == kind


def test_without_a_vocabulary_a_moved_split_is_a_substitution() -> None:
    found = compare(ids(3, 4), ids(1, 5))
    assert found is not None
    assert found.kind == "substituted"


def test_what_is_too_long_is_not_spelled_out() -> None:
    long = ids(*[1, 2] * SPELL_MAX)
    found = compare(ids(*[3] * SPELL_MAX), long, spell=SPELLING.get)
    assert found is not None
    assert found.kind == "substituted"


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 3), max_size=8))
def test_it_finds_what_a_loop_finds(left: list[int], right: list[int]) -> None:
    expected = next((i for i in range(max(len(left), len(right))) if left[i : i + 1] != right[i : i + 1]), None)
    found = compare(ids(*left), ids(*right))
    assert (None if found is None else found.index) == expected
