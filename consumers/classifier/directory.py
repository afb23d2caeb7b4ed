"""What the classifier knows of the other workers: which sessions are live, and which workers encode whole texts.

Both are views of compacted topics, kept by following them from their start. Both are hints: they decide how
many hops an answer takes, never what it says.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from consumers.classifier.router import Encoder
from schemas.errors import ProtocolError
from schemas.health import Health
from schemas.state import directory_key

GPU_KIND: Final = "gpu-worker"
CPU_KIND: Final = "cpu-fallback"


class Directory:
    """Which sessions are live: the keys of tokenize.sessions that have a record and no tombstone after it.

    Bounded: over `sessions_max` keys the least recently announced or asked one is forgotten, and its next
    `text` takes the way of a first text.
    """

    def __init__(self, *, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._live: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._live)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Follow one record of tokenize.sessions. The value is not read: that there is one is the message."""
        if key is None:
            return
        if value is None:
            self._live.pop(key, None)
            return
        self._live[key] = None
        self._live.move_to_end(key)
        if len(self._live) > self._sessions_max:
            self._live.popitem(last=False)

    def is_live(self, tenant: str, session_id: str, fingerprint: str, add_special_tokens: bool) -> bool:
        """True when a worker has announced a session of this identity and not yet its end."""
        key = directory_key(tenant, session_id, fingerprint, add_special_tokens)
        if key not in self._live:
            return False
        self._live.move_to_end(key)
        return True


class EncoderView:
    """The last heartbeat of each worker of one kind, of at most `workers_max` of them."""

    def __init__(self, kind: str, *, workers_max: int) -> None:
        self._kind = kind
        self._workers_max = workers_max
        self._workers: OrderedDict[bytes, Encoder] = OrderedDict()

    @property
    def workers(self) -> tuple[Encoder, ...]:
        """Every worker heard of, stale ones too: how old is too old is the router's rule."""
        return tuple(self._workers.values())

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Follow one record of tokenize.health. A record that cannot be read says nothing, and changes
        nothing."""
        if key is None:
            return
        if value is None:
            self._workers.pop(key, None)
            return
        try:
            health = Health.decode(value)
        except ProtocolError:
            return
        if health.kind != self._kind:
            return
        self._workers[key] = Encoder(
            fingerprints=frozenset(health.tokenizers),
            queue_depth=health.queue_depth,
            time_ms=health.time_ms,
            ready=health.ready,
            costs=health.costs or {},
        )
        self._workers.move_to_end(key)
        if len(self._workers) > self._workers_max:
            self._workers.popitem(last=False)
