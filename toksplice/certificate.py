"""Route C: a window with a stable-boundary certificate, for appends and for edits anywhere.

An edit replaces bytes [start, end) of a text T by Y. The reference encodes a window: some characters left
of the edit, Y, and (when the edit is not at the end) some characters right of it. The window's answer is
taken only where both of its sides are certified:

* left: a run of window tokens equals old tokens (id and span), holds at least two tokens and more characters
  than the longest vocabulary entry, and has a synchronising boundary c strictly inside, left of the edit and
  clear of added tokens and normalization;
* right: the mirror image, with spans moved by the change of length.

Why the boundary c makes the splice exact is proved in docs/exactness.md; the other conditions are a second
line that no proof rests on.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toksplice.plan import RouteC
from toksplice.reference import U32, Encoded, char_starts, code_points

#: Characters on a side of the edit at first; doubled up to `MAX_DOUBLINGS` times.
WINDOW_CHARS = 512
MAX_DOUBLINGS = 5
MIN_RUN_TOKENS = 2
#: Synchronising boundaries of a run that are tried, nearest to the edit first.
MAX_CANDIDATES = 64


@dataclass(frozen=True, slots=True)
class Certificate:
    """What made a splice acceptable: the window's size and the runs of equal tokens on its sides.

    A side that reaches the end of the text needs no run and has 0 tokens.
    """

    window_chars: int
    doublings: int
    left_tokens: int
    left_chars: int
    right_tokens: int
    right_chars: int


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where the engine resumed: UTF-8 bytes scanned left of the edit, and right of it until the old pieces were met."""

    back_bytes: int
    forward_bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    """Equal tokens: window tokens [start, stop) are the side's old tokens `start + offset` and on."""

    start: int
    stop: int
    offset: int
    chars: int

    @property
    def tokens(self) -> int:
        return self.stop - self.start


class Text:
    """A stretch of a text with its code points (u32) and the byte position of each character, end included.

    `open_left` and `open_right` tell that the text goes on beyond the stretch.
    """

    def __init__(self, text: str, *, open_left: bool, open_right: bool) -> None:
        self.text = text
        self.open_left = open_left
        self.open_right = open_right

    @functools.cached_property
    def points(self) -> U32:
        return code_points(self.text)

    @functools.cached_property
    def byte_of(self) -> U32:
        return char_starts(self.text)


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a window, left or right of the edit.

    `window`: the new text in the window; `tokens`: its encoding, spans in window bytes. `low`, `high`: the
    window characters of this side, common to the old and the new text. `old_tokens`: the old tokens there,
    spans in window bytes too. `old`: the old text around this side; its character i is the window's
    character i + `old_shift`.
    """

    is_left: bool
    window: Text
    tokens: Encoded
    low: int
    high: int
    old_tokens: Encoded
    old: Text
    old_shift: int


def certify(route: RouteC, side: Side) -> Run | None:
    """The run that certifies a side, or None. `Run.offset` counts from the first of `side.old_tokens`."""
    run = _longest_run(side)
    if run is None or run.tokens < MIN_RUN_TOKENS or run.chars <= route.longest_token_chars:
        return None
    for cut in _cuts(route, side, run):
        if _is_token_boundary(side, run, cut) and _is_clear(route, side, cut):
            return run
    return None


def _longest_run(side: Side) -> Run | None:
    """The longest stretch of consecutive window tokens that are consecutive old tokens, id and span."""
    new, old = side.tokens, side.old_tokens
    if not len(old) or not len(new) or not (_is_ascending(new.starts) and _is_ascending(old.starts)):
        return None
    at = np.minimum(np.searchsorted(new.starts, old.starts), len(new) - 1)
    hits = np.flatnonzero((new.starts[at] == old.starts) & (new.ends[at] == old.ends) & (new.ids[at] == old.ids))
    if not len(hits):
        return None
    offsets, counts = np.unique(hits - at[hits], return_counts=True)
    offset = int(offsets[np.argmax(counts)])
    low, high = max(0, -offset), min(len(new), len(old) - offset)
    moved = slice(low + offset, high + offset)
    equal = (
        (new.ids[low:high] == old.ids[moved])
        & (new.starts[low:high] == old.starts[moved])
        & (new.ends[low:high] == old.ends[moved])
    )
    start, stop = (low + edge for edge in _longest_true(equal))
    if start == stop:
        return None
    chars = _char_at(side, new.ends[stop - 1]) - _char_at(side, new.starts[start])
    return Run(start, stop, offset, chars)


def _is_ascending(values: U32) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def _longest_true(bits: npt.NDArray[np.bool_]) -> tuple[int, int]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], bits, [False])).astype(np.int8)))
    if not len(edges):
        return 0, 0
    starts, stops = edges[::2], edges[1::2]
    best = int(np.argmax(stops - starts))
    return int(starts[best]), int(stops[best])


def _cuts(route: RouteC, side: Side, run: Run) -> list[int]:
    """Synchronising boundaries strictly inside the run, in window characters, nearest to the edit first.

    The characters on both sides of a boundary, and with a normalizer the one after them, must be common to
    the old and the new text.
    """
    ahead = 1 if route.inert is None else 2
    low = max(_char_at(side, side.tokens.starts[run.start]), side.low) + 1
    high = min(_char_at(side, side.tokens.ends[run.stop - 1]) - 1, side.high - ahead)
    if low > high:
        return []
    points = side.window.points
    cuts = route.sync.candidates(points[low - 1 : high + 1]) + (low - 1)
    if route.added.strips_left:
        cuts = cuts[~_lookup(route.white, points[cuts])]
    if route.inert is not None:
        inert = _lookup(route.inert, points)
        cuts = cuts[inert[cuts - 1] & inert[cuts] & inert[cuts + 1]]
    nearest = cuts[::-1] if side.is_left else cuts
    return [int(cut) for cut in nearest[:MAX_CANDIDATES]]


def _is_token_boundary(side: Side, run: Run, cut: int) -> bool:
    """A token of the run ends at or before `cut`, and the next one of the run starts at or after it."""
    position = int(side.window.byte_of[cut])
    k = int(np.searchsorted(side.tokens.starts, position))
    return run.start < k < run.stop and int(side.tokens.ends[k - 1]) <= position


def _is_clear(route: RouteC, side: Side, cut: int) -> bool:
    """No added token touches the cut, neither in the new text nor in the old one.

    That is only known where enough of both texts is in sight, and, when added tokens are matched after
    normalization, where normalization leaves alone all that is in sight.
    """
    reach = route.added.longest + 1
    if reach == 1:
        return True
    for stretch, at in ((side.window, cut), (side.old, cut - side.old_shift)):
        if stretch.open_left and at < reach:
            return False
        if stretch.open_right and len(stretch.text) - at < reach:
            return False
        if route.added.touch(stretch.text, at):
            return False
        if route.added.match_normalized and route.inert is not None:
            near = stretch.points[max(0, at - reach) : at + reach]
            if not _lookup(route.inert, near).all():
                return False
    return True


def _char_at(side: Side, position: np.uint32 | int) -> int:
    """The window character that holds byte `position`."""
    return int(np.searchsorted(side.window.byte_of, position, side="right")) - 1


def _lookup(bits: npt.NDArray[np.bool_], points: U32) -> npt.NDArray[np.bool_]:
    """`bits` by code point; False for what was not probed."""
    known = points < len(bits)
    return known & bits[np.where(known, points, 0)]
