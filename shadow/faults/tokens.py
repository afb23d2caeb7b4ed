"""The tokens of a text as the faults of an engine see them, and stretches of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shadow.faults.catalogue import Place
from toksplice.reference import U32, Encoded


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of a text without special ones around it. `ids` u32 of shape (n,); `spans` u32 of shape (n, 2), UTF-8
    bytes of the text."""

    ids: U32
    spans: U32

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, encoded: Encoded) -> Tokens:
        return cls(encoded.ids, np.stack([encoded.starts, encoded.ends], axis=1))

    def part(self, start: int, stop: int) -> Tokens:
        return Tokens(self.ids[start:stop], self.spans[start:stop])

    def joined(self, *others: Tokens) -> Tokens:
        """These tokens and then the others."""
        all_of_them = (self, *others)
        return Tokens(
            np.concatenate([each.ids for each in all_of_them]), np.concatenate([each.spans for each in all_of_them])
        )


def third(total: int, place: Place) -> tuple[int, int]:
    """Start and stop of a third of `total` elements."""
    number = list(Place).index(place)
    return total * number // 3, total * (number + 1) // 3


def replaced(right: Tokens, other: Tokens, place: Place, length: int) -> Tokens:
    """`right`, with what `other` makes of a third of the text. Both are of one text of `length` bytes; the cuts lie
    where both begin a token."""
    first, last = third(len(right), place)
    bounds = np.append(right.spans[:, 0], length)
    common = np.union1d(np.intersect1d(right.spans[:, 0], other.spans[:, 0]), [0, length])
    start = common[common <= bounds[first]].max()
    stop = common[common >= bounds[last]].min()
    inside = (other.spans[:, 0] >= start) & (other.spans[:, 0] < stop)
    before, after = right.spans[:, 0] < start, right.spans[:, 0] >= stop
    middle = Tokens(other.ids[inside], other.spans[inside])
    return Tokens(right.ids[before], right.spans[before]).joined(middle, Tokens(right.ids[after], right.spans[after]))
