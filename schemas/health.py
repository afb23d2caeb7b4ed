"""tokenize.health and tokenize.control: what workers say of themselves, and what operators tell them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from schemas.kinds import Bool, Fraction, Int, ListOf, MapOf, Str
from schemas.message import Field, Message, Nested, Record

#: Between path and route in a key of `Health.paths`.
PATH_SEPARATOR: Final = "/"

#: `Control.tokenizer` for a record that holds for every tokenizer without one of its own.
ALL_TOKENIZERS: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStats(Message):
    """Answers of one path and route since the worker started, and their recent latency in microseconds."""

    count: int
    p50_us: int
    p99_us: int

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("count", Int(), "Requests answered since the worker started.", "yes"),
        Field("p50_us", Int(), "Median microseconds of the recent ones.", "yes"),
        Field("p99_us", Int(), "99th percentile of the same.", "yes"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost(Message):
    """What encoding a whole text takes a worker, lately measured: `fixed_us` and `mib_us` more for each MiB of UTF-8,
    until its answer can be written. `record_us`: how long the worker is busy for one record of those it has had lately,
    which is less than the former where several are encoded at once."""

    fixed_us: int
    mib_us: int
    record_us: int

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("fixed_us", Int(), "Microseconds that every whole text takes.", "yes"),
        Field("mib_us", Int(), "Microseconds more for each MiB of its UTF-8.", "yes"),
        Field(
            "record_us",
            Int(),
            "Microseconds that the worker is busy for each record, those of one batch shared.",
            "yes",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Health(Record):
    """A worker's heartbeat. `time_ms` is epoch milliseconds; the record's key is `worker`."""

    worker: str
    kind: str
    tokenizers: tuple[str, ...] = ()
    queue_depth: int = 0
    time_ms: int
    ready: bool
    detail: str = ""
    paths: dict[str, PathStats] = field(default_factory=dict)
    counts: dict[str, int] | None = None
    costs: dict[str, Cost] | None = None

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("worker", Str("worker_bytes", least=1), "Id of the worker.", "yes"),
        Field("kind", Str("reason_bytes", least=1), "What it is, such as `repair-worker`.", "yes"),
        Field("tokenizers", ListOf(Str("tokenizer_bytes", least=1)), "Tokenizers that it serves."),
        Field("queue_depth", Int(), "Records read and not yet finished."),
        Field("time_ms", Int(), "Epoch milliseconds of this heartbeat.", "yes"),
        Field("ready", Bool(), "Whether it takes work.", "yes"),
        Field("detail", Str("message_bytes"), "Why it is not ready, for people."),
        Field(
            "paths",
            MapOf(Nested(PathStats)),
            "Counts and latencies by path and route, such as `repair/A`; without a route, as for failures, `repair`.",
        ),
        Field(
            "counts",
            MapOf(Int()),
            "What else it has counted since it started. A shadow worker: `samples`, and of these by what judged them "
            "`reference` and `engine`, and `failed`, `dropped`, and `different`.",
        ),
        Field(
            "costs",
            MapOf(Nested(Cost)),
            "What encoding whole texts has taken lately, by fingerprint: of GPU workers and CPU fallbacks.",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Control(Record):
    """A switch that every worker follows. The record's key is `tokenizer`: a fingerprint, or "*" for all."""

    tokenizer: str
    breaker_open: bool
    sampling: float | None = None

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(
            "tokenizer",
            Str("tokenizer_bytes", least=1),
            'A fingerprint, or "*" for all. A breaker that is open for all is open for each.',
            "yes",
        ),
        Field(
            "breaker_open", Bool(), "true: no splicing and no engine; the reference encodes every text in full.", "yes"
        ),
        Field(
            "sampling",
            Fraction(),
            'Share of answers that are checked against the reference. Without it the record of "*" says, or else each '
            "worker's own setting.",
        ),
    )
