"""One fault after the other: healthy answers, then the fault, then answers until the check finds it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

from cli.drill.stack import SAMPLING, Stack
from cli.drill.subject import NAME, first_text, unit
from cli.errors import CliError, ExitCode
from pipeline.faults import NO_FAULTS
from pipeline.sampling import block_size
from schemas.codes import Status
from schemas.reply import Path, Reply
from schemas.request import Base, Op, Request, Want
from schemas.sample import DifferenceKind
from shadow.faults.catalogue import Injection, Kind, Shape
from shadow.faults.injector import Injector

BLOCK: Final = block_size(SAMPLING)
BAR: Final = 2 * BLOCK - 1
"""Answers of its stream within which a fault that stays is found for certain."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of one injection. `requests` counts struck answers until one was found wrong."""

    injection: Injection
    lead: int
    """Healthy answers of the stream before it."""
    requests: int
    struck: int
    """Answers that were made wrong; persistent means that it is every one."""
    found: DifferenceKind | None
    """What the check called it; None when it did not find it within the bar."""

    @property
    def ok(self) -> bool:
        return self.found is not None and self.struck == self.requests


@dataclass(slots=True)
class Outcome:
    """What became of a drill. The healthy answers are those before faults and those without any."""

    trials: list[Trial] = field(default_factory=list)
    healthy: int = 0
    healthy_sampled: int = 0
    false_alarms: int = 0

    @property
    def ok(self) -> bool:
        return not self.false_alarms and all(trial.ok for trial in self.trials)


async def run_healthy(it: Stack, count: int, seed: int, outcome: Outcome) -> None:
    """Give `count` answers of each shape with nothing planted."""
    for number, shape in enumerate(Shape):
        it.begin_streams(seed, f"healthy {shape}")
        stream = _Stream(it, shape, f"healthy-{number}", offsets=bool(number % 2))
        await stream.begin()
        for _ in range(count):
            await stream.next()
        await _listen(it, outcome, stream.answers)


async def run_trial(it: Stack, injection: Injection, number: int, seed: int, outcome: Outcome) -> None:
    """Plant one injection, the `number`-th, until it is found or the bar is reached."""
    it.begin_streams(seed, injection.name)
    offsets = injection.kind is Kind.OFFSET_SHIFTED
    stream = _Stream(it, injection.shape, f"drill-{number}", offsets=offsets)
    await stream.begin()
    # A fault may begin anywhere in a block of the stream.
    lead = random.Random(f"{seed}/{injection.name}").randrange(BLOCK)
    for _ in range(lead):
        await stream.next()
    await _listen(it, outcome, stream.answers)
    injector = Injector(injection, it.registry)
    it.planted.now = injector
    try:
        outcome.trials.append(await _until_found(it, stream, injector, lead))
    finally:
        it.planted.now = NO_FAULTS


async def _until_found(it: Stack, stream: _Stream, injector: Injector, lead: int) -> Trial:
    found: DifferenceKind | None = None
    requests = 0
    sampled = it.sampled
    while found is None and requests < BAR:
        reply = await stream.next()
        requests += 1
        if reply.path is not injector.injection.path:
            raise CliError(ExitCode.INTERNAL, f"an answer of {injector.injection.name} took path {reply.path}")
        if it.sampled > sampled:
            sampled = it.sampled
            found = next((finding.kind for finding in await it.findings()), None)
    if found is not None:
        await it.close_breaker()
    return Trial(injector.injection, lead, requests, injector.struck, found)


async def _listen(it: Stack, outcome: Outcome, answers: int) -> None:
    """Count healthy answers, and whatever the check has against them."""
    alarms = await it.findings()
    outcome.healthy += answers
    outcome.healthy_sampled += it.stream_sampled
    outcome.false_alarms += len(alarms)
    if alarms:
        await it.close_breaker()


class _Stream:
    """Requests whose answers have one shape, one after the other."""

    def __init__(self, it: Stack, shape: Shape, name: str, *, offsets: bool) -> None:
        self._it = it
        self._shape = shape
        self._name = name
        self._offsets = offsets or shape is Shape.ONE_OFF
        self._state: Reply | None = None
        self.answers = 0
        """Answers until now."""

    @property
    def _on_session(self) -> bool:
        return self._shape not in (Shape.FIRST, Shape.ONE_OFF)

    async def begin(self) -> None:
        """Make the session, if the shape needs one."""
        if self._on_session:
            self._state = await self._ask(Op.TEXT, session_id=self._name, text=first_text(0))

    async def next(self) -> Reply:
        """The answer to the next request."""
        if self._state is None:
            session_id = "" if self._shape is Shape.ONE_OFF else f"{self._name}-{self.answers}"
            return await self._ask(Op.TEXT, session_id=session_id, text=first_text(self.answers))
        state = self._state
        fields: dict[str, Any] = {
            "session_id": self._name,
            "base": Base(revision=state.revision, length=state.length, epoch=state.epoch),
            "text": unit(self.answers),
        }
        op = Op.APPEND
        if self._shape is Shape.SPLICE:
            op = Op.SPLICE
            fields["start"] = fields["end"] = state.length // 2
        elif self._shape is Shape.WHOLE:
            fields["want"] = Want.IDS
        self._state = await self._ask(op, **fields)
        return self._state

    async def _ask(self, op: Op, **fields: Any) -> Reply:
        request = Request(
            request_id=f"{self._name}/{self.answers}",
            tokenizer=NAME,
            op=op,
            add_special_tokens=True,
            offsets=self._offsets,
            **fields,
        )
        reply = await self._it.client.exchange(request)
        self.answers += 1
        if reply.status is not Status.OK or reply.path not in (Path.REPAIR, Path.CPU):
            raise CliError(ExitCode.SERVICE, f"a request of the drill was answered {reply.status}: {reply.message}")
        return reply
