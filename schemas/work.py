"""Records on the three worker topics: work to do, and sessions handed over to the repair worker or taken from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from schemas.kinds import Bin, Bool, Choice, Int, Str, StrOrBin, fail
from schemas.limits import DEFAULT_LIMITS, Limits
from schemas.message import Field, Message, Nested, Record, check_version
from schemas.pack import unpack_map
from schemas.reply import Path, Route
from schemas.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Record):
    """A request on its way to a worker. `received_us` is epoch microseconds, when the classifier read it."""

    request: Request
    fingerprint: str
    reason: str
    received_us: int
    hops: int = 0

    KIND: ClassVar[str] = "work"
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("request", Nested(Request), "The request: a map of its fields without `v`.", "yes"),
        Field("fingerprint", Str("tokenizer_bytes", least=1), "What `request.tokenizer` resolved to.", "yes"),
        Field("reason", Str("reason_bytes"), "Why it came to this topic.", "yes"),
        Field("received_us", Int(), "Epoch microseconds at which the classifier read it.", "yes"),
        Field("hops", Int(), "Times that a worker passed it on."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Served(Message):
    """How the answer that made an adopted session came about, so that the repair worker can repeat it."""

    request_id: str | bytes
    path: Path
    reason: str = ""
    route: Route

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("request_id", StrOrBin("request_id_bytes"), "The request that was answered.", "yes"),
        Field("path", Choice(Path), "The path in its reply.", "yes"),
        Field("reason", Str("reason_bytes"), "The reason in its reply."),
        Field("route", Choice(Route), "The route in its reply.", "yes"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt(Record):
    """A session that another worker made, handed over to the repair worker before its reply is written."""

    tenant: str = field(default="", repr=False)
    session_id: str = field(repr=False)
    fingerprint: str
    add_special_tokens: bool = False
    epoch: int
    revision: int
    state: bytes = field(repr=False)
    served: Served | None = None

    KIND: ClassVar[str] = "adopt"
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("tenant", Str("tenant_bytes", key=True), "Owner of the session."),
        Field("session_id", Str("session_id_bytes", least=1, key=True), "The session.", "yes"),
        Field("fingerprint", Str("tokenizer_bytes", least=1), "Fingerprint of its tokenizer.", "yes"),
        Field("add_special_tokens", Bool(), "The session's setting."),
        Field("epoch", Int(), "The session's epoch.", "yes"),
        Field("revision", Int(), "The session's revision.", "yes"),
        Field(
            "state",
            Bin("record_bytes"),
            "Snapshot of the session; opaque, with a checksum of its own.",
            "yes",
        ),
        Field("served", Nested(Served), "The answer that the session began with."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop(Record):
    """An order to let go of a session whose state is in doubt; its client is then asked for the text."""

    tenant: str = field(default="", repr=False)
    session_id: str = field(repr=False)
    fingerprint: str
    add_special_tokens: bool = False

    KIND: ClassVar[str] = "drop"
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("tenant", Str("tenant_bytes", key=True), "Owner of the session."),
        Field("session_id", Str("session_id_bytes", least=1, key=True), "The session.", "yes"),
        Field("fingerprint", Str("tokenizer_bytes", least=1), "Fingerprint of its tokenizer.", "yes"),
        Field("add_special_tokens", Bool(), "The session's setting."),
    )


WorkRecord = Work | Adopt | Drop
"""What a record on a worker topic can be."""

_BY_KIND: Final[dict[str, type[WorkRecord]]] = {kind.KIND: kind for kind in (Work, Adopt, Drop)}


def decode_work_record(data: bytes, limits: Limits = DEFAULT_LIMITS) -> WorkRecord:
    """The record in `data`, whichever of the three it is. Raises ProtocolError."""
    raw = unpack_map(data, limits)
    check_version(raw)
    kind = raw.get("kind")
    message = _BY_KIND.get(kind) if isinstance(kind, str) else None
    if message is None:
        fail("kind", f"must be {Work.KIND}, {Adopt.KIND} or {Drop.KIND}")
    return message.from_record(raw, limits)
