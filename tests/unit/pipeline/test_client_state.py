"""The pure parts of the client: the buffer of ids, and differences between texts."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.client_state import IdBuffer, Splice, common_prefix, difference


def u32(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.array(values, np.uint32)


@pytest.mark.parametrize("seed", range(20))
def test_patches_do_what_lists_do(seed: int) -> None:
    rng = random.Random(seed)
    buffer, model = IdBuffer(), list[int]()
    for _ in range(200):
        left = rng.randint(0, len(model))
        right = rng.randint(0, len(model) - left)
        ids = [rng.randrange(2**32) for _ in range(rng.choice([0, 1, 3, 40, 700]))]
        buffer.patch(left, u32(*ids), right)
        model = model[:left] + ids + model[len(model) - right :]
        assert len(buffer) == len(model)
        assert buffer.view.tolist() == model
        if len(model) > 3000:
            buffer.patch(7, u32(), 0)
            model = model[:7]


@pytest.mark.parametrize(("left", "right"), [(-1, 0), (0, -1), (4, 0), (0, 4), (2, 2)])
def test_a_patch_that_keeps_more_than_there_is_changes_nothing(left: int, right: int) -> None:
    buffer = IdBuffer(u32(1, 2, 3))
    with pytest.raises(ValueError, match="cannot keep"):
        buffer.patch(left, u32(9), right)
    assert buffer.view.tolist() == [1, 2, 3]


def test_an_append_does_not_copy_what_is_there() -> None:
    buffer = IdBuffer(u32(*range(1000)))
    buffer.patch(1000, u32(1), 0)
    before = buffer.view
    buffer.patch(1001, u32(2), 0)
    assert np.shares_memory(before, buffer.view)


TEXTS = st.text(alphabet="ab\u00e9\u00e8\u0129\u4e2d\u4e3d\U0001f600\U0001f601", max_size=12)


@given(TEXTS, TEXTS)
def test_a_difference_leads_from_one_text_to_the_other(old: str, new: str) -> None:
    text = bytearray(old.encode())
    splice = difference(text, new.encode())
    splice.check(text)
    assert splice.insert.decode() in new
    assert splice.applied(text) == new.encode()
    assert splice.length_after(len(text)) == len(new.encode())


def test_a_difference_is_as_short_as_characters_allow() -> None:
    assert difference(bytearray("aéz".encode()), "aèz".encode()) == Splice(1, 3, "è".encode())
    # é and ĩ share their last byte.
    assert difference(bytearray("aéz".encode()), "aĩz".encode()) == Splice(1, 3, "ĩ".encode())
    assert difference(bytearray(b"aaa"), b"aaaa") == Splice(3, 3, b"a")
    assert difference(bytearray(b"abcd"), b"abXcd") == Splice(2, 2, b"X")
    assert difference(bytearray(b""), b"") == Splice(0, 0, b"")


@pytest.mark.parametrize("at", [0, 1, 65_535, 65_536, 65_537, 199_999, 200_000])
def test_a_common_prefix_is_found_across_steps(at: int) -> None:
    a = np.zeros(200_000, np.uint8)
    b = a.copy()
    b[at:] = 1
    assert common_prefix(a, b) == at
    assert common_prefix(a[:at], b) == at
