"""Compare an answer with the reference's and describe the first difference.

A pure function of two answers: token ids, and optionally the UTF-8 byte span of each token. The description
names ids and byte positions, never text, so that it may be logged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.sample import DifferenceKind

SPELL_MAX: Final = 4096
"""Tokens of a stretch that are spelled out to tell whether the same text was only cut elsewhere."""

Spell = Callable[[int], str | None]
"""What a token spells in the vocabulary; None for an id that is in no vocabulary."""

Ids = NDArray[np.uint32]
"""Token ids, shape (n,)."""
Spans = NDArray[np.uint32]
"""Start and end of each token in UTF-8 bytes of the text, shape (n, 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first place where an answer and the reference part."""

    kind: DifferenceKind
    index: int
    """Token index of the first difference."""
    answer_id: int | None
    """The answer's token there; None when the answer ends before it."""
    reference_id: int | None
    """The reference's token there; None when the reference ends before it."""
    answer_span: tuple[int, int] | None
    """UTF-8 bytes that the answer's token covers; None when unknown."""
    reference_span: tuple[int, int] | None
    """UTF-8 bytes that the reference's token covers; None when unknown."""
    answer_total: int
    """Tokens in the answer."""
    reference_total: int
    """Tokens in the reference."""

    @property
    def byte_position(self) -> int | None:
        """Where in the text the difference starts, in UTF-8 bytes; None without spans."""
        starts = [span[0] for span in (self.answer_span, self.reference_span) if span is not None]
        return min(starts, default=None)

    @property
    def in_spans_only(self) -> bool:
        """True when the tokens are equal there and only their spans differ."""
        return self.answer_id == self.reference_id

    def __str__(self) -> str:
        where = f"token {self.index}"
        if self.byte_position is not None:
            where += f" (byte {self.byte_position})"
        if self.in_spans_only:
            what = f"the answer's span is {self.answer_span}, the reference's {self.reference_span}"
        else:
            what = f"the answer has {_name(self.answer_id)}, the reference {_name(self.reference_id)}"
        return f"first difference at {where}: {what}; {self.answer_total} and {self.reference_total} tokens"


def compare(
    answer: Ids,
    reference: Ids,
    *,
    answer_spans: Spans | None = None,
    reference_spans: Spans | None = None,
    spans_from: int = 0,
    specials: tuple[int, int] = (0, 0),
    spell: Spell | None = None,
) -> Difference | None:
    """Return the first difference, or None when both are the same. Ids are compared first, then spans.

    answer_spans: spans of the answer's tokens from `spans_from` on, for as many as it gave. reference_spans: of all
    of the reference's. Spans are compared only where both sides have them; one side's spans still help to place a
    difference of ids. specials: how many of the reference's tokens, at its start and at its end, are the
    post-processor's. spell: without it a split that moved cannot be told from substituted ids.

    Raises ValueError when spans do not have one row a token.
    """
    _check_spans("answer", answer[spans_from:], answer_spans, all_of_them=False)
    _check_spans("reference", reference, reference_spans)
    index = _first_difference(answer, reference)
    if index is not None:
        kind = _kind(answer, reference, index, specials, spell)
    else:
        index = _first_wrong_span(answer_spans, reference_spans, spans_from)
        kind = DifferenceKind.OFFSETS
    if index is None:
        return None
    return Difference(
        kind=kind,
        index=index,
        answer_id=_id_at(answer, index),
        reference_id=_id_at(reference, index),
        answer_span=_span_at(answer_spans, index - spans_from),
        reference_span=_span_at(reference_spans, index),
        answer_total=len(answer),
        reference_total=len(reference),
    )


def _kind(answer: Ids, reference: Ids, index: int, specials: tuple[int, int], spell: Spell | None) -> DifferenceKind:
    """What happened between the tokens that both have on the left, `index` of them, and on the right."""
    right = _common_suffix(answer[index:], reference[index:])
    ours, theirs = answer[index : len(answer) - right], reference[index : len(reference) - right]
    before, after = specials[0], len(reference) - specials[1]
    special_ids = np.concatenate([reference[:before], reference[after:]])
    places = np.arange(index, index + len(theirs))
    if len(theirs) and bool(((places < before) | (places >= after)).all()):
        return DifferenceKind.SPECIAL_TOKENS
    if not len(theirs):
        return DifferenceKind.SPECIAL_TOKENS if np.isin(ours, special_ids).all() else DifferenceKind.ADDED
    if not len(ours):
        return DifferenceKind.DROPPED
    if spell is not None and _spelled(ours, spell) == _spelled(theirs, spell) is not None:
        return DifferenceKind.MOVED_SPLIT
    return DifferenceKind.SUBSTITUTED


def _spelled(ids: Ids, spell: Spell) -> str | None:
    """What a stretch of tokens spells; None when one is unknown, or when it is too long to look at."""
    if len(ids) > SPELL_MAX:
        return None
    tokens = [spell(int(token)) for token in ids]
    return None if None in tokens else "".join(token for token in tokens if token is not None)


def _common_suffix(left: Ids, right: Ids) -> int:
    size = min(len(left), len(right))
    unequal = left[len(left) - size :][::-1] != right[len(right) - size :][::-1]
    return int(unequal.argmax()) if unequal.any() else size


def _first_wrong_span(answer: Spans | None, reference: Spans | None, spans_from: int) -> int | None:
    if answer is None or reference is None:
        return None
    at = _first_difference(answer, reference[spans_from : spans_from + len(answer)])
    return None if at is None else spans_from + at


def _first_difference(left: NDArray[np.uint32], right: NDArray[np.uint32]) -> int | None:
    """Index of the first row that differs, or that only one side has."""
    common = min(len(left), len(right))
    unequal = left[:common] != right[:common]
    if unequal.ndim > 1:
        unequal = unequal.any(axis=1)
    if unequal.any():
        return int(unequal.argmax())
    return None if len(left) == len(right) else common


def _check_spans(side: str, ids: Ids, spans: Spans | None, *, all_of_them: bool = True) -> None:
    if spans is None:
        return
    if spans.ndim != 2 or spans.shape[1] != 2 or len(spans) > len(ids) or (all_of_them and len(spans) != len(ids)):
        raise ValueError(f"the {side} has {len(ids)} tokens but spans of shape {spans.shape}; pass one row a token")


def _id_at(ids: Ids, index: int) -> int | None:
    return int(ids[index]) if index < len(ids) else None


def _span_at(spans: Spans | None, index: int) -> tuple[int, int] | None:
    if spans is None or not 0 <= index < len(spans):
        return None
    start, end = spans[index]
    return int(start), int(end)


def _name(token: int | None) -> str:
    return "nothing" if token is None else str(token)
