"""Replies: what the workers write to tokenize.replies."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, Self

from schemas.codes import Code, Status
from schemas.kinds import Bin, Bool, Choice, Int, MapOf, Str, StrOrBin, fail
from schemas.limits import DEFAULT_LIMITS, Limits
from schemas.message import Field, Record

#: Bytes of one id, and of one (start, end) pair, both little-endian u32.
ID_BYTES: Final = 4
OFFSET_PAIR_BYTES: Final = 8


class Path(StrEnum):
    """Which of the three paths did the work."""

    REPAIR = "repair"
    GPU = "gpu"
    CPU = "cpu"


class Engine(StrEnum):
    """What tokenizes on a route. It is not on the wire: the route says it."""

    NATIVE = "native"
    GPU = "gpu"
    REFERENCE = "reference"


class Route(StrEnum):
    """How exactness was assured.

    A: the scanner was resumed. B: the model was resumed. C: a certified window of the reference. D: the
    reference on the whole text. G: the kernels of the GPU on the whole text. A first text has nothing to resume: A and
    B are then the same scan from its start.
    """

    A = "A"
    B = "B"
    C = "C"
    D = "D"
    G = "G"

    @property
    def engine(self) -> Engine:
        """What tokenizes on this route."""
        if self is Route.G:
            return Engine.GPU
        return Engine.NATIVE if self in (Route.A, Route.B) else Engine.REFERENCE


def clip(text: str, most_bytes: int) -> str:
    """`text` cut between characters to `most_bytes` of UTF-8, with lone surrogates replaced."""
    return text.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Record):
    """The answer to one request.

    `ids` is little-endian u32 and `offsets` little-endian u32 pairs (start, end) in UTF-8 bytes of the
    session's text, one pair for each id sent. `length` is in UTF-8 bytes; `keep_left`, `keep_right`, `total`
    and `first_changed` count tokens, special tokens included; `timings` are microseconds.
    """

    request_id: str | bytes
    status: Status
    tenant: str = field(default="", repr=False)
    session_id: str = field(default="", repr=False)
    code: Code | None = None
    message: str = ""
    retriable: bool = False
    path: Path | None = None
    reason: str = ""
    route: Route | None = None
    epoch: int = 0
    revision: int = 0
    length: int = 0
    keep_left: int = 0
    ids: bytes = field(default=b"", repr=False)
    keep_right: int = 0
    total: int = 0
    first_changed: int = 0
    offsets: bytes | None = field(default=None, repr=False)
    fingerprint: str = ""
    encoded_chars: int = 0
    timings: dict[str, int] = field(default_factory=dict)
    replayed: bool = False

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("request_id", StrOrBin("request_id_bytes"), "The request's, as it was sent.", "yes"),
        Field("tenant", Str("tenant_bytes", key=True), "The request's."),
        Field("session_id", Str("session_id_bytes", key=True), "The request's."),
        Field("status", Choice(Status), "The outcome; see [Codes](#codes).", "yes"),
        Field("code", Choice(Code), "Why not; absent with status `ok`.", "every status but ok"),
        Field("message", Str("message_bytes"), "The cause and the remedy, for people. Never parse it."),
        Field("retriable", Bool(), "Whether the same request, sent again after a pause, may succeed."),
        Field("path", Choice(Path), "Which path did the work; absent when none did."),
        Field("reason", Str("reason_bytes"), "Why this path and this route."),
        Field(
            "route",
            Choice(Route),
            "How exactness was assured: by the native engine, A its scanner was resumed, B its model was resumed (a "
            "first text is scanned from its start); by the reference, C a certified window, D the whole text; G by the "
            "GPU's kernels, on the whole text.",
        ),
        Field("epoch", Int(), "Names this incarnation of the session; see [Epochs](#epochs)."),
        Field(
            "revision",
            Int(),
            "1 after the first text, 1 more after each accepted change; 0 without a session.",
        ),
        Field("length", Int(), "Length of the session's text in UTF-8 bytes."),
        Field("keep_left", Int(), "Old ids that stay at the start, in tokens."),
        Field("ids", Bin("record_bytes", unit=ID_BYTES), "The ids between the kept ones: little-endian u32."),
        Field("keep_right", Int(), "Old ids that stay at the end, in tokens."),
        Field("total", Int(), "Ids of the session after the change, special tokens included."),
        Field(
            "first_changed",
            Int(),
            "Index of the first id that differs from before; a KV cache is good up to it.",
        ),
        Field(
            "offsets",
            Bin("record_bytes", unit=OFFSET_PAIR_BYTES),
            "One (start, end) pair of UTF-8 byte positions for each id sent: little-endian u32.",
            "if the request asked",
        ),
        Field("fingerprint", Str("tokenizer_bytes"), "Fingerprint of the tokenizer that was used."),
        Field("encoded_chars", Int(), "Characters that were tokenized for this answer; the rest was kept."),
        Field("timings", MapOf(Int()), "Microseconds spent, by stage. Names may be added at any time."),
        Field("replayed", Bool(), "Whether this repeats the answer to an earlier record of the same request."),
    )

    @classmethod
    def failure(
        cls,
        request_id: str | bytes,
        code: Code,
        message: str,
        *,
        tenant: str = "",
        session_id: str = "",
        path: Path | None = None,
        reason: str = "",
        epoch: int = 0,
        revision: int = 0,
        length: int = 0,
        fingerprint: str = "",
        timings: dict[str, int] | None = None,
    ) -> Self:
        """The reply that says `code`: status and retriable come from it, and `message` is cut to its bound.

        `epoch`, `revision` and `length` tell a client with a stale base what state the session is in.
        """
        return cls(
            request_id=request_id,
            status=code.status,
            code=code,
            message=clip(message, DEFAULT_LIMITS.message_bytes),
            retriable=code.retriable,
            tenant=tenant,
            session_id=session_id,
            path=path,
            reason=reason,
            epoch=epoch,
            revision=revision,
            length=length,
            fingerprint=fingerprint,
            timings=timings or {},
        )

    def check(self, limits: Limits) -> None:
        """Status and code agree, and the numbers of ids add up: a wrong patch must never leave a worker."""
        if self.code is None and self.status is not Status.OK:
            fail("code", f"is needed with status {self.status.value}")
        if self.code is not None and self.code.status is not self.status:
            fail("code", f"does not go with status {self.status.value}")
        sent = len(self.ids) // ID_BYTES
        if self.status is Status.OK and self.keep_left + sent + self.keep_right != self.total:
            fail("total", "must be keep_left + the ids sent + keep_right")
        if self.offsets is not None and len(self.offsets) // OFFSET_PAIR_BYTES != sent:
            fail("offsets", "must hold one pair for each id sent")
