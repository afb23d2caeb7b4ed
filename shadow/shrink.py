"""Makes a failing case small: delta debugging over its edits, then over the characters of each.

Every try costs an encoding of the text, so tries and time are bounded; what is smallest by then is the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from shadow.reproduce import Case, Fails, Step


@dataclass(slots=True)
class Effort:
    """How many more tries there are, and until when. `now_s` is any monotonic clock, in seconds."""

    tries: int
    seconds: float
    now_s: Callable[[], float] = time.monotonic
    made: int = 0
    """Tries that were made."""

    def __post_init__(self) -> None:
        self._until_s = self.now_s() + self.seconds

    _until_s: float = 0.0

    @property
    def spent(self) -> bool:
        return self.made >= self.tries or self.now_s() >= self._until_s


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest failing case that was found. `minimal`: nothing more can be taken from it on its own."""

    case: Case
    tries: int
    minimal: bool


def shrink(case: Case, fails: Fails, effort: Effort) -> Shrunk:
    """A smaller case that fails as well; `case` must fail."""
    search = _Search(case.settled(), fails, effort)
    while True:
        size = search.size
        search.drop_steps()
        for index in range(len(search.case.steps)):
            search.cut_text(index)
        if search.size == size or effort.spent:
            return Shrunk(search.case.settled(), effort.made, minimal=not effort.spent)


class _Search:
    """The smallest failing case so far."""

    def __init__(self, case: Case, fails: Fails, effort: Effort) -> None:
        self.case = case
        self._fails = fails
        self._effort = effort

    @property
    def size(self) -> tuple[int, int]:
        return len(self.case.steps), sum(len(step.text) for step in self.case.steps)

    def drop_steps(self) -> None:
        """Leave out edits, many at a time first."""
        self._reduce(lambda: len(self.case.steps), self._without_steps, least=1)

    def cut_text(self, index: int) -> None:
        """Leave out characters of one edit, many at a time first."""
        self._reduce(lambda: len(self.case.steps[index].text), lambda at, stop: self._without_text(index, at, stop))

    def _reduce(self, length: Callable[[], int], without: Callable[[int, int], Case], least: int = 0) -> None:
        chunk = max(1, length() // 2)
        while length() > least:
            taken = False
            for at, stop in self._chunks(length, chunk, least):
                taken |= self._try(without(at, stop))
            if self._effort.spent or (chunk == 1 and not taken):
                return
            if not taken or chunk >= length():
                chunk = max(1, min(chunk, length()) // 2)

    def _chunks(self, length: Callable[[], int], chunk: int, least: int) -> Iterator[tuple[int, int]]:
        """Stretches to try without, from the back: what a try takes away moves none that is still to come."""
        at = length()
        while at > 0 and not self._effort.spent:
            start = max(0, at - chunk)
            at = min(at, length())
            if length() - (at - start) >= least:
                yield start, at
            at = start

    def _try(self, case: Case) -> bool:
        self._effort.made += 1
        if not self._fails(case):
            return False
        self.case = case
        return True

    def _without_steps(self, at: int, stop: int) -> Case:
        return replace(self.case, steps=self.case.steps[:at] + self.case.steps[stop:])

    def _without_text(self, index: int, at: int, stop: int) -> Case:
        """Later edits move along with the text that they are in."""
        step = self.case.steps[index]
        start = step.start + len(step.text[:at].encode())
        size = len(step.text[at:stop].encode())
        shorter = replace(step, text=step.text[:at] + step.text[stop:])
        later = tuple(_moved(each, start, size) for each in self.case.steps[index + 1 :])
        return replace(self.case, steps=(*self.case.steps[:index], shorter, *later))


def _moved(step: Step, start: int, size: int) -> Step:
    """An edit of a text that lost `size` bytes from `start` on."""

    def moved(position: int) -> int:
        return position if position <= start else max(start, position - size)

    return replace(step, start=moved(step.start), end=moved(step.end))
