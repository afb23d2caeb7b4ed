"""A session that has missed an edit: right ids, but of another text than everybody takes it to have."""

from __future__ import annotations

from typing import Final

from shadow.faults.catalogue import Place
from shadow.faults.tokens import third
from shadow.reproduce import boundary
from toksplice import Session

STALE_BYTES: Final = 24
"""Text of the edit that was missed, about."""


def stale(session: Session, variant: str, place: Place) -> Session:
    """A copy of `session` that lacks the latest insertion of text, or the latest removal, at `place`."""
    text = session.utf8(0, session.length)
    first, last = third(len(text), place)
    start = boundary(text, (first + last) // 2)
    stop = boundary(text, start + STALE_BYTES)
    behind = session.fork()
    if variant == "lacks_an_insertion":
        behind.splice(start, stop, "")
    else:
        behind.splice(start, start, text[start:stop].decode())
    return behind
