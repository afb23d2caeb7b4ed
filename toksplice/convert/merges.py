"""Merges from ranks: which two parts made each entry of a vocabulary.

Rank files and SentencePiece models list entries with a rank (or score) and no merges: any two neighbours whose
concatenation is an entry may be merged, the best rank first, the leftmost among equals. Let such a run over some text
form the entry P over a span. No merge crossed the ends of the span before (its symbols would not become P), and every
merge inside was the best and leftmost of the whole text, so of the span: inside, the run did exactly what it does on
P alone. So P is only ever formed by the last merge of the run on P, and that one merge an entry is enough. Entries that
the run on themselves does not reach are never formed at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import AnyStr


def last_merge(entry: AnyStr, rank: Mapping[AnyStr, float]) -> tuple[AnyStr, AnyStr] | None:
    """The pair whose merge forms `entry` (lowest rank first), or None when no merges form it."""
    parts = [entry[at : at + 1] for at in range(len(entry))]
    worst = float("inf")
    while len(parts) > 2:
        ranks = [rank.get(left + right, worst) for left, right in pairwise(parts)]
        best = min(ranks)
        if best == worst:
            return None
        at = ranks.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return (parts[0], parts[1]) if len(parts) == 2 and parts[0] in rank and parts[1] in rank else None


def all_splits(entry: str, known: Mapping[str, float]) -> Sequence[tuple[str, str]]:
    """Every way to make `entry` of two known parts, the shorter left part first."""
    pairs = [(entry[:at], entry[at:]) for at in range(1, len(entry))]
    return [(left, right) for left, right in pairs if left in known and right in known]
