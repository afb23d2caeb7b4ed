"""Split patterns, read as trees.

A pattern is parsed into a small tree whose leaves are single-character classes. Nothing is matched here:
`toksplice.automaton` makes a matcher of the tree, and `toksplice.sync` reads off it which characters a match can
hold side by side. Syntax that the arguments of docs/exactness.md do not cover (look-behind, anchors, back
references, long look-ahead, ...) is refused, and a refused pattern means that the tokenizer is served by the
reference alone.

Source of the syntax: Oniguruma's Ruby dialect, which the reference compiles its patterns with.
"""

from __future__ import annotations

import string
from dataclasses import dataclass


class UnsupportedPatternError(Exception):
    """The pattern uses syntax that is not covered; the message says which."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a class. `source` is the class as a pattern of its own, to be probed."""

    source: str
    literal: str | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """A look-ahead at exactly one character: it must be one of `chars`, or must not if `negative`. `at_end`: whether
    the end of the text passes too."""

    chars: Chars
    negative: bool
    at_end: bool


@dataclass(frozen=True, slots=True)
class Concat:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item` from `least` to `most` times (None: without bound). `lazy`: as few times as will do. `possessive`:
    never gives back what it took."""

    item: Node
    least: int
    most: int | None
    lazy: bool = False
    possessive: bool = False

    @property
    def many(self) -> bool:
        """Whether two can follow each other."""
        return self.most is None or self.most > 1


Node = Chars | Look | Concat | Choice | Repeat

_CLASS_ESCAPES = "sSdDwW"
_CHAR_ESCAPES = {"r": "\r", "n": "\n", "t": "\t", "f": "\f", "v": "\v"}
_QUANTIFIERS = "?*+{"


def parse(source: str) -> Node:
    """Parse a split pattern; raises `UnsupportedPatternError`."""
    parser = _Parser(source)
    node = parser.choice(ignore_case=False)
    if not parser.at_end():
        raise UnsupportedPatternError(f"unbalanced parenthesis at {parser.position}")
    return node


def literal(char: str) -> Chars:
    """A leaf that holds one given character."""
    # Marked, since "." is a class when it is not escaped.
    return Chars(source=f"={char}", literal=char)


def leaves(node: Node) -> list[Chars]:
    """All leaves of a tree, those of look-aheads included, in the order of the pattern."""
    match node:
        case Chars():
            return [node]
        case Look(chars=chars):
            return [chars]
        case Repeat(item=item):
            return leaves(item)
        case Choice(options=children) | Concat(items=children):
            return [leaf for child in children for leaf in leaves(child)]


def case_blind_pairs(node: Node) -> tuple[str, ...]:
    """Each two letters, to be matched without regard to case, that can stand side by side in a match.

    However they are grouped: the engine joins literals across groups.
    """
    pairs: set[str] = set()
    _case_blind_edges(node, pairs)
    return tuple(sorted(pairs))


_Letters = frozenset[str]


def _case_blind_edges(node: Node, pairs: set[str]) -> tuple[_Letters, _Letters, bool]:
    """Case-blind letters that a match of `node` can begin and end with, and whether it can be empty; adds to
    `pairs` each two that can stand side by side."""
    match node:
        case Chars(source=source):
            letters = frozenset({source[4]} if source.startswith("(?i:") else ())
            return letters, letters, False
        case Look():
            return frozenset(), frozenset(), True
        case Repeat(item=item, least=least, many=many):
            first, last, empty = _case_blind_edges(item, pairs)
            if many:
                pairs.update(a + b for a in last for b in first)
            return first, last, empty or least == 0
        case Choice(options=options):
            first, last, empty = _Letters(), _Letters(), False
            for option in options:
                starting, ending, skipped = _case_blind_edges(option, pairs)
                first, last, empty = first | starting, last | ending, empty or skipped
            return first, last, empty
        case Concat(items=items):
            first, last, empty = _Letters(), _Letters(), True
            for item in items:
                following, ending, skipped = _case_blind_edges(item, pairs)
                pairs.update(a + b for a in last for b in following)
                first = first | following if empty else first
                last = ending | (last if skipped else _Letters())
                empty = empty and skipped
            return first, last, empty


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.position = 0

    def at_end(self) -> bool:
        return self.position >= len(self.source)

    def startswith(self, prefix: str) -> bool:
        return self.source.startswith(prefix, self.position)

    def take(self) -> str:
        if self.at_end():
            raise UnsupportedPatternError("the pattern ends too early")
        self.position += 1
        return self.source[self.position - 1]

    def accept(self, prefix: str) -> bool:
        if not self.startswith(prefix):
            return False
        self.position += len(prefix)
        return True

    def choice(self, *, ignore_case: bool) -> Node:
        options = [self.concat(ignore_case=ignore_case)]
        while self.accept("|"):
            options.append(self.concat(ignore_case=ignore_case))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def concat(self, *, ignore_case: bool) -> Node:
        items: list[Node] = []
        while not self.at_end() and self.source[self.position] not in "|)":
            item = self.atom(ignore_case=ignore_case)
            while not self.at_end() and self.source[self.position] in _QUANTIFIERS:
                item = self.repeat(item)
            items.append(item)
        return items[0] if len(items) == 1 else Concat(tuple(items))

    def atom(self, *, ignore_case: bool) -> Node:
        if self.startswith("("):
            return self.group(ignore_case=ignore_case)
        char = self.source[self.position]
        if char == "$":
            # The end of a line: it looks at one character and takes none.
            self.take()
            return Look(literal("\n"), negative=False, at_end=True)
        if char in "[." or (char == "\\" and self._escapes_class()):
            if ignore_case:
                raise UnsupportedPatternError("a character class without regard to case")
            return Chars(self._class_source())
        return self._literal(ignore_case=ignore_case)

    def group(self, *, ignore_case: bool) -> Node:
        for opening, negative in (("(?!", True), ("(?=", False)):
            if self.accept(opening):
                return self._look(negative=negative, ignore_case=ignore_case)
        if self.accept("(?i:"):
            ignore_case = True
        elif not self.accept("(?:"):
            self.accept("(")
            if self.startswith("?"):
                raise UnsupportedPatternError(f"group ({self.source[self.position : self.position + 3]}")
        node = self.choice(ignore_case=ignore_case)
        self._close()
        return node

    def _look(self, *, negative: bool, ignore_case: bool) -> Node:
        body = self.choice(ignore_case=ignore_case)
        self._close()
        if not isinstance(body, Chars):
            raise UnsupportedPatternError("a look-ahead at more than one character")
        return Look(body, negative=negative, at_end=negative)

    def repeat(self, item: Node) -> Node:
        if isinstance(item, Look):
            raise UnsupportedPatternError("a repeated look-ahead")
        least, most, interval, comma = 0, None, False, True
        match self.take():
            case "?":
                most = 1
            case "*":
                pass
            case "+":
                least = 1
            case _:
                least, most, comma = self._interval()
                interval = True
        # In this dialect {n}? is an optional {n}, and {n,m}+ repeats it: the mark is then a quantifier of its own.
        if comma and self.accept("?"):
            return Repeat(item, least, most, lazy=True)
        if not interval and self.accept("+"):
            return Repeat(item, least, most, possessive=True)
        return Repeat(item, least, most)

    def _interval(self) -> tuple[int, int | None, bool]:
        """Least, most, and whether there was a comma."""
        end = self.source.find("}", self.position)
        low, _, high = self.source[self.position : end].partition(",")
        valid = end > 0 and all(c in string.digits for c in low + high) and (low or high)
        if not valid:
            raise UnsupportedPatternError("a brace that is no interval")
        comma = "," in self.source[self.position : end]
        self.position = end + 1
        least = int(low or 0)
        most = int(high) if high else (None if comma else least)
        if most is not None and (most < least or most < 1):
            raise UnsupportedPatternError("an interval that is empty or runs backwards")
        return least, most, comma

    def _close(self) -> None:
        if not self.accept(")"):
            raise UnsupportedPatternError("a parenthesis is not closed")

    def _escapes_class(self) -> bool:
        following = self.source[self.position + 1 : self.position + 2]
        return following != "" and following in _CLASS_ESCAPES + "pP"

    def _class_source(self) -> str:
        start = self.position
        if self.accept("["):
            self._skip_bracket()
        elif self.accept("\\p{") or self.accept("\\P{"):
            while self.take() != "}":
                pass
        elif self.accept("\\"):
            if self.take() in "pP":
                raise UnsupportedPatternError("a property without braces")
        else:
            self.take()
        return self.source[start : self.position]

    def _skip_bracket(self) -> None:
        self.accept("^")
        self.accept("]")
        while (char := self.take()) != "]":
            if char == "\\":
                if self.take() in "cCM":
                    raise UnsupportedPatternError("a control or meta character")
            elif char == "[":
                self._skip_bracket()

    def _literal(self, *, ignore_case: bool) -> Node:
        char = self.take()
        if char == "\\":
            escaped = self.take()
            if escaped in string.ascii_letters + string.digits and escaped not in _CHAR_ESCAPES:
                raise UnsupportedPatternError(f"escape \\{escaped}")
            char = _CHAR_ESCAPES.get(escaped, escaped)
        elif char in "^*+?{":
            raise UnsupportedPatternError(f"{char} outside a class")
        if not ignore_case or not char.isalpha():
            if ignore_case and not char.isascii():
                raise UnsupportedPatternError("a literal beyond ASCII without regard to case")
            return literal(char)
        if not char.isascii():
            raise UnsupportedPatternError("a literal beyond ASCII without regard to case")
        return Chars(f"(?i:{char})")
