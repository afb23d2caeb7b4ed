"""Compares the answers of a replay with the reference, and measures what encoding everything would have cost.

What the cache knows is compared at once. The other texts are rendered again from the sessions file, rather
than kept from the replay, and go through the reference in batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from cli.oracle import Oracle, OracleFailedError
from cli.reference_cache import Answer, ReferenceCache
from cli.replay_run import Sample
from cli.sessions import Conversation

BATCH_TEXTS = 16
BATCH_CHARS = 4_000_000
"""A batch is cut at whichever comes first; it bounds the texts in memory."""
TIMED_TEXTS = 24
"""Texts on which the reference is timed, evenly spread over the requests by length."""

Place = tuple[int, int]
"""(session, number of the request in it)"""


@dataclass(slots=True)
class Verdict:
    """`checked` answers were compared, `cached` of them with what an earlier run had computed."""

    checked: int = 0
    cached: int = 0
    mismatches: list[Place] = field(default_factory=list)
    reference_failed: int = 0
    """Texts for which there is no right answer, because the reference itself fails on them."""


async def check(
    samples: Sequence[Sample],
    conversations: Callable[[], Iterable[Conversation]],
    oracle: Oracle,
    cache: ReferenceCache,
    on_checked: Callable[[int], None],
) -> Verdict:
    """Compare every sample; new reference results go into the cache. `conversations` starts from the first."""
    verdict = Verdict()
    known = cache.get([sample.key for sample in samples])
    missing: dict[Place, Sample] = {}
    for sample in samples:
        if sample.key not in known:
            missing[(sample.session, sample.number)] = sample
            continue
        verdict.checked += 1
        verdict.cached += 1
        _compare(sample, known[sample.key], verdict)
    on_checked(verdict.checked)
    for batch in _batches(texts_of(conversations(), missing.keys())):
        answers = await asyncio.to_thread(_encode, oracle, [text for _, text in batch])
        new = []
        for (place, _), answer in zip(batch, answers, strict=True):
            sample = missing[place]
            if answer is None:
                verdict.reference_failed += 1
                continue
            verdict.checked += 1
            new.append((sample.key, answer))
            _compare(sample, answer, verdict)
        cache.put(new)
        on_checked(len(batch))
    verdict.mismatches.sort()
    return verdict


@dataclass(frozen=True, slots=True)
class ReferenceTimes:
    """What the reference takes for whole texts.

    `measured` has (characters, seconds) of the texts that it was timed on, the shortest first; `seconds` has a
    value for each sample, interpolated between them. Both are empty where nothing could be measured.
    """

    measured: tuple[tuple[int, float], ...] = ()
    seconds: tuple[float, ...] = ()


async def time_reference(
    samples: Sequence[Sample],
    conversations: Callable[[], Iterable[Conversation]],
    oracle: Oracle,
) -> ReferenceTimes:
    """Time the reference, one text after another, on texts of the same requests, evenly spread by length."""
    if not samples:
        return ReferenceTimes()
    by_length = sorted(samples, key=lambda sample: sample.context_chars)
    picks = np.unique(np.linspace(0, len(by_length) - 1, TIMED_TEXTS).astype(int))
    wanted = {(by_length[i].session, by_length[i].number) for i in picks}
    points: list[tuple[int, float]] = []
    for _, text in texts_of(conversations(), wanted):
        try:
            points.append((len(text), await asyncio.to_thread(oracle.seconds, text)))
        except OracleFailedError:
            continue
    if not points:
        return ReferenceTimes()
    points.sort()
    lengths, seconds = zip(*points, strict=True)
    estimated = np.interp([sample.context_chars for sample in samples], lengths, seconds)
    return ReferenceTimes(tuple(points), tuple(estimated.tolist()))


def texts_of(conversations: Iterable[Conversation], wanted: Iterable[Place]) -> Iterator[tuple[Place, str]]:
    """The whole texts of the wanted requests, in the order of the conversations."""
    by_session: dict[int, set[int]] = {}
    for session, number in wanted:
        by_session.setdefault(session, set()).add(number)
    if not by_session:
        return
    last = max(by_session)
    for session, conversation in enumerate(conversations):
        numbers = by_session.get(session, set())
        parts: list[str] = []
        for number, delta in enumerate(conversation.deltas() if numbers else ()):
            parts.append(delta)
            if number in numbers:
                parts = ["".join(parts)]
                yield (session, number), parts[0]
        if session == last:
            return


def _batches(texts: Iterator[tuple[Place, str]]) -> Iterator[list[tuple[Place, str]]]:
    batch: list[tuple[Place, str]] = []
    chars = 0
    for item in texts:
        batch.append(item)
        chars += len(item[1])
        if len(batch) >= BATCH_TEXTS or chars >= BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def _encode(oracle: Oracle, texts: list[str]) -> list[Answer | None]:
    """The reference's answers; None for a text on which it fails."""
    try:
        return [Answer.of(ids) for ids in oracle.ids_batch(texts, add_special_tokens=False)]
    except OracleFailedError:
        if len(texts) == 1:
            return [None]
    return [answer for text in texts for answer in _encode(oracle, [text])]


def _compare(sample: Sample, expected: Answer, verdict: Verdict) -> None:
    if sample.answer != expected:
        verdict.mismatches.append((sample.session, sample.number))
