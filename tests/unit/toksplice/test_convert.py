"""Native files become tokenizer.json files: tiny ones, held against merging as the native programs do it."""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
import tokenizers

from toksplice.convert import document, gguf, sentencepiece, tekken, tiktoken
from toksplice.convert.merges import all_splits, last_merge
from toksplice.convert.pieces import Kind
from toksplice.errors import TokenizerError

MARK = document.SPACE_MARK
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PATTERN = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+"


def ids(converted: bytes, text: str) -> list[int]:
    return tokenizers.Tokenizer.from_buffer(converted).encode(text).ids


def greedy(parts: list[Any], rank: Mapping[Any, float]) -> list[Any]:
    """Merge neighbours whose concatenation has a rank, the lowest first, the leftmost among equals."""
    while len(parts) > 1:
        ranks = [rank.get(left + right, float("inf")) for left, right in pairwise(parts)]
        best = min(ranks)
        if best == float("inf"):
            break
        at = ranks.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


# Merges


def test_a_merge_is_the_last_step_of_encoding_the_entry() -> None:
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"ab": 3, b"bc": 4, b"abc": 5}
    # b+c would also make it, but a+b is merged before.
    assert last_merge(b"abc", ranks) == (b"ab", b"c")


def test_a_part_may_have_a_higher_rank_than_the_whole() -> None:
    assert last_merge("abc", {"a": 0, "b": 1, "c": 2, "abc": 3, "ab": 9}) == ("ab", "c")


@pytest.mark.parametrize("ranks", [{"a": 0, "b": 1, "c": 2, "abc": 3}, {"ab": 0}])
def test_what_no_merges_form_has_none(ranks: dict[str, float]) -> None:
    assert last_merge(max(ranks, key=len), ranks) is None


def test_all_splits_are_those_into_known_parts() -> None:
    assert all_splits("aaa", {"a": 0, "aa": 1}) == [("a", "aa"), ("aa", "a")]


# Rank files


def rank_table(entries: Iterable[bytes]) -> dict[bytes, int]:
    singles = [bytes([byte]) for byte in range(256)]
    return {token: rank for rank, token in enumerate([*singles, *entries])}


def rank_file(ranks: Mapping[bytes, int]) -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())


RANKS = rank_table([b"ab", b"aa", b" a", b"abab", b"aab", b" ab", b"\xc3\xa9", b"xyz", b"\xc3\xa9a"])


def test_a_rank_file_merges_as_the_native_program_does() -> None:
    converted = tiktoken.convert(rank_file(RANKS), pattern=PATTERN, special={"<end>": 300})
    rng = random.Random(1)
    for _ in range(500):
        word = "".join(rng.choices("abxyzé", k=rng.randint(1, 12)))
        data = word.encode()
        native = [RANKS[data]] if data in RANKS else [RANKS[p] for p in greedy([bytes([b]) for b in data], RANKS)]
        assert ids(converted, word) == native, word


def test_an_entry_that_no_merges_make_is_found_as_a_whole_piece_only() -> None:
    converted = tiktoken.convert(rank_file(RANKS), pattern=PATTERN, special={})
    assert ids(converted, "xyz") == [RANKS[b"xyz"]]
    assert ids(converted, "xyza") == [*b"xyza"]


def test_special_tokens_are_found_and_have_their_ids() -> None:
    converted = tiktoken.convert(
        rank_file(RANKS), pattern=None, special={"<end>": 300, "<a b>": 290}, normal_form="NFC"
    )
    assert ids(converted, "ab<end>e\u0301<a b>") == [RANKS[b"ab"], 300, RANKS["é".encode()], 290]


def test_a_special_token_may_not_take_the_id_of_another() -> None:
    with pytest.raises(TokenizerError, match="ids of other entries"):
        tiktoken.convert(rank_file(RANKS), pattern=None, special={"<end>": 5})


def test_conversion_is_deterministic() -> None:
    first, second = (tiktoken.convert(rank_file(RANKS), pattern=PATTERN, special={"<end>": 300}) for _ in range(2))
    assert first == second


