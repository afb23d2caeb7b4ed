"""Settings: frozen, parsed once from the environment, documented where they are declared.

A settings class is a frozen dataclass whose every field is declared with `setting(...)`: default, environment
variable, unit and one sentence. `from_env` parses one class, `render_table` writes the table for the
documentation, so that the two cannot disagree. Services declare their own classes with the same two
functions.

    >>> from_env(WorkerSettings, {"TOKSPLICE_MAX_ATTEMPTS": "5"}).max_attempts
    5
"""

from __future__ import annotations

import dataclasses
import os
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pipeline.errors import SettingsError
from pipeline.ports import MAX_RECORD_BYTES

PREFIX: Final = "TOKSPLICE_"

_KEY: Final = "toksplice.setting"
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spec:
    """What is known about one setting besides its type and default."""

    env: str
    unit: str
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    secret: bool = False


def setting(
    default: T,
    *,
    env: str,
    unit: str,
    doc: str,
    minimum: float | None = None,
    maximum: float | None = None,
    secret: bool = False,
) -> T:
    """Declare one field of a settings class. `unit` is "" for plain names and switches."""
    spec = Spec(env, unit, doc, minimum, maximum, secret)
    return dataclasses.field(default=default, metadata={_KEY: spec})


def specs(cls: type[Any]) -> dict[str, Spec]:
    """Field name -> declaration, in order. Raises KeyError for a field that was not declared by `setting`."""
    return {field.name: field.metadata[_KEY] for field in dataclasses.fields(cls)}


def from_env(cls: type[T], environ: Mapping[str, str] | None = None) -> T:
    """Parse `cls` from `environ` (the process environment by default).

    Raises SettingsError that lists every bad variable at once. An empty variable counts as not set.
    """
    source = os.environ if environ is None else environ
    hints = typing.get_type_hints(cls)
    values: dict[str, object] = {}
    problems: list[str] = []
    for name, spec in specs(cls).items():
        raw = source.get(spec.env, "").strip()
        if not raw:
            continue
        try:
            values[name] = _check(spec, _parse(hints[name], raw))
        except ValueError as error:
            shown = "the value given" if spec.secret else repr(raw)
            problems.append(f"{spec.env}: {shown} {error}")
    if problems:
        raise SettingsError("bad settings: " + "; ".join(problems))
    return cls(**values)


def render_table(*classes: type[Any]) -> str:
    """A Markdown table of every setting of `classes`: variable, default, unit, meaning."""
    lines = ["| variable | default | unit | meaning |", "|---|---|---|---|"]
    for cls in classes:
        defaults = {field.name: field.default for field in dataclasses.fields(cls)}
        for name, spec in specs(cls).items():
            lines.append(f"| `{spec.env}` | {_show(defaults[name])} | {spec.unit} | {spec.doc} |")
    return "\n".join(lines) + "\n"


def _parse(kind: object, raw: str) -> object:
    if kind is bool:
        lowered = raw.lower()
        if lowered not in _TRUE | _FALSE:
            raise ValueError("is not a switch (use true or false)")
        return lowered in _TRUE
    if kind is int:
        try:
            return int(raw)
        except ValueError:
            raise ValueError("is not a whole number") from None
    if kind is float:
        try:
            return float(raw)
        except ValueError:
            raise ValueError("is not a number") from None
    return raw


def _check(spec: Spec, value: object) -> object:
    if isinstance(value, int | float):
        low, high = spec.minimum, spec.maximum
        # Written so that a NaN fails too.
        if not ((low is None or value >= low) and (high is None or value <= high) and abs(value) < 1e18):
            bounds = f"at least {low:g}" if high is None else f"between {low or 0:g} and {high:g}"
            raise ValueError(f"is out of bounds (must be {bounds})")
    return value


