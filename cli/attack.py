"""What `verify` does to the library: chains of adversarial edits, each result compared.

A chain starts from a random text and edits it some fifty times in one session; every other chain has special tokens.
After each edit are compared: the text, all ids, all spans, the places where a scan may restart, the patch applied to
the ids before, and, after a fork, the untouched original, then and at the end of the chain. A recorded session is a
chain of appends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cli.judge import ID_BYTES, SPAN_BYTES, Full, Judge, differences
from cli.oracle import OracleFailedError
from cli.outcome import Outcome
from toksplice import Patch, Session, Tokenizer
from toksplice.adversarial import Adversary, Edit, Stock
from toksplice.errors import ReferenceFailedError

EDITS_PER_CHAIN = 47
"""A prime, so that every so-manieth edit of all falls on each place of a chain in turn."""

RECORDED = "recorded"
"""The rule of edits that attack none: the turns of a recorded session."""


@dataclass(frozen=True, slots=True)
class Chain:
    """`number` tells chains of one seed, or of one sessions file, apart; `edits` is `EDITS_PER_CHAIN`, or fewer for the
    last one, or the turns of a session."""

    seed: str
    number: int
    edits: int = EDITS_PER_CHAIN


def run_chain(tokenizer: Tokenizer, judge: Judge, stock: Stock, chain: Chain) -> Outcome:
    """Run one chain; the same chain and stock are the same edits."""
    adversary = Adversary(f"{chain.seed}/{chain.number}", stock)
    run = _Run(tokenizer, judge, chain, adversary.text(adversary.context_size()))
    for number, edit in enumerate(adversary.edits(run.text, chain.edits)):
        run.step(number, edit)
    run.close()
    return run.outcome


def run_session(tokenizer: Tokenizer, judge: Judge, chain: Chain, turns: Iterable[str]) -> Outcome:
    """Append the turns of a recorded session one after the other."""
    run = _Run(tokenizer, judge, chain, "")
    size = 0
    for number, turn in enumerate(turns):
        run.step(number, Edit("append", size, size, turn, run.text + turn, RECORDED))
        size += len(turn.encode())
    return run.outcome


@dataclass(slots=True)
class _Original:
    """The session that a fork was made of, which must stay as it was."""

    session: Session
    ids: bytes
    text: str
    failure: dict[str, Any]
    """What to report when it did not."""

    def faults(self) -> Iterator[str]:
        if self.session.ids.tobytes() != self.ids or self.session.text != self.text:
            yield "the original of the fork changed"


class _Run:
    def __init__(self, tokenizer: Tokenizer, judge: Judge, chain: Chain, text: str) -> None:
        self._tokenizer = tokenizer
        self._judge = judge
        self._chain = chain
        self._specials = chain.number % 2 == 1
        self._session: Session | None = None
        self._ids = b""  # of the session, before the next edit
        self._original: _Original | None = None
        self._due = False  # the reference is to judge as well, as soon as it can
        self.text = text
        self.outcome = Outcome()

    def step(self, number: int, edit: Edit) -> None:
        """Apply the edit, compare, count. After a failure the next edit starts from a fresh session."""
        self._due |= (self._chain.number * EDITS_PER_CHAIN + number) % self._judge.reference_every == 0
        session, self._session = self._session, None
        try:
            faults = self._faults(number, session, edit)
        except (OracleFailedError, ReferenceFailedError):
            self.outcome.skipped += 1
        else:
            self.outcome.count(edit, len(self.text), add_special_tokens=self._specials)
            if faults:
                self._session = None
                self.outcome.fail(self._describe(number, edit, faults))
        self.text = edit.after

    def close(self) -> None:
        """Compare the last fork's original once more, after all that was done to its copy."""
        if self._original is not None and (faults := list(self._original.faults())):
            self.outcome.fail(self._original.failure | {"faults": faults})

    def _faults(self, number: int, session: Session | None, edit: Edit) -> list[str]:
        """What is wrong after the edit. Raises `OracleFailedError` and `ReferenceFailedError`."""
        try:
            if session is None:
                session = self._tokenizer.session(self.text, add_special_tokens=self._specials)
                self._ids = session.ids.tobytes()
            full = self._judge.full(edit.after, add_special_tokens=self._specials)
            edited, patch = _apply(session, edit)
            self.outcome.count_answer(patch, edit, len(self.text))
            faults = [*_wrong_session(edited, full, edit.after), *_wrong_patch(patch, self._ids, full)]
            if edited is not session:
                self._original = _Original(session, self._ids, self.text, self._describe(number, edit, []))
                faults += self._original.faults()
        except (OracleFailedError, ReferenceFailedError):
            raise
        except BaseException as error:
            if not _is_fault(error):
                raise
            return [f"raised {type(error).__name__}: {error}"]
        if self._judge.reference_only:
            self.outcome.reference_encodes += 1
        elif self._due:
            faults += self._objections(edit, full)
        self._session, self._ids = edited, full.ids
        return faults

    def _objections(self, edit: Edit, full: Full) -> list[str]:
        try:
            found = self._judge.objections(edit.after, full, add_special_tokens=self._specials)
        except OracleFailedError:
            self.outcome.skipped += 1
            return []
        self._due = False
        self.outcome.reference_encodes += 1
        return found

    def _describe(self, number: int, edit: Edit, faults: list[str]) -> dict[str, Any]:
        """All that is needed to see a failure again."""
        return {
            "seed": self._chain.seed,
            "chain": self._chain.number,
            "edit": number,
            "kind": edit.kind,
            "rule": edit.rule,
            "add_special_tokens": self._specials,
            "before": self.text,
            "start": edit.start,
            "end": edit.end,
            "insert": edit.insert,
            "after": edit.after,
            "faults": faults,
        }


