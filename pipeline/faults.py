"""Where drills make answers wrong: one object that the workers ask, and that changes nothing unless one is injected.

What a drill has to show is that the shadow check finds a wrong answer and that nothing else in the pipeline notices, so
faults enter behind everything that makes an answer and before everything that remembers, sends or samples it.
"""

from __future__ import annotations

from typing import Final, Protocol

from schemas.reply import Reply
from schemas.work import Work
from toksplice import Session


class Faults(Protocol):
    """What a drill may change."""

    def state(self, work: Work, session: Session) -> Session:
        """The session that the answer to `work` is made from. Called in a thread, before a held session is changed and
        after a new one is encoded; what it returns is held, or handed over, from then on."""

    def answer(self, work: Work, reply: Reply) -> Reply:
        """The answer in place of `reply`, which says ok and comes of a change or a whole text. It must keep the
        protocol: keep_left + ids + keep_right = total. Called on the event loop, at most once a request."""


class _NoFaults:
    def state(self, work: Work, session: Session) -> Session:
        return session

    def answer(self, work: Work, reply: Reply) -> Reply:
        return reply


NO_FAULTS: Final[Faults] = _NoFaults()
"""What every worker has unless a drill says otherwise."""
