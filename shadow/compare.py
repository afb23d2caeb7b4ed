"""Compare an answer with the reference's and describe the first difference.

A pure function of two answers: token ids, and optionally the UTF-8 byte span of each token. The description
names ids and byte positions, never text, so that it may be logged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint32]
"""Token ids, shape (n,)."""
Spans = NDArray[np.uint32]
"""Start and end of each token in UTF-8 bytes of the text, shape (n, 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first place where an answer and the reference part."""

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
) -> Difference | None:
    """Return the first difference, or None when both are the same.

    Spans are compared only where both sides have them; one side's spans still help to place a difference of
    ids. Raises ValueError when spans do not have one row a token.
    """
    _check_spans("answer", answer, answer_spans)
    _check_spans("reference", reference, reference_spans)
    index = _first_difference(answer, reference)
    if answer_spans is not None and reference_spans is not None:
        span_index = _first_difference(answer_spans, reference_spans)
        if span_index is not None and (index is None or span_index < index):
            index = span_index
    if index is None:
        return None
    return Difference(
        index=index,
        answer_id=_id_at(answer, index),
        reference_id=_id_at(reference, index),
        answer_span=_span_at(answer_spans, index),
        reference_span=_span_at(reference_spans, index),
        answer_total=len(answer),
        reference_total=len(reference),
    )


def _first_difference(left: NDArray[np.uint32], right: NDArray[np.uint32]) -> int | None:
    """Index of the first row that differs, or that only one side has."""
    common = min(len(left), len(right))
    unequal = left[:common] != right[:common]
    if unequal.ndim > 1:
        unequal = unequal.any(axis=1)
    if unequal.any():
        return int(unequal.argmax())
    return None if len(left) == len(right) else common


def _check_spans(side: str, ids: Ids, spans: Spans | None) -> None:
    if spans is not None and spans.shape != (len(ids), 2):
        raise ValueError(f"the {side} has {len(ids)} tokens but spans of shape {spans.shape}; pass one row a token")


def _id_at(ids: Ids, index: int) -> int | None:
    return int(ids[index]) if index < len(ids) else None


def _span_at(spans: Spans | None, index: int) -> tuple[int, int] | None:
    if spans is None or index >= len(spans):
        return None
    start, end = spans[index]
    return int(start), int(end)


def _name(token: int | None) -> str:
    return "nothing" if token is None else str(token)