def _show(default: object) -> str:
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if default != "" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings of the chassis that every worker runs on."""

    worker_id: str = setting(
        "",
        env="TOKSPLICE_WORKER_ID",
        unit="",
        doc="Name of this worker in tokenize.health; empty makes one from kind, host and a random part.",
    )
    partitions: int = setting(
        12,
        env="TOKSPLICE_PARTITIONS",
        unit="partitions",
        doc="Partition count of every topic. Never change it on a running installation.",
        minimum=1,
        maximum=10_000,
    )
    record_bytes: int = setting(
        MAX_RECORD_BYTES,
        env="TOKSPLICE_RECORD_BYTES",
        unit="bytes",
        doc="Largest record written; a larger answer is replaced by `rejected` / `text_too_large`.",
        minimum=256 * 1024,
        maximum=MAX_RECORD_BYTES,
    )
    max_attempts: int = setting(
        3,
        env="TOKSPLICE_MAX_ATTEMPTS",
        unit="tries",
        doc="Tries of one record before it goes to tokenize.dlq. An unreachable broker is not counted.",
        minimum=1,
        maximum=100,
    )
    retry_backoff_s: float = setting(
        0.05,
        env="TOKSPLICE_RETRY_BACKOFF_S",
        unit="seconds",
        doc="Pause before the second try of a record; doubles with each further try.",
        minimum=0,
    )
    retry_backoff_max_s: float = setting(
        1.0,
        env="TOKSPLICE_RETRY_BACKOFF_MAX_S",
        unit="seconds",
        doc="Longest pause between two tries of a record.",
        minimum=0,
    )
    broker_backoff_s: float = setting(
        0.2,
        env="TOKSPLICE_BROKER_BACKOFF_S",
        unit="seconds",
        doc="Pause after the first failed call to the broker; doubles while it stays unreachable.",
        minimum=0.001,
    )
    broker_backoff_max_s: float = setting(
        10.0,
        env="TOKSPLICE_BROKER_BACKOFF_MAX_S",
        unit="seconds",
        doc="Longest pause between two calls to an unreachable broker.",
        minimum=0.001,
    )
    fetch_max_records: int = setting(
        100,
        env="TOKSPLICE_FETCH_MAX_RECORDS",
        unit="records",
        doc="Most records taken from the broker in one fetch.",
        minimum=1,
    )
    fetch_timeout_s: float = setting(
        0.1,
        env="TOKSPLICE_FETCH_TIMEOUT_S",
        unit="seconds",
        doc="Longest wait of one fetch when nothing arrives.",
        minimum=0.001,
    )
    queue_records: int = setting(
        256,
        env="TOKSPLICE_QUEUE_RECORDS",
        unit="records",
        doc="Records queued per partition before it is paused, but for one fetch; it is resumed at half.",
        minimum=1,
    )
    queue_bytes: int = setting(
        64 * 1024 * 1024,
        env="TOKSPLICE_QUEUE_BYTES",
        unit="bytes",
        doc="Bytes queued per partition before it is paused, but for one fetch; it is resumed at half.",
        minimum=1,
    )
    max_parked: int = setting(
        1024,
        env="TOKSPLICE_MAX_PARKED",
        unit="records",
        doc="Records of one partition parked at a time (in a batch, or waiting for earlier state).",
        minimum=1,
    )
    max_uncommitted: int = setting(
        8192,
        env="TOKSPLICE_MAX_UNCOMMITTED",
        unit="records",
        doc="Records of a partition begun since its oldest unfinished one: the most a crash repeats.",
        minimum=1,
    )
    commit_interval_s: float = setting(
        0.1,
        env="TOKSPLICE_COMMIT_INTERVAL_S",
        unit="seconds",
        doc="Shortest time between two commits.",
        minimum=0,
    )
    handler_limit_s: float = setting(
        30.0,
        env="TOKSPLICE_HANDLER_LIMIT_S",
        unit="seconds",
        doc="A record unfinished for longer is reported in the log, in metrics and in tokenize.health.",
        minimum=0.001,
    )
    revoke_drain_s: float = setting(
        5.0,
        env="TOKSPLICE_REVOKE_DRAIN_S",
        unit="seconds",
        doc="How long a rebalance waits for records in work before it cancels them.",
        minimum=0,
    )
    drain_s: float = setting(
        10.0,
        env="TOKSPLICE_DRAIN_S",
        unit="seconds",
        doc="How long a shutdown goes on working on what was already fetched.",
        minimum=0,
    )
    stop_s: float = setting(
        5.0,
        env="TOKSPLICE_STOP_S",
        unit="seconds",
        doc="Limit of each further step of a shutdown: last commit, service, consumer, producer.",
        minimum=0.001,
    )
    heartbeat_s: float = setting(
        2.0,
        env="TOKSPLICE_HEARTBEAT_S",
        unit="seconds",
        doc="Time between two records to tokenize.health and between two readings of lag and queue depth.",
        minimum=0.01,
    )
    blocking_threads: int = setting(
        4,
        env="TOKSPLICE_BLOCKING_THREADS",
        unit="threads",
        doc="Threads for work of more than a millisecond.",
        minimum=1,
        maximum=256,
    )
    sampling: float = setting(
        0.05,
        env="TOKSPLICE_SAMPLING",
        unit="share",
        doc="Share of answers that are sampled for checking where tokenize.control names no rate; 0 is none.",
        minimum=0,
        maximum=1,
    )
    sampling_seed: int = setting(
        0,
        env="TOKSPLICE_SAMPLING_SEED",
        unit="number",
        doc="Decides with worker, tokenizer and path which answers are sampled.",
        minimum=0,
    )
    sample_queue_records: int = setting(
        64,
        env="TOKSPLICE_SAMPLE_QUEUE_RECORDS",
        unit="records",
        doc="Samples of one worker that wait to be written; further ones are dropped and counted.",
        minimum=1,
    )
    sample_queue_bytes: int = setting(
        64 * 1024 * 1024,
        env="TOKSPLICE_SAMPLE_QUEUE_BYTES",
        unit="bytes",
        doc="Memory of these samples; further ones are dropped and counted.",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings of `pipeline.client.Client`."""

    deadline_s: float = setting(
        30.0,
        env="TOKSPLICE_CLIENT_DEADLINE_S",
        unit="seconds",
        doc="Time limit of a call that names none.",
        minimum=0.001,
    )
    max_pending: int = setting(
        1024,
        env="TOKSPLICE_CLIENT_MAX_PENDING",
        unit="requests",
        doc="Requests in flight at a time; further calls wait, within their deadline.",
        minimum=1,
    )
    max_retries: int = setting(
        5,
        env="TOKSPLICE_CLIENT_MAX_RETRIES",
        unit="tries",
        doc="Times that one call is sent again after a retriable error, within its deadline.",
        minimum=0,
    )
    retry_backoff_s: float = setting(
        0.05,
        env="TOKSPLICE_CLIENT_RETRY_BACKOFF_S",
        unit="seconds",
        doc="Pause before a call is sent again; doubles each time.",
        minimum=0,
    )
    retry_backoff_max_s: float = setting(
        2.0,
        env="TOKSPLICE_CLIENT_RETRY_BACKOFF_MAX_S",
        unit="seconds",
        doc="Longest pause before a call is sent again.",
        minimum=0,
    )
    fetch_max_records: int = setting(
        500,
        env="TOKSPLICE_CLIENT_FETCH_MAX_RECORDS",
        unit="records",
        doc="Most replies taken from the broker in one fetch.",
        minimum=1,
    )
    fetch_timeout_s: float = setting(
        0.1,
        env="TOKSPLICE_CLIENT_FETCH_TIMEOUT_S",
        unit="seconds",
        doc="Longest wait of one fetch of replies when nothing arrives.",
        minimum=0.001,
    )
    stop_s: float = setting(
        5.0,
        env="TOKSPLICE_CLIENT_STOP_S",
        unit="seconds",
        doc="Limit of each step of closing the client.",
        minimum=0.001,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Settings of `pipeline.telemetry`. With no endpoint nothing is recorded, started or sent."""

    otlp_endpoint: str = setting(
        "",
        env="OTEL_EXPORTER_OTLP_ENDPOINT",
        unit="",
        doc="Base address of an OTLP/HTTP collector (http://localhost:4318); empty: no telemetry.",
    )
    metric_interval_s: float = setting(
        10.0,
        env="TOKSPLICE_METRIC_INTERVAL_S",
        unit="seconds",
        doc="Time between two exports of metrics.",
        minimum=0.1,
    )
    trace_ratio: float = setting(
        1.0,
        env="TOKSPLICE_TRACE_RATIO",
        unit="share",
        doc="Share of new traces that are recorded; a trace begun elsewhere keeps its own decision.",
        minimum=0,
        maximum=1,
    )
    conversation_key: str = setting(
        "",
        env="TOKSPLICE_CONVERSATION_KEY",
        unit="",
        doc="Key of the hash that stands for a session in traces; empty: one drawn by each process.",
        secret=True,
    )


SETTINGS_CLASSES: Final[tuple[type[Any], ...]] = (WorkerSettings, ClientSettings, TelemetrySettings)
"""The classes of this package, in the order of the documentation."""
