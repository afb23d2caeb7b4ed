"""`bench full`: encoding text that was never seen, text seen a moment ago, and two sessions on two threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from cli.bench.corpus import Corpus, Fresh
from cli.bench.peers import OURS, REFERENCE
from cli.bench.rounds import Outcome, Runner, Subject, reference_of
from cli.bench.rows import FullRow, ThreadsRow
from cli.bench.scenarios import SMALL, Draft, Edit
from cli.bench.statistic import Samples, p50, ratio

PIECE_BYTES = 1_000_000
THREADED_LANES = (OURS, REFERENCE, "gigatoken", "toktier encode(session=)")
THREAD_EDIT_CHARS = 100_000
THREAD_EDITS = 4
"""Appends to each of the two sessions in a round, so that starting the threads does not show."""
WARM_UP = 0


def chars_needed(rounds: int) -> int:
    """A text of this length gives every round a piece of its own."""
    return (rounds + 1) * PIECE_BYTES


def pieces_of(text: str, limit: int) -> list[str]:
    """At most `limit` pieces of `PIECE_BYTES` bytes, whole characters, no text in two of them."""
    found: list[str] = []
    start = 0
    while len(found) < limit:
        # A character has a byte at least, so this many hold a piece; what is over goes to the next one.
        data = text[start : start + PIECE_BYTES].encode()
        piece = data[:PIECE_BYTES].decode("utf-8", "ignore")
        if len(data) < PIECE_BYTES:
            break
        found.append(piece)
        start += len(piece)
    return found


def measure(
    subject: Subject, corpus: Corpus, found: Sequence[Runner], rounds: int, say: Callable[[str], None]
) -> list[FullRow]:
    """Each piece goes to every lane, twice, before the next piece; the first piece is not counted."""
    pieces = pieces_of(corpus.text, rounds + 1)
    if len(pieces) < rounds + 1:
        say(f"the text has {len(pieces)} pieces of {PIECE_BYTES:,} bytes: that many rounds, less one to warm up")
    taking = [one for one in found if one.lane.encodes]
    fresh, again = ({one.lane.name: Outcome() for one in taking} for _ in range(2))
    reference = reference_of(found)
    for number, piece in enumerate(pieces):
        say(f"{subject.name}: full, piece {number} of {len(pieces) - 1}")
        answer = reference.ask("encode", text=piece, times=2)
        for one in taking:
            outcome = fresh[one.lane.name]
            outcome.take(partial(_piece, one, piece, number, outcome, again[one.lane.name], answer))
    names = [one.lane.name for one in taking]
    return [_row(subject.name, name, fresh[name], again[name], fresh[REFERENCE], again[REFERENCE]) for name in names]


def _piece(one: Runner, piece: str, number: int, fresh: Outcome, again: Outcome, reference: dict[str, object]) -> None:
    answer = reference if one.lane.name == REFERENCE else one.ask("encode", text=piece, times=2)
    digest, (first, second) = answer["digest"], answer["ns"]  # type: ignore[misc]
    fresh.compare(str(digest), str(reference["digest"]))
    if number != WARM_UP:
        fresh.samples[number], again.samples[number] = [first], [second]


def _row(
    tokenizer: str, name: str, fresh: Outcome, again: Outcome, fresh_base: Outcome, again_base: Outcome
) -> FullRow:
    if fresh.reason or not fresh.samples:
        return FullRow(tokenizer=tokenizer, lane=name, note=fresh.reason or "the text is too short")
    return FullRow(
        tokenizer=tokenizer,
        lane=name,
        pieces=len(fresh.samples),
        fresh_mb_s=_mb_s(fresh.samples),
        again_mb_s=_mb_s(again.samples),
        fresh_times_reference=_speedup(fresh.samples, fresh_base.samples),
        again_times_reference=_speedup(again.samples, again_base.samples),
        exact=None if name == REFERENCE else fresh.exact,
    )


def _mb_s(samples: Samples) -> float:
    return PIECE_BYTES / 1e6 / (p50(samples) / 1e9)


def _speedup(samples: Samples, base: Samples) -> float | None:
    return ratio(base, samples)


def measure_threads(
    subject: Subject, corpus: Corpus, found: Sequence[Runner], rounds: int, say: Callable[[str], None]
) -> list[ThreadsRow]:
    """Both sessions on one thread, then each on its own, in every round."""
    fresh = Fresh(corpus.text[SMALL:])
    taking = [one for one in found if one.lane.name in THREADED_LANES]
    outcomes = {one.lane.name: Outcome() for one in taking}
    context = corpus.text[:SMALL]
    for number in range(rounds + 1):
        say(f"{subject.name}: two threads, round {number} of {rounds}")
        lanes = []
        for _ in range(2):
            draft = Draft(context)
            for _ in range(THREAD_EDITS):
                draft.append(fresh.take(THREAD_EDIT_CHARS))
            lanes.append(draft.taken())
        for one in taking:
            outcome = outcomes[one.lane.name]
            outcome.take(partial(_threads, one, context, lanes, number, outcome))
    return [
        ThreadsRow(
            tokenizer=subject.name,
            lane=name,
            rounds=len(outcome.samples),
            throughput_ratio=_throughput(outcome),
            note=outcome.reason,
        )
        for name, outcome in outcomes.items()
    ]


def _threads(one: Runner, context: str, lanes: Sequence[Sequence[Edit]], number: int, outcome: Outcome) -> None:
    one.know(str(SMALL), context)
    answer = one.ask("threads", context=str(SMALL), lanes=lanes)
    if number != WARM_UP:
        outcome.samples[number] = [answer["one_ns"], answer["two_ns"]]


def _throughput(outcome: Outcome) -> float | None:
    ratios = [alone / both for alone, both in outcome.samples.values()]
    return float(median(ratios)) if ratios and not outcome.reason else None
