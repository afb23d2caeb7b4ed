"""What was measured, one row a figure. Times are microseconds; `exact` is None where nothing was compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRow:
    """An edit of a session, or the whole text encoded again. `note`: why there are no figures."""

    tokenizer: str
    case: str
    context_chars: int
    edit_chars: int
    lane: str
    samples: int = 0
    p50_us: float | None = None
    p99_us: float | None = None
    times_ours: float | None = None
    times_plain: float | None = None
    times_small: float | None = None
    exact: bool | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullRow:
    """Pieces encoded by themselves, `fresh` the first time and `again` the second. Megabytes are 10**6 bytes."""

    tokenizer: str
    lane: str
    pieces: int = 0
    fresh_mb_s: float | None = None
    again_mb_s: float | None = None
    fresh_times_reference: float | None = None
    again_times_reference: float | None = None
    exact: bool | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadsRow:
    """Two sessions, each appended to: the throughput of a thread for each over that of one thread for both."""

    tokenizer: str
    lane: str
    rounds: int = 0
    throughput_ratio: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """Sessions held at once. Bytes a token: as the session counts itself, with and without the bytes of its text, and
    as the process grew."""

    tokenizer: str
    lane: str
    sessions: int = 0
    tokens: int = 0
    text_bytes: int = 0
    with_text: float | None = None
    without_text: float | None = None
    resident: float | None = None
    note: str = ""


@dataclass(slots=True)
class Results:
    """Everything of one run. `made`: on what machine, with which versions, on which text."""

    made: dict[str, Any]
    repair: list[RepairRow] = field(default_factory=list)
    full: list[FullRow] = field(default_factory=list)
    threads: list[ThreadsRow] = field(default_factory=list)
    memory: list[MemoryRow] = field(default_factory=list)
