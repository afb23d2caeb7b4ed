"""Every bound of the memory broker, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.ports import MAX_RECORD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimits:
    """Bounds of one `MemoryCluster`. Sizes are counted by `pipeline.ports.record_size`.

    An unread log may grow to `log_records` / `log_bytes`; then `send` waits up to `send_timeout_s` for its
    readers and raises `BrokerOverloadedError`. A topic with `drop_oldest` keeps the newest `kept_records` /
    `kept_bytes` that everyone has read, and at the log's bound drops the oldest instead of refusing. An
    empty log takes any one record.
    """

    log_records: int = 65_536
    log_bytes: int = 64 * 1024 * 1024
    kept_records: int = 4_096
    kept_bytes: int = 8 * 1024 * 1024
    record_bytes: int = MAX_RECORD_BYTES
    send_timeout_s: float = 10.0
    #: How long a listener may take in a rebalance before the others go on without waiting for it.
    rebalance_timeout_s: float = 30.0


DEFAULT_MEMORY_LIMITS: Final = MemoryLimits()
