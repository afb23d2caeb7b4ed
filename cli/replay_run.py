"""Sends conversations through a pipeline and keeps what is worth knowing of every answer.

Nothing is checked while the requests run, so that checking does not slow them down: of each answer remain its
size and hash, and of each text its key, which `cli.replay_check` compares afterwards.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cli.reference_cache import Answer, RunningKey
from cli.sessions import Conversation
from pipeline.client import Client
from pipeline.errors import DeadlineError, RecordTooLargeError, ReplyError

CALL_DEADLINE_S = 120.0
"""For one request. Generous, because a replay sends as fast as it can."""
HASH_IN_THREAD_BYTES = 256 * 1024
MAX_FAILURES = 20
"""Failed requests that are kept with their message; more are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One answered request. Sizes are characters, times microseconds.

    `number` counts the requests of a session from 0; `context_chars` is the whole text, `delivered_chars` what was
    new in it, `encoded_chars` what was tokenized for it. `tokenize_us` is
    the worker's time for the tokens alone, `latency_us` the client's from call to answer.
    """

    session: int
    number: int
    context_chars: int
    delivered_chars: int
    encoded_chars: int
    latency_us: int
    tokenize_us: int
    path: str
    route: str
    reason: str
    key: bytes
    answer: Answer


@dataclass(slots=True)
class Recording:
    """What a replay leaves behind. `wall_s` is the time of all requests together, in seconds."""

    samples: list[Sample] = field(default_factory=list)
    sessions: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    def fail(self, message: str) -> None:
        """Count a request that got no answer to compare."""
        self.failed += 1
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(message)


async def replay(
    client: Client,
    conversations: Iterator[Conversation],
    *,
    tokenizer: str,
    fingerprint: str,
    concurrency: int,
    on_answer: Callable[[], None],
) -> Recording:
    """Send every conversation, `concurrency` at a time, each one's requests in order.

    `tokenizer` is the name or fingerprint as requests carry it. A request that fails ends its conversation and is
    counted; a broker that cannot be reached ends the replay with its error.
    """
    recording = Recording()
    run_id = uuid.uuid4().hex[:12]
    numbered = enumerate(conversations)
    reading = asyncio.Lock()

    async def lane() -> None:
        while True:
            async with reading:
                item = await asyncio.to_thread(next, numbered, None)
            if item is None:
                return
            index, conversation = item
            recording.sessions += 1
            session_id = f"replay-{run_id}-{index}"
            await _Player(client, recording, on_answer).play(index, conversation, session_id, tokenizer, fingerprint)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as lanes:
        for _ in range(concurrency):
            lanes.create_task(lane())
    recording.wall_s = time.perf_counter() - started
    recording.samples.sort(key=lambda sample: (sample.session, sample.number))
    return recording


@dataclass(frozen=True, slots=True)
class _Player:
    client: Client
    recording: Recording
    on_answer: Callable[[], None]

    async def play(
        self, index: int, conversation: Conversation, session_id: str, tokenizer: str, fingerprint: str
    ) -> None:
        """Send one conversation's requests in order."""
        session = self.client.session(session_id, tokenizer)
        running = RunningKey(fingerprint)
        context = 0
        for number, delta in enumerate(conversation.deltas()):
            context += len(delta)
            started_ns = time.perf_counter_ns()
            try:
                reply = await session.append(delta, deadline_s=CALL_DEADLINE_S)
            except (ReplyError, DeadlineError, RecordTooLargeError) as error:
                self.recording.fail(f"{conversation.name}, request {number + 1}: {error}")
                return
            latency_us = (time.perf_counter_ns() - started_ns) // 1_000
            ids = session.ids
            if ids.nbytes > HASH_IN_THREAD_BYTES:
                answer = await asyncio.to_thread(Answer.of, ids)
            else:
                answer = Answer.of(ids)
            self.recording.samples.append(
                Sample(
                    session=index,
                    number=number,
                    context_chars=context,
                    delivered_chars=context if reply.resent else len(delta),
                    encoded_chars=reply.encoded_chars,
                    latency_us=latency_us,
                    tokenize_us=reply.timings.get("tokenize_us", 0),
                    path=reply.path.value if reply.path else "",
                    route=reply.route.value if reply.route else "",
                    reason=reply.reason,
                    key=running.append(delta),
                    answer=answer,
                )
            )
            self.on_answer()
        await session.close()
