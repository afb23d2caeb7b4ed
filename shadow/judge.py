"""Whether a sampled answer is right: one question, one verdict, whoever encodes the text again.

Blocking, and without a broker: judge processes run it (`shadow.judge_process`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from schemas.sample import DifferenceKind, Sample
from shadow.compare import Difference, Ids, Spans, compare
from toksplice import Tokenizer

_UINT32: Final = np.dtype("<u4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a judge needs of a sample. `text` is UTF-8, `ids` and `offsets` are little-endian u32, and `restarts` are
    bits, as in the sample."""

    text: bytes = field(repr=False)
    add_special_tokens: bool
    ids: bytes = field(repr=False)
    offsets: bytes | None = field(repr=False)
    restarts: bytes | None = field(repr=False)
    keep_left: int
    first_changed: int
    same_until: int

    @classmethod
    def of(cls, sample: Sample) -> Question:
        return cls(
            text=sample.text,
            add_special_tokens=sample.add_special_tokens,
            ids=sample.ids,
            offsets=sample.offsets,
            restarts=sample.restarts,
            keep_left=sample.keep_left,
            first_changed=sample.first_changed,
            same_until=sample.same_until,
        )


@dataclass(frozen=True, slots=True)
class Expected:
    """What is right: ids, their spans where the answer has some, how many tokens at each side are special ones, and, of
    the engine, where it may resume."""

    ids: Ids
    spans: Spans | None
    specials: tuple[int, int]
    restarts: bytes | None = None


def judge(tokenizer: Tokenizer, question: Question, *, engine: bool) -> Difference | None:
    """Encode the text again, by the reference or by the native `engine`, and compare; None when the answer is right.
    Of the places where the engine may resume the reference knows nothing: those are judged by the engine alone.

    Raises `toksplice.TokSpliceError` when the text cannot be encoded, UnicodeDecodeError when it is none.
    """
    expected = _by_engine(tokenizer, question) if engine else _by_reference(tokenizer, question)
    ids = np.frombuffer(question.ids, _UINT32)
    spans = None if question.offsets is None else np.frombuffer(question.offsets, _UINT32).reshape(-1, 2)
    difference = compare(
        ids,
        expected.ids,
        # A broken answer may place its spans beyond its own ids: then the ids differ, and tell enough.
        answer_spans=spans if spans is not None and len(spans) <= len(ids) - question.keep_left else None,
        reference_spans=expected.spans,
        spans_from=min(question.keep_left, len(ids)),
        specials=expected.specials,
        spell=tokenizer.reference.token,
    )
    if difference is None and question.first_changed > question.same_until:
        difference = _at(question.same_until, DifferenceKind.FIRST_CHANGED, ids)
    if difference is None:
        difference = wrong_restarts(question.restarts, expected.restarts, ids, expected.specials[0])
    return difference


def wrong_restarts(ours: bytes | None, theirs: bytes | None, ids: Ids, before: int) -> Difference | None:
    """The first token where a session, `ours`, is wrong about resuming; None without one, or when either is unknown.
    `before`: special tokens in front."""
    if ours is None or theirs is None or ours == theirs:
        return None
    # Two of different lengths differ behind the shorter one, at the latest.
    mine, right = (np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little") for bits in (ours, theirs))
    size = min(len(mine), len(right))
    unequal = np.flatnonzero(mine[:size] != right[:size])
    index = before + int(unequal[0] if len(unequal) else size)
    return _at(min(index, len(ids)), DifferenceKind.RESTARTS, ids)


def _at(index: int, kind: DifferenceKind, ids: Ids) -> Difference:
    """A difference in what goes with right ids: by what an answer says is unchanged a client may keep a KV cache, by
    where the engine may resume it goes on."""
    token = int(ids[index]) if index < len(ids) else None
    return Difference(
        kind=kind,
        index=index,
        answer_id=token,
        reference_id=token,
        answer_span=None,
        reference_span=None,
        answer_total=len(ids),
        reference_total=len(ids),
    )


def _by_reference(tokenizer: Tokenizer, question: Question) -> Expected:
    text, special = question.text.decode(), question.add_special_tokens
    specials = _specials(tokenizer, special)
    if question.offsets is None:
        # Without spans this is the cheaper call, and owes nothing to what we know of special tokens.
        return Expected(tokenizer.reference.ids(text, add_special_tokens=special), None, specials)
    session = tokenizer.session(text, add_special_tokens=special, engine=False)
    return Expected(session.ids, session.offsets(), specials)


def _by_engine(tokenizer: Tokenizer, question: Question) -> Expected:
    session = tokenizer.session(question.text.decode(), add_special_tokens=question.add_special_tokens)
    spans = None if question.offsets is None else session.offsets()
    return Expected(session.ids, spans, _specials(tokenizer, question.add_special_tokens), session.restarts)


def _specials(tokenizer: Tokenizer, special: bool) -> tuple[int, int]:
    around = tokenizer.specials_around(add_special_tokens=special)
    return len(around.prefix), len(around.suffix)
