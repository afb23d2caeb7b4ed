"""The tables of a model and of added tokens, and which tokenizers have none."""

from __future__ import annotations

import json
import random
from typing import Any

import families
import numpy as np
import pytest

from gpu_worker.compiler import added, characters, hashing, vocabulary
from gpu_worker.compiler.characters import LONE, NOT_NORMAL
from gpu_worker.encoder import UnsupportedError
from gpu_worker.program import compile_for
from toksplice import Tokenizer, load
from toksplice.charclass import inert_bits, normal_form
from toksplice.program import AddedToken

MASK64 = (1 << 64) - 1


def mix(key: int) -> int:
    """The kernels' hash, by Python's integers."""
    key = (key ^ key >> 32) * 0x9E3779B97F4A7C15 & MASK64
    key = (key ^ key >> 29) * 0xBF58476D1CE4E5B9 & MASK64
    return key ^ key >> 32


def find(table: hashing.Strings, text: bytes) -> int | None:
    """What kernels/hash.cuh does."""
    low, high = int.from_bytes(text[:8], "little"), int.from_bytes(text[8:16], "little")
    if len(text) > hashing.INLINE:
        low, high = len(text), 0
        for at in range(0, len(text), 8):
            low = mix(low ^ int.from_bytes(text[at : at + 8], "little")) + 0x632BE59BD9B4E019 & MASK64
    slot = mix(low + 0x9E3779B97F4A7C15 * high + len(text) & MASK64)
    while True:
        found = table.slots[slot % len(table.slots)]
        if found["length"] == 0:
            return None
        same = (found["length"], found["low"], found["high"]) == (len(text), low, high)
        pooled = table.pool[found["offset"] : found["offset"] + found["length"]].tobytes()
        if same and (len(text) <= hashing.INLINE or pooled == text):
            return int(found["value"])
        slot += 1


def test_strings_are_found_and_others_are_not() -> None:
    rng = random.Random(1)
    texts = list({rng.randbytes(rng.choice((1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 130))) for _ in range(2_000)})
    known, unknown = texts[:1_500], texts[1_500:]
    table = hashing.strings(known, range(1_500))
    assert [find(table, text) for text in known] == list(range(1_500))
    assert {find(table, text) for text in unknown} == {None}
    assert {find(table, text + b"\0") for text in known if text + b"\0" not in known} == {None}
    assert table.longest == 130
    assert len(table.slots) >= 2 * 1_500


def test_a_table_may_be_empty() -> None:
    assert find(hashing.strings([], []), b"x") is None
    assert (hashing.pairs(np.zeros(0, np.uint64), np.zeros(0, np.uint64), 20) == hashing.FREE_PAIR).all()


def test_pairs_have_their_value_within_reach_of_their_hash() -> None:
    rng = np.random.default_rng(2)
    keys = np.unique(rng.integers(0, 1 << 36, 3_000).astype(np.uint64))
    slots = hashing.pairs(keys, np.arange(len(keys), dtype=np.uint64), 20)
    for value, key in enumerate(keys.tolist()):
        slot = mix(key)
        while int(slots[slot % len(slots)]) >> 20 != key:
            assert slots[slot % len(slots)] != hashing.FREE_PAIR
            slot += 1
        assert int(slots[slot % len(slots)]) & 0xFFFFF == value


# The model


def config(**changes: Any) -> families.Json:
    made = families.bpe(families.sequence(families.split(families.CL100K), families.byte_level()))
    made["model"] |= changes
    return made


def tokenizer(made: families.Json) -> Tokenizer:
    return load(json.dumps(made).encode())


def test_only_tokens_that_merging_makes_are_whole_pieces() -> None:
    made = config()
    program = compile_for(tokenizer(made))
    ids = made["model"]["vocab"]
    for spelling, token in ids.items():
        if spelling.isascii():
            assert find(program.vocabulary.whole, spelling.encode()) == token
    # A token whose parts merge to something else first, or not at all.
    made["model"]["vocab"] |= {"zqzqzq": len(ids) + len(made["added_tokens"])}
    made["added_tokens"] = []
    made["model"]["vocab"]["zqzqzq"] = len(ids) - 1
    assert find(compile_for(tokenizer(made)).vocabulary.whole, b"zqzqzq") is None
    made["model"]["ignore_merges"] = True
    found = find(compile_for(tokenizer(made)).vocabulary.whole, b"zqzqzq")
    assert found == made["model"]["vocab"]["zqzqzq"]


def test_merges_happen_at_once_only_where_no_merge_of_the_product_ranks_lower() -> None:
    """Against the definition: the lowest rank of the pairs that a product is in."""
    made = config()
    random.Random(4).shuffle(made["model"]["merges"])
    products = compile_for(tokenizer(made)).vocabulary.products
    merges = [tuple(merge) for merge in made["model"]["merges"]]
    at_once = 0
    for rank, (left, right) in enumerate(merges):
        expected = all(other > rank for other, pair in enumerate(merges) if left + right in pair)
        assert bool(products[rank] & vocabulary.AT_ONCE) == expected
        assert products[rank] & ~np.uint32(vocabulary.AT_ONCE) == made["model"]["vocab"][left + right]
        at_once += expected
    assert 0 < at_once < len(merges)
    assert (compile_for(tokenizer(config())).vocabulary.products & vocabulary.AT_ONCE).all()


