"""Edits of a conversation: what an agent, its template and its user do to a text that is tokenized already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cli.bench.corpus import Fresh

Edit = tuple[int, int, str, int, int]
"""Characters [start, end), the text put in their place, and the same place in UTF-8 bytes."""

TURN_CHARS = 1_400
"""What a turn of a coding agent adds, at the median."""
CONTEXTS_CHARS = (100_000, 1_000_000, 4_400_000)
SMALL, MIDDLE = CONTEXTS_CHARS[:2]
SIZES_CHARS = (1_000, 5_000, 10_000, 50_000, 100_000)
ROUND_CHARS = 100_000
"""At most this much is added to a context in a round, or one edit of whatever size."""
TAIL = "\n<|assistant|>\n<think>\n"
"""What a chat template puts behind a request and takes away again before the next."""
ACCENT = " cafe\u0301 "


@dataclass(frozen=True, slots=True)
class Scenario:
    """A context and how it is edited. `kind` is a key of the table of recipes."""

    case: str
    kind: str
    context_chars: int = MIDDLE
    edit_chars: int = TURN_CHARS

    @property
    def special(self) -> bool:
        """Whether the session has special tokens around it."""
        return self.kind == "special"


APPENDS = tuple(Scenario("append", "append", chars) for chars in CONTEXTS_CHARS)
SIZES = tuple(Scenario("append", "append", edit_chars=chars) for chars in SIZES_CHARS)
CASES = (
    Scenario("tail of the template replaced", "tail"),
    Scenario("append with an added token", "added"),
    Scenario("append, a decomposed accent far left", "accent"),
    Scenario("append, special tokens around", "special"),
    Scenario("insert at 90%", "insert"),
    Scenario("undo of a turn", "undo"),
)
PLAIN = APPENDS[1]
"""What the other cases are compared with."""


@dataclass(frozen=True, slots=True)
class Work:
    """One round of a scenario: `before` is done outside the clock. `final` is the text afterwards."""

    key: str
    context: str
    before: tuple[Edit, ...]
    timed: tuple[Edit, ...]
    final: str


class Draft:
    """A text that is being edited, and the edits so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.edits: list[Edit] = []

    def replace(self, start: int, end: int, new: str) -> None:
        """Put `new` in place of characters [start, end)."""
        start_byte = len(self.text[:start].encode())
        end_byte = start_byte + len(self.text[start:end].encode())
        self.edits.append((start, end, new, start_byte, end_byte))
        self.text = self.text[:start] + new + self.text[end:]

    def append(self, new: str) -> None:
        """Add `new` at the end."""
        self.replace(len(self.text), len(self.text), new)

    def taken(self) -> tuple[Edit, ...]:
        """The edits since the last call."""
        found, self.edits = tuple(self.edits), []
        return found


class Workshop:
    """Makes the rounds of scenarios out of one text. `added_token`: a special token of the tokenizer, or ""."""

    def __init__(self, text: str, fresh: Fresh, added_token: str) -> None:
        self._text = text
        self._fresh = fresh
        self._added_token = added_token

    def pieces(self, scenario: Scenario, steps: int) -> tuple[str, ...]:
        """New texts for a round in which the lane with the most steps takes `steps`."""
        steps = min(steps, max(1, ROUND_CHARS // scenario.edit_chars))
        return tuple(self._fresh.take(scenario.edit_chars) for _ in range(steps))

    def work(self, scenario: Scenario, pieces: tuple[str, ...]) -> Work:
        """The round of a scenario with these new texts, one edit each."""
        context = self._text[: scenario.context_chars]
        key = f"{scenario.context_chars}"
        if scenario.kind == "tail":
            key, context = f"{key} tail", context + TAIL
        elif scenario.kind == "accent":
            at = len(context) // 10
            key, context = f"{key} accent", context[:at] + ACCENT + context[at:]
        draft = Draft(context)
        if scenario.kind == "undo":
            for piece in pieces:
                draft.append(piece)
        before = draft.taken()
        for piece in pieces:
            _RECIPES[scenario.kind](draft, piece, self._added_token)
        return Work(key, context, before, draft.taken(), draft.text)


def _append(draft: Draft, piece: str, added: str) -> None:
    draft.append(piece)


def _added(draft: Draft, piece: str, added: str) -> None:
    draft.append(f"{added}\n{piece}")


def _tail(draft: Draft, piece: str, added: str) -> None:
    draft.replace(len(draft.text) - len(TAIL), len(draft.text), piece + TAIL)


def _insert(draft: Draft, piece: str, added: str) -> None:
    at = len(draft.text) * 9 // 10
    draft.replace(at, at, piece)


def _undo(draft: Draft, piece: str, added: str) -> None:
    draft.replace(len(draft.text) - len(piece), len(draft.text), "")


_RECIPES: dict[str, Callable[[Draft, str, str], None]] = {
    "append": _append,
    "added": _added,
    "tail": _tail,
    "accent": _append,
    "special": _append,
    "insert": _insert,
    "undo": _undo,
}


def fitting(scenarios: tuple[Scenario, ...], chars: int) -> tuple[Scenario, ...]:
    """The scenarios whose context is in a text of this length, with room for edits behind it."""
    return tuple(one for one in scenarios if one.context_chars <= chars - max(SIZES_CHARS))
