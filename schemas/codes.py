"""Statuses and codes of replies: the whole vocabulary of what can go wrong on the wire."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Status(StrEnum):
    """The outcome of a request, in one word that a client can branch on."""

    OK = "ok"
    NEED_TEXT = "need_text"
    CONFLICT = "conflict"
    REJECTED = "rejected"
    EXPIRED = "expired"
    ERROR = "error"


class Code(StrEnum):
    """Why a request was not accepted. A reply with status `ok` has no code.

    Each member carries:

    - `status`: the status of a reply with this code;
    - `retriable`: whether the same request, sent again unchanged after a pause, may succeed;
    - `meaning`: what happened;
    - `advice`: what the client should do.
    """

    status: Status
    retriable: bool
    meaning: str
    advice: str

    def __new__(cls, value: str, status: Status, retriable: bool, meaning: str, advice: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.status = status
        member.retriable = retriable
        member.meaning = meaning
        member.advice = advice
        return member

    MALFORMED = (
        "malformed",
        Status.REJECTED,
        False,
        "The record is not one well-formed MessagePack map with string keys, or it is nested too deeply.",
        "Mend the producer: write one map a record, nothing before or after it, each key once.",
    )
    BAD_VERSION = (
        "bad_version",
        Status.REJECTED,
        False,
        "Field `v` is missing or is a version that this reader does not know.",
        "Write `v` = 1, or use workers that know your version.",
    )
    BAD_TYPE = (
        "bad_type",
        Status.REJECTED,
        False,
        "A field is missing where it is needed, has the wrong type, or is outside its bound.",
        "Mend the field that the message names.",
    )
    BAD_POSITION = (
        "bad_position",
        Status.REJECTED,
        False,
        "A position is negative, beyond the end of the text, out of order, or inside a character.",
        "Count UTF-8 bytes, not characters or UTF-16 units, and cut between characters.",
    )
    TEXT_TOO_LARGE = (
        "text_too_large",
        Status.REJECTED,
        False,
        "The text, or the whole record, is over its limit.",
        "Send a shorter text, or several appends; the limit is the operator's setting.",
    )
    INVALID_UTF8 = (
        "invalid_utf8",
        Status.REJECTED,
        False,
        "A MessagePack `str` is not valid UTF-8, or the text holds a lone surrogate.",
        "Replace lone surrogates before sending; never cut a text inside a character.",
    )
    UNKNOWN_TOKENIZER = (
        "unknown_tokenizer",
        Status.REJECTED,
        False,
        "No tokenizer of this name or fingerprint is registered.",
        "Use a name that the workers list in their health records, or register the tokenizer.",
    )
    UNKNOWN_SESSION = (
        "unknown_session",
        Status.NEED_TEXT,
        False,
        "The session is not held: it ended, was evicted, or was never made.",
        "Send op `text` with the whole text, under a new request id.",
    )
    STALE_REVISION = (
        "stale_revision",
        Status.CONFLICT,
        False,
        "The session is held, but its state is not the one that `base` names.",
        "Send op `text` with the whole text, or rebuild the delta on the state in the reply.",
    )
    QUOTA_EXCEEDED = (
        "quota_exceeded",
        Status.REJECTED,
        False,
        "The session, or the tenant's sessions together, would grow over a budget.",
        "Close sessions that are no longer used, or start a shorter one.",
    )
    EXPIRED = (
        "expired",
        Status.EXPIRED,
        False,
        "`deadline_ms` had passed before the work was done.",
        "Send op `text` under a new request id and a later deadline, if the answer is still wanted.",
    )
    OVERLOADED = (
        "overloaded",
        Status.ERROR,
        True,
        "A bounded queue was full.",
        "Wait, then send the request again; double the pause each time.",
    )
    BROKER_UNAVAILABLE = (
        "broker_unavailable",
        Status.ERROR,
        True,
        "The broker did not acknowledge a record in time.",
        "Wait, then send the request again; double the pause each time.",
    )
    STORAGE_FULL = (
        "storage_full",
        Status.ERROR,
        True,
        "A store of the worker has no room left.",
        "Tell the operator; send the request again once there is room.",
    )
    REFERENCE_FAILED = (
        "reference_failed",
        Status.ERROR,
        False,
        "The reference tokenizer itself failed on this text.",
        "Report the text and the tokenizer; the same text will fail again.",
    )
    INTERNAL = (
        "internal",
        Status.ERROR,
        False,
        "A worker failed on this record in every try; the record is in the dead letters.",
        "Send op `text` once under a new request id; report it if that fails too.",
    )
