"""Programs for the native engine: what is read off a tokenizer.json, against the reference, and what is refused."""

from __future__ import annotations

import copy
import functools
import json
import random
from typing import Any

import families
import numpy as np
import pytest
import tokenizers
from automata import Runner, split_levels
from families import Json, added, byte_level, sequence, split

from toksplice.plan import NotUnderstoodError
from toksplice.program import MARK, AddedToken, Program, program
from toksplice.ranks import byte_letters

#: o200k with runs of Han characters of their own.
KIMI = r"[\p{Han}]+|" + families.O200K.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]").replace(r"[\r\n/]", r"[\r\n]")
TEKKEN = families.O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = families.QWEN.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
POSSESSIVE = (
    r"'(?i:s|d|m|t|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
DIGITS = {"type": "Digits", "individual_digits": True}
DIGIT_RUNS = {"type": "Digits", "individual_digits": False}
PUNCTUATION_RUNS = {"type": "Punctuation", "behavior": "Contiguous"}
#: As of the Falcon family: levels over characters, then levels over bytes.
FALCON = sequence(PUNCTUATION_RUNS, byte_level(use_regex=True), DIGIT_RUNS, split("[0-9][0-9][0-9]"))
PRE_TOKENIZERS: dict[str, Json] = {
    "gpt2, whisper": byte_level(use_regex=True),
    "cl100k": sequence(split(families.CL100K, "Removed", invert=True), byte_level()),
    "llama3, glm4": sequence(split(families.CL100K), byte_level()),
    "o200k": sequence(split(families.O200K), byte_level()),
    "qwen2": sequence(split(families.QWEN), byte_level()),
    "qwen3.5": sequence(split(QWEN35), byte_level()),
    "deepseek_v3": sequence(*map(split, families.DEEPSEEK), byte_level()),
    "deepseek_llm": sequence(*map(split, families.DEEPSEEK_LLM), DIGITS, byte_level()),
    "tekken": sequence(split(TEKKEN), byte_level()),
    "kimi": sequence(split(KIMI), byte_level()),
    "starcoder": sequence(DIGITS, byte_level(use_regex=True)),
    "falcon": FALCON,
    "possessive": sequence(split(POSSESSIVE), byte_level()),
    "punctuation": sequence({"type": "Punctuation", "behavior": "Isolated"}, byte_level(use_regex=True)),
    "gaps removed, then split": sequence(split(r"\p{L}+ ?", "Removed", invert=True), split("[aA]"), byte_level()),
    "nested": sequence(sequence(DIGITS, sequence()), split("b", "Isolated", invert=True), byte_level(use_regex=True)),
    "a word": sequence(
        {"type": "Split", "pattern": {"String": "a."}, "behavior": "Isolated", "invert": False}, byte_level()
    ),
}
#: Put into every text: what patterns name, foldings, marks, white space of all kinds, other planes.
HOSTILE = "'sStTlLdDvVeErRmM1a./ſ\u212a \n\r\t\u00a0\u0085\u2028\u3000字々ーéʰ\u0301\u0345\u200d"
HOSTILE += "٣²½Ⅷ😀\U00020000\U0001d400\U000e0101"


def bpe(pre_tokenizer: Json | None, **parts: Any) -> Json:
    """A byte-level tokenizer.json without merges."""
    config: Json = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "pre_tokenizer": pre_tokenizer}
    config |= {"normalizer": None, "post_processor": None, "added_tokens": []}
    return config | parts


