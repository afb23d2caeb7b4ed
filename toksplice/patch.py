"""The result of an edit: what changed in the ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from toksplice.certificate import Certificate, Resumption
from toksplice.reference import U32


@dataclass(frozen=True, slots=True)
class Patch:
    """New ids of the session = old[:keep_left] + ids + old[len(old) - keep_right:].

    ids: u32 of shape (new tokens,), a copy that stays valid. offsets: u32 of shape (new tokens, 2), UTF-8 byte
    spans in the new text as the reference gives them. total: tokens of the session now; like keep_left and
    keep_right it counts special tokens. first_changed: the first index at which new and old ids differ, `total`
    when the new ids only cut off a tail. route: "A" (the scanner resumed), "B" (the same for a model without a
    pre-tokenizer), "C" (certified splice) or "D" (the reference on the whole text); reason: why. chars_encoded:
    characters tokenized for this edit.
    """

    keep_left: int
    ids: U32
    keep_right: int
    total: int
    first_changed: int
    offsets: U32
    route: str
    reason: str
    certificate: Certificate | Resumption | None
    chars_encoded: int

    def apply(self, old: U32) -> U32:
        """The new ids, given the old ones."""
        return np.concatenate([old[: self.keep_left], self.ids, old[len(old) - self.keep_right :]])


def common_prefix(a: U32, b: U32) -> int:
    """Leading elements that two arrays share."""
    size = min(len(a), len(b))
    differ = np.flatnonzero(a[:size] != b[:size])
    return int(differ[0]) if len(differ) else size


def unchanged_patch(total: int, route: str) -> Patch:
    """The patch of an edit that leaves the text as it is."""
    return Patch(
        keep_left=total,
        ids=np.empty(0, np.uint32),
        keep_right=0,
        total=total,
        first_changed=total,
        offsets=np.empty((0, 2), np.uint32),
        route=route,
        reason="unchanged",
        certificate=None,
        chars_encoded=0,
    )


def full_patch(old: U32, new: U32, offsets: U32, reason: str, chars_encoded: int) -> Patch:
    """The patch from `old` to `new` ids, which the reference gave for the whole text."""
    keep_left = common_prefix(old, new)
    keep_right = common_prefix(old[keep_left:][::-1], new[keep_left:][::-1])
    fresh = slice(keep_left, len(new) - keep_right)
    return Patch(
        keep_left=keep_left,
        ids=new[fresh].copy(),
        keep_right=keep_right,
        total=len(new),
        first_changed=keep_left,
        offsets=offsets[fresh],
        route="D",
        reason=reason,
        certificate=None,
        chars_encoded=chars_encoded,
    )
