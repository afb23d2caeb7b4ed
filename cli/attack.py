"""What `verify` does to the library: chains of adversarial edits, each result compared with the oracle.

A chain starts from a random text and edits it some twenty times, in two sessions at once: one with special
tokens and one without. After each edit are compared, for both: all ids, all spans, the patch applied to
the ids before, and, after a fork, the untouched original.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cli.oracle import Oracle, OracleFailedError
from toksplice import Patch, Session, Tokenizer
from toksplice.adversarial import Adversary, Edit
from toksplice.errors import ReferenceFailedError, TokSpliceError

EDITS_PER_CHAIN = 20
LONG_CONTEXT_CHARS = 4_000
"""Contexts longer than this are counted by route: below it, encoding everything is often as quick."""
MAX_FAILURES = 20
"""Failures kept with their texts; more are only counted."""

U32 = npt.NDArray[np.uint32]


@dataclass(slots=True)
class Outcome:
    """What came of some cases. One case is one edit with one setting of add_special_tokens."""

    cases: int = 0
    failed: int = 0
    skipped: int = 0
    """Further cases, whose text the reference itself cannot encode."""
    routes: Counter[str] = field(default_factory=Counter)
    long_routes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def merge(self, other: Outcome) -> None:
        """Add the counts of `other`."""
        self.cases += other.cases
        self.failed += other.failed
        self.skipped += other.skipped
        self.routes += other.routes
        self.long_routes += other.long_routes
        self.kinds += other.kinds
        self.failures = (self.failures + other.failures)[:MAX_FAILURES]


def run_chain(
    tokenizer: Tokenizer, oracle: Oracle, *, seed: str, edits: int = EDITS_PER_CHAIN, cases: int | None = None
) -> Outcome:
    """One chain of `edits` edits, cut short after `cases` cases; the same seed is the same chain."""
    outcome = Outcome()
    adversary = Adversary(seed, oracle.added_tokens)
    text = adversary.text(adversary.context_size())
    sessions: dict[bool, Session] = {}
    for number, edit in enumerate(adversary.edits(text, edits)):
        for flag in (False, True):
            if cases is not None and outcome.cases + outcome.skipped >= cases:
                return outcome
            case = _Case(seed, number, flag, text, edit)
            try:
                session = sessions.pop(flag, None) or tokenizer.session(text, add_special_tokens=flag)
                expected = oracle.encode(edit.after, add_special_tokens=flag)
                edited = _check(case, session, *expected, outcome)
            except (OracleFailedError, ReferenceFailedError):
                outcome.skipped += 1
                continue
            if edited is not None:
                sessions[flag] = edited
        text = edit.after
    return outcome


@dataclass(frozen=True, slots=True)
class _Case:
    seed: str
    number: int
    add_special_tokens: bool
    before: str
    edit: Edit

    def describe(self, faults: list[str]) -> dict[str, Any]:
        """All that is needed to see the failure again."""
        return {
            "seed": self.seed,
            "edit": self.number,
            "kind": self.edit.kind,
            "add_special_tokens": self.add_special_tokens,
            "before": self.before,
            "start": self.edit.start,
            "end": self.edit.end,
            "insert": self.edit.insert,
            "after": self.edit.after,
            "faults": faults,
        }


def _check(case: _Case, session: Session, ids: U32, spans: U32, outcome: Outcome) -> Session | None:
    """Apply the edit, compare, count. The session that goes on; None after a failure: the next one starts afresh."""
    before = session.ids.copy()
    fault = ""
    try:
        edited, patch = _apply(session, case.edit)
    except ReferenceFailedError:
        raise
    except TokSpliceError as error:
        fault = f"raised {type(error).__name__}: {error}"
    outcome.cases += 1
    outcome.kinds[case.edit.kind] += 1
    if fault:
        _fail(case, [fault], outcome)
        return None
    outcome.routes[patch.route] += 1
    if len(case.before) > LONG_CONTEXT_CHARS:
        outcome.long_routes[patch.route] += 1
    faults = list(_faults(edited, patch, before, ids, spans, case.edit.after))
    if edited is not session and not np.array_equal(session.ids, before):
        faults.append("the original of the fork changed")
    if faults:
        _fail(case, faults, outcome)
        return None
    return edited


def _fail(case: _Case, faults: list[str], outcome: Outcome) -> None:
    outcome.failed += 1
    if len(outcome.failures) < MAX_FAILURES:
        outcome.failures.append(case.describe(faults))


def _apply(session: Session, edit: Edit) -> tuple[Session, Patch]:
    if edit.kind == "append":
        return session, session.append(edit.insert)
    if edit.kind == "truncate":
        return session, session.truncate(edit.start)
    if edit.kind == "update":
        return session, session.update(edit.after)
    target = session.fork() if edit.kind == "fork" else session
    return target, target.splice(edit.start, edit.end, edit.insert)


def _faults(session: Session, patch: Patch, before: U32, ids: U32, spans: U32, after: str) -> Iterator[str]:
    if session.text != after:
        yield "the session's text is not the edited text"
    if not np.array_equal(session.ids, ids):
        yield f"ids differ from token {_first_difference(session.ids, ids)} of {len(ids)} on"
    offsets = session.offsets()
    if not np.array_equal(offsets, spans):
        yield f"offsets differ from token {_first_difference(offsets, spans)} of {len(spans)} on"
    kept = before[len(before) - patch.keep_right :]
    if not np.array_equal(np.concatenate([before[: patch.keep_left], patch.ids, kept]), ids):
        yield "the patch does not lead from the ids before to the ids after"
    sent = spans[patch.keep_left : patch.keep_left + len(patch.ids)]
    if not np.array_equal(patch.offsets, sent):
        yield "the patch's offsets are not those of its ids"
    if patch.total != len(ids) or session.total != len(ids):
        yield f"total is {patch.total} in the patch and {session.total} in the session, not {len(ids)}"


def _first_difference(left: U32, right: U32) -> int:
    size = min(len(left), len(right))
    differs = np.nonzero((left[:size] != right[:size]).reshape(size, -1).any(axis=1))[0]
    return int(differs[0]) if len(differs) else size
