"""The text that is measured on: recorded sessions, one plain text, or synthetic sessions that are always the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cli.errors import CliError, ExitCode
from cli.sample_sessions import sample_sessions
from cli.sessions import read_sessions

LEAST_CHARS = 300_000
"""The shortest text that anything can be measured on: the smallest context and what is appended to it."""
SYNTHETIC_SEED = 1
SYNTHETIC_BATCH = 20
PLAIN_TURN_CHARS = 1_400
"""A plain text counts as one conversation of turns of this length."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """`sessions`: the new text of each request of each conversation. `text`: all of it, one after the other."""

    description: str
    sessions: tuple[tuple[str, ...], ...]
    text: str


def load_corpus(path: Path | None, chars: int) -> Corpus:
    """The corpus of a file, or a synthetic one of at least `chars` characters. Raises `CliError` (INPUT)."""
    if path is None:
        return _corpus(f"synthetic agent sessions, seed {SYNTHETIC_SEED}", _synthetic(chars))
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        sessions: Iterable[tuple[str, ...]] = (tuple(one.deltas()) for one in read_sessions(path))
        return _checked(_corpus(f"sessions of {path.name}", sessions), path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CliError(ExitCode.INPUT, f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    turns = tuple(text[start : start + PLAIN_TURN_CHARS] for start in range(0, len(text), PLAIN_TURN_CHARS))
    return _checked(_corpus(f"text of {path.name}", [turns]), path)


def _corpus(description: str, sessions: Iterable[tuple[str, ...]]) -> Corpus:
    kept = tuple(sessions)
    text = "".join(itertools.chain.from_iterable(kept))
    return Corpus(f"{description}: {len(kept):,} sessions, {len(text):,} characters", kept, text)


def _checked(corpus: Corpus, path: Path) -> Corpus:
    if len(corpus.text) < LEAST_CHARS:
        raise CliError(
            ExitCode.INPUT, f"{path}: {len(corpus.text):,} characters are too few to measure on ({LEAST_CHARS:,})"
        )
    return corpus


def _synthetic(chars: int) -> Iterator[tuple[str, ...]]:
    size = 0
    for number in itertools.count(SYNTHETIC_SEED):
        for session in sample_sessions(SYNTHETIC_BATCH, seed=number):
            turns = tuple(session.deltas())
            size += sum(map(len, turns))
            yield turns
            if size >= chars:
                return


class Fresh:
    """Hands out text that no context holds, piece after piece; from its beginning again when it is used up."""

    def __init__(self, text: str) -> None:
        if not text:
            raise ValueError("no text is left for edits")
        self._text = text
        self._at = 0

    def take(self, chars: int) -> str:
        """The next `chars` characters."""
        parts = []
        while chars > 0:
            part = self._text[self._at : self._at + chars]
            parts.append(part)
            chars -= len(part)
            self._at = (self._at + len(part)) % len(self._text)
        return "".join(parts)
