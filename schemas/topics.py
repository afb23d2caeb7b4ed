"""Topic names, and which partition a session lives in.

Every topic has the same number of partitions, and a session has one partition number on all of them.
"""

from __future__ import annotations

from typing import Final

REQUESTS: Final = "tokenize.requests"
REPAIR: Final = "tokenize.repair-worker"
GPU: Final = "tokenize.gpu-worker"
CPU: Final = "tokenize.cpu-fallback"
REPLIES: Final = "tokenize.replies"
SESSIONS: Final = "tokenize.sessions"
HEALTH: Final = "tokenize.health"
CONTROL: Final = "tokenize.control"
SHADOW: Final = "tokenize.shadow"
QUARANTINE: Final = "tokenize.quarantine"
DLQ: Final = "tokenize.dlq"

#: Every topic, in the order in which a message meets them.
ALL: Final = (REQUESTS, REPAIR, GPU, CPU, REPLIES, SESSIONS, HEALTH, CONTROL, SHADOW, QUARANTINE, DLQ)

#: Topics of which the broker keeps the last record of each key.
COMPACTED: Final = frozenset({SESSIONS, HEALTH, CONTROL})

#: Partitions of every topic unless the operator chose another number before the first record.
DEFAULT_PARTITIONS: Final = 12

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def session_key(tenant: str, session_id: str) -> bytes:
    """The record key of a session: tenant, NUL, session id. Neither holds a NUL, so no two share a key."""
    return f"{tenant}\0{session_id}".encode()


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit MurmurHash2 of `data`, as an unsigned integer.

    Source: `org.apache.kafka.common.utils.Utils.murmur2`, which returns the same bits as a signed integer.
    """
    size = len(data)
    whole = size & ~3
    h = _SEED ^ size
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _MULTIPLIER & _MASK
        k ^= k >> 24
        h = h * _MULTIPLIER & _MASK ^ k * _MULTIPLIER & _MASK
    if size > whole:
        h ^= int.from_bytes(data[whole:], "little")
        h = h * _MULTIPLIER & _MASK
    h ^= h >> 13
    h = h * _MULTIPLIER & _MASK
    return h ^ h >> 15


def partition_for(key: bytes, partitions: int) -> int:
    """The partition that Kafka's default partitioner gives to `key`; ValueError if `partitions` < 1."""
    if partitions < 1:
        raise ValueError("a topic has at least one partition")
    return (murmur2(key) & 0x7FFFFFFF) % partitions
