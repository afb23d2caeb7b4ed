"""Settings of the repair worker, parsed once from the environment by `pipeline.settings.from_env`."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.settings import setting
from repair_worker.history import HistoryLimits
from repair_worker.store import StoreLimits

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSettings:
    """Settings of the repair worker."""

    session_ttl_s: float = setting(
        3600.0,
        env="TOKSPLICE_SESSION_TTL_S",
        unit="seconds",
        doc="Time without use after which a session is let go.",
        minimum=0.001,
    )
    sessions_bytes_max: int = setting(
        2048 * _MIB,
        env="TOKSPLICE_SESSIONS_BYTES_MAX",
        unit="bytes",
        doc="Memory of all sessions of one worker; the least recently used ones make room.",
        minimum=1,
    )
    sessions_max: int = setting(
        100_000,
        env="TOKSPLICE_SESSIONS_MAX",
        unit="sessions",
        doc="Sessions of one worker; the least recently used ones make room.",
        minimum=1,
    )
    beginnings_bytes_max: int = setting(
        64 * _MIB,
        env="TOKSPLICE_BEGINNINGS_BYTES_MAX",
        unit="bytes",
        doc="Beginnings of texts kept for sessions of the same tenant that begin alike, as if nothing were shared.",
        minimum=0,
    )
    session_text_bytes_max: int = setting(
        16 * _MIB,
        env="TOKSPLICE_SESSION_TEXT_BYTES_MAX",
        unit="bytes",
        doc="Longest text of a session. Not over the limit of one request, or a client could never resend it.",
        minimum=1,
    )
    splice_text_bytes_max: int = setting(
        16 * _MIB,
        env="TOKSPLICE_SPLICE_TEXT_BYTES_MAX",
        unit="bytes",
        doc="Sessions with a longer text are encoded in full at every change, unless the native engine serves them.",
        minimum=0,
    )
    history_answers_max: int = setting(
        64,
        env="TOKSPLICE_HISTORY_ANSWERS_MAX",
        unit="answers",
        doc="Latest answers of a session that a repeated request id gets again.",
        minimum=1,
    )
    history_bytes_max: int = setting(
        128 * 1024,
        env="TOKSPLICE_HISTORY_BYTES_MAX",
        unit="bytes",
        doc="Memory of a session's latest answers; older ones make room.",
        minimum=1024,
    )
    history_inline_bytes_max: int = setting(
        4096,
        env="TOKSPLICE_HISTORY_INLINE_BYTES_MAX",
        unit="bytes",
        doc="Ids and offsets of one answer up to this size are remembered; larger ones are cut from the session again.",
        minimum=0,
    )
    park_s: float = setting(
        1.0,
        env="TOKSPLICE_PARK_S",
        unit="seconds",
        doc="How long a delta without a deadline waits for the state it builds on; a deadline makes it its own limit.",
        minimum=0,
    )
    parked_max: int = setting(
        1024,
        env="TOKSPLICE_PARKED_MAX",
        unit="records",
        doc="Deltas that wait at a time; further ones are answered need_text at once.",
        minimum=0,
    )
    session_parked_max: int = setting(
        64,
        env="TOKSPLICE_SESSION_PARKED_MAX",
        unit="records",
        doc="Deltas of one session that wait at a time.",
        minimum=0,
    )
    housekeeping_s: float = setting(
        1.0,
        env="TOKSPLICE_HOUSEKEEPING_S",
        unit="seconds",
        doc="Time between two rounds of expiring sessions, writing tombstones and snapshots, and setting gauges.",
        minimum=0.01,
    )
    expiries_max: int = setting(
        1000,
        env="TOKSPLICE_EXPIRIES_MAX",
        unit="sessions",
        doc="Idle sessions let go in one round.",
        minimum=1,
    )
    tombstones_max: int = setting(
        10_000,
        env="TOKSPLICE_TOMBSTONES_MAX",
        unit="records",
        doc="Ends of sessions that wait to be announced; over it the oldest is dropped, which costs one hop later.",
        minimum=1,
    )
    hops_max: int = setting(
        4,
        env="TOKSPLICE_HOPS_MAX",
        unit="hops",
        doc="Times that a request may be passed on before it is answered with an error.",
        minimum=1,
    )

    def store(self) -> StoreLimits:
        """The bounds of the session store."""
        return StoreLimits(ttl_s=self.session_ttl_s, bytes_max=self.sessions_bytes_max, sessions_max=self.sessions_max)

    def history(self) -> HistoryLimits:
        """The bounds of each session's history."""
        return HistoryLimits(
            answers_max=self.history_answers_max,
            bytes_max=self.history_bytes_max,
            inline_bytes_max=self.history_inline_bytes_max,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSettings:
    """Settings of the snapshots of sessions (the embedded way only)."""

    bytes_max: int = setting(
        4096 * _MIB,
        env="TOKSPLICE_SNAPSHOT_BYTES_MAX",
        unit="bytes",
        doc="States in the snapshot file; the ones written longest ago make room.",
        minimum=1,
    )
    batch_max: int = setting(
        32,
        env="TOKSPLICE_SNAPSHOT_BATCH_MAX",
        unit="sessions",
        doc="Changed sessions written in one round of housekeeping.",
        minimum=1,
    )
    busy_s: float = setting(
        5.0,
        env="TOKSPLICE_SNAPSHOT_BUSY_S",
        unit="seconds",
        doc="Longest wait for another process that has the snapshot file locked.",
        minimum=0,
    )
