"""A session on the reference: routes C and D, for every tokenizer that the engine does not serve."""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

from toksplice import snapshot, textview
from toksplice.errors import PositionError
from toksplice.patch import Patch, common_prefix, full_patch, unchanged_patch
from toksplice.reference import U32, Encoded, Reference, encode_utf8
from toksplice.repair import Attempt, Edit, Repaired, repair
from toksplice.session import Session
from toksplice.word_repair import repair_words
from toksplice.words import Words

if TYPE_CHECKING:
    from toksplice.plan import Route
    from toksplice.tokenizer import Tokenizer


class ReferenceSession(Session):
    """A text and the reference's tokens, spliced where a certificate allows it."""

    def __init__(self, tokenizer: Tokenizer, text: bytes, tokens: Encoded, *, add_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._text = bytearray(text)
        self._add_special_tokens = add_special_tokens
        self._tokens = tokenizer.with_specials(tokens, add_special_tokens=add_special_tokens)
        self._sharers: WeakSet[ReferenceSession] = WeakSet((self,))
        """Sessions that read the same buffers: whoever changes them in place makes a copy first, unless it is alone."""

    @property
    def length(self) -> int:
        return len(self._text)

    @property
    def total(self) -> int:
        return len(self._tokens)

    @property
    def text(self) -> str:
        return self._text.decode()

    def utf8(self, start: int, stop: int) -> bytes:
        return bytes(self._text[start:stop])

    @property
    def ids(self) -> U32:
        return self._tokens.ids

    @property
    def add_special_tokens(self) -> bool:
        return self._add_special_tokens

    @property
    def native(self) -> bool:
        return False

    @property
    def size_bytes(self) -> int:
        return sys.getsizeof(self._text) + self._tokens.size_bytes

    @property
    def restarts(self) -> None:
        return None

    def offsets(self) -> U32:
        return self.offsets_between(0, self.total)

    def ids_between(self, start: int, stop: int) -> U32:
        self._check_stretch(start, stop)
        return self._tokens.ids[start:stop].copy()

    def offsets_between(self, start: int, stop: int) -> U32:
        self._check_stretch(start, stop)
        return np.stack([self._tokens.starts[start:stop], self._tokens.ends[start:stop]], axis=1)

    def splice(self, start: int, end: int, text: str, *, force_full: bool = False) -> Patch:
        new = encode_utf8(text)
        textview.check_boundary(self._text, start)
        textview.check_boundary(self._text, end)
        if start > end:
            raise PositionError(f"a splice from {start} to {end} runs backwards")
        if new == self._text[start:end] and not force_full:
            return unchanged_patch(self.total, "C" if self._tokenizer.route is not None else "D")
        route = self._tokenizer.route
        reason, spent = "forced" if force_full else "no_rule", 0
        if route is not None and not force_full:
            edit = Edit(self._text, self._tokens.core, start, end, text, len(new))
            attempt = _repair(self._tokenizer.reference, route, edit)
            reason, spent = attempt.reason, attempt.chars_encoded
            if attempt.repaired is not None:
                return self._accept(edit, new, attempt.repaired, reason, spent)
        return self._encode_full(start, end, new, reason, spent)

    def update(self, text: str, *, force_full: bool = False) -> Patch:
        new = encode_utf8(text)
        left = textview.common_prefix(self._text, new)
        right = textview.common_suffix(self._text, new, left)
        middle = new[left : len(new) - right].decode()
        return self.splice(left, self.length - right, middle, force_full=force_full)

    def fork(self) -> ReferenceSession:
        """O(1): the two share their memory until one of them is changed while both are there."""
        fork = copy.copy(self)
        self._sharers.add(fork)
        return fork

    def _own(self) -> None:
        """Have buffers that may be changed in place."""
        if len(self._sharers) > 1:
            shared = self._sharers
            self._text, self._tokens, self._sharers = bytearray(self._text), self._tokens.copy(), WeakSet((self,))
            # Not before the copy is there: another thread may change what nobody seems to share.
            shared.discard(self)

    def on_reference(self) -> ReferenceSession:
        return self

    def to_bytes(self) -> bytes:
        fingerprint, text = self._tokenizer.fingerprint, bytes(self._text)
        return snapshot.dump(fingerprint, self._add_special_tokens, text, self._tokens.core)

    def _accept(self, edit: Edit, new: bytes, repaired: Repaired, reason: str, spent: int) -> Patch:
        buffer, tokens = self._tokens, repaired.tokens
        keep_left = buffer.prefix + repaired.keep_left
        keep_right = len(edit.tokens) - repaired.keep_from + buffer.suffix
        changed = _first_changed(buffer.ids, keep_left, tokens.ids, keep_right)
        delta = edit.new_bytes - (edit.end - edit.start)
        self._own()
        buffer = self._tokens
        buffer.replace(repaired.keep_left, repaired.keep_from, tokens, delta)
        self._text[edit.start : edit.end] = new
        return Patch(
            keep_left=keep_left,
            ids=tokens.ids.copy(),
            keep_right=keep_right,
            total=self.total,
            first_changed=changed,
            offsets=np.stack([tokens.starts, tokens.ends], axis=1),
            route="C",
            reason=reason,
            certificate=repaired.certificate,
            chars_encoded=spent,
        )

    def _encode_full(self, start: int, end: int, new: bytes, reason: str, spent: int) -> Patch:
        text = b"".join((self._text[:start], new, self._text[end:]))
        whole = text.decode()
        core = self._tokenizer.reference.encode(whole)
        old = self.ids
        shared, self._sharers = self._sharers, WeakSet((self,))
        self._text = bytearray(text)
        self._tokens = self._tokenizer.with_specials(core, add_special_tokens=self._add_special_tokens)
        patch = full_patch(old, self.ids, self.offsets(), reason, spent + len(whole))
        shared.discard(self)
        return patch


def _repair(reference: Reference, route: Route, edit: Edit) -> Attempt:
    return repair_words(reference, route, edit) if isinstance(route, Words) else repair(reference, route, edit)


def _first_changed(old: U32, keep_left: int, ids: U32, keep_right: int) -> int:
    """The first index at which old[:keep_left] + ids + old[len(old) - keep_right:] differs from `old`."""
    same = common_prefix(ids, old[keep_left:])
    at = keep_left + same
    if same == len(ids):
        at += common_prefix(old[len(old) - keep_right :], old[at:])
    return at
