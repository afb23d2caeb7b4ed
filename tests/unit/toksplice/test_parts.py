"""The small parts that sessions are made of."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toksplice.added import AddedTokens
from toksplice.buffers import Column
from toksplice.charclass import PROBED, class_bits, class_runs, inert_bits, literal_fold_is_plain, normal_form
from toksplice.reference import char_starts
from toksplice.textview import back, common_prefix, common_suffix, forward

TEXTS = st.text(alphabet="aé世😀 \n", max_size=40)


@given(TEXTS, st.integers(0, 12))
def test_back_and_forward_count_characters(text: str, chars: int) -> None:
    data = bytearray(text.encode())
    for i in range(len(text) + 1):
        at = len(text[:i].encode())
        assert back(data, at, chars) == len(text[: max(0, i - chars)].encode())
        assert forward(data, at, chars) == len(text[: i + chars].encode())


@given(TEXTS)
def test_char_starts(text: str) -> None:
    assert char_starts(text).tolist() == [len(text[:i].encode()) for i in range(len(text) + 1)]


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_what_texts_have_in_common(left: str, old: str, new: str, right: str) -> None:
    a, b = bytearray((left + old + right).encode()), (left + new + right).encode()
    keep = common_prefix(a, b)
    tail = common_suffix(a, b, keep)
    assert a[:keep] == b[:keep]
    assert a[len(a) - tail :] == b[len(b) - tail :]
    assert keep + tail <= min(len(a), len(b))
    for part in (b[:keep], b[keep : len(b) - tail], b[len(b) - tail :], bytes(a[keep : len(a) - tail])):
        part.decode()
    assert keep >= len(left.encode())


def test_common_parts_of_large_texts() -> None:
    old = bytearray(b"x" * 300_000)
    new = bytes(old[:200_000]) + b"y" + bytes(old[200_000:])
    assert common_prefix(old, new) == 200_000
    assert common_suffix(old, new, 200_000) == 100_000


def test_a_column_behaves_like_a_list() -> None:
    rng = random.Random(3)
    model: list[int] = list(range(10))
    column = Column(np.array(model, np.uint32))
    for _ in range(500):
        start = rng.randint(0, len(model))
        stop = rng.randint(start, min(len(model), start + rng.choice((0, 1, 50))))
        values = [rng.randrange(1 << 32) for _ in range(rng.choice((0, 1, 3, 200)))]
        model[start:stop] = values
        column.replace(start, stop, np.array(values, np.uint32))
        assert column.view.tolist() == model
    column.replace(0, len(column), np.array([5, 6, 7], np.uint32))
    column.shift(1, 3, -2)
    assert column.view.tolist() == [5, 4, 5]


@pytest.mark.parametrize(
    ("text", "cut", "expected"),
    [
        ("a<b>c", 0, False),
        ("a<b>c", 1, True),
        ("a<b>c", 2, True),
        ("a<b>c", 4, True),
        ("a<b>c", 5, False),
        ("a<b", 2, False),
    ],
)
def test_touch(text: str, cut: int, expected: bool) -> None:
    assert AddedTokens([{"content": "<b>"}, {"content": ""}]).touch(text, cut) is expected


def test_touch_sees_overlapping_occurrences() -> None:
    tokens = AddedTokens([{"content": "aba"}])
    assert [tokens.touch("xababax", cut) for cut in range(8)] == [False, True, True, True, True, True, True, False]


@pytest.mark.parametrize(
    ("source", "inside", "outside"),
    [
        (r"\p{L}", "aé世ʰ가", "1 (\u0301"),
        (r"\p{N}", "1٣²Ⅷ", "a ="),
        (r"\s", " \t\n\u00a0\u3000\u0085", "a\u200b"),
        ("(?i:s)", "sSſ", "ß'"),
        ("[^\\r\\n]", "a ", "\r\n"),
    ],
)
def test_classes_are_those_of_the_reference(source: str, inside: str, outside: str) -> None:
    bits = class_bits(source)
    assert bits.shape == (PROBED,)
    assert [bool(bits[ord(c)]) for c in inside] == [True] * len(inside)
    assert [bool(bits[ord(c)]) for c in outside] == [False] * len(outside)
    assert not bits[0xD800:0xE000].any()


def test_folding_that_changes_length_is_found() -> None:
    assert literal_fold_is_plain(("'s", "'ll", "re"))
    assert not literal_fold_is_plain(("ss",))


@pytest.mark.parametrize(
    ("form", "inert", "active"),
    [
        ("NFC", "aé1 =가", "\u0301\u11a8\u1161\u212b\u0340"),
        ("NFD", "a1 =", "\u0301é가\u212b"),
        ("NFKC", "aégk", "ﬁ\u0301①"),
    ],
)
def test_inert_characters(form: str, inert: str, active: str) -> None:
    bits = inert_bits(form)
    assert [bool(bits[ord(c)]) for c in inert] == [True] * len(inert)
    assert [bool(bits[ord(c)]) for c in active] == [False] * len(active)


def test_probes_survive_a_damaged_or_missing_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKSPLICE_HOME", str(tmp_path))
    class_runs.cache_clear()
    first = class_bits(r"\p{Lu}")
    folder = tmp_path / "probes"
    (cached,) = folder.iterdir()
    for content in (b"", b"not an array"):
        cached.write_bytes(content)
        class_runs.cache_clear()
        assert np.array_equal(class_bits(r"\p{Lu}"), first)
    folder_file = folder.parent / "blocked"
    folder_file.write_text("")
    monkeypatch.setenv("TOKSPLICE_HOME", str(folder_file))
    class_runs.cache_clear()
    assert np.array_equal(class_bits(r"\p{Lu}"), first)
    class_runs.cache_clear()


def test_a_normalized_token_counts_in_both_forms() -> None:
    entries = [{"content": "e\u0301", "normalized": True}]
    tokens = AddedTokens(entries, normalize=normal_form("NFC").normalize_str)
    assert tokens.touch("xé", 1)
    assert tokens.touch("xe\u0301", 2)
    assert not AddedTokens(entries).touch("xé", 1)
