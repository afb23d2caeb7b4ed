"""A session: one text and its exact tokens, kept in step under edits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from toksplice import snapshot, textview
from toksplice.errors import PositionError, SnapshotError
from toksplice.patch import Patch, common_prefix
from toksplice.reference import U32, Encoded, encode_utf8
from toksplice.repair import Edit, Repaired, repair

if TYPE_CHECKING:
    from toksplice.tokenizer import Tokenizer


class Session:
    """A text and its tokens. Made by `Tokenizer.session`; not safe for use by two threads at once.

    Positions and lengths are UTF-8 bytes and must lie on character boundaries (`PositionError`). Text must be
    valid Unicode (`TextError`). When an edit raises, the session is as it was before.
    """

    def __init__(self, tokenizer: Tokenizer, text: bytes, tokens: Encoded, *, add_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._text = bytearray(text)
        self._add_special_tokens = add_special_tokens
        self._tokens = tokenizer.with_specials(tokens, add_special_tokens=add_special_tokens)

    @property
    def length(self) -> int:
        """Bytes of the text."""
        return len(self._text)

    @property
    def total(self) -> int:
        """Tokens, special tokens included."""
        return len(self._tokens)

    @property
    def text(self) -> str:
        return self._text.decode()

    @property
    def ids(self) -> U32:
        """All ids, special tokens included: a read-only view without a copy, valid until the next edit."""
        return self._tokens.ids

    @property
    def add_special_tokens(self) -> bool:
        return self._add_special_tokens

    @property
    def size_bytes(self) -> int:
        """Memory held by the text and the tokens, slack included."""
        return sys.getsizeof(self._text) + self._tokens.size_bytes

    def offsets(self) -> U32:
        """UTF-8 byte span of every token, u32 of shape (tokens, 2), as the reference gives them."""
        return np.stack([self._tokens.starts, self._tokens.ends], axis=1)

    def append(self, text: str, *, force_full: bool = False) -> Patch:
        """Add `text` at the end. `force_full`: by route D whatever the tokenizer allows."""
        return self.splice(self.length, self.length, text, force_full=force_full)

    def truncate(self, length: int, *, force_full: bool = False) -> Patch:
        """Keep the first `length` bytes."""
        return self.splice(length, self.length, "", force_full=force_full)

    def splice(self, start: int, end: int, text: str, *, force_full: bool = False) -> Patch:
        """Put `text` in place of bytes [start, end)."""
        new = encode_utf8(text)
        textview.check_boundary(self._text, start)
        textview.check_boundary(self._text, end)
        if start > end:
            raise PositionError(f"a splice from {start} to {end} runs backwards")
        if new == self._text[start:end]:
            return self._unchanged()
        route = self._tokenizer.route
        reason, spent = "forced" if force_full else "no_rule", 0
        if route is not None and not force_full:
            edit = Edit(self._text, self._tokens.core, start, end, text, len(new))
            attempt = repair(self._tokenizer.reference, route, edit)
            reason, spent = attempt.reason, attempt.chars_encoded
            if attempt.repaired is not None:
                return self._accept(edit, new, attempt.repaired, spent)
        return self._encode_full(start, end, new, reason, spent)

    def update(self, text: str, *, force_full: bool = False) -> Patch:
        """Make `text` the whole text: what it shares with the old one, left and right, is kept."""
        new = encode_utf8(text)
        left = textview.common_prefix(self._text, new)
        right = textview.common_suffix(self._text, new, left)
        middle = new[left : len(new) - right].decode()
        return self.splice(left, self.length - right, middle, force_full=force_full)

    def fork(self) -> Session:
        """An independent session with the same text and tokens."""
        return Session(
            self._tokenizer, bytes(self._text), self._tokens.core, add_special_tokens=self._add_special_tokens
        )

    def to_bytes(self) -> bytes:
        """A snapshot for `from_bytes`, with a version and a checksum."""
        return snapshot.dump(
            snapshot.State(self._tokenizer.fingerprint, self._add_special_tokens, bytes(self._text), self._tokens.core)
        )

    @classmethod
    def from_bytes(cls, tokenizer: Tokenizer, data: bytes) -> Session:
        """The session of a snapshot; raises `SnapshotError` when it is damaged or of another tokenizer."""
        state = snapshot.parse(data)
        if state.fingerprint != tokenizer.fingerprint:
            raise SnapshotError("the session bytes belong to another tokenizer")
        return cls(tokenizer, state.text, state.tokens, add_special_tokens=state.add_special_tokens)

    def _unchanged(self) -> Patch:
        return Patch(
            keep_left=self.total,
            ids=np.empty(0, np.uint32),
            keep_right=0,
            total=self.total,
            first_changed=self.total,
            offsets=np.empty((0, 2), np.uint32),
            route="C" if self._tokenizer.route is not None else "D",
            reason="unchanged",
            certificate=None,
            chars_encoded=0,
        )

    def _accept(self, edit: Edit, new: bytes, repaired: Repaired, spent: int) -> Patch:
        buffer, tokens = self._tokens, repaired.tokens
        keep_left = buffer.prefix + repaired.keep_left
        keep_right = len(edit.tokens) - repaired.keep_from + buffer.suffix
        changed = _first_changed(buffer.ids, keep_left, tokens.ids, keep_right)
        delta = edit.new_bytes - (edit.end - edit.start)
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
            reason="certified",
            certificate=repaired.certificate,
            chars_encoded=spent,
        )

    def _encode_full(self, start: int, end: int, new: bytes, reason: str, spent: int) -> Patch:
        text = b"".join((self._text[:start], new, self._text[end:]))
        whole = text.decode()
        core = self._tokenizer.reference.encode(whole)
        old = self._tokens
        fresh = self._tokenizer.with_specials(core, add_special_tokens=self._add_special_tokens)
        keep_left = common_prefix(old.ids, fresh.ids)
        keep_right = common_prefix(old.ids[keep_left:][::-1], fresh.ids[keep_left:][::-1])
        new_part = slice(keep_left, len(fresh) - keep_right)
        self._text, self._tokens = bytearray(text), fresh
        return Patch(
            keep_left=keep_left,
            ids=fresh.ids[new_part].copy(),
            keep_right=keep_right,
            total=self.total,
            first_changed=keep_left,
            offsets=self.offsets()[new_part],
            route="D",
            reason=reason,
            certificate=None,
            chars_encoded=spent + len(whole),
        )


def _first_changed(old: U32, keep_left: int, ids: U32, keep_right: int) -> int:
    """The first index at which old[:keep_left] + ids + old[len(old) - keep_right:] differs from `old`."""
    same = common_prefix(ids, old[keep_left:])
    at = keep_left + same
    if same == len(ids):
        at += common_prefix(old[len(old) - keep_right :], old[at:])
    return at
