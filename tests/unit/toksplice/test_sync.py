"""Synchronising pairs against what is known of the patterns, and against the reference itself."""

from __future__ import annotations

import itertools
import random

import families
import numpy as np
import pytest
from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence as SequencePreTokenizer
from tokenizers.pre_tokenizers import Split

from toksplice.charclass import PROBED, class_bits
from toksplice.pattern import UnsupportedPatternError, parse
from toksplice.plan import BYTE_LEVEL_PATTERN
from toksplice.sync import Level, SyncTable, build

PATTERNS: dict[str, tuple[str, ...]] = {
    "gpt2": (BYTE_LEVEL_PATTERN,),
    "cl100k": (families.CL100K,),
    "qwen": (families.QWEN,),
    "o200k": (families.O200K,),
    "deepseek": families.DEEPSEEK,
    "deepseek_llm": families.DEEPSEEK_LLM,
    "possessive": (r"[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++",),
}

#: One or more characters of every kind that the patterns tell apart.
ALPHABET = "aZsSdſéʰ字かカ1٣²'’(.=/-~$ \t\n\r\u00a0\u3000\u0301\u0345\u200d\u0378\x03\ue000😀"


def table(name: str) -> SyncTable:
    never = class_bits(r"\s") | class_bits(r"\p{M}")
    return build([Level(parse(source)) for source in PATTERNS[name]], never_left=never)


def synchronises(sync: SyncTable, pair: str) -> bool:
    return len(sync.candidates(np.array([ord(c) for c in pair], dtype=np.uint32))) == 1


@pytest.mark.parametrize(
    ("name", "pair", "expected"),
    [
        ("cl100k", "a1", True),
        ("cl100k", "a ", True),
        ("cl100k", "a(", True),
        ("cl100k", "1a", True),
        ("cl100k", "1 ", True),
        ("cl100k", "(1", True),
        ("cl100k", ") ", True),
        ("cl100k", "(a", False),  # one character may stand before a word
        ("cl100k", ")\n", False),  # line feeds follow punctuation
        ("cl100k", "aa", False),
        ("cl100k", "11", False),  # groups of three count from the start of the run
        ("cl100k", " a", False),
        ("cl100k", "  ", False),
        ("cl100k", " 1", False),  # sound, but white space never stands on the left
        ("cl100k", "'s", False),
        ("gpt2", "'s", False),
        ("gpt2", "(a", True),  # words take only a space before them
        ("gpt2", ")\n", True),
        ("o200k", "a'", False),  # a contraction belongs to the word
        ("cl100k", "a'", True),
        ("o200k", "aZ", True),  # a word has no capital after a small letter
        ("o200k", "Za", False),
        ("o200k", ")/", False),
        ("o200k", "a\u0301", False),
        ("cl100k", "a\u0301", True),  # marks are punctuation there
        ("qwen", "12", True),  # each digit is a piece
        ("deepseek", "字a", True),
        ("deepseek", "a字", True),
        ("deepseek", "字字", False),
        ("deepseek", "(a", False),
        ("deepseek", "\u0378(", True),  # matched by nothing itself, but the next character is
    ],
)
def test_known_pairs(name: str, pair: str, expected: bool) -> None:
    assert synchronises(table(name), pair) is expected


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pair_cuts_every_text_of_the_reference(name: str) -> None:
    """Exhaustive short strings and random long ones: at each pair there is a boundary, and what stands
    left of it is pre-tokenized as if the text ended after the pair's second character."""
    sync = table(name)
    steps = [Split(Regex(source), "isolated") for source in PATTERNS[name]]
    reference = SequencePreTokenizer(steps)
    rng = random.Random(7)
    texts = ["".join(t) for t in itertools.product("a'sé1 \n(字\u0301\u200d", repeat=4)]
    texts += ["".join(rng.choices(ALPHABET, k=rng.randrange(5, 40))) for _ in range(3000)]
    pairs = 0
    for text in texts:
        points = np.array([ord(c) for c in text], dtype=np.uint32)
        spans = [span for _, span in reference.pre_tokenize_str(text)]
        starts = {start for start, _ in spans}
        for cut in sync.candidates(points):
            pairs += 1
            assert int(cut) in starts, (text, cut)
            left = [span for _, span in reference.pre_tokenize_str(text[: cut + 1]) if span[1] <= cut]
            assert [span for span in spans if span[1] <= cut] == left, (text, cut)
            right = [(a + int(cut), b + int(cut)) for _, (a, b) in reference.pre_tokenize_str(text[cut:])]
            assert [span for span in spans if span[0] >= cut] == right, (text, cut)
    assert pairs > 1000


def test_characters_that_were_not_probed_are_in_no_pair() -> None:
    sync = table("qwen")
    assert not synchronises(sync, "a\U00020000")
    assert not synchronises(sync, "\U00020000 ")
    assert ord("\U00020000") >= PROBED


@pytest.mark.parametrize("source", [r"\s*", r"(?!\S)", r"a?b?", r"(?i:ss)"])
def test_refused(source: str) -> None:
    with pytest.raises(UnsupportedPatternError):
        build([Level(parse(source))], never_left=class_bits(r"\s"))


def test_a_possessive_item_that_keeps_the_character_makes_nothing_certain() -> None:
    never = class_bits(r"\s")
    # Alone, "b" is taken by the possessive item and then missing from the next one: it never matches there.
    assert not synchronises(build([Level(parse(r"[ab]?+[ab]"))], never_left=never), "b(")
    assert synchronises(build([Level(parse(r"[ab]?[ab]"))], never_left=never), "b(")