def test_of_a_merge_that_is_listed_twice_the_last_rank_counts() -> None:
    made = config()
    first = made["model"]["merges"][0]
    made["model"]["merges"] = [*made["model"]["merges"], first]
    built = compile_for(tokenizer(made)).vocabulary
    ids = made["model"]["vocab"]
    key = ids[first[0]] << vocabulary.ID_BITS | ids[first[1]]
    (slot,) = np.flatnonzero(built.pair_ranks >> np.uint64(vocabulary.RANK_BITS) == key)
    assert int(built.pair_ranks[slot]) & vocabulary.MAX_RANKS == len(made["model"]["merges"]) - 1


def never(piece: str) -> list[int]:
    raise AssertionError(piece)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab": {"a": vocabulary.MAX_IDS}, "merges": []}, "ids from 262143 on"),
        ({"vocab": {"a": 0}, "merges": [["a", "b"]] * vocabulary.MAX_RANKS}, "1048575 merges"),
        ({"vocab": {"a": 0}, "merges": []}, "no token for the byte 0x00"),
    ],
)
def test_models_beyond_the_tables_are_refused(changes: families.Json, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        vocabulary.build(changes, never)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bert", "model of type WordPiece"),
        ("falcon", "splits inside characters"),
        ("stripping", "single word"),
        ("llama2", "without ByteLevel"),
    ],
)
def test_tokenizers_that_the_kernels_cannot_serve_are_refused(name: str, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        compile_for(families.family(name))


# Characters


def test_characters_are_marked_that_the_normalizer_may_change() -> None:
    plain, normalized = compile_for(families.family("cl100k")), compile_for(families.family("qwen"))
    assert not (plain.class_of & (NOT_NORMAL | LONE)).any()

    def marks(char: str) -> int:
        point = ord(char)
        return int(normalized.class_of[int(normalized.block_of[point >> 7]) << 7 | point & 0x7F]) & (NOT_NORMAL | LONE)

    assert {marks(char) for char in "aé漢가\U0001f600"} == {0}
    assert {marks(char) for char in "\u0301\u11a8\u2126\U00020000\u093c"} == {NOT_NORMAL}
    # Vowels and tones of Thai, a virama, an Arabic vowel.
    assert {marks(char) for char in "\u0e38\u0e48\u094d\u064e"} == {LONE}


@pytest.mark.parametrize("form", ["NFC", "NFKC", "NFD"])
def test_lone_characters_are_left_alone_beside_inert_ones(form: str) -> None:
    lone = [chr(point) for point in np.flatnonzero(characters.lone_bits(form) & ~inert_bits(form))]
    inert = [chr(point) for point in np.flatnonzero(inert_bits(form))]
    normalizer, decomposer = normal_form(form), normal_form("NFD")
    inert = ["a", "漢", "\u1100", *[char for char in inert if decomposer.normalize_str(char) != char][::7]]
    assert len(lone) > 500
    for char in lone:
        text = "".join(each + char for each in inert)
        assert normalizer.normalize_str(text) == text, ascii(char)


# Added tokens


def token(content: str, number: int = 7, **flags: bool) -> AddedToken:
    return AddedToken(content, number, **({"normalized": False, "lstrip": False, "rstrip": False} | flags))


def test_added_tokens_are_found_by_their_first_bytes_and_lengths() -> None:
    tokens = [
        token("<a>", 5),
        token("é", 6, normalized=True),
        token("\n", 7, rstrip=True),
        token("<abc", 8, lstrip=True),
        token("e", 9, normalized=True),
    ]
    built = added.build(tokens, str.isascii)
    assert find(built.contents, b"<a>") == 5
    assert find(built.contents, "é".encode()) == 6 | added.SECOND_SEARCH | added.FOR_THE_HOST
    assert find(built.contents, b"e") == 9 | added.SECOND_SEARCH
    assert find(built.contents, b"\n") == 7 | added.FOR_THE_HOST
    assert find(built.contents, b"<abc") == 8 | added.FOR_THE_HOST
    assert built.lengths.tolist() == [4, 3, 2, 1]
    bits = np.unpackbits(built.prefixes.view(np.uint8), bitorder="little").reshape(256, 256)
    expected = np.zeros((256, 256), dtype=np.uint8)
    expected[ord("<"), ord("a")] = expected[0xC3, 0xA9] = 1
    expected[[ord("\n"), ord("e")]] = 1
    assert (bits == expected).all()


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([token("a", 1), token("a", 2, normalized=True)], "the same form"),
        ([token("x" * length, length) for length in range(1, 66)], "64 lengths"),
        ([token("a", 1 << 30)], "30 bits"),
    ],
)
def test_added_tokens_beyond_the_tables_are_refused(tokens: list[AddedToken], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        added.build(tokens, str.isascii)


def test_without_added_tokens_there_is_nothing_to_look_for() -> None:
    built = added.build([], str.isascii)
    assert len(built.lengths) == 0
    assert not built.prefixes.any()
