"""Faults of an engine: a session that gives the wrong tokens, and goes on from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shadow.faults.catalogue import Injection, Kind, Place
from shadow.faults.tokens import Tokens, replaced, third
from shadow.faults.vocabulary import Vocabulary
from toksplice.patch import Patch, full_patch
from toksplice.reference import U32
from toksplice.session import Session

LONG_PREFIX_BYTES: Final = 256
"""From this many kept bytes on, the fault of a long prefix shows."""

Remake = Callable[[Session, Tokens, Tokens, Patch | None], Tokens]
"""(the right session, its tokens, the wrong tokens before, what changed) -> the wrong tokens now. There is no patch for
a first text."""


@dataclass(frozen=True, slots=True)
class EngineFault:
    """What is wrong with an engine. `name` is the injection's."""

    name: str
    specials: tuple[int, int]
    """Special tokens before and after a text that asks for them."""
    remake: Remake

    def around(self, session: Session) -> tuple[int, int]:
        """Special tokens before and after the text of a session."""
        return self.specials if session.add_special_tokens else (0, 0)

    def right(self, session: Session) -> Tokens:
        """The tokens of a session but for the special ones around them."""
        before, after = self.around(session)
        stop = session.total - after
        return Tokens(session.ids_between(before, stop), session.offsets_between(before, stop))


def fault_of(injection: Injection, vocabulary: Vocabulary) -> EngineFault:
    """Raises SettingsError where the tokenizer has nothing that the fault could strike."""
    return EngineFault(injection.name, vocabulary.specials, _remake(injection, vocabulary))


def _remake(injection: Injection, vocabulary: Vocabulary) -> Remake:
    place, variant = injection.place, injection.variant
    match injection.kind:
        case Kind.CACHE_POISONED:
            return lambda session, right, held, patch: _poisoned(vocabulary, right, variant, place)
        case Kind.CACHE_AFTER_LONG_PREFIX:
            before = vocabulary.specials
            return lambda session, right, held, patch: _after_long_prefix(
                right, held, patch, place, before if session.add_special_tokens else (0, 0)
            )
        case _:
            other = vocabulary.relative(variant).reference
            return lambda session, right, held, patch: replaced(
                right, Tokens.of(other.encode(session.text)), place, session.length
            )


class FaultySession(Session):
    """A session whose tokens a fault makes. Text, positions and routes are those of the right one."""

    def __init__(self, inner: Session, fault: EngineFault, held: Tokens) -> None:
        """held: the tokens that it begins with."""
        self.fault = fault
        self._inner = inner
        self._held = held
        before, after = fault.around(inner)
        self._before, self._after = inner.ids_between(0, before), inner.ids_between(inner.total - after, inner.total)

    @classmethod
    def begun(cls, inner: Session, fault: EngineFault) -> FaultySession:
        """A session whose first text is wrong already."""
        right = fault.right(inner)
        return cls(inner, fault, fault.remake(inner, right, right, None))

    @classmethod
    def going_on(cls, inner: Session, fault: EngineFault) -> FaultySession:
        """A session that is right until its next edit."""
        return cls(inner, fault, fault.right(inner))

    @property
    def length(self) -> int:
        return self._inner.length

    @property
    def total(self) -> int:
        return len(self._before) + len(self._held) + len(self._after)

    @property
    def text(self) -> str:
        return self._inner.text

    def utf8(self, start: int, stop: int) -> bytes:
        return self._inner.utf8(start, stop)

    @property
    def ids(self) -> U32:
        return np.concatenate([self._before, self._held.ids, self._after])

    @property
    def add_special_tokens(self) -> bool:
        return self._inner.add_special_tokens

    @property
    def native(self) -> bool:
        return self._inner.native

    @property
    def size_bytes(self) -> int:
        return self._inner.size_bytes + self._held.ids.nbytes + self._held.spans.nbytes

    @property
    def restarts(self) -> bytes | None:
        return self._inner.restarts

    def offsets(self) -> U32:
        return np.pad(self._held.spans, ((len(self._before), len(self._after)), (0, 0)))

    def ids_between(self, start: int, stop: int) -> U32:
        self._check_stretch(start, stop)
        return self.ids[start:stop]

    def offsets_between(self, start: int, stop: int) -> U32:
        self._check_stretch(start, stop)
        return self.offsets()[start:stop]

    def splice(self, start: int, end: int, text: str, *, force_full: bool = False) -> Patch:
        return self._changed(self._inner.splice(start, end, text, force_full=force_full))

    def update(self, text: str, *, force_full: bool = False) -> Patch:
        return self._changed(self._inner.update(text, force_full=force_full))

    def _changed(self, patch: Patch) -> Patch:
        old = self.ids
        self._held = self.fault.remake(self._inner, self.fault.right(self._inner), self._held, patch)
        wrong = full_patch(old, self.ids, self.offsets(), patch.reason, patch.chars_encoded)
        return replace(wrong, route=patch.route, certificate=patch.certificate)

    def fork(self) -> FaultySession:
        return FaultySession(self._inner.fork(), self.fault, self._held)

    def on_reference(self) -> Session:
        """The fault is the engine's: the reference does not have it."""
        return self._inner.on_reference()

    def to_bytes(self) -> bytes:
        return self._inner.to_bytes()


def _poisoned(vocabulary: Vocabulary, right: Tokens, variant: str, place: Place) -> Tokens:
    """One word of a third of the text is in the cache with the wrong ids: the word that stands there most often, and
    of several the one that comes first."""
    first, last = third(len(right), place)
    if first == last:
        return right
    inside = right.ids[first:last]
    words, at, counts = np.unique(inside, return_index=True, return_counts=True)
    long = np.array([len(vocabulary.spell(int(word)) or "") > 1 for word in words]) & ~np.isin(
        words, list(vocabulary.added)
    )
    order = np.lexsort((at, -counts, ~long))
    word = words[order[0]]
    hits = np.flatnonzero(inside == word) + first
    if variant == "cut_short":
        keep = np.ones(len(right), bool)
        keep[hits] = False
        return Tokens(right.ids[keep], right.spans[keep])
    if variant == "collision":
        ids = right.ids.copy()
        ids[hits] += 1
        return Tokens(ids, right.spans)
    letters = [vocabulary.ids[letter] for letter in vocabulary.spell(int(word)) or "" if letter in vocabulary.ids]
    counts_of = np.ones(len(right), int)
    counts_of[hits] = len(letters)
    ids, spans = np.repeat(right.ids, counts_of), np.repeat(right.spans, counts_of, axis=0)
    ids[np.isin(np.repeat(np.arange(len(right)), counts_of), hits)] = np.tile(letters, len(hits))
    return Tokens(ids, spans)


def _after_long_prefix(
    right: Tokens, held: Tokens, patch: Patch | None, place: Place, around: tuple[int, int]
) -> Tokens:
    """Behind a long prefix an edit takes one token from the wrong cell of a cache: no fresh encoding shows it."""
    if patch is None:
        return right
    left, kept = max(0, patch.keep_left - around[0]), max(0, patch.keep_right - around[1])
    stop = len(right) - kept
    # What is kept is kept with the faults of earlier edits, which changed no token's place.
    ids = np.concatenate([held.ids[:left], right.ids[left:stop], held.ids[len(held) - kept :]])
    if left < stop and right.spans[left, 0] >= LONG_PREFIX_BYTES:
        ids[{Place.HEAD: left, Place.MIDDLE: (left + stop) // 2, Place.TAIL: stop - 1}[place]] ^= 1
    return Tokens(ids, right.spans)
