"""Split patterns, read as far as route C needs them.

A pattern is parsed into a small tree whose leaves are single-character classes. Nothing is matched here:
the tree only tells which characters a match can hold side by side (`toksplice.sync`). Syntax that the
argument of docs/exactness.md does not cover (look-behind, anchors, back references, long look-ahead, ...)
is refused, and a refused pattern means that the tokenizer is served by the reference alone.

Source of the syntax: Oniguruma's Ruby dialect, which the reference compiles its patterns with.
"""

from __future__ import annotations

import string
from dataclasses import dataclass


class UnsupportedPatternError(Exception):
    """The pattern uses syntax that the boundary analysis does not cover; the message says which."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a class. `source` is the class as a pattern of its own, to be probed."""

    source: str
    literal: str | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """A look-ahead at exactly one character."""

    chars: Chars


@dataclass(frozen=True, slots=True)
class Concat:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item` from `least` times to more than once if `many`. `possessive`: never gives back what it took."""

    item: Node
    least: int
    many: bool
    possessive: bool


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
            return Look(literal("\n"))
        if char in "[." or (char == "\\" and self._escapes_class()):
            if ignore_case:
                raise UnsupportedPatternError("a character class without regard to case")
            return Chars(self._class_source())
        return self._literal(ignore_case=ignore_case)

    def group(self, *, ignore_case: bool) -> Node:
        if self.accept("(?!") or self.accept("(?="):
            body = self.choice(ignore_case=ignore_case)
            self._close()
            if not isinstance(body, Chars):
                raise UnsupportedPatternError("a look-ahead at more than one character")
            return Look(body)
        if self.accept("(?i:"):
            ignore_case = True
        elif not self.accept("(?:"):
            self.accept("(")
            if self.startswith("?"):
                raise UnsupportedPatternError(f"group ({self.source[self.position : self.position + 3]}")
        node = self.choice(ignore_case=ignore_case)
        self._close()
        return node

    def repeat(self, item: Node) -> Node:
        if isinstance(item, Look):
            raise UnsupportedPatternError("a repeated look-ahead")
        least, many, interval, comma = 0, False, False, True
        match self.take():
            case "?":
                pass
            case "*":
                many = True
            case "+":
                least, many = 1, True
            case _:
                least, many, comma = self._interval()
                interval = True
        # In this dialect {n}? is an optional {n}: the mark is then a quantifier of its own.
        if comma and self.accept("?"):
            return Repeat(item, least, many, possessive=False)
        if not interval and self.accept("+"):
            return Repeat(item, least, many, possessive=True)
        return Repeat(item, least, many, possessive=False)

    def _interval(self) -> tuple[int, bool, bool]:
        """Least, whether there may be more than one, and whether there was a comma."""
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
        return least, most is None or most > 1, comma

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
