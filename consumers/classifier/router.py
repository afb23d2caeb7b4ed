"""The routing decision, as a pure function of what is known when a request is read.

Nothing here does I/O or looks at a clock, so that every row of the routing table is a test. The order of the
rules is that of the design: past its deadline; unknown tokenizer; session operations and texts of live
sessions to the repair worker; long first texts to a GPU worker that is there, fresh, ready, willing, not too
busy and expected to answer before the CPU would; everything else to the CPU.

What is expected is what the workers measured (`pipeline.cost`), for a text of this size and this tokenizer, and
what waits before it. How long a text waits is not a promise: a heartbeat is seconds old, and which worker gets the
record is decided by its partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pipeline.cost import CPU_PRIOR, GPU_PRIOR, expected_us
from schemas.codes import Code
from schemas.health import Cost
from schemas.reply import Path
from schemas.request import Op
from schemas.topics import CPU, GPU, REPAIR


class Reason(StrEnum):
    """Why a request goes where it goes. A bounded set: it is a metric attribute and part of the reply."""

    EXPIRED = "expired"
    UNKNOWN_TOKENIZER = "unknown_tokenizer"
    SESSION_OPERATION = "session_operation"
    LIVE_SESSION = "live_session"
    LONG_TEXT = "long_text"
    SHORT_TEXT = "short_text"
    NO_GPU_WORKER = "no_gpu_worker_present"
    GPU_STALE = "gpu_worker_stale"
    GPU_NOT_READY = "gpu_worker_not_ready"
    GPU_UNSUPPORTED = "tokenizer_not_on_gpu"
    GPU_OVERLOADED = "gpu_worker_overloaded"
    CPU_FASTER = "cpu_is_faster"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    """Thresholds of the router."""

    gpu_text_bytes_min: int = 2048
    """A first text shorter than this is the CPU's, whatever was measured."""
    heartbeat_age_ms_max: int = 15_000
    """A worker whose last heartbeat is older than this counts as gone."""
    gpu_queue_depth_max: int = 256
    """A GPU worker with more waiting records than this gets no new ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the router needs to know of one request."""

    op: Op
    text_bytes: int
    """UTF-8 bytes of `text`; 0 when the operation has none."""
    fingerprint: str | None
    """The resolved tokenizer; None when the name is unknown here."""
    one_off: bool = False
    """True for a text without a session."""
    deadline_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """The last heartbeat of one worker that encodes whole texts, a GPU worker or a CPU fallback."""

    fingerprints: frozenset[str]
    queue_depth: int
    time_ms: int
    ready: bool = True
    costs: Mapping[str, Cost] = field(default_factory=dict)
    """By fingerprint, what was measured."""

    def expected_us(self, fingerprint: str, size_bytes: int, prior: Cost) -> float:
        """When a text that came now would be encoded."""
        return expected_us(self.costs.get(fingerprint, prior), size_bytes, self.queue_depth)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Pass the request on to a worker's topic."""

    topic: str
    path: Path
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer the request at once, with a failure."""

    code: Code
    reason: Reason


Decision = Forward | Answer


def route(
    facts: Facts,
    *,
    live: bool,
    gpu: Collection[Encoder],
    cpu: Collection[Encoder],
    now_ms: int,
    settings: RouterSettings,
) -> Decision:
    """Decide where one well-formed request goes.

    `live` is the directory's answer for the request's identity. It is a hint: when it is wrong the request
    still gets an exact answer, by one hop more.
    """
    if is_expired(facts.deadline_ms, now_ms):
        return Answer(code=Code.EXPIRED, reason=Reason.EXPIRED)
    if facts.fingerprint is None:
        return Answer(code=Code.UNKNOWN_TOKENIZER, reason=Reason.UNKNOWN_TOKENIZER)
    if facts.op is not Op.TEXT:
        return Forward(topic=REPAIR, path=Path.REPAIR, reason=Reason.SESSION_OPERATION)
    if live and not facts.one_off:
        return Forward(topic=REPAIR, path=Path.REPAIR, reason=Reason.LIVE_SESSION)
    reason = _full_text_reason(facts.text_bytes, facts.fingerprint, gpu, cpu, now_ms, settings)
    if reason is Reason.LONG_TEXT:
        return Forward(topic=GPU, path=Path.GPU, reason=reason)
    return Forward(topic=CPU, path=Path.CPU, reason=reason)


def is_expired(deadline_ms: int | None, now_ms: int) -> bool:
    """True once the deadline has passed; the deadline's own millisecond still counts as in time."""
    return deadline_ms is not None and now_ms > deadline_ms


def _full_text_reason(
    text_bytes: int,
    fingerprint: str,
    gpu: Collection[Encoder],
    cpu: Collection[Encoder],
    now_ms: int,
    settings: RouterSettings,
) -> Reason:
    """`LONG_TEXT` when a GPU worker should encode this text, else the first condition that no worker meets."""
    if text_bytes < settings.gpu_text_bytes_min:
        return Reason.SHORT_TEXT
    if not gpu:
        return Reason.NO_GPU_WORKER
    fresh = _fresh(gpu, now_ms, settings)
    if not fresh:
        return Reason.GPU_STALE
    ready = [worker for worker in fresh if worker.ready]
    if not ready:
        return Reason.GPU_NOT_READY
    supporting = [worker for worker in ready if fingerprint in worker.fingerprints]
    if not supporting:
        return Reason.GPU_UNSUPPORTED
    free = [worker for worker in supporting if worker.queue_depth <= settings.gpu_queue_depth_max]
    if not free:
        return Reason.GPU_OVERLOADED
    by_gpu_us = min(worker.expected_us(fingerprint, text_bytes, GPU_PRIOR) for worker in free)
    by_cpu_us = min(
        (worker.expected_us(fingerprint, text_bytes, CPU_PRIOR) for worker in _fresh(cpu, now_ms, settings)),
        default=expected_us(CPU_PRIOR, text_bytes),
    )
    return Reason.LONG_TEXT if by_gpu_us <= by_cpu_us else Reason.CPU_FASTER


def _fresh(workers: Collection[Encoder], now_ms: int, settings: RouterSettings) -> list[Encoder]:
    return [worker for worker in workers if now_ms - worker.time_ms <= settings.heartbeat_age_ms_max]
