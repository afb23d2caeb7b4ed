"""What came of the edits of `verify`: counts that can be added up, and the failures with their texts."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from toksplice import Patch
from toksplice.adversarial import Edit

LONG_CONTEXT_CHARS = 4_000
"""Contexts longer than this are counted by route: below it, encoding everything is often as quick."""
CONTEXT_CHARS = (10, 100, 1_000, LONG_CONTEXT_CHARS, 10_000)
"""Edits are counted by which of these their contexts stay under."""
CONTEXTS = (*(f"under {chars:,}" for chars in CONTEXT_CHARS), f"{CONTEXT_CHARS[-1]:,} and over")
MAX_FAILURES = 20
"""Failures kept with their texts, the first ones; more are only counted."""


@dataclass(slots=True)
class Outcome:
    """What came of some edits."""

    edits: int = 0
    """Edits whose session was compared: with the engine's full encode, or with the reference."""
    reference_encodes: int = 0
    """Edited texts that the reference encoded too, and was compared with."""
    failed: int = 0
    skipped: int = 0
    """Texts that the reference itself failed on."""
    chars_in_texts: int = 0
    """Characters of all edited texts."""
    chars_encoded: int = 0
    """Characters that the sessions encoded for them."""
    kinds: Counter[str] = field(default_factory=Counter)
    routes: Counter[str] = field(default_factory=Counter)
    long_routes: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    contexts: Counter[str] = field(default_factory=Counter)
    special_tokens: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def count(self, edit: Edit, context_chars: int, *, add_special_tokens: bool) -> None:
        """One edit of a text of `context_chars` characters."""
        self.edits += 1
        self.kinds[edit.kind] += 1
        self.rules[edit.rule] += 1
        self.contexts[CONTEXTS[bisect_right(CONTEXT_CHARS, context_chars)]] += 1
        self.special_tokens["with" if add_special_tokens else "without"] += 1

    def count_answer(self, patch: Patch, edit: Edit, context_chars: int) -> None:
        """The session's answer to that edit."""
        self.routes[patch.route] += 1
        if context_chars > LONG_CONTEXT_CHARS:
            self.long_routes[patch.route] += 1
        self.chars_in_texts += len(edit.after)
        self.chars_encoded += patch.chars_encoded

    def fail(self, failure: dict[str, Any]) -> None:
        """One failure, as `chain.describe` makes it."""
        self.failed += 1
        self.failures.append(failure)
        self._keep_the_first()

    def merge(self, other: Outcome) -> None:
        """Add what came of other edits; in whatever order, the result is the same."""
        for each in dataclasses.fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self._keep_the_first()

    def _keep_the_first(self) -> None:
        self.failures.sort(key=lambda failure: (failure["chain"], failure["edit"]))
        del self.failures[MAX_FAILURES:]

    def to_json(self) -> dict[str, Any]:
        """All of it, for `from_json`."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        """The outcome that `to_json` gave; raises `TypeError` for anything else."""
        values: dict[str, Any] = {
            name: Counter(value) if isinstance(value, dict) else value for name, value in data.items()
        }
        return cls(**values)
