"""What a request does to a session: the checks before it, and the change itself.

`fit` is pure. The other functions are blocking and run in a thread; they know no broker and no store.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from pipeline.first_text import FIRST_REVISION
from pipeline.tokenizers import TokenizerSource
from repair_worker.beginnings import Beginnings
from repair_worker.store import Identity
from schemas.codes import Code
from schemas.reply import Route
from schemas.request import Base, Op, Request, Want
from schemas.work import Work, WorkRecord
from toksplice import Patch, Session, TokSpliceError
from toksplice.gather import little_endian


def identity_of(record: WorkRecord) -> Identity:
    """The session that a record speaks of."""
    about = record.request if isinstance(record, Work) else record
    return Identity(about.tenant, about.session_id, record.fingerprint, about.add_special_tokens)


BRIEF_CHARS: Final = 4096
"""Up to so many new characters the engine keeps the interpreter's lock, so that on a thread a change would hold up
others just as long, and take several times as long itself: on the way there and back."""


class Fit(Enum):
    """How a delta's base relates to the session."""

    FITS = auto()
    TO_COME = auto()
    """The state it names may be on its way: the delta waits."""
    GONE = auto()
    """There is no session, and none is on its way that would bear this state."""
    STALE = auto()
    """The session is in another state."""


def fit(base: Base, state: Base | None, *, others_wait: bool) -> Fit:
    """Compare a delta's base with the session's state (None: not held; else with its epoch).

    A base with an epoch was copied from an answer. The state behind an answer is handed over before the
    answer is written, so it can never be on its way any more. Without an epoch the delta may have been sent
    ahead of the answer to the request before it: to the first text, or to a delta that itself waits
    (`others_wait`).
    """
    ahead = base.epoch is None
    if state is None:
        return Fit.TO_COME if ahead and (others_wait or base.revision <= FIRST_REVISION) else Fit.GONE
    if base.epoch not in (None, state.epoch):
        return Fit.STALE
    if (base.revision, base.length) == (state.revision, state.length):
        return Fit.FITS
    return Fit.TO_COME if ahead and base.revision > state.revision else Fit.STALE


def length_after(request: Request, length: int) -> int:
    """UTF-8 bytes of the session's text after `request`, for one of `length` bytes before it.

    Positions are not checked here; a wrong one gives a number of no meaning, and the change itself refuses
    it.
    """
    new = len((request.text or "").encode())
    match request.op:
        case Op.TEXT:
            return new
        case Op.APPEND:
            return length + new
        case Op.SPLICE:
            return length + new - ((request.end or 0) - (request.start or 0))
        case Op.TRUNCATE:
            return request.length or 0
        case _:
            return length


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that was made. `ids` and `offsets` are those to send, little-endian u32 as in a reply."""

    patch: Patch
    keep_left: int
    ids: bytes
    offsets: bytes | None
    keep_right: int
    first_changed: int
    """The first token that the client must not take for unchanged."""
    length: int
    """UTF-8 bytes of the session's text after the change."""
    tokenize_us: int

    @property
    def route(self) -> Route:
        return Route(self.patch.route)


def apply(session: Session, request: Request, force_full: bool, whole: bool = False) -> Change:
    """Make the change that `request` asks for, by the reference on the whole text when `force_full`.

    `whole`: give all ids, whatever the request wants, and vouch for none of those that the client has.

    The cost does not depend on the length of the session's text when the native engine serves it, unless the request
    asks for all ids.

    Raises `toksplice.TokSpliceError` and leaves the session as it was: a wrong position, text without a UTF-8
    form, or a failed reference.
    """
    started_ns = time.perf_counter_ns()
    patch = _patch(session, request, force_full)
    tokenize_us = (time.perf_counter_ns() - started_ns) // 1_000
    keep_left, keep_right, ids = patch.keep_left, patch.keep_right, patch.ids
    offsets = patch.offsets
    if whole or request.want is Want.IDS:
        keep_left = keep_right = 0
        ids = session.ids
        offsets = session.offsets() if request.offsets else offsets
    return Change(
        patch=patch,
        keep_left=keep_left,
        ids=little_endian(ids),
        offsets=little_endian(offsets) if request.offsets else None,
        keep_right=keep_right,
        first_changed=0 if whole else patch.first_changed,
        length=session.length,
        tokenize_us=tokenize_us,
    )


def is_brief(session: Session, request: Request) -> bool:
    """Whether `apply` takes no longer than the way to a thread and back: an edit by the native engine whose text is
    short, and of which only what is new is asked."""
    delta = request.op in (Op.APPEND, Op.SPLICE, Op.TRUNCATE) and request.want is not Want.IDS
    return delta and session.native and len(request.text or "") <= BRIEF_CHARS


def _patch(session: Session, request: Request, force_full: bool) -> Patch:
    text = request.text or ""
    match request.op:
        case Op.TEXT:
            return session.update(text, force_full=force_full)
        case Op.APPEND:
            return session.append(text, force_full=force_full)
        case Op.SPLICE:
            return session.splice(request.start or 0, request.end or 0, text, force_full=force_full)
        case Op.TRUNCATE:
            return session.truncate(request.length or 0, force_full=force_full)
        case _:
            raise ValueError(f"{request.op.value} is not a change of a session's text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Ids of a session between two token indices, and their spans if asked for; little-endian u32."""

    ids: bytes
    offsets: bytes | None


def cut(session: Session, start: int, stop: int, with_offsets: bool) -> Slice:
    """Ids [start, stop) of the session."""
    offsets = little_endian(session.offsets_between(start, stop)) if with_offsets else None
    return Slice(ids=little_endian(session.ids_between(start, stop)), offsets=offsets)


def restore(tokenizers: TokenizerSource, beginnings: Beginnings, identity: Identity, state: bytes) -> Session:
    """The session in a snapshot, sharing what others of its tenant begin with.

    Raises `toksplice.TokSpliceError` when it or its tokenizer cannot be had.
    """
    like = functools.partial(beginnings.like, identity)
    session = tokenizers.get(identity.fingerprint).restore(state, like=like)
    beginnings.keep(identity, session)
    return session


_CODES: Final = {code.value: code for code in Code}


def code_of(error: TokSpliceError) -> Code:
    """The protocol's code of a failure of the library, which names its own by the same words."""
    return _CODES.get(error.code, Code.INTERNAL)
