"""Split levels as one machine that reads a text twice: from its end to its start, and then the other way.

A piece ends where the last match of an attempt does, and how far a match goes can depend on text that is any distance
away. Read backwards, the text tells for each character which states of the automaton would still come to a match. That
label decides every choice of the forward reading, so both readings are finite automata, and both are scans of an
associative operation: what thousands of threads need to share a text.

The levels are those of `toksplice.program`, whose states are ordered branches of a backtracking matcher; so priorities,
greedy and lazy quantifiers and look-ahead are settled there. A lower level works inside the pieces of the upper ones:
for it, the text ends where theirs do. Backwards that is not known yet, so its labels hold an answer for each state that
the upper levels may be in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_worker.encoder import UnsupportedError
from toksplice.automaton import ACCEPT, START, Automaton
from toksplice.charclass import CODE_POINTS

#: A machine with more labels or states than this while it is made is refused.
MAX_RAW_LABELS = 20_000
MAX_RAW_STATES = 1_000

#: Groups of characters that all levels together tell apart.
MAX_CLASSES = 0xFF

#: The label of what stands behind the text's last character, and of a break inside a batch of texts.
END = 0
#: The state before a text's first character.
START_STATE = 0

Step = tuple[bool, int]
"""What a state does with a label: whether a piece begins before the character, and the next state."""


class _Label(NamedTuple):
    """A character seen backwards: the label that the upper levels give it, its joint class, and for each of their
    states behind the character the states of this level that come to a match there (None where they cannot be in that
    state)."""

    upper: int
    column: int
    behind: tuple[frozenset[int] | None, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """A pre-tokenizer.

    `classes`: u8 of shape (CODE_POINTS,). `back`: the label of a character by the label behind it and its class, i32 of
    shape (labels, classes). `starts`: whether a piece begins before a character, by state and its label, i8, and
    `following` the next state, i32, both of shape (states, labels); -1 where that state never meets that label.
    """

    classes: npt.NDArray[np.uint8]
    back: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int8]
    following: npt.NDArray[np.int32]


def build(levels: Sequence[Automaton]) -> Machine:
    """The machine of split levels; raises `UnsupportedError`."""
    if not levels or any(level.unit != "char" for level in levels):
        raise UnsupportedError("the pre-tokenizer splits inside characters")
    classes, columns = _joint_classes(levels)
    machine = _trivial(len(columns))
    for depth, level in enumerate(levels):
        machine = _Composition(machine, level, [column[depth] for column in columns]).result()
    return Machine(classes, machine.back, machine.starts, machine.following)


def _joint_classes(levels: Sequence[Automaton]) -> tuple[npt.NDArray[np.uint8], list[tuple[int, ...]]]:
    """Group code points by their class in every level: the group of each, and each group's classes."""
    codes = np.zeros(CODE_POINTS, dtype=np.int64)
    for level in levels:
        _, codes = np.unique(
            codes * level.n_classes + np.frombuffer(level.classes, dtype=np.uint8), return_inverse=True
        )
    # No text holds a surrogate, so they get no group of their own.
    codes[0xD800:0xE000] = codes[ord("a")]
    _, firsts, groups = np.unique(codes, return_index=True, return_inverse=True)
    if len(firsts) > MAX_CLASSES:
        raise UnsupportedError("the pre-tokenizer tells too many groups of characters apart")
    return groups.astype(np.uint8), [tuple(level.classes[first] for level in levels) for first in firsts.tolist()]


def _trivial(n_classes: int) -> Machine:
    """The machine of no level: its labels are the classes, and it has one state."""
    labels = n_classes + 1
    back = np.tile(np.arange(1, labels, dtype=np.int32), (labels, 1))
    return Machine(np.zeros(0, np.uint8), back, np.zeros((1, labels), np.int8), np.zeros((1, labels), np.int32))


#: States of one level beside those of its automaton: between two pieces, and in text that no match covers.
_BETWEEN = -1
_GAP = -2


