"""Repair of a tokenization around an edit, for tokenizers that split at white space first.

The new text between two cuts, one left and one right of the edit, goes to the reference; the old tokens outside
are kept. `toksplice.words` says where a cut is certain, and docs/exactness.md ("Words") why. On both sides a few
words more are encoded than needed, and must come out as they were: a second line that no proof rests on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toksplice.certificate import Certificate
from toksplice.pointsets import Bits
from toksplice.reference import Encoded, Reference, code_points
from toksplice.repair import Attempt, Edit, Repaired
from toksplice.textview import back, forward
from toksplice.words import Words

Positions = npt.NDArray[np.intp]

#: Characters of context that are encoded again on each side, for comparison.
OVERLAP_CHARS = 32
#: Characters looked at for cuts at first on each side; four times as many each time there are too few.
LOOK_CHARS = 256
_GROWTH = 4


@dataclass(frozen=True, slots=True)
class _Cuts:
    """Byte positions in the old text: old tokens are kept up to (from) `kept`, the window begins (ends) at `window`."""

    kept: int
    window: int
    window_chars: int


def repair_words(reference: Reference, route: Words, edit: Edit) -> Attempt:
    """Encode the words around the edit."""
    left, right = _left_cuts(route, edit), _right_cuts(route, edit)
    text = edit.text
    if left.window == 0 and right.window == len(text):
        return Attempt(None, "window_is_whole_text", 0)
    before, after = text[left.window : edit.start].decode(), text[edit.end : right.window].decode()
    window = before + edit.new + after
    if not _spans_are_steady(route, edit, left, right, window):
        return Attempt(None, "offsets_drift", 0)
    tokens = reference.encode(window)
    repaired = _splice(edit, left, right, tokens)
    return Attempt(repaired, "words" if repaired is not None else "uncertified", len(window))


def _left_cuts(route: Words, edit: Edit) -> _Cuts:
    """The nearest cut left of the edit, and one `OVERLAP_CHARS` further left; the start of the text is one too."""
    text, reach = edit.text, _reach(route)
    old_after = text[edit.start : forward(text, edit.start, reach)].decode()
    new_after = _new_after(edit, reach)
    look = LOOK_CHARS
    while True:
        low = back(text, edit.start, look)
        left = text[low : edit.start].decode()
        old = _View(left + old_after, is_start=low == 0, is_end=len(old_after) < reach)
        new = _View(left + new_after, is_start=low == 0, is_end=len(new_after) < reach)
        kept = None
        for cut in _common(route, old, new, np.arange(len(left), 0, -1), 0):
            if kept is None:
                kept = cut
            if kept - cut >= OVERLAP_CHARS:
                return _Cuts(_byte(left, low, kept), _byte(left, low, cut), len(left) - cut)
        if low == 0:
            return _Cuts(_byte(left, 0, kept or 0), 0, len(left))
        look *= _GROWTH


def _right_cuts(route: Words, edit: Edit) -> _Cuts:
    """The mirror image; the end of the text is a cut too."""
    text, reach = edit.text, _reach(route)
    old_before = text[back(text, edit.end, reach) : edit.end].decode()
    new_before = (text[back(text, edit.start, reach) : edit.start].decode() + edit.new)[-reach:]
    look = LOOK_CHARS
    while True:
        high = forward(text, edit.end, look) if edit.end < len(text) else len(text)
        right = text[edit.end : high].decode()
        is_end = high == len(text)
        old = _View(old_before + right, is_start=len(old_before) < reach, is_end=is_end)
        new = _View(new_before + right, is_start=len(new_before) < reach, is_end=is_end)
        kept = None
        positions = len(old_before) + np.arange(1, len(right) + 1)
        for found in _common(route, old, new, positions, len(new_before) - len(old_before)):
            cut = found - len(old_before)
            if kept is None:
                kept = cut
            if cut - kept >= OVERLAP_CHARS:
                return _Cuts(_byte(right, edit.end, kept), _byte(right, edit.end, cut), cut)
        if is_end:
            return _Cuts(len(text) if kept is None else _byte(right, edit.end, kept), len(text), len(right))
        look *= _GROWTH


def _reach(route: Words) -> int:
    """Characters beside a cut that decide whether an added token touches it, and the two after it."""
    return route.added.longest + 2


def _new_after(edit: Edit, reach: int) -> str:
    """The first characters of the new text from the edit on."""
    if len(edit.new) >= reach:
        return edit.new[:reach]
    rest = edit.text[edit.end : forward(edit.text, edit.end, reach)] if edit.end < len(edit.text) else b""
    return (edit.new + rest.decode())[:reach]


def _byte(text: str, start: int, chars: int) -> int:
    """The byte position of a character of `text`, which begins at byte `start`."""
    return start + len(text[:chars].encode())


class _View:
    """A stretch of a text; `is_start` and `is_end` tell that the text begins and ends with it."""

    def __init__(self, text: str, *, is_start: bool, is_end: bool) -> None:
        self.text = text
        self.points = code_points(text)
        self.is_start = is_start
        self.is_end = is_end


def _common(route: Words, old: _View, new: _View, positions: Positions, shift: int) -> Iterator[int]:
    """Those of `positions` in `old` that are cuts in both texts; they are at `shift` more in `new`."""
    may = _candidates(route, old, positions) & _candidates(route, new, positions + shift)
    for position in positions[may]:
        at = int(position)
        if _is_untouched(route, old, at) and _is_untouched(route, new, at + shift):
            yield at


def _candidates(route: Words, view: _View, positions: Positions) -> Bits:
    """Which positions have the characters for a cut beside them, or are the end of the text."""
    points, size = view.points, len(view.points)
    inside = positions < size
    after = points[np.minimum(positions, size - 1)]
    may = inside & route.separators[points[positions - 1]] & route.openers[after]
    if route.firm is not None:
        second = points[np.minimum(positions + 1, size - 1)]
        may &= (positions + 1 < size) & route.firm[after] & route.firm[second]
    if view.is_end:
        may |= positions == size
    return may


def _is_untouched(route: Words, view: _View, at: int) -> bool:
    """No added token touches a cut, and enough is in sight to know it; the end of the text is nothing's middle."""
    if at == len(view.text) and view.is_end:
        return True
    longest = route.added.longest
    if not view.is_start and at < longest:
        return False
    if not view.is_end and len(view.text) - at < longest:
        return False
    return not route.added.touch(view.text, at)