def characters(**parts: Any) -> Json:
    """A tokenizer.json of a model of characters, all byte tokens present."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)} | {MARK: 256, "a": 257, MARK + "a": 258}
    model = {"type": "BPE", "vocab": vocab, "merges": [[MARK, "a"]], "byte_fallback": True, "unk_token": None}
    return bpe(None, model=model) | parts


REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
PREPEND = {"type": "Prepend", "prepend": MARK}
BOTH = {"type": "Sequence", "normalizers": [PREPEND, REPLACE]}


def metaspace(**parts: Any) -> Json:
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False} | parts


def token(content: str, token_id: int, **flags: bool) -> Json:
    return added(content, **flags) | {"id": token_id, "special": False}


def reference(config: Json) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps(config))


@functools.cache
def alphabet(name: str) -> str:
    """Up to three characters of each class of each level, and the hostile ones."""
    rng = random.Random(17)
    found = set(HOSTILE)
    for level in program(bpe(PRE_TOKENIZERS[name])).levels:
        classes = np.frombuffer(level.classes, dtype=np.uint8)
        for group in range(level.n_classes if level.unit == "char" else 0):
            points = [int(p) for p in np.flatnonzero(classes == group) if not 0xD800 <= p < 0xE000]
            found |= {chr(point) for point in rng.sample(points, min(3, len(points)))}
    return "".join(sorted(found))


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_the_levels_split_as_the_reference_does(name: str) -> None:
    config = bpe(PRE_TOKENIZERS[name])
    pre_tokenizer = reference(config).pre_tokenizer
    runners = [Runner(level) for level in program(config).levels]
    letters = byte_letters()
    rng = random.Random(23)
    for round_ in range(2000):
        chars = alphabet(name) if round_ % 2 else rng.sample(alphabet(name), 5)
        text = "".join(rng.choices(chars, k=rng.randrange(0, 25)))
        expected = [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]
        assert ["".join(letters[b] for b in piece) for piece in split_levels(runners, text)] == expected, text


@pytest.mark.parametrize("name", sorted(families.CERTIFIED.keys() - {"gpt2", "stripping"}))
def test_byte_level_families_are_understood(name: str) -> None:
    found = program(json.loads(families.tokenizer_json(name)))
    assert found.kind == "bytes"
    assert found.levels


def test_levels_behind_byte_level_read_bytes() -> None:
    found = program(bpe(FALCON))
    assert [level.unit for level in found.levels] == ["char", "char", "byte", "byte"]
    assert [level.keeps_gaps for level in program(bpe(PRE_TOKENIZERS["cl100k"])).levels] == [False]


def test_a_byte_level_program_with_everything() -> None:
    tokens = [token("<x>", 1), token("", 9), token("e\u0301", 2, normalized=True), token("a", 0, lstrip=True)]
    post = {"type": "Sequence", "processors": [byte_level()]}
    config = bpe(byte_level(use_regex=True), normalizer={"type": "NFC"}, added_tokens=tokens, post_processor=post)
    found = program(config)
    assert found == Program(
        kind="bytes",
        levels=found.levels,
        normal_form="NFC",
        added=(
            AddedToken("<x>", 1, normalized=False, lstrip=False, rstrip=False),
            AddedToken("é", 2, normalized=True, lstrip=False, rstrip=False),
            AddedToken("a", 0, normalized=False, lstrip=True, rstrip=False),
        ),
        trim_offsets=True,
        mark_spaces=False,
        prepend="never",
        first_if_absent=False,
    )


@pytest.mark.parametrize(
    ("parts", "mark_spaces", "prepend", "first_if_absent"),
    [
        ({}, False, "never", False),
        ({"normalizer": REPLACE}, True, "never", False),
        ({"normalizer": BOTH}, True, "always", False),
        ({"pre_tokenizer": metaspace()}, True, "first", True),
        ({"pre_tokenizer": metaspace(prepend_scheme="never")}, True, "never", True),
        ({"pre_tokenizer": {"type": "Metaspace", "replacement": MARK, "split": False}}, True, "always", True),
        # What a split at a space finds once every space is a mark: nothing.
        (
            {
                "normalizer": REPLACE,
                "pre_tokenizer": {
                    "type": "Split",
                    "pattern": {"String": " "},
                    "behavior": "MergedWithPrevious",
                    "invert": False,
                },
            },
            True,
            "never",
            False,
        ),
    ],
)
@pytest.mark.parametrize("text", ["a", " a", MARK + "a", "  a b", "é a", "<x>a", " <x> a", MARK, " "])
def test_marks_as_the_reference_puts_them(
    parts: Json, mark_spaces: bool, prepend: str, first_if_absent: bool, text: str
) -> None:
    config = characters(**parts, added_tokens=[token("<x>", 259)])
    found = program(config)
    assert (found.kind, found.mark_spaces, found.prepend) == ("characters", mark_spaces, prepend)
    if prepend != "never":
        assert found.first_if_absent is first_if_absent
    assert by_program(found, text) == "".join(reference(config).encode(text).tokens)


def by_program(found: Program, text: str) -> str:
    """What becomes of `text`, as the fields of the program say; characters beyond the vocabulary as byte tokens."""
    out = ""
    for i, section in enumerate(text.split("<x>")):
        marked = section.replace(" ", MARK) if found.mark_spaces else section
        wanted = found.prepend == "always" or (found.prepend == "first" and i == 0)
        if marked and wanted and not (found.first_if_absent and marked.startswith(MARK)):
            marked = MARK + marked
        known = {MARK, "a"}
        symbols = (c if c in known else "".join(f"<0x{byte:02X}>" for byte in c.encode()) for c in marked)
        out += ("<x>" if i else "") + "".join(symbols)
    return out


@pytest.mark.parametrize("vocab", [{"a": 0}, {"a": 0, "b": 257}, {"a": 5, "<y>": 9}, {}])
@pytest.mark.parametrize("contents", [["<x>", "<y>"], ["<x>", "a", "", "<y>"], ["a", "<y>", "<x>"]])
def test_ids_of_added_tokens_are_those_of_the_reference(vocab: Json, contents: list[str]) -> None:
    config = bpe(byte_level(use_regex=True), added_tokens=[token(content, 0) for content in contents])
    config["model"]["vocab"] = vocab
    theirs = reference(config)
    wanted = {content: theirs.token_to_id(content) for content in contents if content}
    for entry in config["added_tokens"]:
        entry["id"] = wanted.get(entry["content"], 77)
    assert {found.content: found.id for found in program(config).added} == wanted
    config["added_tokens"][-1]["id"] += 1
    with pytest.raises(NotUnderstoodError, match="another id"):
        program(config)


def _model(**parts: Any) -> Json:
    return bpe(byte_level(use_regex=True), model={"type": "BPE", "vocab": {}, "merges": []} | parts)


def _tokens(*tokens: Json) -> Json:
    return bpe(byte_level(use_regex=True), added_tokens=list(tokens))


def _without(*missing: str, **parts: Any) -> Json:
    config = copy.deepcopy(characters(**parts))
    for word in missing:
        del config["model"]["vocab"][word]
    return config


def _characters_model(**parts: Any) -> Json:
    config = copy.deepcopy(characters())
    config["model"] |= parts
    return config


TRIMS_TWICE = {"type": "Sequence", "processors": [byte_level(), byte_level()]}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (_model(type="WordPiece"), "type WordPiece"),
        ({"model": {"vocab": {}}}, "without merges"),
        (_model(dropout=0.1), "dropout"),
        (_model(continuing_subword_prefix="##"), "continuing_subword_prefix"),
        (_model(end_of_word_suffix="</w>"), "end_of_word_suffix"),
        (_model(byte_fallback=True), "byte_fallback behind ByteLevel"),
        (bpe(None), "without byte_fallback"),
        (bpe({"type": "WhitespaceSplit"}), "WhitespaceSplit without ByteLevel"),
        (bpe(sequence({"type": "Whitespace"}, byte_level())), "pre-tokenizer Whitespace"),
        (bpe({"pretokenizers": []}), "without a type"),
        (bpe(byte_level()), "without a split pattern"),
        (bpe(byte_level() | {"add_prefix_space": True}), "add_prefix_space"),
        (bpe(sequence(byte_level(use_regex=True), byte_level())), "ByteLevel twice"),
        (bpe(sequence(split("a", "Removed"), byte_level())), "behavior Removed"),
        (bpe(sequence(split("a", "MergedWithNext"), byte_level())), "behavior MergedWithNext"),
        (bpe(sequence(split(r"\bx"), byte_level())), "split pattern with escape"),
        (bpe(sequence(split(r"(?<=a)x"), byte_level())), "split pattern with group"),
        (
            bpe(sequence({"type": "Punctuation", "behavior": "Removed"}, byte_level())),
            "pre-tokenizer Punctuation",
        ),
        (
            bpe(sequence({"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated"}, byte_level())),
            "Split at nothing",
        ),
        (bpe(byte_level(use_regex=True), normalizer={"type": "Lowercase"}), "normalizer Lowercase"),
        (
            bpe(
                byte_level(use_regex=True),
                normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFC"}]},
            ),
            r"normalizer NFC \+ NFC",
        ),
        (
            bpe(byte_level(use_regex=True), normalizer={"type": "NFKC"}, post_processor=byte_level()),
            "NFKC with a post-processor that trims",
        ),
        (
            bpe(byte_level(use_regex=True), post_processor=byte_level() | {"add_prefix_space": True}),
            "trims offsets, with add_prefix_space",
        ),
        (bpe(byte_level(use_regex=True), post_processor=TRIMS_TWICE), "trims offsets twice"),
        (bpe(byte_level(use_regex=True), post_processor={"type": "Strange"}), "post-processor Strange"),
        (_tokens(token("x", 1, single_word=True)), "single word"),
        (_tokens(token("x", 1), token("x", 1)), "there twice"),
        (_tokens(token("x", 7)), "another id"),
        (_tokens(token("x", 1, rstrip=True), token(" y", 2)), "' y' beside one that strips"),
        (_tokens(token("x", 1, lstrip=True), token("y\n", 2)), r"'y\\n' beside one that strips"),
        (_without("<0xF4>"), "no <0xF4>"),
        (_without("<0x41>"), "no <0x41>"),
        (_without(MARK, normalizer=REPLACE), "no U[+]2581"),
        (_characters_model(ignore_merges=True), "ignore_merges"),
        (_characters_model(merges=["<0x41> <0x42>"]), "merge of <0x41>"),
        (_characters_model(merges=[["a", "<0x42>"]]), "merge of <0x42>"),
        (characters(normalizer={"type": "NFC"}), "normalizer NFC without ByteLevel"),
        (characters(normalizer=REPLACE | {"content": "_"}), "normalizer Replace"),
        (characters(normalizer=PREPEND | {"prepend": " "}), "normalizer Prepend"),
        (characters(pre_tokenizer=metaspace(split=True)), "Metaspace that splits"),
        (characters(pre_tokenizer=metaspace(replacement="_")), "another mark"),
        (characters(normalizer=BOTH, pre_tokenizer=metaspace()), "more than one step that puts a mark"),
        (characters(pre_tokenizer=split("a")), "Split without ByteLevel"),
        (characters(post_processor=byte_level()), "model of characters with a post-processor that trims"),
        (characters(added_tokens=[token("x", 259, lstrip=True)]), "'x' strips white space"),
        (
            characters(normalizer=REPLACE, added_tokens=[token("x", 259, rstrip=True, normalized=True)]),
            "'x' strips white space",
        ),
        (characters(normalizer=BOTH, added_tokens=[token("x", 259, normalized=True)]), "after normalization"),
        (characters(normalizer=REPLACE, added_tokens=[token("x y", 259, normalized=True)]), "after normalization"),
    ],
)
def test_refused(config: Json, reason: str) -> None:
    with pytest.raises(NotUnderstoodError, match=reason):
        program(config)


@pytest.mark.parametrize(
    "config",
    [
        _without("<0xC0>", "<0xFF>"),  # in no UTF-8
        _without("<0x61>"),  # the letter itself is there
        _without("<0x20>", normalizer=REPLACE),  # no space is left
        _characters_model(merges=["<0x41 a"]),
        characters(normalizer=REPLACE, added_tokens=[token("x", 259, normalized=True), token("\n", 260)]),
        characters(added_tokens=[token("x", 259, rstrip=True)]),
        # White space that is swallowed in the first search is not there in the second one.
        _tokens(token("x", 1, lstrip=True), token("  ", 2, normalized=True)),
        _model(dropout=0, continuing_subword_prefix="", end_of_word_suffix="", byte_fallback=False),
        {**_model(), "model": {"vocab": {}, "merges": []}},  # an old file
    ],
)
def test_what_does_no_harm_is_understood(config: Json) -> None:
    assert program(config).added is not None
