"""Synchronising boundaries: places where a cut between pieces is certain, whatever stands further left.

For a pre-tokenizer of one or more levels this module proves, from the patterns themselves, which pairs of
adjacent characters (x, y) always have a piece boundary between them, such that

* the pieces left of it depend on no character right of y, and
* the pieces right of it depend on no character left of y.

The proof is a reading of the pattern tree (docs/exactness.md, "Synchronising pairs"): at each level, no
attempt of the scanner can hold x directly followed by y ("crossing"), and x or y is matched by itself
wherever an attempt starts there ("certain"). Characters are grouped by the classes of the pattern, as the
reference itself answers them; what was not probed is in no pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from toksplice.charclass import PROBED, Bits, class_bits, isolated_bits, literal_fold_is_plain
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

#: More groups of characters than any known pattern makes; a pattern beyond it is refused.
MAX_GROUPS = 200
#: Likewise for character classes; a group's memberships are one 64-bit word.
MAX_CLASSES = 64


@dataclass(frozen=True, slots=True)
class Level:
    """One splitting step: a match becomes a piece, and so does each stretch between matches."""

    node: Node
    #: JSON of a Digits or Punctuation pre-tokenizer whose probed characters stand for the leaf "isolated".
    probed_from: str | None = None


@dataclass(frozen=True, slots=True)
class SyncTable:
    """`groups`: group number of each probed code point, u8 of shape (PROBED + 1,), the last one for all others;
    `pairs`: bool of shape (groups, groups), True where a boundary between the two is certain."""

    groups: npt.NDArray[np.uint8]
    pairs: npt.NDArray[np.bool_]

    def candidates(self, points: npt.NDArray[np.uint32]) -> npt.NDArray[np.intp]:
        """Positions c (ascending) such that points[c - 1] | points[c] is a synchronising pair."""
        groups = self.groups[np.minimum(points, PROBED)]
        return np.flatnonzero(self.pairs[groups[:-1], groups[1:]]) + 1


@dataclass(slots=True)
class _Leaf:
    """Classes of a tree as bit masks over groups, and what the walk over the tree collects."""

    masks: dict[str, int]
    follow: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Shape:
    """Masks over groups. `first`, `last`: characters that a match of the node can start and end with;
    `alone`: those that the node matches by themselves whatever follows; `greedy`: all those it may take
    without giving them back; `used`: all it can hold."""

    first: int
    last: int
    alone: int
    greedy: int
    used: int
    nullable: bool
    surely_nullable: bool


def build(levels: Sequence[Level], never_left: Bits) -> SyncTable:
    """Analyse `levels`; `never_left` are characters that must not stand left of a boundary.

    Raises `UnsupportedPatternError` when a level is beyond the analysis.
    """
    classes = {source: bits for level in levels for source, bits in _leaf_bits(level).items()}
    groups, members = _group([*classes.values(), never_left])
    count = len(members)
    masks = {source: sum(1 << g for g in range(count) if members[g][i]) for i, source in enumerate(classes)}
    pairs = np.zeros((count + 1, count + 1), dtype=np.bool_)
    statuses = [_LevelPairs(level, masks) for level in levels]
    for x in range(count):
        if not members[x][-1]:
            for y in range(count):
                pairs[x, y] = _is_synchronising(statuses, x, y)
    return SyncTable(groups, pairs)


def _is_synchronising(levels: Sequence[_LevelPairs], x: int, y: int) -> bool:
    """Levels that never touch x or y, then one that is certain to cut between them."""
    for level in levels:
        if level.cuts(x, y):
            return True
        if level.touches(x, y):
            return False
    return False


class _LevelPairs:
    """What one level does between characters of two groups."""

    def __init__(self, level: Level, masks: dict[str, int]) -> None:
        leaf = _Leaf(masks)
        shape = _walk(level.node, leaf)
        if shape.nullable:
            raise UnsupportedPatternError("the pattern can match nothing")
        self._alone = shape.alone
        self._used = shape.used
        self._follow = leaf.follow

    def cuts(self, x: int, y: int) -> bool:
        certain = (self._alone >> x | self._alone >> y) & 1
        crossing = any((last >> x) & (first >> y) & 1 for last, first in self._follow)
        return bool(certain) and not crossing

    def touches(self, x: int, y: int) -> bool:
        return bool((self._used >> x | self._used >> y) & 1)


def _walk(node: Node, leaf: _Leaf) -> _Shape:
    match node:
        case Chars(source=source):
            mask = leaf.masks[source]
            return _Shape(mask, mask, mask, 0, mask, nullable=False, surely_nullable=False)
        case Look():
            # It takes nothing, so what stands around it can meet; and it may fail, so nothing passes it surely.
            return _Shape(0, 0, 0, 0, 0, nullable=True, surely_nullable=False)
        case Choice(options=options):
            return _walk_choice([_walk(option, leaf) for option in options])
        case Repeat():
            return _walk_repeat(node, _walk(node.item, leaf), leaf)
        case Concat(items=items):
            return _walk_concat([_walk(item, leaf) for item in items], leaf)


def _walk_choice(shapes: Sequence[_Shape]) -> _Shape:
    first = last = alone = greedy = used = 0
    for shape in shapes:
        first, last, alone = first | shape.first, last | shape.last, alone | shape.alone
        greedy, used = greedy | shape.greedy, used | shape.used
    return _Shape(
        first,
        last,
        alone,
        greedy,
        used,
        nullable=any(s.nullable for s in shapes),
        surely_nullable=any(s.surely_nullable for s in shapes),
    )


def _walk_repeat(node: Repeat, shape: _Shape, leaf: _Leaf) -> _Shape:
    if node.many:
        leaf.follow.append((shape.last, shape.first))
    return _Shape(
        shape.first,
        shape.last,
        shape.alone if node.least <= 1 else 0,
        shape.used if node.possessive else shape.greedy,
        shape.used,
        nullable=node.least == 0 or shape.nullable,
        surely_nullable=node.least == 0 or shape.surely_nullable,
    )


def _walk_concat(shapes: Sequence[_Shape], leaf: _Leaf) -> _Shape:
    first = last = used = greedy = alone = 0
    open_start = True
    for i, shape in enumerate(shapes):
        leaf.follow.append((last, shape.first))
        others = [s for j, s in enumerate(shapes) if j != i]
        if all(s.surely_nullable for s in others):
            # A possessive item further left could take the character and keep it.
            alone |= shape.alone & ~greedy
        first |= shape.first if open_start else 0
        last = shape.last | (last if shape.nullable else 0)
        open_start = open_start and shape.nullable
        used |= shape.used
        greedy |= shape.greedy
    return _Shape(
        first,
        last,
        alone,
        greedy,
        used,
        nullable=all(s.nullable for s in shapes),
        surely_nullable=all(s.surely_nullable for s in shapes),
    )


def _leaf_bits(level: Level) -> dict[str, Bits]:
    """The probed classes of all leaves, keyed by their source."""
    found: dict[str, Bits] = {}
    for chars in leaves(level.node):
        if level.probed_from is not None:
            found[chars.source] = isolated_bits(level.probed_from)
        elif chars.literal is None:
            found[chars.source] = class_bits(chars.source)
        else:
            bits = np.zeros(PROBED, dtype=np.bool_)
            if ord(chars.literal) < PROBED:
                bits[ord(chars.literal)] = True
            found[chars.source] = bits
    _refuse_wide_folds(level.node)
    return found


def _refuse_wide_folds(node: Node) -> None:
    """Raise when case-blind literals could match a single character that stands for two of them.

    A longer fold of ASCII letters begins with one of two.
    """
    if not literal_fold_is_plain(case_blind_pairs(node)):
        raise UnsupportedPatternError("a literal whose case folding changes its length")


def _group(classes: Sequence[Bits]) -> tuple[npt.NDArray[np.uint8], list[tuple[bool, ...]]]:
    """Group code points by the classes that hold them: group numbers and each group's memberships."""
    if len(classes) > MAX_CLASSES:
        raise UnsupportedPatternError(f"more than {MAX_CLASSES} character classes")
    codes = np.zeros(PROBED, dtype=np.uint64)
    for i, bits in enumerate(classes):
        codes |= bits.astype(np.uint64) << np.uint64(i)
    signatures, inverse = np.unique(codes, return_inverse=True)
    if len(signatures) > MAX_GROUPS:
        raise UnsupportedPatternError(f"more than {MAX_GROUPS} groups of characters")
    groups = np.full(PROBED + 1, len(signatures), dtype=np.uint8)
    groups[:PROBED] = inverse
    return groups, [tuple(bool(int(code) >> i & 1) for i in range(len(classes))) for code in signatures]


def isolated_leaf(config_json: str, *, runs: bool) -> Level:
    """A level that cuts off single characters (or runs of them) of a Digits or Punctuation pre-tokenizer."""
    leaf = Chars(f"isolated {config_json}")
    return Level(Repeat(leaf, 1, None) if runs else leaf, probed_from=config_json)