def _spans_are_steady(route: Words, edit: Edit, left: _Cuts, right: _Cuts, window: str) -> bool:
    """Whether spans tell on which side of the cuts a token is, in the old text and in the new one."""
    sections = route.sections
    if sections is None:
        return True
    text = edit.text
    if left.kept > 0 and not _is_steady(sections.is_steady(text, left.kept), text, route):
        return False
    if right.kept == len(text):
        return True
    if not _is_steady(sections.is_steady(text, right.kept), text, route):
        return False
    data = window.encode()
    found = sections.is_steady(data, len(data) - (right.window - right.kept))
    # No added token ends in the window: the section is that of the left cut, or begins with the new text.
    return found if found is not None else left.window > 0 or sections.begins_steadily(data, 0)


def _is_steady(found: bool | None, text: bytes | bytearray, route: Words) -> bool:
    if found is not None:
        return found
    return route.sections is None or route.sections.begins_steadily(text, 0)


def _splice(edit: Edit, left: _Cuts, right: _Cuts, tokens: Encoded) -> Repaired | None:
    """The window's tokens between the cuts in place of the old ones; None when those outside came out otherwise."""
    old, delta = edit.tokens, edit.new_bytes - (edit.end - edit.start)
    keep_left = _count(old, left.kept, len(edit.text))
    keep_from = _count(old, right.kept, len(edit.text))
    end = right.window + delta - left.window
    first = _count(tokens, left.kept - left.window, end)
    stop = _count(tokens, right.kept + delta - left.window, end)
    low, high = keep_left - first, keep_from + len(tokens) - stop
    if not 0 <= low <= keep_left <= keep_from <= high <= len(old) or first > stop:
        return None
    if not _is_same(old, low, tokens, 0, first, left.window):
        return None
    if not _is_same(old, keep_from, tokens, stop, len(tokens), left.window - delta):
        return None
    middle, moved = slice(first, stop), np.uint32(left.window)
    fresh = Encoded(tokens.ids[middle], tokens.starts[middle] + moved, tokens.ends[middle] + moved)
    certificate = Certificate(
        window_chars=max(left.window_chars, right.window_chars),
        doublings=0,
        left_tokens=first,
        left_chars=left.kept - left.window,
        right_tokens=len(tokens) - stop,
        right_chars=right.window - right.kept,
    )
    return Repaired(keep_left, keep_from, fresh, certificate)


def _count(tokens: Encoded, cut: int, end: int) -> int:
    """Tokens left of a cut of a text with `end` bytes."""
    return len(tokens) if cut == end else int(np.searchsorted(tokens.starts, cut))


def _is_same(old: Encoded, at: int, tokens: Encoded, start: int, stop: int, moved: int) -> bool:
    """Whether tokens [start, stop), with spans moved by `moved`, are the old ones from `at` on."""
    was, now, shift = slice(at, at + stop - start), slice(start, stop), np.uint32(moved & 0xFFFFFFFF)
    return (
        np.array_equal(old.ids[was], tokens.ids[now])
        and np.array_equal(old.starts[was], tokens.starts[now] + shift)
        and np.array_equal(old.ends[was], tokens.ends[now] + shift)
    )