def test_the_empty_entry_of_a_rank_file_is_left_out() -> None:
    assert tiktoken.read_ranks(rank_file(RANKS) + b"= 999\n") == RANKS


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (rank_file(RANKS) + b"nonsense\n", "line 266"),
        (rank_file(RANKS) + b"!! 400\n", "line 266"),
        (rank_file(RANKS) + b"enp6 x\n", "line 266"),
        (rank_file(RANKS) + b"enp6 264\n", "share a rank"),
        (rank_file(RANKS) + b"enp6 -1\n", "negative"),
        (b"YQ== 0\nYg== 1\n", "lacks 254 of the 256 bytes"),
        (b"", "empty"),
    ],
)
def test_what_is_no_rank_file_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(TokenizerError, match=reason):
        tiktoken.read_ranks(data)


def test_claude_lists_entries_in_order_from_a_first_rank() -> None:
    listed = " ".join(base64.b64encode(token).decode() for token in RANKS)
    ranks = tiktoken.read_claude_ranks(json.dumps({"bpe_ranks": f"! 5 {listed}"}).encode())
    assert ranks == {token: rank + 5 for token, rank in RANKS.items()}


@pytest.mark.parametrize(
    "data", [b"[]", b"{}", b'{"bpe_ranks": ""}', b'{"bpe_ranks": "? 5 YQ=="}', b'{"bpe_ranks": "! a YQ=="}']
)
def test_what_is_no_file_of_claude_is_refused(data: bytes) -> None:
    with pytest.raises(TokenizerError, match="bpe_ranks"):
        tiktoken.read_claude_ranks(data)


# tekken.json


def tekken_file(**changes: Any) -> bytes:
    entries = [{"rank": rank, "token_bytes": base64.b64encode(token).decode()} for token, rank in RANKS.items()]
    config = {"pattern": PATTERN, "default_vocab_size": len(RANKS) + 29, "default_num_special_tokens": 30}
    return json.dumps({"config": config | changes, "vocab": entries}).encode()


def test_tekken_ids_begin_behind_the_special_tokens() -> None:
    converted = tekken.convert(tekken_file())
    assert ids(converted, "abab</s>") == [30 + RANKS[b"abab"], 2]
    names = [token["content"] for token in json.loads(converted)["added_tokens"]]
    assert (len(names), names[3], names[-1]) == (30, "[INST]", "<SPECIAL_29>")


def test_tekken_takes_the_beginning_of_the_list() -> None:
    *_, last = RANKS
    vocab = json.loads(tekken.convert(tekken_file()))["model"]["vocab"]
    letters = document.byte_letters()
    assert tiktoken.spell(b"xyz", letters) in vocab
    assert tiktoken.spell(last, letters) not in vocab


def test_tekken_names_its_special_tokens_if_it_lists_them() -> None:
    file = json.loads(tekken_file()) | {"special_tokens": [{"rank": 1, "token_str": "<begin>"}]}
    assert ids(tekken.convert(json.dumps(file).encode()), "<begin><SPECIAL_0>") == [1, 0]


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", tekken_file(default_vocab_size="many")])
def test_what_is_no_tekken_file_is_refused(data: bytes) -> None:
    with pytest.raises(TokenizerError, match=r"not a tekken\.json"):
        tekken.convert(data)


def test_tekken_ranks_have_no_gaps() -> None:
    file = json.loads(tekken_file())
    file["vocab"][7]["rank"] = 1000
    with pytest.raises(TokenizerError, match="without gaps"):
        tekken.convert(json.dumps(file).encode())


# SentencePiece


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(fields: Sequence[tuple[int, int | bytes | float]]) -> bytes:
    out = b""
    for number, value in fields:
        if isinstance(value, bytes):
            out += varint(number << 3 | 2) + varint(len(value)) + value
        elif isinstance(value, float):
            out += varint(number << 3 | 5) + struct.pack("<f", value)
        else:
            out += varint(number << 3) + varint(value)
    return out


Row = tuple[str, float, Kind]

ROWS: list[Row] = [
    ("<unk>", 0.0, Kind.UNKNOWN),
    ("<s>", 0.0, Kind.CONTROL),
    ("[u]", 0.0, Kind.USER_DEFINED),
    *((name, 0.0, Kind.BYTE) for name in BYTES),
    *(
        (text, -1.0 - at, Kind.NORMAL)
        for at, text in enumerate([f"{MARK}a", "ab", "ba", f"{MARK}ab", "aa", "bab", "abab"])
    ),
    *((MARK * count, -1e9, Kind.NORMAL) for count in (2, 4, 8, 16, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15)),
    *((letter, -50.0 - at, Kind.NORMAL) for at, letter in enumerate([MARK, "a", "b", "é"])),
]


