"""tokenize.sessions: which sessions are live, so that `text` for one of them goes to the repair worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from schemas.kinds import Bool, Int, Str
from schemas.message import Field, Record
from schemas.topics import session_key


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord(Record):
    """A live session and the worker that holds it. Its end is a tombstone: the same key with no value."""

    tenant: str = field(default="", repr=False)
    session_id: str = field(repr=False)
    fingerprint: str
    add_special_tokens: bool = False
    epoch: int
    worker: str

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("tenant", Str("tenant_bytes", key=True), "Owner of the session."),
        Field("session_id", Str("session_id_bytes", least=1, key=True), "The session.", "yes"),
        Field("fingerprint", Str("tokenizer_bytes", least=1), "Fingerprint of its tokenizer.", "yes"),
        Field("add_special_tokens", Bool(), "The session's setting."),
        Field("epoch", Int(), "The session's epoch.", "yes"),
        Field("worker", Str("worker_bytes", least=1), "Id of the worker that holds it.", "yes"),
    )

    @property
    def key(self) -> bytes:
        """The record's key."""
        return directory_key(self.tenant, self.session_id, self.fingerprint, self.add_special_tokens)


def directory_key(tenant: str, session_id: str, fingerprint: str, add_special_tokens: bool) -> bytes:
    """Key of a session's record on tokenize.sessions: its whole identity, NUL between the parts.

    The record's partition still follows the session key alone, as on every other topic.
    """
    flag = b"1" if add_special_tokens else b"0"
    return b"\0".join((session_key(tenant, session_id), fingerprint.encode(), flag))
