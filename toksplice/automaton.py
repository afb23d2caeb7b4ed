"""Split patterns as deterministic automata.

The reference matches its patterns by backtracking: alternatives in order, quantifiers greedy or lazy. A state here is
what such a matcher still has to try after the characters read so far: the open branches in the order in which it
would come to them, so that the first to match wins, and branches behind a match are dropped. That is the same match
at each place, found in one pass and without going back. A look-ahead and the end of a match are settled by the next
character, so acceptance is one character late.

Characters are grouped into classes by the leaves of the pattern, over all of Unicode, as the installed reference
answers for them (`toksplice.charclass`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from toksplice.charclass import CODE_POINTS, Runs, class_runs, isolated_runs, literal_fold_is_plain
from toksplice.pattern import (
    Chars,
    Choice,
    Concat,
    Look,
    Node,
    Repeat,
    UnsupportedPatternError,
    case_blind_pairs,
    leaves,
)
from toksplice.ranks import byte_letters
from toksplice.sync import Level

#: A pattern beyond one of these is refused.
MAX_STATES = 4096
MAX_CLASSES = 254
MAX_LEAVES = 64
MAX_INSTRUCTIONS = 10_000

#: Set in a transition: the best match so far ends right before the unit that was read.
ACCEPT = 0x8000
DEAD = 0
START = 1

_MATCH = 0

Table = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Automaton:
    """One split level.

    `classes`: the class of each code point (unit "char") or byte (unit "byte"), one byte each. `transitions`: u16
    little-endian of shape (states, n_classes + 1), the last column being the end of the text; state 0 is dead, state 1
    the start, and `ACCEPT` is set where a match ends right before the unit read. `keeps_gaps`: whether text that no
    match covers becomes pieces too.
    """

    classes: bytes
    n_classes: int
    transitions: bytes
    unit: Literal["char", "byte"]
    keeps_gaps: bool

    @property
    def n_states(self) -> int:
        return len(self.transitions) // 2 // (self.n_classes + 1)

    def table(self) -> Table:
        """The transitions, u16 of shape (states, n_classes + 1)."""
        return np.frombuffer(self.transitions, dtype="<u2").reshape(-1, self.n_classes + 1)


def build(level: Level, *, keeps_gaps: bool) -> Automaton:
    """The automaton of a split level, over characters; raises `UnsupportedPatternError`."""
    if not literal_fold_is_plain(case_blind_pairs(level.node)):
        raise UnsupportedPatternError("a literal whose case folding changes its length")
    found = _leaf_runs(level)
    classes, masks = _group(list(found.values()))
    n_classes = int(classes.max()) + 1
    program = _Compiler(dict(zip(found, masks, strict=True))).compile(level.node)
    table = _smallest(_determinize(program, n_classes))
    table, kept = _merge_columns(table)
    return Automaton(
        kept[classes].astype(np.uint8).tobytes(), table.shape[1] - 1, table.astype("<u2").tobytes(), "char", keeps_gaps
    )


def over_bytes(automaton: Automaton) -> Automaton:
    """The automaton for a level behind ByteLevel, where each byte of the text stands as a letter of its own."""
    letters = byte_letters()
    classes = np.array([automaton.classes[ord(letters[byte])] for byte in range(256)])
    present, dense = np.unique(classes, return_inverse=True)
    table, kept = _merge_columns(_smallest(automaton.table()[:, [*present, automaton.n_classes]]))
    return Automaton(
        kept[dense].astype(np.uint8).tobytes(),
        table.shape[1] - 1,
        table.astype("<u2").tobytes(),
        "byte",
        automaton.keeps_gaps,
    )


def _leaf_runs(level: Level) -> dict[str, Runs]:
    """The characters of each leaf, keyed by its source."""
    found: dict[str, Runs] = {}
    for chars in leaves(level.node):
        if level.probed_from is not None:
            found[chars.source] = isolated_runs(level.probed_from)
        elif chars.literal is None:
            found[chars.source] = class_runs(chars.source)
        else:
            point = ord(chars.literal)
            found[chars.source] = np.array([point, point + 1], dtype=np.uint32)
    return found


def _group(leaf_runs: Sequence[Runs]) -> tuple[npt.NDArray[np.uint8], list[int]]:
    """Group code points by the leaves that hold them: the class of each, u8 of shape (CODE_POINTS,), and for each leaf
    the classes that it holds, as a bit mask."""
    if len(leaf_runs) > MAX_LEAVES:
        raise UnsupportedPatternError(f"more than {MAX_LEAVES} different characters and classes in one pattern")
    edges = np.unique(np.concatenate([np.array([0, CODE_POINTS], dtype=np.uint32), *leaf_runs]))
    starts = edges[:-1]
    codes = np.zeros(len(starts), dtype=np.uint64)
    for i, runs in enumerate(leaf_runs):
        inside = np.searchsorted(runs, starts, side="right") & 1
        codes |= inside.astype(np.uint64) << np.uint64(i)
    signatures, inverse = np.unique(codes, return_inverse=True)
    if len(signatures) > MAX_CLASSES:
        raise UnsupportedPatternError(f"more than {MAX_CLASSES} groups of characters")
    classes = np.repeat(inverse.astype(np.uint8), np.diff(edges))
    masks = [sum(1 << g for g, s in enumerate(signatures) if int(s) >> i & 1) for i in range(len(leaf_runs))]
    return classes, masks


@dataclass(frozen=True, slots=True)
class _Take:
    """Read one character of a class."""

    mask: int
    then: int


@dataclass(frozen=True, slots=True)
class _Try:
    """Go on at each of these, in this order."""

    options: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Peek:
    """Go on if the next character is of a class, or the end is here and passes."""

    mask: int
    negative: bool
    at_end: bool
    then: int

    def passes(self, column: int, *, is_end: bool) -> bool:
        return self.at_end if is_end else bool(self.mask >> column & 1) is not self.negative


_Instruction = _Take | _Try | _Peek | None


@dataclass(frozen=True, slots=True)
class _Program:
    """Instructions of a backtracking matcher; number `_MATCH` is the end of a match."""

    instructions: Sequence[_Instruction]
    start: int


class _Compiler:
    """Compiles a tree back to front: each node is told where to go on."""

    def __init__(self, masks: Mapping[str, int]) -> None:
        self._masks = masks
        self._instructions: list[_Instruction] = [None]

    def compile(self, node: Node) -> _Program:
        return _Program(self._instructions, self._node(node, _MATCH))

    def _add(self, instruction: _Instruction) -> int:
        if len(self._instructions) >= MAX_INSTRUCTIONS:
            raise UnsupportedPatternError("a pattern that is too long")
        self._instructions.append(instruction)
        return len(self._instructions) - 1

    def _node(self, node: Node, then: int) -> int:
        match node:
            case Chars(source=source):
                return self._add(_Take(self._masks[source], then))
            case Look(chars=chars, negative=negative, at_end=at_end):
                return self._add(_Peek(self._masks[chars.source], negative, at_end, then))
            case Choice(options=options):
                return self._add(_Try(tuple(self._node(option, then) for option in options)))
            case Concat(items=items):
                for item in reversed(items):
                    then = self._node(item, then)
                return then
            case Repeat():
                return self._repeat(node, then)

    def _repeat(self, node: Repeat, then: int) -> int:
        _refuse_repeat(node)
        if node.possessive:
            return self._possessive(node, then)
        if node.most is None:
            loop = self._add(None)
            body = self._node(node.item, loop)
            self._instructions[loop] = self._either(node, body, then)
            entry, least = (body, node.least - 1) if node.least else (loop, 0)
        else:
            entry, least = then, node.least
            for _ in range(node.most - node.least):
                entry = self._add(self._either(node, self._node(node.item, entry), then))
        for _ in range(least):
            entry = self._node(node.item, entry)
        return entry

    def _possessive(self, node: Repeat, then: int) -> int:
        """Never giving back a character is to go on only where no further one stands."""
        mask = self._masks[leaves(node.item)[0].source]
        none_left = self._add(_Peek(mask, negative=True, at_end=True, then=then))
        if node.most is not None:
            return self._add(_Try((self._add(_Take(mask, then)), none_left)))
        loop = self._add(None)
        take = self._add(_Take(mask, loop))
        self._instructions[loop] = _Try((take, none_left))
        return take if node.least else loop

    @staticmethod
    def _either(node: Repeat, again: int, then: int) -> _Try:
        return _Try((then, again) if node.lazy else (again, then))


def _refuse_repeat(node: Repeat) -> None:
    if _nullable(node.item):
        raise UnsupportedPatternError("a repetition of what can be empty")
    if isinstance(node.item, Repeat) and (node.lazy or node.item.lazy):
        # The reference's engine rewrites some of these pairs into one quantifier that means something else.
        raise UnsupportedPatternError("a lazy quantifier beside another quantifier")
    if node.possessive and not isinstance(node.item, Chars):
        raise UnsupportedPatternError("a possessive quantifier of more than one character")


def _nullable(node: Node) -> bool:
    match node:
        case Chars():
            return False
        case Look():
            return True
        case Repeat(item=item, least=least):
            return least == 0 or _nullable(item)
        case Choice(options=options):
            return any(_nullable(option) for option in options)
        case Concat(items=items):
            return all(_nullable(item) for item in items)


@dataclass(frozen=True, slots=True)
class _Step:
    """What becomes of one branch when a unit is read: the branches it leaves, in order, and whether it matched (which
    drops all behind it)."""

    branches: tuple[int, ...]
    matched: bool


def _determinize(program: _Program, n_classes: int) -> Table:
    """Subset construction over ordered branches: u16 of shape (states, n_classes + 1)."""
    steps: dict[tuple[int, int], _Step] = {}
    start = (program.start,)
    states: dict[tuple[int, ...], int] = {(): DEAD, start: START}
    rows: list[list[int]] = []
    queue: list[tuple[int, ...]] = [(), start]
    for branches in queue:
        row: list[int] = []
        for column in range(n_classes + 1):
            left, accepts = _advance(program, branches, column, n_classes, steps)
            if left not in states:
                if len(states) >= MAX_STATES:
                    raise UnsupportedPatternError(f"an automaton of more than {MAX_STATES} states")
                states[left] = len(states)
                queue.append(left)
            row.append(states[left] | (ACCEPT if accepts else 0))
        rows.append(row)
    table = np.array(rows, dtype=np.uint16)
    if (table[START] & ACCEPT).any():
        raise UnsupportedPatternError("the pattern can match nothing")
    return table


def _advance(
    program: _Program, branches: tuple[int, ...], column: int, end: int, steps: dict[tuple[int, int], _Step]
) -> tuple[tuple[int, ...], bool]:
    """The branches left of `branches` after a unit of class `column`, and whether a match ends before it."""
    left: dict[int, None] = {}
    for branch in branches:
        step = steps.get((branch, column))
        if step is None:
            step = steps[branch, column] = _follow(program, branch, column, is_end=column == end)
        left.update(dict.fromkeys(step.branches))
        if step.matched:
            return tuple(left), True
    return tuple(left), False


def _follow(program: _Program, branch: int, column: int, *, is_end: bool) -> _Step:
    """Follow one branch up to where it reads the unit. Where it comes to an instruction twice, the first time decides:
    a backtracking matcher would fail there again."""
    left: dict[int, None] = {}
    seen: set[int] = set()
    pending = [branch]
    while pending:
        at = pending.pop()
        if at in seen:
            continue
        seen.add(at)
        match program.instructions[at]:
            case None:
                return _Step(tuple(left), matched=True)
            case _Take(mask, then) if not is_end and mask >> column & 1:
                left[then] = None
            case _Try(options):
                pending.extend(reversed(options))
            case _Peek() as peek if peek.passes(column, is_end=is_end):
                pending.append(peek.then)
            case _:
                pass
    return _Step(tuple(left), matched=False)


def _smallest(table: Table) -> Table:
    """The smallest automaton that accepts alike: states that no continuation tells apart are one (Moore). What can no
    longer match is dead, so an attempt reads no further than it must."""
    accepts = table & ACCEPT
    following = table & ~np.uint16(ACCEPT)
    groups, count = np.zeros(len(table), dtype=np.int64), 1
    while True:
        signature = np.column_stack([groups, accepts, groups[following]])
        _, groups = np.unique(signature, axis=0, return_inverse=True)
        groups = groups.reshape(-1)
        if int(groups.max()) + 1 == count:
            break
        count = int(groups.max()) + 1
    if groups[START] == groups[DEAD]:
        raise UnsupportedPatternError("the pattern matches no text")
    order = {int(groups[DEAD]): DEAD, int(groups[START]): START}
    for group in groups:
        order.setdefault(int(group), len(order))
    number = np.array([order[group] for group in range(count)], dtype=np.uint16)
    smallest = np.zeros((count, table.shape[1]), dtype=np.uint16)
    smallest[number[groups]] = number[groups[following]] | accepts
    return smallest


def _merge_columns(table: Table) -> tuple[Table, npt.NDArray[np.intp]]:
    """Make one class of those whose columns are alike: the table, and the new class of each old one."""
    columns, kept = np.unique(table[:, :-1], axis=1, return_inverse=True)
    return np.column_stack([columns, table[:, -1]]), kept.reshape(-1)
