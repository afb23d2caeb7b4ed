"""Faults of an answer: what it sends is changed when all else is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from schemas.reply import Reply
from shadow.faults.catalogue import Injection, Kind, Place
from shadow.faults.vocabulary import Vocabulary

BIT: Final = 1 << 20
UNKNOWN_ID: Final = (1 << 32) - 1
_FEW: Final = 3

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer; no span when the answer carries none."""

    id: int
    span: Span | None


Sent = list[Token]
"""What an answer sends."""
Change = Callable[[Vocabulary, str, Sent, int], Sent | None]
"""(vocabulary, variant, sent, index) -> all that is sent instead; None when there is nothing to strike at the index."""


def struck(reply: Reply, injection: Injection, vocabulary: Vocabulary, *, special: bool) -> Reply:
    """The answer with the fault in it, as near to its place as it can be; `reply` itself where there is nothing to
    strike. special: the session has special tokens around it."""
    if injection.kind is Kind.KEPT_IDS:
        return _kept(reply, injection.variant)
    if injection.kind is Kind.FIRST_CHANGED:
        first = reply.first_changed + 1 if injection.variant == "one" else reply.total
        return replace(reply, first_changed=max(first, reply.first_changed))
    sent = _sent(reply)
    before, after = vocabulary.specials if special else (0, 0)
    # A patch at the side of a text leaves the special tokens there alone.
    first = before if reply.keep_left == 0 else 0
    stop = len(sent) - (after if reply.keep_right == 0 else 0)
    change = _CHANGES[injection.kind]
    for at in _indices(injection, len(sent), first, stop, _added(sent, vocabulary)):
        changed = change(vocabulary, injection.variant, sent, at)
        if changed is not None and changed != sent:
            return _with(reply, changed)
    return reply


def _sent(reply: Reply) -> Sent:
    ids = np.frombuffer(reply.ids, "<u4").tolist()
    if reply.offsets is None:
        return [Token(token, None) for token in ids]
    spans = np.frombuffer(reply.offsets, "<u4").reshape(-1, 2).tolist()
    return [Token(token, (start, end)) for token, (start, end) in zip(ids, spans, strict=True)]


def _with(reply: Reply, sent: Sent) -> Reply:
    spans = None
    if reply.offsets is not None:
        spans = np.array([token.span or (0, 0) for token in sent], "<u4").tobytes()
    ids = np.array([token.id for token in sent], "<u4").tobytes()
    return replace(reply, ids=ids, offsets=spans, total=reply.keep_left + len(sent) + reply.keep_right)


def _kept(reply: Reply, variant: str) -> Reply:
    side, _, how = variant.partition("_")
    step = 1 if how == "more" else -1
    field = f"keep_{side}"
    kept = getattr(reply, field) + step
    return reply if kept < 0 else replace(reply, **{field: kept}, total=reply.total + step)


# Places


