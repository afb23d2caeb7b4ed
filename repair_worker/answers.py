"""Replies of the repair worker: what each outcome looks like on the wire. Pure, apart from the clock that is
passed in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from repair_worker.changes import Change, Slice
from repair_worker.history import Remembered
from repair_worker.store import Entry
from schemas.codes import Code, Status
from schemas.reply import Path, Reply, Route
from schemas.request import Request
from schemas.work import Adopt, Served, Work


def changed(work: Work, entry: Entry[Any], change: Change, reason: str, timings: dict[str, int]) -> Reply:
    """The answer to an accepted change; `entry` already bears the new epoch and revision."""
    request = work.request
    full = change.route is Route.D
    return Reply(
        request_id=request.request_id,
        tenant=request.tenant,
        session_id=request.session_id,
        status=Status.OK,
        path=Path.CPU if full else Path.REPAIR,
        reason=reason,
        route=change.route,
        epoch=entry.epoch,
        revision=entry.revision,
        length=change.length,
        keep_left=change.keep_left,
        ids=change.ids,
        keep_right=change.keep_right,
        total=change.patch.total,
        first_changed=change.first_changed,
        offsets=change.offsets,
        fingerprint=work.fingerprint,
        encoded_chars=change.patch.chars_encoded,
        timings=timings,
    )


def forked(work: Work, adopt: Adopt, *, total: int, length: int, ids: Slice | None, timings: dict[str, int]) -> Reply:
    """The answer to a fork: it describes the new session, which keeps all `total` ids of the old one.

    `ids` is given when the client asked for all of them. `total` counts tokens, `length` UTF-8 bytes.
    """
    request = work.request
    offsets = ids.offsets if ids is not None else (b"" if request.offsets else None)
    return Reply(
        request_id=request.request_id,
        tenant=request.tenant,
        session_id=request.session_id,
        status=Status.OK,
        path=Path.REPAIR,
        reason=work.reason,
        epoch=adopt.epoch,
        revision=adopt.revision,
        length=length,
        keep_left=total if ids is None else 0,
        ids=b"" if ids is None else ids.ids,
        total=total,
        first_changed=total,
        offsets=offsets,
        fingerprint=work.fingerprint,
        timings=timings,
    )


def closed(work: Work, entry: Entry[Any] | None) -> Reply:
    """The answer to a close, which succeeds whether or not there was a session."""
    request = work.request
    return Reply(
        request_id=request.request_id,
        tenant=request.tenant,
        session_id=request.session_id,
        status=Status.OK,
        path=Path.REPAIR,
        reason=work.reason,
        epoch=0 if entry is None else entry.epoch,
        revision=0 if entry is None else entry.revision,
        fingerprint=work.fingerprint,
    )


def failed(work: Work, entry: Entry[Any] | None, code: Code, message: str) -> Reply:
    """A failure, with the state that the session is in if there is one."""
    request = work.request
    return Reply.failure(
        request.request_id,
        code,
        message,
        tenant=request.tenant,
        session_id=request.session_id,
        path=Path.REPAIR,
        reason=work.reason,
        epoch=0 if entry is None else entry.epoch,
        revision=0 if entry is None else entry.revision,
        length=0 if entry is None else entry.length,
        fingerprint=work.fingerprint,
    )


def served(adopt: Adopt, by: Served, *, length: int) -> Reply:
    """The answer that the other worker gave with the session it handed over, without its ids (see `History`)."""
    return Reply(
        request_id=by.request_id,
        tenant=adopt.tenant,
        session_id=adopt.session_id,
        status=Status.OK,
        path=by.path,
        reason=by.reason,
        route=by.route,
        epoch=adopt.epoch,
        revision=adopt.revision,
        length=length,
        fingerprint=adopt.fingerprint,
    )


def ids_missing(remembered: Remembered, kept: Reply, request: Request) -> bool:
    """True when a remembered answer has to be completed from the session before it is given again."""
    if kept.status is not Status.OK:
        return False
    if remembered.elided_total is not None:
        return True
    return request.offsets and kept.offsets is None


def completed(kept: Reply, total: int, ids: Slice) -> Reply:
    """A remembered answer with its ids put back."""
    return replace(kept, total=total, ids=ids.ids, offsets=ids.offsets)
