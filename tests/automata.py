"""Runs split automata as the native engine does, for tests: plainly, one unit at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toksplice.automaton import ACCEPT, DEAD, START, Automaton

Span = tuple[int, int]


@dataclass(frozen=True)
class Attempt:
    """Where the match ends, if there is one; the position after the last unit read; whether the end was read."""

    end: int | None
    reach: int
    saw_end: bool


class Runner:
    """One automaton over units: code points, or bytes."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self._rows: list[list[int]] = automaton.table().tolist()

    def attempt(self, units: Sequence[int], start: int, limit: int) -> Attempt:
        """The match that begins at `start` of the stretch that ends at `limit`."""
        end, state = None, START
        for at in range(start, limit):
            entry = self._rows[state][self.automaton.classes[units[at]]]
            end = at if entry & ACCEPT else end
            state = entry & ~ACCEPT
            if state == DEAD:
                return Attempt(end, at + 1, saw_end=False)
        if self._rows[state][-1] & ACCEPT:
            end = limit
        return Attempt(end, limit, saw_end=True)

    def split(self, units: Sequence[int], start: int, limit: int) -> list[Span]:
        """The pieces of one stretch."""
        pieces: list[Span] = []
        gap = at = start
        while at < limit:
            end = self.attempt(units, at, limit).end
            if end is None:
                at += 1
                continue
            pieces += [(gap, at)] if gap < at and self.automaton.keeps_gaps else []
            pieces.append((at, end))
            gap = at = end
        return pieces + ([(gap, limit)] if gap < limit and self.automaton.keeps_gaps else [])


def split_levels(runners: Sequence[Runner], text: str) -> list[bytes]:
    """The pieces of `text` as UTF-8, each level inside the pieces of the one before."""
    points, data = [ord(char) for char in text], text.encode()
    pieces: list[Span] = [(0, len(text))] if text else []
    over_bytes = False
    for runner in runners:
        if runner.automaton.unit == "byte" and not over_bytes:
            pieces, over_bytes = [_byte_span(text, piece) for piece in pieces], True
        units: Sequence[int] = data if over_bytes else points
        pieces = [part for start, limit in pieces for part in runner.split(units, start, limit)]
    return [data[a:b] if over_bytes else text[a:b].encode() for a, b in pieces]


def _byte_span(text: str, span: Span) -> Span:
    return len(text[: span[0]].encode()), len(text[: span[1]].encode())