def model_file(
    rows: Sequence[Row] = ROWS,
    trainer: Sequence[tuple[int, int]] = ((3, 2), (35, 1)),
    normalizer: Sequence[tuple[int, int | bytes]] = ((1, b"identity"), (3, 1), (4, 0)),
) -> bytes:
    # The default of the kind is left out, as the program that writes these files does.
    pieces = [
        message([(1, text.encode()), (2, score), *([] if kind == Kind.NORMAL else [(3, int(kind))])])
        for text, score, kind in rows
    ]
    return message([*((1, piece) for piece in pieces), (2, message(trainer)), (3, message(normalizer)), (5, b"")])


def native(rows: Sequence[Row], text: str, *, prefix: bool) -> list[int]:
    """SentencePiece's encoding of a text without user-defined symbols."""
    number = {piece: id_ for id_, (piece, _, _) in enumerate(rows)}
    rank = {piece: -score for piece, score, kind in rows if kind == Kind.NORMAL}
    marked = (MARK if prefix and text else "") + text.replace(" ", MARK)
    found: list[int] = []
    for part in greedy(list(marked), rank):
        found += [number[part]] if part in rank else [number[f"<0x{byte:02X}>"] for byte in part.encode()]
    return found


@pytest.mark.parametrize("prefix", [True, False])
def test_pieces_merge_as_the_native_program_does(prefix: bool) -> None:
    converted = sentencepiece.convert(model_file(normalizer=[(3, int(prefix)), (4, 0)]))
    reference = tokenizers.Tokenizer.from_buffer(converted)
    rng = random.Random(2)
    texts = ["".join(rng.choices("aabb  é日", k=rng.randint(0, 20))) for _ in range(500)]
    for text in [*texts, *(" " * count for count in range(100)), *(" " * count + "ab" for count in range(100))]:
        assert reference.encode(text).ids == native(ROWS, text, prefix=prefix), text


def test_control_and_user_defined_pieces_are_added_tokens() -> None:
    converted = sentencepiece.convert(model_file(normalizer=[(3, 0), (4, 0)]))
    assert ids(converted, "[u]ab<s>")[0::2] == [2, 1]
    special = {token["content"]: token["special"] for token in json.loads(converted)["added_tokens"]}
    assert special == {"<unk>": True, "<s>": True, "[u]": False}


def test_a_decoded_text_is_the_text() -> None:
    reference = tokenizers.Tokenizer.from_buffer(sentencepiece.convert(model_file()))
    assert reference.decode(reference.encode("ab 日  é").ids) == "ab 日  é"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trainer": [(3, 1), (35, 1)]}, "not a byte-pair model"),
        ({"trainer": [(35, 1)]}, "not a byte-pair model"),
        ({"trainer": [(3, 2)]}, "no byte fallback"),
        ({"trainer": [(3, 2), (35, 1), (24, 1)]}, "marks behind words"),
        ({"normalizer": [(2, b"map"), (4, 0)]}, "maps characters"),
        ({"normalizer": []}, "removes spaces"),
        ({"normalizer": [(4, 0), (5, 0)]}, "leaves spaces"),
        ({"rows": ROWS[1:]}, "0 pieces stand for what is unknown"),
        ({"rows": [*ROWS, ("<unk2>", 0.0, Kind.UNKNOWN)]}, "2 pieces stand"),
        ({"rows": [row for row in ROWS if row[0] != "<0x0A>"]}, "lack some of the 256 bytes"),
        ({"rows": [*ROWS, ("ab", -99.0, Kind.NORMAL)]}, "same text"),
        ({"rows": [*ROWS, ("old", -99.0, Kind.UNUSED)]}, "unused"),
        ({"rows": [*ROWS, ("az", -99.0, Kind.NORMAL)]}, "a character that is no piece"),
        (
            {"rows": [*ROWS, ("bb", -99.0, Kind.NORMAL), ("bbb", -99.0, Kind.NORMAL), ("bba", -99.0, Kind.NORMAL)]},
            "shares its",
        ),
    ],
)
def test_models_that_could_not_be_represented_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenizerError, match=reason):
        sentencepiece.convert(model_file(**changes))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x0a",
        b"\x0a\x05ab",
        b"\x0b",
        b"\xff" * 20,
        message([(1, 7)]),
        message([(1, message([(1, b"\xff"), (2, 0.0)]))]),
        message([(1, message([(1, b"a"), (3, 77)]))]),
        message([(1, message([(1, b"a"), (2, b"score")]))]),
    ],
)
def test_what_is_no_sentencepiece_model_is_refused(data: bytes) -> None:
    with pytest.raises(TokenizerError, match="not a SentencePiece model"):
        sentencepiece.convert(data)


