"""The kernels, run on the CPU from the source that a GPU gets, give the reference's ids, byte positions and pieces."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Sequence

import families
import pytest
from cuda_on_cpu import emulator
from cuda_on_cpu.check import Checker, Tally, strings_for
from cuda_on_cpu.device import CpuDevice
from cuda_on_cpu.emulator import Schedule

from gpu_worker.encoder import Encoding, Refusal
from gpu_worker.packing import TILE
from gpu_worker.workspace import LONG_PIECE
from toksplice import Tokenizer, load

if emulator.missing():
    pytest.skip(str(emulator.missing()), allow_module_level=True)

#: Adversarial texts for each family and schedule; the command of tests/cuda_on_cpu/check.py compares more of them.
STRINGS = 100
FAMILIES = (
    *("cl100k", "llama3", "qwen", "o200k", "deepseek", "deepseek_llm", "starcoder", "punctuation", "neox", "claude"),
    *("nfd", "shuffled", "shuffled, ignore_merges"),
)
CHAIN = [
    *("clear_marks", "find_added", "classify", "label_characters", "mark_pieces", "encode_pieces"),
    *("merge_short", "merge_medium", "merge_long", "count_tokens", "gather_tokens"),
]
LETTERS = "etaoinshrdlu"


@functools.cache
def device() -> CpuDevice:
    return CpuDevice()


@functools.cache
def checker(family: str) -> Checker:
    return Checker(_tokenizer(family), device())


def _tokenizer(family: str) -> Tokenizer:
    if not family.startswith("shuffled"):
        return families.family(family)
    # Merges in an order that no training gives: most come before those that make their parts.
    config = json.loads(families.tokenizer_json("cl100k"))
    random.Random(3).shuffle(config["model"]["merges"])
    config["model"]["ignore_merges"] = "ignore" in family
    return load(json.dumps(config).encode(), name=family)


def compare(family: str, texts: Sequence[str], schedule: Schedule = Schedule.FORWARD) -> dict[str, Refusal]:
    """Encode texts together and compare those that were not refused; gives the others."""
    on = checker(family)
    device().schedule, device().ran = schedule, []
    tally = Tally()
    refused = on.check(texts, tally)
    assert [str(wrong) for wrong in tally.wrong] == []
    assert device().ran == CHAIN * (len(device().ran) // len(CHAIN))
    assert device().ran
    return dict(refused)


@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize("family", FAMILIES)
def test_adversarial_texts(family: str, schedule: Schedule) -> None:
    texts = list(itertools.islice(strings_for(_tokenizer(family), seed=int(schedule)), STRINGS))
    refused = compare(family, texts, schedule)
    allowed = {Refusal.ADDED_TOKENS}
    if family in ("qwen", "neox", "claude", "nfd"):
        allowed.add(Refusal.NORMALIZATION)
    assert set(refused.values()) <= allowed
    assert len(refused) < len(texts) / 2


@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize("family", ["cl100k", "shuffled"])
def test_pieces_of_every_length(family: str, schedule: Schedule) -> None:
    """Where another kernel takes over, and where a warp or a lane has all it can hold."""
    rng = random.Random(int(schedule))
    lengths = [*range(1, 36), *range(60, 68), *range(124, 133), 160, 255, 256, 257, 511, 512, 513, 1023, 1024]
    words = ["".join(rng.choices(LETTERS, k=length)) for length in lengths]
    texts = [*words, *("a" * length for length in lengths), *("th" * (length // 2) for length in lengths)]
    assert compare(family, [*texts, " ".join(words)], schedule) == {}


@pytest.mark.parametrize("family", ["cl100k", "shuffled"])
def test_the_longest_pieces(family: str) -> None:
    rng = random.Random(5)
    longest = ["".join(rng.choices(LETTERS, k=LONG_PIECE - by)) for by in (0, 1)]
    longest += ["a" * LONG_PIECE, "-" * (LONG_PIECE - 3), "é" * (LONG_PIECE // 2)]
    too_long = ["x" * (LONG_PIECE + 1), "y" * (2 * LONG_PIECE), " " + "z" * LONG_PIECE, "before " + "x" * 1_000_000]
    texts = [*longest, *too_long, "a text beside them"]
    refused = compare(family, texts, Schedule.RANDOM)
    assert refused == dict.fromkeys(too_long, Refusal.PIECE_TOO_LONG)


@pytest.mark.parametrize("schedule", Schedule)
def test_whatever_stands_at_the_edge_of_a_tile(schedule: Schedule) -> None:
    """Characters, pieces, added tokens and texts, cut by the edge at each of their bytes."""
    what = ["é", "漢字", "😀😀", "<|im_start|>", "  \n  x", "'ll", "12345678", "etaoin" * 7, "--->", "x" * 40 + "1"]
    filler = "ab " * TILE
    for token in what:
        # The first tile of a launch begins with a separator.
        texts = [filler[: TILE - 1 - before] + token + " end" for before in range(len(token.encode()) + 2)]
        single = [text for text in texts if compare("o200k", [text], schedule) == {}]
        assert single == texts
    # Texts one behind the other, so that separators and first and last characters come to stand everywhere.
    short = [(token * 3)[: size % 9] for size, token in enumerate(itertools.islice(itertools.cycle(what), 900))]
    assert compare("o200k", short, schedule) == {}


@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize("family", ["cl100k", "o200k", "deepseek", "starcoder"])
def test_what_is_decided_many_tiles_away(family: str, schedule: Schedule) -> None:
    """Runs that only their start, or only their end, tells apart."""
    texts = [
        *("1" * 10_001, "x" + "1" * 8_193 + " a", "'t" * 5_000, "a" + "'t" * 5_000, "!\u0301" * 3_000, "1〇" * 3_000),
        *(" " * LONG_PIECE, " " * (LONG_PIECE - 7) + "x", "\n" * (LONG_PIECE - 2) + " ", "a\n" * 3_000, "中A" * 2_500),
        *("'s" * 6_000 + "x", "İ" * 2_000, "\u0301" * 1_365, "😀" * 3_000),
    ]
    refused = compare(family, texts, schedule)
    assert set(refused.values()) <= {Refusal.PIECE_TOO_LONG}
    assert len(refused) <= 3


def test_what_is_decided_further_away_than_a_warp_looks_at_once() -> None:
    """Carries over more than 32 tiles, whose functions are constant nowhere and differ from tile to tile."""
    pattern = families.sequence(families.split("y(?:abb)*c|ab|xxx|."), families.byte_level())
    config = families.bpe(pattern, tokens=[])
    config["model"]["ignore_merges"] = True
    for piece in ("ab", "xxx"):
        config["model"]["vocab"].setdefault(piece, len(config["model"]["vocab"]))
    on = Checker(load(json.dumps(config).encode()), device())
    size = 35 * TILE // 3 * 3

    def pieces(text: str) -> list[int] | Refusal:
        (answer,) = on.chain.encode([text.encode()])
        return answer if isinstance(answer, Refusal) else answer.pieces.tolist()

    # The reference takes minutes for these; that it has the same pieces shows on short ones.
    for length in (9, size):
        every_third, run = list(range(0, length, 3)), "abb" * (length // 3)
        behind = [0, *sorted(at + by for at in every_third for by in (1, 3))]
        expected: dict[str, list[int] | Refusal] = {
            "x" * length: every_third,
            "a" + "x" * length: [0, *(at + 1 for at in every_third)],
            f"y{run}c": Refusal.PIECE_TOO_LONG if length == size else [0],
            # The c is out of step, so that no piece reaches it but the last one.
            f"y{run}bc": [*behind, length + 1, length + 2],
            f"y{run}ac": [*behind, length + 1, length + 2],
        }
        assert {text: pieces(text) for text in expected} == expected
        if length < size:
            assert _refused(on, list(expected)) == {}


# Added tokens


def test_added_tokens_are_found_wherever_they_stand() -> None:
    texts = [
        *("<|im_start|>", "<|im_start|><|im_end|>", "a<|im_end|>", "<|im_end|>b", " <think> </think>\n", "<|im_start|"),
        *("<<|im_start|>>", "<|im_<|im_start|>start|>", "(<", "((<", "١٢", "١٢٣", "1<think>2", "<|im_start|>" * 500),
        *("aba", "abab", "x\n\naba\n\n", "aba" * 3),
    ]
    for schedule in Schedule:
        assert compare("cl100k", texts, schedule) == {}


def test_added_tokens_that_overlap_go_to_the_host() -> None:
    texts = ["ababa", "x ababa y", "(<think>", "plain (< text", "<think>"]
    for schedule in Schedule:
        refused = compare("cl100k", texts, schedule)
        assert refused == dict.fromkeys(["ababa", "x ababa y", "(<think>"], Refusal.ADDED_TOKENS)
    # Runs of spaces are tokens there, of many lengths.
    texts = ["a  b", "a " + " " * 30, "one space", "a" + " " * 24 + "b"]
    assert set(compare("neox", texts)) <= {texts[0], texts[1], texts[3]}


def _with_tokens(*tokens: families.Json, normalizer: families.Json | None = None) -> Checker:
    config = families.bpe(
        families.sequence(families.split(families.CL100K), families.byte_level()),
        tokens=list(tokens),
        normalizer=normalizer,
    )
    return Checker(load(json.dumps(config).encode()), device())


def _refused(on: Checker, texts: Sequence[str]) -> dict[str, Refusal]:
    tally = Tally()
    refused = on.check(texts, tally)
    assert [str(wrong) for wrong in tally.wrong] == []
    return dict(refused)


def test_tokens_that_swallow_white_space_go_to_the_host() -> None:
    on = _with_tokens(
        families.added("<mask>", rstrip=True), families.added("<left>", lstrip=True), families.added("<x>")
    )
    texts = ["a <mask> b", "a <left>", "a <x> b", "<mask", "mask>"]
    assert _refused(on, texts) == dict.fromkeys(texts[:2], Refusal.ADDED_TOKENS)


def test_of_two_searches_the_first_one_counts() -> None:
    """A longer token of the second search begins where one of the first does: the shorter one is taken."""
    on = _with_tokens(
        families.added("<a>"), families.added("<a>b", normalized=True), families.added("<c>", normalized=True)
    )
    texts = ["<a>b", "x<a>bc", "<a> b", "x <c> y", "<a>", "<c><a>"]
    assert _refused(on, texts) == dict.fromkeys(texts[:2], Refusal.ADDED_TOKENS)


def test_of_tokens_with_one_beginning_the_longest_counts() -> None:
    on = _with_tokens(
        *(families.added(content) for content in ("<a", "<a>", "<a>>>>>>>>>>>>>>>>>>>>>>>>>>>>>b", "€", "中"))
    )
    texts = [
        "<a>",
        "<a",
        "<a>b",
        "<a>>>",
        "<a>>>>>>>>>>>>>>>>>>>>>>>>>>>>>b",
        "<a>>>>>>>>>>>>>>>>>>>>>>>>>>>>>c",
        "€中u€",
    ]
    assert _refused(on, texts) == {}


# Refusals


def test_texts_that_the_normalizer_may_change_go_to_the_host() -> None:
    texts = ["é", "e\u0301", "\u0301", "plain", "\u2126", "漢字", "가\u11a8", "\U00020000", "<think>é"]
    refused = compare("qwen", texts)
    assert refused == dict.fromkeys([texts[1], texts[2], texts[4], texts[6], texts[7]], Refusal.NORMALIZATION)
    # Marks that compose with nothing stay where they are, if there are no two of them side by side.
    texts = [
        "ภาษาไทยทุก",
        "नमस्ते",
        "\u0e38",
        "\u0e38 \u0e38",
        "กุ่",
        "a\u0334\u0334",
        "กุ<think>",
        "ก\u0e38\u0301",
        "é\u0e38",
    ]
    refused = compare("qwen", texts)
    assert refused == dict.fromkeys(["กุ่", "a\u0334\u0334", "ก\u0e38\u0301"], Refusal.NORMALIZATION)


def test_of_a_token_that_the_normalizer_may_change_the_host_decides() -> None:
    """With the character before it the normalizer makes another one of its first."""
    tokens = [
        families.added("\u0301x", normalized=True),
        families.added("<\u0301>"),
        families.added("é<", normalized=True),
    ]
    on = _with_tokens(*tokens, normalizer={"type": "NFC"})
    texts = ["e\u0301x", "\u0301x", "<\u0301>", "x<\u0301>y", "é<", "e\u0301<"]
    refused = _refused(on, texts)
    assert set(refused) == {texts[0], texts[1], texts[5]}


INTERESTING = bytes((0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF))
INTERESTING += bytes((0xF0, 0xF1, 0xF4, 0xF5, 0xF8, 0xFE, 0xFF))


def test_what_is_no_utf8_is_refused_and_disturbs_no_other_text() -> None:
    rng = random.Random(11)
    texts = [bytes(rng.choices(INTERESTING, k=rng.randrange(1, 7))) for _ in range(3_000)]
    texts += [bytes(pair) for pair in itertools.product(INTERESTING, repeat=2)]
    texts += [char.encode() for char in "\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"]
    texts += [b"\xff" * 5000, b"a" * 5000 + b"\xff", b"\xffa", "é".encode()[1:], "é".encode()[:1], b""]
    witness = "a text between them"
    (alone,) = checker("cl100k").chain.encode([witness.encode()])
    assert isinstance(alone, Encoding)
    for start in range(0, len(texts), 400):
        part = [text for each in texts[start : start + 400] for text in (each, witness.encode())]
        for text, answer in zip(part, checker("cl100k").chain.encode(part), strict=True):
            assert (answer == Refusal.INVALID_UTF8) == (not _is_utf8(text)), text
            if text == witness.encode():
                assert isinstance(answer, Encoding)
                assert answer.ids.tolist() == alone.ids.tolist()
                assert answer.pieces.tolist() == alone.pieces.tolist()


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_a_text_fills_its_buffer_to_the_last_byte() -> None:
    room = 4 * TILE
    for size in (TILE - 2, TILE - 1, TILE, room - 3, room - 2, room - 1, room):
        text = ("ab 12 é\n" * (size // 9 + 1)).encode()[:size].decode(errors="ignore")
        text += "." * (size - len(text.encode()))
        assert compare("cl100k", [text]) == {}


def test_a_token_that_the_buffer_is_too_short_for() -> None:
    on = _with_tokens(families.added("<a" + "b" * 300), families.added("<ab"))
    room = 4 * TILE - 2
    texts = [("ab " * room)[: room - len(end)] + end for end in ("<a", "<ab", "<abb", "<a" + "b" * 60)]
    assert _refused(on, texts) == {}


def test_more_texts_than_a_launch_holds() -> None:
    texts = [f"text {number}" for number in range(2_500)]
    assert compare("cl100k", texts) == {}
    assert device().ran == CHAIN * 3


def test_nothing_comes_of_nothing() -> None:
    assert checker("cl100k").chain.encode([]) == []
    (answer,) = checker("cl100k").chain.encode([b""])
    assert isinstance(answer, Encoding)
    assert (len(answer.ids), len(answer.starts), len(answer.pieces)) == (0, 0, 0)