def _indices(injection: Injection, total: int, first: int, stop: int, added: list[int]) -> Iterator[int]:
    """Where to strike, the best place first."""
    if injection.kind is Kind.SPECIAL_TOKEN:
        ends = {Place.HEAD: [0] if first else [], Place.TAIL: [total - 1] if stop < total else []}
        yield from ends.get(injection.place, [at for at in added if first <= at < stop])
        return
    aim = {Place.HEAD: first, Place.MIDDLE: (first + stop) // 2, Place.TAIL: stop - 1}[injection.place]
    yield from sorted(range(first, stop), key=lambda at: (abs(at - aim), at))


def _added(sent: Sent, vocabulary: Vocabulary) -> list[int]:
    return [at for at, token in enumerate(sent) if token.id in vocabulary.added]


# Changes


def _substituted(vocabulary: Vocabulary, variant: str, sent: Sent, at: int) -> Sent:
    token = sent[at]
    new = {"next": token.id + 1, "first": 0, "bit_flipped": token.id ^ BIT}[variant]
    return [*sent[:at], Token(new, token.span), *sent[at + 1 :]]


def _dropped(vocabulary: Vocabulary, variant: str, sent: Sent, at: int) -> Sent | None:
    count = 1 if variant == "one" else _FEW
    return None if at + count > len(sent) else sent[:at] + sent[at + count :]


def _duplicated(vocabulary: Vocabulary, variant: str, sent: Sent, at: int) -> Sent:
    return sent[:at] + [sent[at]] * (1 if variant == "once" else _FEW) + sent[at:]


def _swapped(vocabulary: Vocabulary, variant: str, sent: Sent, at: int) -> Sent | None:
    other = at + (1 if variant == "neighbours" else _FEW)
    if other >= len(sent) or sent[at].id == sent[other].id:
        return None
    changed = list(sent)
    changed[at] = Token(sent[other].id, sent[at].span)
    changed[other] = Token(sent[at].id, sent[other].span)
    return changed


def _inserted(vocabulary: Vocabulary, variant: str, sent: Sent, at: int) -> Sent:
    span = sent[at].span
    new = Token(0 if variant == "ordinary" else UNKNOWN_ID, None if span is None else (span[0], span[0]))
    return [*sent[:at], new, *sent[at:]]


def _recut(vocabulary: Vocabulary, variant: str, sent: Sent, at: int) -> Sent | None:
    """Other tokens that spell the same: the letters of one token, or two tokens cut elsewhere."""
    count = 1 if variant == "letters" else 2
    old = sent[at : at + count]
    spelled = [vocabulary.spell(token.id) for token in old if token.id not in vocabulary.added]
    if len(spelled) < count or None in spelled:
        return None
    words = [word for word in spelled if word is not None]
    text = "".join(words)
    new = _words(vocabulary, text, 1 if variant == "letters" else len(text) - 1, words)
    if new is None or (variant == "elsewhere" and len(new) == len(text)):
        return None
    return sent[:at] + [Token(token, old[0].span) for token in new] + sent[at + count :]


def _words(vocabulary: Vocabulary, text: str, longest: int, old: list[str]) -> list[int] | None:
    """Ids that spell `text`, each the longest that there is, up to `longest` letters, and none of `old` at its place;
    None when there are none."""
    places = dict(zip((0, len(old[0])), old, strict=False))
    found: list[int] = []
    at = 0
    while at < len(text):
        for size in range(min(longest, len(text) - at), 0, -1):
            word = text[at : at + size]
            if word in vocabulary.ids and places.get(at) != word:
                found.append(vocabulary.ids[word])
                at += size
                break
        else:
            return None
    return found


def _shifted(vocabulary: Vocabulary, variant: str, sent: Sent, at: int) -> Sent | None:
    if sent[at].span is None or (variant == "following" and at + 1 == len(sent)):
        return None
    start, end = int(variant != "end"), int(variant != "start")
    stop = len(sent) if variant == "following" else at + 1
    moved = [
        token if token.span is None else Token(token.id, (token.span[0] + start, token.span[1] + end))
        for token in sent[at:stop]
    ]
    return sent[:at] + moved + sent[stop:]


def _special(vocabulary: Vocabulary, variant: str, sent: Sent, at: int) -> Sent:
    match variant:
        case "missing":
            return sent[:at] + sent[at + 1 :]
        case "doubled":
            return [*sent[:at], sent[at], *sent[at:]]
        case _:
            others = sorted(vocabulary.added - {sent[at].id}) or [0]
            return [*sent[:at], Token(others[0], sent[at].span), *sent[at + 1 :]]


_CHANGES: Final[dict[Kind, Change]] = {
    Kind.ID_SUBSTITUTED: _substituted,
    Kind.ID_DROPPED: _dropped,
    Kind.ID_DUPLICATED: _duplicated,
    Kind.IDS_SWAPPED: _swapped,
    Kind.ID_ADDED: _inserted,
    Kind.SPLIT_MOVED: _recut,
    Kind.OFFSET_SHIFTED: _shifted,
    Kind.SPECIAL_TOKEN: _special,
}
