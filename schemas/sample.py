"""tokenize.shadow and tokenize.quarantine: sampled answers, and those that the check contradicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, Self

from schemas.kinds import Bin, Bool, Choice, Int, MapOf, Str, StrOrBin, fail
from schemas.limits import DEFAULT_LIMITS, Limits
from schemas.message import Field, Nested, Record
from schemas.pack import skim_map
from schemas.reply import ID_BYTES, OFFSET_PAIR_BYTES, Path, Route
from schemas.request import Op

HEAD_BYTES: Final = 8 * 1024
"""A sample's record up to its text, which is the first long field, and more: every field before it is bounded."""


class Tier(StrEnum):
    """What judged a sample."""

    REFERENCE = "reference"
    """The reference, in a process of its own."""
    ENGINE = "engine"
    """The engine's own encoding of the whole text: cheap, and blind to what the engine gets wrong on every text."""


class DifferenceKind(StrEnum):
    """How an answer differs from what is right, at the first place where it does."""

    SUBSTITUTED = "substituted"
    DROPPED = "dropped"
    ADDED = "added"
    MOVED_SPLIT = "moved_split"
    """Other tokens that spell the same text."""
    OFFSETS = "offsets"
    """Right ids, wrong byte spans."""
    SPECIAL_TOKENS = "special_tokens"
    """The ids that the post-processor puts around the text."""
    FIRST_CHANGED = "first_changed"
    """Right ids, but the answer called more of the old ones unchanged than are."""
    RESTARTS = "restarts"
    """A right answer, but the session has the places wrong at which the engine may resume: its next edit may go
    wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Record):
    """One answer as its client has it, with all that is needed to tell whether it is right.

    `ids` is little-endian u32: all ids of the session after the answer, which are the ids before it with the answer's
    patch applied. `offsets` are those that the answer carried, little-endian u32 pairs of UTF-8 bytes, for the tokens
    from `keep_left` on; None when it carried none. `restarts` is a bit for each token but the special ones, that of the
    first one lowest; None when no engine serves the session.
    """

    sample_id: str
    time_ms: int
    tenant: str = field(default="", repr=False)
    session_id: str = field(default="", repr=False)
    request_id: str | bytes
    op: Op
    fingerprint: str
    tokenizer: str = ""
    add_special_tokens: bool = False
    path: Path
    route: Route
    reason: str = ""
    epoch: int = 0
    revision: int = 0
    text: bytes = field(repr=False)
    ids: bytes = field(repr=False)
    offsets: bytes | None = field(default=None, repr=False)
    restarts: bytes | None = field(default=None, repr=False)
    keep_left: int = 0
    keep_right: int = 0
    first_changed: int = 0
    same_until: int = 0
    certificate: str = ""
    engine: str = ""
    engine_version: str = ""
    libraries: dict[str, str] = field(default_factory=dict)
    worker: str

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("sample_id", Str("reason_bytes", least=1), "Names this sample.", "yes"),
        Field("time_ms", Int(), "Epoch milliseconds at which the answer was acknowledged.", "yes"),
        Field("tenant", Str("tenant_bytes", key=True), "The request's."),
        Field("session_id", Str("session_id_bytes", key=True), "The request's."),
        Field("request_id", StrOrBin("request_id_bytes"), "The request that was answered.", "yes"),
        Field("op", Choice(Op), "Its operation.", "yes"),
        Field("fingerprint", Str("tokenizer_bytes", least=1), "Fingerprint of the tokenizer.", "yes"),
        Field("tokenizer", Str("tokenizer_bytes"), "Its registered name, if it has one."),
        Field("add_special_tokens", Bool(), "The session's setting."),
        Field("path", Choice(Path), "The path in the reply.", "yes"),
        Field("route", Choice(Route), "The route in the reply.", "yes"),
        Field("reason", Str("reason_bytes"), "The reason in the reply."),
        Field("epoch", Int(), "The session's epoch in the reply."),
        Field("revision", Int(), "The session's revision in the reply."),
        Field("keep_left", Int(), "As in the reply."),
        Field("keep_right", Int(), "As in the reply."),
        Field("first_changed", Int(), "As in the reply."),
        Field("same_until", Int(), "Ids at the start that are as before, counted again by the worker."),
        Field("certificate", Str("message_bytes"), "What the splice was accepted on, in words."),
        Field("engine", Str("reason_bytes"), "`native` or `reference`: what tokenized."),
        Field("engine_version", Str("reason_bytes"), "Version of the engine."),
        Field("libraries", MapOf(Str("reason_bytes")), "Versions of the libraries that decide ids."),
        Field("worker", Str("worker_bytes", least=1), "Id of the worker that answered.", "yes"),
        # What is long comes last, so that a head is read without it.
        Field("text", Bin("record_bytes"), "The whole text after the answer, UTF-8.", "yes"),
        Field(
            "ids",
            Bin("record_bytes", unit=ID_BYTES),
            "All ids after the answer, as its client has them: the ids before it, patched. Little-endian u32.",
            "yes",
        ),
        Field(
            "offsets",
            Bin("record_bytes", unit=OFFSET_PAIR_BYTES),
            "Spans of the ids that were sent, if they were: little-endian u32 pairs, from token `keep_left` on.",
        ),
        Field(
            "restarts",
            Bin("record_bytes"),
            "Where the session says that the engine may resume: a bit for each token but the special ones.",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleHead(Record):
    """What a sample is about: fields of `Sample`, read without its text and ids."""

    time_ms: int
    fingerprint: str
    tokenizer: str = ""
    path: Path
    route: Route

    FIELDS: ClassVar[tuple[Field, ...]] = tuple(
        row for row in Sample.FIELDS if row.name in {"time_ms", "fingerprint", "tokenizer", "path", "route"}
    )

    @classmethod
    def skim(cls, data: bytes, limits: Limits = DEFAULT_LIMITS) -> Self:
        """The head of the sample in a record value, the rest of which may be broken. Raises ProtocolError."""
        found = skim_map(data[:HEAD_BYTES], _HEAD_NAMES, limits)
        if len(found) < len(_HEAD_NAMES) and len(data) > HEAD_BYTES:
            found = skim_map(data, _HEAD_NAMES, limits)  # written by somebody who puts fields in another order
        return cls.from_record(found, limits)


_HEAD_NAMES: Final = frozenset(row.name for row in SampleHead.FIELDS) | {"v"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Record):
    """A sample that is wrong, and where.

    `index`, `answer_total` and `expected_total` count tokens. `redacted`: text, ids, offsets and restarts of
    the sample, and the two ids, were taken out by the operator's wish.
    """

    sample: Sample
    tier: Tier
    kind: DifferenceKind
    index: int
    answer_id: int | None = None
    expected_id: int | None = None
    answer_total: int
    expected_total: int
    redacted: bool = False
    text_bytes: int
    time_ms: int
    worker: str

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("sample", Nested(Sample), "The sample: a map of its fields without `v`.", "yes"),
        Field("tier", Choice(Tier), "What contradicted it.", "yes"),
        Field("kind", Choice(DifferenceKind), "How it differs.", "yes"),
        Field("index", Int(), "The first token that differs.", "yes"),
        Field("answer_id", Int(), "The answer's id there.", "unless the answer ends before, or redacted"),
        Field("expected_id", Int(), "The right id there.", "unless the right ids end before, or redacted"),
        Field("answer_total", Int(), "Ids of the answer.", "yes"),
        Field("expected_total", Int(), "Ids that are right.", "yes"),
        Field("redacted", Bool(), "Whether text, ids, offsets and restarts of the sample were taken out."),
        Field("text_bytes", Int(), "Length of the text in UTF-8 bytes.", "yes"),
        Field("time_ms", Int(), "Epoch milliseconds at which it was found.", "yes"),
        Field("worker", Str("worker_bytes", least=1), "Id of the shadow worker.", "yes"),
    )

    def check(self, limits: Limits) -> None:
        """A redacted finding holds nothing that could be read as text."""
        sample = self.sample
        if self.redacted and (sample.text or sample.ids or sample.offsets or sample.restarts):
            fail("redacted", "does not go with text, ids, offsets or restarts")