class _Composition:
    """A level inside the pieces of upper ones. `columns`: the level's class by joint class."""

    def __init__(self, upper: Machine, level: Automaton, columns: Sequence[int]) -> None:
        self._upper = upper
        self._keeps_gaps = level.keeps_gaps
        table = level.table()
        self._next: list[list[int]] = (table & ~np.uint16(ACCEPT)).tolist()
        self._accepts: list[list[bool]] = ((table & ACCEPT) != 0).tolist()
        self._columns = columns
        self._at_end = frozenset(state for state in range(level.n_states) if self._accepts[state][-1])

    def result(self) -> Machine:
        labels, back = self._labels()
        states, steps = self._states(labels)
        starts = np.full((len(states), len(labels)), -1, dtype=np.int8)
        following = np.full((len(states), len(labels)), -1, dtype=np.int32)
        for (state, label), (begins, then) in steps.items():
            starts[state, label], following[state, label] = begins, then
        return Machine(np.zeros(0, np.uint8), back, starts, following)

    # Backwards

    def _labels(self) -> tuple[list[_Label], npt.NDArray[np.int32]]:
        """Every label, the first being `END`, and the label of a character by the one behind it and its class."""
        n_classes = len(self._columns)
        labels: list[_Label] = [_Label(END, -1, ())]
        number: dict[_Label, int] = {labels[0]: END}
        rows: list[list[int]] = []
        for label in labels:
            behind = self._seen_from_the_left(label)
            row: list[int] = []
            for column in range(n_classes):
                new = _Label(int(self._upper.back[label.upper, column]), column, behind)
                if new not in number:
                    if len(labels) >= MAX_RAW_LABELS:
                        raise UnsupportedError("the pre-tokenizer needs too many labels")
                    number[new] = len(labels)
                    labels.append(new)
                row.append(number[new])
            rows.append(row)
        return labels, np.array(rows, dtype=np.int32)

    def _seen_from_the_left(self, label: _Label) -> tuple[frozenset[int] | None, ...]:
        """By state of the upper levels before the character: the states of this level that come to a match there, if
        the text to the left is in the same piece of theirs; else those that do at an end."""
        if label.column < 0:
            return (self._at_end,) * len(self._upper.starts)
        found: list[frozenset[int] | None] = []
        for state in range(len(self._upper.starts)):
            begins, then = self._upper.starts[state, label.upper], int(self._upper.following[state, label.upper])
            if begins < 0:
                found.append(None)
            elif begins:
                found.append(self._at_end)
            else:
                found.append(self._matching(label, then))
        return tuple(found)

    def _matching(self, label: _Label, then: int) -> frozenset[int] | None:
        """The states of this level that come to a match at the character or behind it, if the upper levels are in state
        `then` behind it."""
        behind = label.behind[then]
        if behind is None:
            return None
        column = self._columns[label.column]
        return frozenset(
            state
            for state, (follow, accepts) in enumerate(zip(self._next, self._accepts, strict=True))
            if accepts[column] or follow[column] in behind
        )

    # Forwards

    def _states(self, labels: Sequence[_Label]) -> tuple[list[tuple[int, int]], dict[tuple[int, int], Step]]:
        """Every pair of a state of the upper levels and one of this level, the first being `START_STATE`, and what each
        does with each label."""
        states = [(START_STATE, _BETWEEN)]
        number = {states[0]: START_STATE}
        steps: dict[tuple[int, int], Step] = {}

        def numbered(state: tuple[int, int]) -> int:
            if state not in number:
                if len(states) >= MAX_RAW_STATES:
                    raise UnsupportedError("the pre-tokenizer needs too many states")
                number[state] = len(states)
                states.append(state)
            return number[state]

        for at, (upper, own) in enumerate(states):
            steps[at, END] = True, START_STATE
            for label, (begins, state) in self._steps(upper, own, labels):
                steps[at, label] = begins, numbered(state)
        return states, steps

    def _steps(
        self, upper: int, own: int, labels: Sequence[_Label]
    ) -> Iterator[tuple[int, tuple[bool, tuple[int, int]]]]:
        for number, label in enumerate(labels[1:], 1):
            upper_begins = int(self._upper.starts[upper, label.upper])
            then = int(self._upper.following[upper, label.upper])
            if upper_begins < 0 or (behind := label.behind[then]) is None:
                continue
            step = self._step(_BETWEEN if upper_begins else own, self._columns[label.column], behind)
            if step is not None:
                yield number, (step[0], (then, step[1]))

    def _step(self, own: int, column: int, behind: frozenset[int]) -> tuple[bool, int] | None:
        """Whether a piece of this level begins before a character, and the next state; None if there cannot be such a
        character in that state. `behind`: the states that come to a match behind it."""
        inside = own >= 0
        if inside and self._next[own][column] in behind:
            return False, self._next[own][column]
        if inside and not self._accepts[own][column]:
            return None
        first = self._next[START][column]
        if first in behind:
            return True, first
        if not self._keeps_gaps:
            raise UnsupportedError("the pre-tokenizer removes text")
        return own != _GAP, _GAP