def test_unknown_fields_of_every_wire_type_are_skipped() -> None:
    extra = varint(9 << 3 | 1) + bytes(8) + varint(10 << 3 | 5) + bytes(4)
    assert sentencepiece.convert(model_file() + extra) == sentencepiece.convert(model_file())


# GGUF


def text_value(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_file(version: int = 3, **facts: Any) -> bytes:
    """A GGUF file of these `tokenizer.ggml.*` keys and one foreign key."""
    out = b"GGUF" + struct.pack("<IQQ", version, 0, len(facts) + 1)
    out += text_value("general.alignment") + struct.pack("<II", 4, 32)
    for key, value in facts.items():
        out += text_value(f"tokenizer.ggml.{key}") + typed(value)
    return out


def typed(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + text_value(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text_value, value))
    kind, letter = (6, "f") if isinstance(value[0], float) else (5, "i")
    return struct.pack("<IIQ", 9, kind, len(value)) + struct.pack(f"<{len(value)}{letter}", *value)


LETTERS = document.byte_letters()
BYTE_TOKENS = ["<end>", *LETTERS.values(), "ab", "Ġab", "[u]", "[PAD260]", "<bos>"]
BYTE_TYPES = [3, *[1] * 258, 4, 4, 1]


def byte_level_file(**changes: Any) -> bytes:
    facts = {"model": "gpt2", "tokens": BYTE_TOKENS, "token_type": BYTE_TYPES, "merges": ["a b", "Ġ ab"]}
    return gguf_file(**(facts | changes))


def test_a_byte_level_vocabulary_keeps_its_ids_and_merges() -> None:
    converted = gguf.convert_byte_level(byte_level_file(), pre_tokenizer=document.byte_level(), normal_form="NFC")
    assert ids(converted, "ab ab[u]<end>") == [257, 258, 259, 0]
    assert ids(converted, "[PAD260]") == [BYTE_TOKENS.index(letter) for letter in "[PAD260]"]
    assert "[PAD260]" not in json.loads(converted)["model"]["vocab"]
    assert json.loads(converted)["normalizer"] == {"type": "NFC"}


def test_ordinary_entries_can_be_named_as_special() -> None:
    plain = gguf.convert_byte_level(byte_level_file(), pre_tokenizer=document.byte_level())
    named = gguf.convert_byte_level(byte_level_file(), pre_tokenizer=document.byte_level(), special=("<bos>",))
    assert len(ids(plain, "<bos>")) > 1
    assert ids(named, "<bos>") == [261]


def test_pieces_of_a_gguf_file_are_those_of_the_model() -> None:
    texts, scores, kinds = (list(column) for column in zip(*ROWS, strict=True))
    facts = {"tokens": texts, "scores": scores, "token_type": [int(kind) for kind in kinds], "model": "llama"}
    assert gguf.convert_pieces(gguf_file(**facts)) == sentencepiece.convert(model_file())
    bare = gguf.convert_pieces(gguf_file(**facts), prefix=False, rstrip=("<s>",))
    assert ids(bare, "<s>   ab") == ids(bare, "<s>ab")


def test_user_defined_pieces_can_be_named() -> None:
    rows = [*ROWS, ("<b>", 0.0, Kind.NORMAL)]
    texts, scores, kinds = (list(column) for column in zip(*rows, strict=True))
    facts = {"tokens": texts, "scores": scores, "token_type": [int(kind) for kind in kinds], "model": "llama"}
    converted = gguf.convert_pieces(gguf_file(**facts), prefix=False, user_defined=[len(ROWS)])
    assert ids(converted, "<b>") == [len(ROWS)]


def test_gemma_merges_over_whole_sections() -> None:
    tokens = ["<pad>", "<unk>", "<turn>", *BYTES, MARK, "a", "b", f"a{MARK}", f"a{MARK}b"]
    types = [3, 3, 4, *[6] * 256, *[1] * 5]
    merges = [f"a {MARK}", f"a{MARK} b"]
    facts = {"model": "gemma4", "tokens": tokens, "token_type": types, "merges": merges, "unknown_token_id": 1}
    converted = gguf.convert_gemma(gguf_file(**facts))
    assert ids(converted, "a b<turn>\n") == [len(tokens) - 1, 2, tokens.index("<0x0A>")]


def test_words_begin_with_a_mark_and_continuations_are_bare() -> None:
    tokens = ["[PAD]", "[UNK]", "[unused0]", f"{MARK}play", "ing", f"{MARK}."]
    facts = {"model": "bert", "tokens": tokens, "token_type": [3, 3, 1, 1, 1, 1], "unknown_token_id": 1}
    converted = gguf.convert_word_piece(gguf_file(**facts))
    assert ids(converted, "Playing. zebra") == [3, 4, 5, 1]
    assert json.loads(converted)["model"]["vocab"]["##ing"] == 4


def test_a_unigram_vocabulary_keeps_scores_and_character_map() -> None:
    tokens = ["<s>", "<unk>", MARK, f"{MARK}a", "b", f"{MARK}ab", "[PAD9]"]
    scores = [0.0, 0.0, -3.0, -1.5, -1.25, -4.0, 0.0]
    facts = {
        "model": "t5",
        "tokens": tokens,
        "scores": scores,
        "token_type": [3, 2, 1, 1, 1, 1, 5],
        "unknown_token_id": 1,
    }
    # A map of no characters: the size of its trie, and nothing else.
    charsmap = [4, 0, 0, 0, 0, 0, 0, 0]
    converted = gguf.convert_unigram(gguf_file(**facts, precompiled_charsmap=charsmap))
    file = json.loads(converted)
    assert file["model"]["vocab"] == [list(pair) for pair in zip(tokens[:-1], scores[:-1], strict=True)]
    assert base64.b64decode(file["normalizer"]["precompiled_charsmap"]) == bytes(charsmap)
    file["normalizer"] = None
    assert ids(json.dumps(file).encode(), "ab  a") == [3, 4, 3]


@pytest.mark.parametrize(
    ("convert", "data", "reason"),
    [
        (gguf.convert_pieces, b"", "does not begin with GGUF"),
        (gguf.convert_pieces, b"GGUF", "GGUF vocabulary"),
        (gguf.convert_pieces, gguf_file(version=1), "version 1"),
        (gguf.convert_pieces, gguf_file(), "tokens"),
        (gguf.convert_pieces, byte_level_file()[:-3], "longer than the file"),
        (gguf.convert_pieces, byte_level_file(token_type=[1]), "GGUF vocabulary"),
        (gguf.convert_pieces, byte_level_file(token_type=[9] * len(BYTE_TOKENS)), "not a valid Kind"),
        (gguf.convert_pieces, byte_level_file(), "has a 'gpt2' vocabulary where 'llama' is expected"),
        (gguf.convert_word_piece, byte_level_file(), "where 'bert'"),
        (gguf.convert_unigram, byte_level_file(), "where 't5'"),
        (gguf.convert_gemma, byte_level_file(), "where 'gemma4'"),
    ],
)
def test_other_gguf_files_are_refused(convert: Callable[[bytes], bytes], data: bytes, reason: str) -> None:
    with pytest.raises(TokenizerError, match=reason):
        convert(data)


def test_an_array_longer_than_the_file_is_not_allocated() -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text_value("tokenizer.ggml.scores")
    with pytest.raises(TokenizerError, match="longer than the file"):
        gguf.read(head + struct.pack("<IIQ", 9, 6, 2**60))


@pytest.mark.parametrize("merge", ["ab", " ab", "a b c"])
def test_what_is_no_merge_is_refused(merge: str) -> None:
    with pytest.raises(TokenizerError, match="not a merge"):
        gguf.convert_byte_level(byte_level_file(merges=[merge]), pre_tokenizer=document.byte_level())


def test_an_added_token_must_have_its_id_in_the_vocabulary() -> None:
    model = document.bpe({"a": 0, "<x>": 1}, [])
    with pytest.raises(TokenizerError, match="other ids"):
        document.tokenizer_json(
            model, added=[document.Added("<x>", 2)], normalizer=None, pre_tokenizer=None, decoder=None
        )