def _is_fault(error: BaseException) -> bool:
    """Whether an exception is the library's fault, rather than the end of this process."""
    # A panic in Rust derives from BaseException.
    if type(error).__name__ == "PanicException":
        return True
    return isinstance(error, Exception) and not isinstance(error, MemoryError)


def _apply(session: Session, edit: Edit) -> tuple[Session, Patch]:
    if edit.kind == "append":
        return session, session.append(edit.insert)
    if edit.kind == "truncate" or (edit.kind == "undo" and not edit.insert and edit.end == session.length):
        return session, session.truncate(edit.start)
    if edit.kind in ("update", "undo"):
        return session, session.update(edit.after)
    target = session.fork() if edit.kind == "fork" else session
    return target, target.splice(edit.start, edit.end, edit.insert)


def _wrong_session(session: Session, full: Full, text: str) -> Iterator[str]:
    if session.text != text:
        yield "the session's text is not the edited text"
    yield from differences("ids", session.ids, full.ids, "those of a full encode")
    yield from differences("offsets", session.offsets(), full.spans, "those of a full encode")
    if session.restarts != full.restarts:
        yield "the places where a scan may restart are not those of a full encode"
    if session.total != full.total:
        yield f"total is {session.total} in the session, not {full.total}"


def _wrong_patch(patch: Patch, before: bytes, full: Full) -> Iterator[str]:
    """`before`: the ids before the edit, as bytes. Bytes are cut, joined and compared faster than arrays."""
    left, right = patch.keep_left * ID_BYTES, len(before) - patch.keep_right * ID_BYTES
    after = full.ids
    if not 0 <= left <= right <= len(before) or before[:left] + patch.ids.tobytes() + before[right:] != after:
        yield "the patch does not lead from the ids before to the ids after"
    if patch.offsets.tobytes() != full.spans[SPAN_BYTES * patch.keep_left :][: SPAN_BYTES * len(patch.ids)]:
        yield "the patch's offsets are not those of its ids"
    if patch.total != full.total:
        yield f"total is {patch.total} in the patch, not {full.total}"
    if not _changes_first_at(patch.first_changed * ID_BYTES, before, after):
        yield f"the ids before and after do not differ first at token {patch.first_changed}"


def _changes_first_at(place: int, before: bytes, after: bytes) -> bool:
    if not 0 <= place <= len(after) or before[:place] != after[:place]:
        return False
    return place == len(after) or before[place : place + ID_BYTES] != after[place : place + ID_BYTES]
