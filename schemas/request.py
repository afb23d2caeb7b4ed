"""Requests: what clients write to tokenize.requests."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final, NamedTuple

from schemas.codes import Code
from schemas.errors import ProtocolError
from schemas.kinds import Bool, Choice, Int, Str, StrOrBin, fail
from schemas.limits import DEFAULT_LIMITS, Limits
from schemas.message import Field, Message, Nested, Record
from schemas.pack import skim_map


class Op(StrEnum):
    """What a request does to its session."""

    TEXT = "text"
    APPEND = "append"
    SPLICE = "splice"
    TRUNCATE = "truncate"
    FORK = "fork"
    CLOSE = "close"


class Want(StrEnum):
    """What the reply should carry: the change of the ids, or all of them."""

    PATCH = "patch"
    IDS = "ids"


#: The fields that an op cannot do without, beyond those that every request needs.
NEEDED_BY_OP: Final[dict[Op, tuple[str, ...]]] = {
    Op.TEXT: ("text",),
    Op.APPEND: ("base", "text"),
    Op.SPLICE: ("base", "text", "start", "end"),
    Op.TRUNCATE: ("base", "length"),
    Op.FORK: ("base", "new_session"),
    Op.CLOSE: (),
}

_POSITION: Final = Int(Code.BAD_POSITION)


def _ops_that_need(name: str) -> str:
    return ", ".join(op.value for op, names in NEEDED_BY_OP.items() if name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base(Message):
    """The state of a session that a delta was made on.

    `length` is in UTF-8 bytes. (epoch, revision) names one text for ever; without `epoch`, (revision, length)
    does so only within one incarnation of the session.
    """

    revision: int
    length: int
    epoch: int | None = None

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("revision", Int(), "Revision of the session, from the last reply.", "yes"),
        Field("length", _POSITION, "Length of its text in UTF-8 bytes.", "yes"),
        Field(
            "epoch",
            Int(),
            "Epoch of the session, from the last reply. Leave it out only if you cannot keep it; see "
            "[Epochs](#epochs).",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Record):
    """One request. Positions are UTF-8 bytes; `deadline_ms` is epoch milliseconds.

    The repr leaves out what users wrote and who they are, so that it can be logged.
    """

    request_id: str | bytes
    tokenizer: str
    op: Op
    tenant: str = field(default="", repr=False)
    session_id: str = field(default="", repr=False)
    add_special_tokens: bool = False
    base: Base | None = None
    text: str | None = field(default=None, repr=False)
    start: int | None = None
    end: int | None = None
    length: int | None = None
    new_session: str | None = field(default=None, repr=False)
    want: Want = Want.PATCH
    offsets: bool = False
    deadline_ms: int | None = None

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(
            "request_id",
            StrOrBin("request_id_bytes"),
            "Names this request; never used twice in a session. The reply carries it back as it was sent.",
            "yes",
        ),
        Field("tenant", Str("tenant_bytes", key=True), "Owner of the session: part of its identity."),
        Field(
            "session_id",
            Str("session_id_bytes", key=True),
            'The session. "" is a one-off: the text is encoded and no session is kept; only with op `text`.',
            "yes",
        ),
        Field("tokenizer", Str("tokenizer_bytes", least=1), "Registered name or fingerprint.", "yes"),
        Field(
            "add_special_tokens",
            Bool(),
            "Whether the post-processor adds its special tokens: part of the session's identity.",
        ),
        Field("op", Choice(Op), "What to do; see [Operations](#operations).", "yes"),
        Field("base", Nested(Base), "The state that the delta applies to.", _ops_that_need("base")),
        Field(
            "text",
            Str("text_bytes", code=Code.TEXT_TOO_LARGE),
            "The whole text (`text`), the new text (`append`), or the replacement (`splice`). May be empty.",
            _ops_that_need("text"),
        ),
        Field("start", _POSITION, "First byte that is replaced.", _ops_that_need("start")),
        Field("end", _POSITION, "End of the replaced bytes, exclusive.", _ops_that_need("end")),
        Field("length", _POSITION, "Bytes to keep.", _ops_that_need("length")),
        Field(
            "new_session",
            Str("session_id_bytes", least=1, key=True),
            "Session id of the copy, in the same tenant.",
            _ops_that_need("new_session"),
        ),
        Field("want", Choice(Want), "`patch`: only what changed. `ids`: all ids of the session."),
        Field("offsets", Bool(), "Whether the reply carries the byte spans of the ids that it sends."),
        Field(
            "deadline_ms",
            Int(),
            "Epoch milliseconds after which no answer is wanted: work not yet done is answered `expired`.",
        ),
    )

    def check(self, limits: Limits) -> None:
        """What the op needs is there, and positions fit the text that `base` names."""
        for name in NEEDED_BY_OP[self.op]:
            if getattr(self, name) is None:
                fail(name, f"is needed for op {self.op.value}")
        if not self.session_id and self.op is not Op.TEXT:
            fail("session_id", f"must not be empty for op {self.op.value}")
        if self.op is Op.FORK and self.new_session == self.session_id:
            fail("new_session", "must differ from session_id")
        self._check_positions()

    def _check_positions(self) -> None:
        if self.base is None:
            return
        if self.op is Op.SPLICE and self.start is not None and self.end is not None:
            if self.start > self.end:
                fail("start", "must not be beyond end", Code.BAD_POSITION)
            if self.end > self.base.length:
                fail("end", "must not be beyond base.length", Code.BAD_POSITION)
        if self.op is Op.TRUNCATE and self.length is not None and self.length > self.base.length:
            fail("length", "must not be beyond base.length", Code.BAD_POSITION)


class Identity(NamedTuple):
    """Who asked: enough to address a reply."""

    request_id: str | bytes
    tenant: str
    session_id: str


def peek_identity(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Identity | None:
    """Who sent a record that `Request.decode` refused, as far as its bytes tell; None without a request id.

    Works on records that are cut short or hold a broken field, so that they can still be answered `rejected`.
    A tenant or session id that is missing or unusable is "". Never raises, whatever the bytes.
    """
    raw = skim_map(data, frozenset(Identity._fields), limits)
    found: dict[str, Any] = {}
    for row in Request.FIELDS:
        if row.name in raw:
            with suppress(ProtocolError):
                found[row.name] = row.kind.read(raw[row.name], row.name, limits)
    if "request_id" not in found:
        return None
    return Identity(found["request_id"], found.get("tenant", ""), found.get("session_id", ""))
