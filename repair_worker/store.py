"""The session store: which sessions are held, what they weigh, and which one goes when there is no room.

A plain synchronous data structure on an injected clock. It never tokenizes, waits or talks to a broker;
whoever owns it is told of every session that leaves through `on_removed`.

Bounds, each with its cause of removal:

    ttl_s           seconds without use                                       Cause.TTL
    bytes_max       bytes of all sessions and their histories together        Cause.LRU
    sessions_max    sessions                                                  Cause.LRU
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from repair_worker.history import History

ENTRY_BYTES: Final = 1024
"""What one entry weighs besides its buffers: the objects of the entry, its keys and its place in the maps."""


class Identity(NamedTuple):
    """What makes two requests speak of the same session."""

    tenant: str
    session_id: str
    fingerprint: str
    add_special_tokens: bool


class Cause(StrEnum):
    """Why a session left the store."""

    TTL = "ttl"
    LRU = "lru"
    CLOSE = "close"
    REPLACED = "replaced"
    LOST = "lost"
    """Its partition moved to another worker, or a change was interrupted and its state is unknown."""
    DOUBTED = "doubted"
    """The shadow check found its tokenizer, or itself, wrong."""


class HeldSession(Protocol):
    """What the store needs of a session: its exact size."""

    @property
    def size_bytes(self) -> int: ...


S = TypeVar("S", bound=HeldSession)


@dataclass(slots=True, kw_only=True, eq=False)
class Entry(Generic[S]):
    """One held session. `(epoch, revision)` names the state of `session`, for ever and everywhere."""

    identity: Identity
    partition: int
    session: S
    length: int
    """UTF-8 bytes of the text in that state: the session itself may be read under `lock` only."""
    epoch: int
    revision: int
    history: History
    renew: bool = False
    """Draw a new epoch with the next accepted change: another life of this session may have given the next
    revision of this epoch to another text."""
    origin_epoch: int = 0
    """The epoch that the session arrived with: a second hand-over with the same one is a duplicate."""
    announced: bool = False
    """Whether the directory has a record of this session."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while `session` is read or changed, which no two threads may do at once."""
    held: bool = field(default=False, init=False)
    """False once the store has let go of this entry."""
    pins: int = field(default=0, init=False)
    last_used_s: float = field(default=0.0, init=False)
    accounted_bytes: int = field(default=0, init=False)

    def weigh(self) -> int:
        """Bytes of the session, its history and its bookkeeping."""
        return self.session.size_bytes + self.history.size_bytes + ENTRY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """The bounds of a store."""

    ttl_s: float = 3600.0
    bytes_max: int = 2 * 1024 * 1024 * 1024
    sessions_max: int = 100_000

    def __post_init__(self) -> None:
        if self.ttl_s <= 0 or self.bytes_max < 1 or self.sessions_max < 1:
            raise ValueError("every limit of the session store must be positive")


class SessionStore(Generic[S]):
    """Identity -> entry, least recently used first.

    `bytes_used` is always the sum of what was accounted for the entries held; it exceeds `bytes_max` only
    while everything left is pinned. A session larger than the whole budget is let go as soon as it is no
    longer pinned.
    """

    def __init__(
        self,
        limits: StoreLimits,
        *,
        monotonic_s: Callable[[], float],
        on_removed: Callable[[Entry[S], Cause], None],
    ) -> None:
        self._limits = limits
        self._monotonic_s = monotonic_s
        self._on_removed = on_removed
        self._entries: OrderedDict[Identity, Entry[S]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry[S]]:
        """The entries held, least recently used first."""
        return iter(tuple(self._entries.values()))

    @property
    def bytes_used(self) -> int:
        """Bytes of everything held."""
        return self._bytes

    def get(self, identity: Identity) -> Entry[S] | None:
        """The live entry, now the most recently used one; None when there is none, or when it has just
        expired."""
        entry = self._entries.get(identity)
        if entry is None:
            return None
        if self._expired(entry):
            self._drop(entry, Cause.TTL)
            return None
        self._touch(entry)
        return entry

    def peek(self, identity: Identity) -> Entry[S] | None:
        """The entry without using it: neither its age nor its turn changes."""
        return self._entries.get(identity)

    def put(self, entry: Entry[S]) -> None:
        """Hold `entry`, in place of whatever had its identity, and make room for it.

        `entry.held` says whether it stayed: one that alone is over the budget does not.
        """
        if entry.held:
            raise ValueError("the entry is held already: settle it instead")
        previous = self._entries.get(entry.identity)
        if previous is not None:
            self._drop(previous, Cause.REPLACED)
        entry.held = True
        entry.accounted_bytes = entry.weigh()
        self._bytes += entry.accounted_bytes
        self._entries[entry.identity] = entry
        entry.last_used_s = self._monotonic_s()
        self._make_room()

    def settle(self, entry: Entry[S]) -> None:
        """Account for a change of the entry's session or history, which is a use of it. Nothing happens when it is no
        longer held. Call it under the entry's lock."""
        if not entry.held:
            return
        self._account(entry)
        self._touch(entry)
        self._make_room()

    def reweigh(self, entry: Entry[S]) -> None:
        """Account for what the entry weighs now without using it, as after a copy that shared its memory has gone."""
        if entry.held:
            self._account(entry)
            self._make_room()

    @contextmanager
    def pinned(self, entry: Entry[S]) -> Iterator[None]:
        """Keep `entry` from being evicted or expired meanwhile; explicit removal still works."""
        entry.pins += 1
        try:
            yield
        finally:
            entry.pins -= 1
            self._make_room()

    def remove(self, entry: Entry[S], cause: Cause) -> bool:
        """Let go of `entry`; False when the store no longer held it."""
        if not entry.held:
            return False
        self._drop(entry, cause)
        return True

    def drop_partitions(self, partitions: frozenset[int]) -> int:
        """Let go of every session of these partitions, pinned or not; returns how many."""
        doomed = [entry for entry in self._entries.values() if entry.partition in partitions]
        for entry in doomed:
            self._drop(entry, Cause.LOST)
        return len(doomed)

    def sweep(self, removals_max: int) -> int:
        """Let go of sessions that were idle for longer than the TTL, oldest first; returns how many."""
        expired: list[Entry[S]] = []
        for entry in self._entries.values():
            if len(expired) >= removals_max or not self._expired(entry):
                break
            if not entry.pins:
                expired.append(entry)
        for entry in expired:
            self._drop(entry, Cause.TTL)
        return len(expired)

    def _account(self, entry: Entry[S]) -> None:
        weight = entry.weigh()
        self._bytes += weight - entry.accounted_bytes
        entry.accounted_bytes = weight

    def _expired(self, entry: Entry[S]) -> bool:
        return self._monotonic_s() - entry.last_used_s > self._limits.ttl_s

    def _touch(self, entry: Entry[S]) -> None:
        entry.last_used_s = self._monotonic_s()
        self._entries.move_to_end(entry.identity)

    def _make_room(self) -> None:
        while self._bytes > self._limits.bytes_max or len(self._entries) > self._limits.sessions_max:
            victim = next((entry for entry in self._entries.values() if not entry.pins), None)
            if victim is None:
                return
            self._drop(victim, Cause.LRU)

    def _drop(self, entry: Entry[S], cause: Cause) -> None:
        del self._entries[entry.identity]
        self._bytes -= entry.accounted_bytes
        entry.held = False
        entry.accounted_bytes = 0
        self._on_removed(entry, cause)
