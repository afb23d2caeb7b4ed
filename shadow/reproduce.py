"""Does a wrong answer come again? Texts and edits are made once more, and what comes of them is judged.

Blocking, and without a broker. A case is a list of edits; one edit alone is a text that is encoded afresh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from schemas.sample import Sample
from shadow.compare import Difference
from shadow.judge import Question, judge, wrong_restarts
from toksplice import Session, Tokenizer, TokSpliceError
from toksplice.patch import Patch, common_prefix

APPEND_BYTES: Final = 1_400
"""Text of an edit in a made-up history of appends: what an agent's turn adds."""
MADE_UP_STEPS_MAX: Final = 256
"""Edits of a made-up history; of a longer text each adds more."""

ISOLATED: Final = "isolated"
RECORDED: Final = "recorded"


@dataclass(frozen=True, slots=True)
class Step:
    """Put `text` in place of bytes [start, end) of the text so far, or with `whole` make it all of it.

    Positions may be anything: they are cut to the text, and back to the start of a character.
    """

    start: int
    end: int
    text: str = field(repr=False)
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """Edits, of which the first makes the session."""

    steps: tuple[Step, ...]
    add_special_tokens: bool

    def settled(self) -> Case:
        """The same with positions that are right as they are."""
        text = b""
        steps = []
        for step in self.steps:
            start, end = (0, len(text)) if step.whole else (boundary(text, step.start), boundary(text, step.end))
            settled = Step(start, max(start, end), step.text, step.whole)
            steps.append(settled)
            text = text[: settled.start] + step.text.encode() + text[settled.end :]
        return Case(tuple(steps), self.add_special_tokens)

    @property
    def text(self) -> str:
        """What the edits lead to."""
        text = b""
        for step in self.settled().steps:
            text = text[: step.start] + step.text.encode() + text[step.end :]
        return text.decode()


def boundary(text: bytes, position: int) -> int:
    """The start of the character that `position` is in, or the end of the text."""
    position = min(max(position, 0), len(text))
    while position < len(text) and text[position] & 0xC0 == 0x80:
        position -= 1
    return position


class Subject(Protocol):
    """What makes sessions that are judged."""

    def __call__(self, text: str, *, add_special_tokens: bool) -> Session: ...


def by_engine(tokenizer: Tokenizer) -> Subject:
    """Sessions of the native engine where it serves the tokenizer."""
    return tokenizer.session


def by_reference(tokenizer: Tokenizer) -> Subject:
    """Sessions without the engine: certified windows of the reference, or the reference on the whole text."""

    def session(text: str, *, add_special_tokens: bool) -> Session:
        return tokenizer.session(text, add_special_tokens=add_special_tokens, engine=False)

    return session


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a case. `route` is that of the last edit; `error` is the code of a refusal."""

    difference: Difference | None
    route: str
    error: str = ""

    @property
    def reproduces(self) -> bool:
        return self.difference is not None


def run(subject: Subject, case: Case, oracle: Tokenizer, first_route: str) -> Result:
    """Make the edits on one session as its client would follow them, and judge what the client has in the end.

    oracle: the tokenizer without the engine. first_route: the route of a case without a second edit.
    """
    first, *others = case.settled().steps
    patch: Patch | None = None
    try:
        session = subject(first.text, add_special_tokens=case.add_special_tokens)
        ids = before = session.ids
        for step in others:
            before = ids
            patch = session.update(step.text) if step.whole else session.splice(step.start, step.end, step.text)
            ids = patch.apply(before)
        offsets = session.offsets() if patch is None else patch.offsets
        question = Question(
            text=session.text.encode(),
            add_special_tokens=case.add_special_tokens,
            ids=ids.astype("<u4", copy=False).tobytes(),
            offsets=offsets.astype("<u4", copy=False).tobytes(),
            restarts=session.restarts,
            keep_left=0 if patch is None else patch.keep_left,
            first_changed=0 if patch is None else patch.first_changed,
            same_until=0 if patch is None else common_prefix(before, ids),
        )
        difference = judge(oracle, question, engine=False)
        if difference is None and session.restarts is not None:
            fresh = subject(session.text, add_special_tokens=case.add_special_tokens)
            prefix = oracle.specials_around(add_special_tokens=case.add_special_tokens).prefix
            difference = wrong_restarts(session.restarts, fresh.restarts, ids, len(prefix))
    except TokSpliceError as error:
        return Result(None, first_route if patch is None else patch.route, error.code)
    return Result(difference, first_route if patch is None else patch.route)


def isolated(sample: Sample) -> Case:
    """The text of a sample on its own."""
    return Case((Step(0, 0, sample.text.decode()),), sample.add_special_tokens)


def made_up(sample: Sample, oracle: Tokenizer) -> dict[str, Case]:
    """Histories that a session may have had: its last change alone, and how agents' texts usually come about. By
    name, the likeliest first."""
    text = sample.text.decode()
    special = sample.add_special_tokens
    start, end = _changed_bytes(sample, oracle)
    without = sample.text[:start] + sample.text[end:]
    last_change = (Step(0, 0, without.decode()), Step(start, start, sample.text[start:end].decode()))
    size = max(APPEND_BYTES, -(-len(text) // MADE_UP_STEPS_MAX))
    pieces = {"appends": _pieces(text, size), "lines": _lines(text)}
    cases = {"last change": Case(last_change, special)}
    cases |= {name: Case(_appended(parts), special) for name, parts in pieces.items() if len(parts) > 1}
    return cases


def _changed_bytes(sample: Sample, oracle: Tokenizer) -> tuple[int, int]:
    """The bytes under the ids that were sent, at the bounds of characters."""
    spans = oracle.session(sample.text.decode(), add_special_tokens=sample.add_special_tokens).offsets()
    total = len(spans)
    first, stop = min(sample.keep_left, total), max(0, total - sample.keep_right)
    start = int(spans[first, 0]) if first < total else len(sample.text)
    # Special tokens at the end have no place in the text.
    end = int(spans[:stop, 1].max(initial=0)) if stop else 0
    if first >= stop or start > end:
        return len(sample.text), len(sample.text)
    return boundary(sample.text, start), boundary(sample.text, end)


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _lines(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    count = -(-len(lines) // MADE_UP_STEPS_MAX) if lines else 1
    return ["".join(lines[at : at + count]) for at in range(0, len(lines), count)]


def _appended(parts: Sequence[str]) -> tuple[Step, ...]:
    lengths = np.cumsum([0, *(len(part.encode()) for part in parts)]).tolist()
    return tuple(Step(at, at, part) for at, part in zip(lengths, parts, strict=False))


Fails = Callable[[Case], bool]
"""Whether a case reproduces the fault."""
