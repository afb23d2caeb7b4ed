"""Repair of a tokenization around an edit (route C), up to the point where it would cost a full encoding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from toksplice.certificate import MAX_DOUBLINGS, WINDOW_CHARS, Certificate, Run, Side, Text, certify
from toksplice.plan import RouteC
from toksplice.reference import Encoded, Reference
from toksplice.textview import back, forward


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes [start, end) of `text` become `new`; `tokens` are those of `text`, without special tokens."""

    text: bytearray
    tokens: Encoded
    start: int
    end: int
    new: str
    new_bytes: int


@dataclass(frozen=True, slots=True)
class Repaired:
    """Core tokens [keep_left, keep_from) of the old text become `tokens`, whose spans are in the new text."""

    keep_left: int
    keep_from: int
    tokens: Encoded
    certificate: Certificate


@dataclass(frozen=True, slots=True)
class Attempt:
    """A repair, or None with the reason; `chars_encoded` is what the reference was given on the way."""

    repaired: Repaired | None
    reason: str
    chars_encoded: int


def repair(reference: Reference, route: RouteC, edit: Edit) -> Attempt:
    """Encode growing windows around the edit until both of their sides are certified."""
    # A run must be longer than the longest token, so a smaller window could not pass.
    left = right = max(WINDOW_CHARS, 2 * route.longest_token_chars)
    spent = 0
    whole = len(edit.text) - (edit.end - edit.start) + edit.new_bytes
    for doublings in range(MAX_DOUBLINGS + 1):
        window = _Window(edit, left, right)
        if window.is_whole_text:
            return Attempt(None, "window_is_whole_text", spent)
        if spent and spent + len(window.text) > whole:
            return Attempt(None, "not_worth_it", spent)
        window.encode(reference)
        spent += len(window.text)
        left_run, right_run = window.certify_left(route), window.certify_right(route)
        if left_run is not None and right_run is not None and window.is_in_order(left_run, right_run):
            return Attempt(window.splice(left_run, right_run, doublings), "certified", spent)
        left *= 2 if left_run is None else 1
        right *= 2 if right_run is None else 1
    return Attempt(None, "uncertified", spent)


_WHOLE_SIDE = Run(0, 0, 0, 0)


class _Window:
    """A window of the new text around an edit, and the old tokens and text on its sides."""

    def __init__(self, edit: Edit, left_chars: int, right_chars: int) -> None:
        self.edit = edit
        text = edit.text
        self.low = back(text, edit.start, left_chars)
        self.high = forward(text, edit.end, right_chars) if edit.end < len(text) else len(text)
        self.left = text[self.low : edit.start].decode()
        self.right = text[edit.end : self.high].decode()
        self.text = self.left + edit.new + self.right
        #: What is added to a byte position right of the edit.
        self.delta = edit.new_bytes - (edit.end - edit.start)

    @property
    def is_whole_text(self) -> bool:
        return self.low == 0 and self.high == len(self.edit.text)

    def encode(self, reference: Reference) -> None:
        self.tokens = reference.encode(self.text)
        self.view = Text(self.text, open_left=self.low > 0, open_right=self.high < len(self.edit.text))

    def certify_left(self, route: RouteC) -> Run | None:
        if self.low == 0:
            return _WHOLE_SIDE
        edit = self.edit
        beyond = forward(edit.text, edit.start, route.added.longest + 2)
        old = edit.text[edit.start : beyond].decode()
        side = Side(
            is_left=True,
            window=self.view,
            tokens=self.tokens,
            low=0,
            high=len(self.left),
            old_tokens=self._old_tokens(self._first_left(), self._stop_left(), -self.low),
            old=Text(self.left + old, open_left=True, open_right=beyond < len(edit.text)),
            old_shift=0,
        )
        return certify(route, side)

    def certify_right(self, route: RouteC) -> Run | None:
        edit = self.edit
        if self.high == len(edit.text):
            return _WHOLE_SIDE
        beyond = back(edit.text, edit.end, route.added.longest + 2)
        old = edit.text[beyond : edit.end].decode()
        low = len(self.left) + len(edit.new)
        side = Side(
            is_left=False,
            window=self.view,
            tokens=self.tokens,
            low=low,
            high=len(self.text),
            old_tokens=self._old_tokens(self._first_right(), self._stop_right(), self.delta - self.low),
            old=Text(old + self.right, open_left=beyond > 0, open_right=True),
            old_shift=low - len(old),
        )
        return certify(route, side)

    def is_in_order(self, left: Run, right: Run) -> bool:
        """The runs do not overlap, neither in the window nor in the old text."""
        keep_left, keep_from, stop = self._bounds(left, right)
        return left.stop <= stop and keep_left <= keep_from

    def _bounds(self, left: Run, right: Run) -> tuple[int, int, int]:
        """Old tokens kept before the window's and from where on they are kept again; where the window's end."""
        keep_left = self._first_left() + left.stop + left.offset if left is not _WHOLE_SIDE else 0
        if right is _WHOLE_SIDE:
            return keep_left, len(self.edit.tokens), len(self.tokens)
        return keep_left, self._first_right() + right.start + right.offset, right.start

    def splice(self, left: Run, right: Run, doublings: int) -> Repaired:
        """Old tokens up to the end of the left run, window tokens, old tokens from the start of the right run."""
        keep_left, keep_from, stop = self._bounds(left, right)
        middle, moved = slice(left.stop, stop), np.uint32(self.low)
        tokens = Encoded(self.tokens.ids[middle], self.tokens.starts[middle] + moved, self.tokens.ends[middle] + moved)
        size = max(len(self.left), len(self.right))
        certificate = Certificate(size, doublings, left.tokens, left.chars, right.tokens, right.chars)
        return Repaired(keep_left, keep_from, tokens, certificate)

    def _first_left(self) -> int:
        return int(np.searchsorted(self.edit.tokens.starts, self.low))

    def _stop_left(self) -> int:
        return int(np.searchsorted(self.edit.tokens.starts, self.edit.start))

    def _first_right(self) -> int:
        return int(np.searchsorted(self.edit.tokens.starts, self.edit.end))

    def _stop_right(self) -> int:
        return int(np.searchsorted(self.edit.tokens.starts, self.high))

    def _old_tokens(self, start: int, stop: int, moved: int) -> Encoded:
        old = self.edit.tokens
        part = slice(start, stop)
        return Encoded(
            old.ids[part],
            (old.starts[part].astype(np.int64) + moved).astype(np.uint32),
            (old.ends[part].astype(np.int64) + moved).astype(np.uint32),
        )
