"""Plants one injection in a worker, through the seam that every worker has for it."""

from __future__ import annotations

import functools
from typing import Final

from schemas.reply import Path, Reply
from schemas.work import Work
from shadow.faults.answers import struck
from shadow.faults.catalogue import Injection
from shadow.faults.engines import EngineFault, FaultySession, fault_of
from shadow.faults.stale import stale
from shadow.faults.vocabulary import TokenizerFiles, Vocabulary
from toksplice import Session

TOKENIZERS_MAX: Final = 8
"""Tokenizers whose vocabularies are kept."""


class Injector:
    """The faults (`pipeline.faults.Faults`) of one worker while `injection` is planted."""

    def __init__(self, injection: Injection, files: TokenizerFiles) -> None:
        self.injection = injection
        self.struck = 0
        """Answers that were made wrong."""
        self._vocabulary = functools.lru_cache(maxsize=TOKENIZERS_MAX)(functools.partial(Vocabulary, files))
        self._fault = functools.lru_cache(maxsize=TOKENIZERS_MAX)(self._make_fault)

    def state(self, work: Work, session: Session) -> Session:
        injection = self.injection
        if not injection.kind.of_session or not injection.shape.matches(work.request):
            return session
        if not injection.kind.of_engine:
            return stale(session, injection.variant, injection.place)
        if isinstance(session, FaultySession) and session.fault.name == injection.name:
            return session
        begin = FaultySession.begun if injection.path is Path.CPU else FaultySession.going_on
        return begin(session, self._fault(work.fingerprint))

    def answer(self, work: Work, reply: Reply) -> Reply:
        injection = self.injection
        if reply.path is not injection.path or not injection.shape.matches(work.request):
            return reply
        if injection.kind.of_session:
            self.struck += 1
            return reply
        special = work.request.add_special_tokens
        wrong = struck(reply, injection, self._vocabulary(work.fingerprint), special=special)
        self.struck += wrong is not reply
        return wrong

    def plant(self, session: Session, fingerprint: str) -> Session:
        """A new session as an engine with this fault has it; `session` itself when the fault is none of an engine."""
        if not self.injection.kind.of_engine:
            return session
        return FaultySession.begun(session, self._fault(fingerprint))

    def _make_fault(self, fingerprint: str) -> EngineFault:
        return fault_of(self.injection, self._vocabulary(fingerprint))
