"""How the texts of a tenant begin: a session that begins like another one shares that beginning's memory with it, and
is encoded only from where the two part.

Agents of one kind begin with the same system prompt and the same tools. Of each beginning one copy is kept, never
changed, and no tenant ever shares with another. What is shared changes memory and speed alone: the session is the one
that its whole text gives.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from repair_worker.store import Identity
from toksplice import Session

ALIKE_BYTES: Final = 4096
"""Texts begin alike when they share this much; fewer bytes are encoded faster than they are found."""
KEPT_BYTES: Final = 256 * 1024
"""Longest beginning that is kept."""
TOKEN_BYTES: Final = 5
"""What a token weighs beside its text: `Session.size_bytes` counts shared memory by its share, which changes."""


class _Key(NamedTuple):
    tenant: str
    fingerprint: str
    digest: bytes


class Beginnings:
    """Sessions by how they begin, the least recently used one first. Safe for use by threads."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[_Key, tuple[Session, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes_used(self) -> int:
        """Bytes of what is kept, as if nothing were shared."""
        return self._bytes

    def like(self, identity: Identity, text: bytes) -> Session | None:
        """The session to share a beginning with, which must not be changed; None when none begins so."""
        key = _key(identity, text)
        if key is None:
            return None
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def keep(self, identity: Identity, session: Session) -> None:
        """Keep the beginning of `session` unless one that begins alike is there."""
        text = session.utf8(0, KEPT_BYTES + 1)
        key = _key(identity, text)
        if key is None or not session.native or key in self._kept:
            return
        beginning = session.fork()
        beginning.truncate(_boundary(text, min(len(text), KEPT_BYTES)))
        weight = beginning.length + TOKEN_BYTES * beginning.total
        with self._lock:
            if key not in self._kept:
                self._kept[key] = beginning, weight
                self._bytes += weight
            while self._bytes > self._bytes_max:
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= gone

    def forget(self, fingerprint: str | None) -> None:
        """Let go of the beginnings of one tokenizer, or of all with None: their ids are in doubt."""
        with self._lock:
            for key in [key for key in self._kept if fingerprint in (None, key.fingerprint)]:
                self._bytes -= self._kept.pop(key)[1]


def _key(identity: Identity, text: bytes) -> _Key | None:
    if len(text) < ALIKE_BYTES:
        return None
    return _Key(identity.tenant, identity.fingerprint, hashlib.sha256(text[:ALIKE_BYTES]).digest())


def _boundary(text: bytes, at: int) -> int:
    """The last character boundary at or before `at`."""
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at -= 1
    return at
