"""Automata against the reference's own pattern engine, on patterns in use and on random ones."""

from __future__ import annotations

import random

import families
import numpy as np
import pytest
from automata import Attempt, Runner
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from toksplice import automaton
from toksplice.automaton import ACCEPT, DEAD, START, Automaton, build, over_bytes
from toksplice.pattern import UnsupportedPatternError, parse
from toksplice.plan import BYTE_LEVEL_PATTERN
from toksplice.ranks import byte_letters
from toksplice.sync import Level

#: Every construct, each where it decides between matches.
ODD_PATTERNS = (
    "a|ab",  # the first alternative wins, not the longest
    "(?:a|ab)(?:c|bcd)",
    "a??b|a",
    "a{2,3}?a",
    "a{2}?b",  # two or none, greedy
    "a{,2}b",
    "a{2,}",
    "(?:ab?){2}",
    "a{1,3}+b",  # repeats the group
    "a?+a",  # never gives back
    "a*+b|a",
    "a++$|a",
    r"\s++$|\s",
    r"\s+$",
    r"[^b]+?(?=b)",
    r"a(?!b)|b+(?=a)",
    r"(?!a)\S\s",
    "(?i:s's)",
    "(?i:de|bc)",  # characters that are neighbours in Unicode too
    r"[a-cé&&[^b]]+",
    r".+|\n",
    "\\.|a\\$",
)

#: What random patterns are made of, and the texts that they are tried on.
LEAVES = ("a", "b", "c", r"\n", " ", "[ab]", "[^a]", r"\s", r"\S", ".", r"\w", "'", "(?i:s)", r"\d", "é")
LOOKS = ("(?!a)", "(?=b)", r"(?!\s)", "(?=[ab])", "$", r"(?!\n)")
QUANTIFIERS = ("?", "*", "+", "??", "*?", "+?", "?+", "*+", "++", "{2}", "{1,3}", "{2,}", "{,2}", "{1,2}?", "{2}?")
ALPHABET = "aabbc \n'sSſ1é\u3000"


def runner(source: str) -> Runner:
    return Runner(build(Level(parse(source)), keeps_gaps=True))


def assert_splits_alike(source: str, mine: Runner, texts: list[str]) -> None:
    reference = Split(Regex(source), "isolated")
    for text in texts:
        expected = [span for _, span in reference.pre_tokenize_str(text)]
        assert mine.split([ord(char) for char in text], 0, len(text)) == expected, (source, text)


def random_texts(rng: random.Random, count: int, alphabet: str = ALPHABET) -> list[str]:
    return ["".join(rng.choices(alphabet, k=rng.randrange(1, 14))) for _ in range(count)]


