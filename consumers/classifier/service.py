"""The consumer of tokenize.requests: decode, resolve the tokenizer's name, decide, pass on.

Loads no tokenizer and reads no text beyond its length. A request that breaks the protocol leaves as
`ProtocolError`: the chassis answers it when it can be addressed and puts it with the dead letters.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Protocol

from consumers.classifier.directory import CPU_KIND, GPU_KIND, Directory, EncoderView
from consumers.classifier.router import Answer, Decision, Facts, Reason, route
from consumers.classifier.settings import ClassifierSettings
from pipeline.context import Context
from pipeline.ports import Record
from pipeline.service import ServiceHealth
from pipeline.topology import CLASSIFIER_GROUP
from schemas.codes import Code
from schemas.errors import ProtocolError
from schemas.reply import Reply
from schemas.request import Request
from schemas.topics import HEALTH, REQUESTS, SESSIONS
from schemas.work import Work
from toksplice.errors import UnknownTokenizerError

_log = logging.getLogger(__name__)

_MESSAGES = {
    Code.EXPIRED: "the deadline had passed when the request was read",
    Code.UNKNOWN_TOKENIZER: "no tokenizer of this name or fingerprint is registered here",
}


class Resolver(Protocol):
    """Tokenizer names and fingerprints; `toksplice.registry.Registry` is one. Loads nothing."""

    def names(self) -> tuple[str, ...]: ...

    def resolve(self, name_or_fingerprint: str) -> str: ...

    def name_of(self, fingerprint_hex: str) -> str: ...


class ClassifierService:
    """Routes requests. What it knows of sessions and workers are hints, rebuilt from topics at every start."""

    kind = "classifier"
    topics: tuple[str, ...] = (REQUESTS,)
    group = CLASSIFIER_GROUP
    drains = True

    def __init__(self, resolver: Resolver, settings: ClassifierSettings | None = None) -> None:
        settings = settings or ClassifierSettings()
        self._resolver = resolver
        self._router_settings = settings.router()
        self.directory = Directory(sessions_max=settings.directory_sessions_max)
        self.gpu = EncoderView(GPU_KIND, workers_max=settings.workers_max)
        self.cpu = EncoderView(CPU_KIND, workers_max=settings.workers_max)
        self._said_no_gpu = False
        self._ctx: Context

    async def start(self, ctx: Context) -> None:
        self._ctx = ctx
        # The first look at the registry may compute fingerprints anew; later ones only compare file times.
        await ctx.run_blocking(self._resolver.names)
        await ctx.follow(SESSIONS, lambda record: self.directory.apply(record.key, record.value))
        await ctx.follow(HEALTH, self._heard)

    def _heard(self, record: Record) -> None:
        for view in (self.gpu, self.cpu):
            view.apply(record.key, record.value)

    async def stop(self) -> None:
        """Nothing to release: the chassis ends the followers."""

    async def partitions_assigned(self, partitions: frozenset[int]) -> None:
        """No state a partition."""

    async def partitions_lost(self, partitions: frozenset[int]) -> None:
        """No state a partition."""

    def health(self) -> ServiceHealth:
        return ServiceHealth()

    async def handle(self, record: Record) -> Awaitable[None] | None:
        received_us = self._ctx.clock.now_us()
        if record.value is None:
            raise ProtocolError(Code.MALFORMED, "a request needs a value")
        request = Request.decode(record.value, self._ctx.limits)
        fingerprint = self._resolve(request.tokenizer)
        decision = self._decide(request, fingerprint)
        if isinstance(decision, Answer) or fingerprint is None:
            await self._answer(record, request, fingerprint, decision, received_us)
            return None
        work = Work(request=request, fingerprint=fingerprint, reason=decision.reason.value, received_us=received_us)
        await self._ctx.forward(
            decision.topic,
            record,
            work.encode(self._ctx.write_limits),
            tenant=request.tenant,
            session_id=request.session_id,
        )
        return None

    def _resolve(self, tokenizer: str) -> str | None:
        try:
            return self._resolver.resolve(tokenizer)
        except UnknownTokenizerError:
            return None

    def _decide(self, request: Request, fingerprint: str | None) -> Decision:
        live = fingerprint is not None and self.directory.is_live(
            request.tenant, request.session_id, fingerprint, request.add_special_tokens
        )
        decision = route(
            Facts(
                op=request.op,
                text_bytes=len((request.text or "").encode()),
                fingerprint=fingerprint,
                one_off=not request.session_id,
                deadline_ms=request.deadline_ms,
            ),
            live=live,
            gpu=self.gpu.workers,
            cpu=self.cpu.workers,
            now_ms=self._ctx.clock.now_ms(),
            settings=self._router_settings,
        )
        if decision.reason is Reason.NO_GPU_WORKER and not self._said_no_gpu:
            self._said_no_gpu = True
            _log.info("no gpu worker present: long texts go to the cpu (said once)")
        return decision

    async def _answer(
        self,
        record: Record,
        request: Request,
        fingerprint: str | None,
        decision: Decision,
        received_us: int,
    ) -> None:
        # The router forwards nothing without a fingerprint; should it ever, the answer is the same.
        code = decision.code if isinstance(decision, Answer) else Code.UNKNOWN_TOKENIZER
        reply = Reply.failure(
            request.request_id,
            code,
            _MESSAGES[code],
            tenant=request.tenant,
            session_id=request.session_id,
            reason=decision.reason.value,
            fingerprint=fingerprint or "",
        )
        await self._ctx.reply(
            record,
            reply,
            tokenizer="" if fingerprint is None else self._resolver.name_of(fingerprint),
            op=request.op.value,
            received_us=received_us,
        )
