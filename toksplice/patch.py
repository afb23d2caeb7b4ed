"""The result of an edit: what changed in the ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from toksplice.certificate import Certificate
from toksplice.reference import U32


@dataclass(frozen=True, slots=True)
class Patch:
    """New ids of the session = old[:keep_left] + ids + old[len(old) - keep_right:].

    ids: u32 of shape (new tokens,), a copy that stays valid. offsets: u32 of shape (new tokens, 2), UTF-8 byte
    spans in the new text as the reference gives them. total: tokens of the session now; like keep_left and
    keep_right it counts special tokens. first_changed: the first index at which new and old ids differ, `total`
    when the new ids only cut off a tail. route: "C" (certified splice) or "D" (the reference on the whole text);
    reason: why. chars_encoded: characters given to the reference for this edit.
    """

    keep_left: int
    ids: U32
    keep_right: int
    total: int
    first_changed: int
    offsets: U32
    route: str
    reason: str
    certificate: Certificate | None
    chars_encoded: int

    def apply(self, old: U32) -> U32:
        """The new ids, given the old ones."""
        return np.concatenate([old[: self.keep_left], self.ids, old[len(old) - self.keep_right :]])


def common_prefix(a: U32, b: U32) -> int:
    """Leading elements that two arrays share."""
    size = min(len(a), len(b))
    differ = np.flatnonzero(a[:size] != b[:size])
    return int(differ[0]) if len(differ) else size