def random_pattern(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.35:
        return rng.choice(LEAVES)
    if kind < 0.45:
        return rng.choice(LEAVES) + rng.choice(LOOKS)
    if kind < 0.65:
        return "".join(random_pattern(rng, depth - 1) for _ in range(rng.randrange(2, 4)))
    if kind < 0.8:
        return "(?:" + "|".join(random_pattern(rng, depth - 1) for _ in range(rng.randrange(2, 4))) + ")"
    item = random_pattern(rng, depth - 1)
    return (item if item in LEAVES else f"(?:{item})") + rng.choice(QUANTIFIERS)


@pytest.mark.parametrize("source", ODD_PATTERNS)
def test_an_odd_pattern_matches_as_the_reference_does(source: str) -> None:
    assert_splits_alike(source, runner(source), random_texts(random.Random(1), 2000))


def test_random_patterns_match_as_the_reference_does() -> None:
    rng = random.Random(11)
    tried = 0
    while tried < 300:
        source = random_pattern(rng, 3)
        try:
            mine = runner(source)
        except UnsupportedPatternError:
            continue
        tried += 1
        assert_splits_alike(source, mine, random_texts(rng, 30))


@pytest.mark.parametrize(
    ("source", "text", "attempt"),
    [
        (families.CL100K, "ab c", Attempt(2, 3, saw_end=False)),
        (families.CL100K, "ab", Attempt(2, 2, saw_end=True)),
        (families.CL100K, "1234", Attempt(3, 4, saw_end=False)),  # the fourth digit ends the attempt, unread beyond
        (families.CL100K, "  a", Attempt(1, 3, saw_end=False)),
        (families.CL100K, " \n a", Attempt(2, 4, saw_end=False)),  # one more line feed would be taken too
        (families.CL100K, "'rex", Attempt(3, 4, saw_end=False)),
        (BYTE_LEVEL_PATTERN, "'r ", Attempt(1, 3, saw_end=False)),  # it might have been 're
        ("ab", "ac", Attempt(None, 2, saw_end=False)),
        ("ab", "a", Attempt(None, 1, saw_end=True)),
        ("ab", "ab", Attempt(2, 2, saw_end=True)),
    ],
)
def test_an_attempt_reads_no_further_than_it_must(source: str, text: str, attempt: Attempt) -> None:
    assert runner(source).attempt([ord(char) for char in text], 0, len(text)) == attempt


def test_a_branch_that_cannot_match_is_not_read_on() -> None:
    # Behind an a, the second option has lost already: the b must not be waited for.
    assert runner("a|a+b").attempt([ord("a")] * 9, 0, 9) == Attempt(1, 2, saw_end=False)


def test_what_an_attempt_has_not_read_cannot_change_it() -> None:
    mine = runner(families.O200K)
    rng = random.Random(3)
    for text in random_texts(rng, 1000, "aAé'sl1 \n/(\u0301"):
        units = [ord(char) for char in text]
        found = mine.attempt(units, 0, len(units))
        if not found.saw_end:
            other = units[: found.reach] + [ord(char) for char in rng.choice(("", "x", "\n", "'ll"))]
            again = mine.attempt(other, 0, len(other))
            assert again.end == found.end
            assert again.reach == found.reach


def test_the_table_has_the_documented_shape() -> None:
    made = build(Level(parse(families.QWEN)), keeps_gaps=False)
    table = made.table()
    assert table.shape == (made.n_states, made.n_classes + 1)
    assert len(made.classes) == 0x110000
    assert max(made.classes) == made.n_classes - 1
    assert not table[DEAD].any()
    assert not (table[START] & ACCEPT).any()
    assert not (table[:, -1] & ~np.uint16(ACCEPT)).any()  # nothing goes on behind the end
    assert int((table & ~np.uint16(ACCEPT)).max()) == made.n_states - 1
    assert not made.keeps_gaps
    assert made.unit == "char"


def test_classes_follow_the_reference_on_every_plane() -> None:
    made = build(Level(parse(r"\p{L}|\p{N}")), keeps_gaps=True)
    letter, digit, none = (made.classes[ord(char)] for char in "a1 ")
    assert letter == digit != none
    assert {made.classes[point] for point in (0x1D400, 0x20000, 0x323AF, 0x1D7CE)} == {letter}
    assert {made.classes[point] for point in (0x1F600, 0xE0001, 0x10FFFD, 0x40000)} == {none}


@pytest.mark.parametrize("source", [r"\p{L}\p{N}|Ġ+", r"Ġ(?!a)|\p{L}$", r"\p{L}+(?=\p{N})"])
def test_over_bytes_reads_each_byte_as_its_letter(source: str) -> None:
    chars = build(Level(parse(source)), keeps_gaps=True)
    made = over_bytes(chars)
    assert (made.unit, len(made.classes)) == ("byte", 256)
    letters = byte_letters()
    mine, theirs = Runner(made), Runner(chars)
    rng = random.Random(5)
    for _ in range(500):
        data = rng.randbytes(rng.randrange(1, 20)) + rng.choice((b"", b"  ", b"a1"))
        points = [ord(letters[byte]) for byte in data]
        assert mine.split(data, 0, len(data)) == theirs.split(points, 0, len(points))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (r"\s*", "can match nothing"),
        ("a|", "can match nothing"),
        ("(?!a)", "can match nothing"),
        ("(?:a?)+", "can be empty"),
        ("(?:a|b?){2}", "can be empty"),
        ("(?:a+?)+", "lazy quantifier"),
        ("(?:ab)++", "possessive"),
        ("a(?=b)(?=c)", "matches no text"),
        (r"[^\s\S]", "matches no text"),
        ("(?i:ss)", "case folding"),
        ("a{1,9999}b{1,9999}", "too long"),
        ("[ab]*a[ab]{12}", "4096 states"),
        ("|".join(chr(0x4E00 + i) for i in range(65)), "64 different"),
    ],
)
def test_refused(source: str, reason: str) -> None:
    with pytest.raises(UnsupportedPatternError, match=reason):
        build(Level(parse(source)), keeps_gaps=True)


def test_too_many_groups_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "MAX_CLASSES", 3)
    with pytest.raises(UnsupportedPatternError, match="3 groups"):
        build(Level(parse("a|b|c")), keeps_gaps=True)


def test_states_that_nothing_tells_apart_are_one() -> None:
    # Dead, the start, behind one character, behind both.
    made: Automaton = build(Level(parse("ab|cb|[de]b")), keeps_gaps=True)
    assert (made.n_states, made.n_classes) == (4, 3)
