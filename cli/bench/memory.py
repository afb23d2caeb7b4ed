"""`bench memory`: what held sessions weigh, as they say and as the process grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cli.bench.corpus import Corpus
from cli.bench.environments import PeerUnavailableError
from cli.bench.peers import OURS, Lane
from cli.bench.rounds import Runner, Subject
from cli.bench.rows import MemoryRow
from cli.bench.scenarios import Draft, Edit

LANES = (OURS, "toktier append_patch()")
HELD_CHARS = 8_000_000
"""Sessions are held until they have this many characters."""


@dataclass(slots=True)
class _Held:
    sessions: int = 0
    tokens: int = 0
    text_bytes: int = 0
    size_bytes: int | None = 0
    resident_bytes: int = 0


def takes_part(lane: Lane) -> bool:
    """Whether a lane has sessions whose memory is theirs to answer for."""
    return lane.name in LANES


def chosen(corpus: Corpus, limit_chars: int = HELD_CHARS) -> list[tuple[str, ...]]:
    """The first sessions of a corpus, together of at least `limit_chars` characters if it has them."""
    found, size = [], 0
    for session in corpus.sessions:
        if size >= limit_chars:
            break
        found.append(session)
        size += sum(map(len, session))
    return found


def measure(subject: Subject, corpus: Corpus, found: Sequence[Runner], say: Callable[[str], None]) -> list[MemoryRow]:
    """Every session is made turn by turn, as it grew, and held while the others are made."""
    sessions = [_edits(session) for session in chosen(corpus)]
    rows = []
    for one in found:
        if not takes_part(one.lane):
            continue
        say(f"{subject.name}: memory of {len(sessions)} sessions, {one.lane.name}")
        try:
            rows.append(_row(subject.name, one.lane.name, _hold(one, sessions)))
        except PeerUnavailableError as error:
            rows.append(MemoryRow(tokenizer=subject.name, lane=one.lane.name, note=str(error)))
    return rows


def _edits(session: Sequence[str]) -> list[Edit]:
    draft = Draft("")
    for turn in session:
        draft.append(turn)
    return list(draft.taken())


def _hold(one: Runner, sessions: Sequence[list[Edit]]) -> _Held:
    # The longest session is made once and let go, so that what the process needs while working is not counted.
    one.ask("hold", edits=max(sessions, key=lambda edits: edits[-1][0] if edits else 0), keep=False)
    before = one.ask("resident")["bytes"]
    held = _Held()
    for edits in sessions:
        answer = one.ask("hold", edits=edits, keep=True)
        held.sessions += 1
        held.tokens += answer["tokens"]
        held.text_bytes += sum(len(edit[2].encode()) for edit in edits)
        size = answer["size_bytes"]
        held.size_bytes = None if size is None or held.size_bytes is None else held.size_bytes + size
    held.resident_bytes = one.ask("resident")["bytes"] - before
    return held


def _row(tokenizer: str, lane: str, held: _Held) -> MemoryRow:
    tokens = max(1, held.tokens)
    size = held.size_bytes
    return MemoryRow(
        tokenizer=tokenizer,
        lane=lane,
        sessions=held.sessions,
        tokens=held.tokens,
        text_bytes=held.text_bytes,
        with_text=None if size is None else size / tokens,
        without_text=None if size is None else (size - held.text_bytes) / tokens,
        resident=held.resident_bytes / tokens,
    )
