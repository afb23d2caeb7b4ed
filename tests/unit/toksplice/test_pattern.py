"""The pattern parser: what it reads, and what it refuses."""

from __future__ import annotations

import families
import pytest

from toksplice.pattern import Chars, Choice, Concat, Look, Repeat, UnsupportedPatternError, literal, parse
from toksplice.plan import BYTE_LEVEL_PATTERN


@pytest.mark.parametrize(
    ("source", "node"),
    [
        ("a", literal("a")),
        (r"\n", literal("\n")),
        (r"\.", literal(".")),
        (r"\p{L}", Chars(r"\p{L}")),
        (r"[^\r\n\p{L}]", Chars(r"[^\r\n\p{L}]")),
        (r"[\p{L}&&[^\p{Han}]]", Chars(r"[\p{L}&&[^\p{Han}]]")),
        ("[]a]", Chars("[]a]")),
        ("ab", Concat((literal("a"), literal("b")))),
        ("a|b", Choice((literal("a"), literal("b")))),
        ("(?i:a')", Concat((Chars("(?i:a)"), literal("'")))),
        (r"(?!\S)", Look(Chars(r"\S"), negative=True, at_end=True)),
        (r"(?=\S)", Look(Chars(r"\S"), negative=False, at_end=False)),
        ("$", Look(literal("\n"), negative=False, at_end=True)),
        ("a?", Repeat(literal("a"), 0, 1)),
        ("a*", Repeat(literal("a"), 0, None)),
        ("a+?", Repeat(literal("a"), 1, None, lazy=True)),
        ("a++", Repeat(literal("a"), 1, None, possessive=True)),
        ("a{1,3}", Repeat(literal("a"), 1, 3)),
        ("a{1,3}?", Repeat(literal("a"), 1, 3, lazy=True)),
        ("a{2}", Repeat(literal("a"), 2, 2)),
        ("a{2,}", Repeat(literal("a"), 2, None)),
        ("a{,1}", Repeat(literal("a"), 0, 1)),
        # In this dialect a plus after an interval repeats it; it does not make it possessive.
        ("a{1,3}+", Repeat(Repeat(literal("a"), 1, 3), 1, None)),
        # And an exact count is not made lazy by a question mark, it becomes optional.
        ("a{2}?", Repeat(Repeat(literal("a"), 2, 2), 0, 1)),
    ],
)
def test_reads(source: str, node: object) -> None:
    assert parse(source) == node


@pytest.mark.parametrize(
    "source",
    [
        r"(?<=a)b",
        r"(?<!a)b",
        r"(?>a)",
        r"(?=ab)c",
        r"(?!a+)b",
        r"(?i)a",
        r"(?i:[a-z])",
        r"(?i:ß)",
        r"^a",
        r"a\b",
        r"\Aa",
        r"(a)\1",
        r"\R",
        r"\X",
        r"\x41",
        r"\pL",
        r"a{x}",
        r"a{3,2}",
        r"(a",
        r"a)",
        r"[a",
        "a\\",
        r"(?!a)*",
    ],
)
def test_refuses(source: str) -> None:
    with pytest.raises(UnsupportedPatternError):
        parse(source)


@pytest.mark.parametrize(
    "source", [BYTE_LEVEL_PATTERN, families.CL100K, families.QWEN, families.O200K, *families.DEEPSEEK]
)
def test_reads_the_patterns_in_use(source: str) -> None:
    assert parse(source)
