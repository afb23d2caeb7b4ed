"""A session on the native engine: routes A and B.

The engine keeps text, ids and restart places; this class adds special tokens, checks of what callers hand in, and the
reference on demand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from toksplice import snapshot, textview
from toksplice._native import Session as NativeSession
from toksplice.certificate import Resumption
from toksplice.errors import PositionError, ReferenceFailedError
from toksplice.gather import Part, little_endian
from toksplice.patch import Patch, full_patch, unchanged_patch
from toksplice.reference import U32, Encoded, Specials, encode_utf8
from toksplice.reference_session import ReferenceSession
from toksplice.session import Session

if TYPE_CHECKING:
    from toksplice._native import Spliced
    from toksplice.engine import NativeRoute
    from toksplice.tokenizer import Tokenizer


class EngineSession(Session):
    """A text and its tokens in the engine, which keeps them in chunks: an edit touches those around it only."""

    def __init__(
        self, tokenizer: Tokenizer, route: NativeRoute, native: NativeSession, *, add_special_tokens: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._route = route
        self._native = native
        self._add_special_tokens = add_special_tokens
        self._specials = tokenizer.specials_around(add_special_tokens=add_special_tokens)
        self._before, self._after = len(self._specials.prefix), len(self._specials.suffix)

    @property
    def length(self) -> int:
        return self._native.length

    @property
    def total(self) -> int:
        return self._before + self._native.total + self._after

    @property
    def text(self) -> str:
        return self._native.text(0, self._native.length).decode()

    def utf8(self, start: int, stop: int) -> bytes:
        return self._native.text(start, stop)

    @property
    def ids(self) -> U32:
        return self._specials.around(self._native.ids(0, self._native.total))

    @property
    def native(self) -> bool:
        return True

    @property
    def add_special_tokens(self) -> bool:
        return self._add_special_tokens

    @property
    def size_bytes(self) -> int:
        return self._native.size_bytes

    @property
    def restarts(self) -> bytes:
        return self._native.restarts()

    def offsets(self) -> U32:
        return self.offsets_between(0, self.total)

    def ids_between(self, start: int, stop: int) -> U32:
        special, first, last = self._cut(start, stop)
        return special.around(self._native.ids(first, last))

    def offsets_between(self, start: int, stop: int) -> U32:
        special, first, last = self._cut(start, stop)
        offsets = self._native.offsets(first, last)
        if not special.prefix and not special.suffix:
            return offsets
        return np.pad(offsets, ((len(special.prefix), len(special.suffix)), (0, 0)))

    def utf8_parts(self, start: int, stop: int) -> tuple[Part, ...]:
        return (self._native.text_stretch(start, stop),)

    def ids_parts(self, start: int, stop: int) -> tuple[Part, ...]:
        special, first, last = self._cut(start, stop)
        ids = self._native.ids_stretch(first, last)
        if not special.prefix and not special.suffix:
            return (ids,)
        prefix, suffix = (little_endian(np.array(side, np.uint32)) for side in (special.prefix, special.suffix))
        return (prefix, ids, suffix)

    def _cut(self, start: int, stop: int) -> tuple[Specials, int, int]:
        """What tokens [start, stop) are: special ones at the sides, and a stretch of the engine's."""
        self._check_stretch(start, stop)
        count = self._native.total
        end = self._before + count
        suffix = self._specials.suffix[max(0, start - end) : max(0, stop - end)]
        first, last = (min(max(0, at - self._before), count) for at in (start, stop))
        return Specials(self._specials.prefix[start:stop], suffix), first, last

    def splice(self, start: int, end: int, text: str, *, force_full: bool = False) -> Patch:
        textview.check_is_int(start)
        textview.check_is_int(end)
        if force_full:
            return self._by_reference(start, end, text)
        try:
            spliced = self._native.splice(start, end, text)
        except (IndexError, OverflowError):
            self._check_positions(start, end)
            raise
        except (UnicodeEncodeError, TypeError):
            encode_utf8(text)  # names the fault
            raise
        return self._patch(spliced)

    def update(self, text: str, *, force_full: bool = False) -> Patch:
        if force_full:
            return self._by_reference(0, self._native.length, text)
        try:
            updated = self._native.update(text)
        except (UnicodeEncodeError, TypeError):
            encode_utf8(text)  # names the fault
            raise
        return self._patch(updated)

    def _patch(self, spliced: Spliced | None) -> Patch:
        if spliced is None:
            return unchanged_patch(self.total, self._route.letter)
        keep_left, ids, keep_right, first_changed, offsets, scanned, back, forward = spliced
        before = self._before
        total = before + self._native.total + self._after
        if first_changed == self._native.total:
            first_changed = total - before
        return Patch(
            before + keep_left,
            ids,
            keep_right + self._after,
            total,
            before + first_changed,
            offsets,
            self._route.letter,
            "resumed",
            Resumption(back, forward),
            scanned,
        )

    def fork(self, *, add_special_tokens: bool | None = None) -> EngineSession:
        """Without `add_special_tokens` it is as in this session."""
        if add_special_tokens is None:
            add_special_tokens = self._add_special_tokens
        return EngineSession(self._tokenizer, self._route, self._native.fork(), add_special_tokens=add_special_tokens)

    def serves(self, route: NativeRoute) -> bool:
        """Whether this session's engine is the one of `route`."""
        return self._route is route

    def on_reference(self) -> ReferenceSession:
        native = self._native
        spans = native.offsets(0, native.total)
        tokens = Encoded(native.ids(0, native.total), spans[:, 0], spans[:, 1])
        text = native.text(0, native.length)
        return ReferenceSession(self._tokenizer, text, tokens, add_special_tokens=self._add_special_tokens)

    def to_bytes(self) -> bytes:
        text = self._native.text(0, self._native.length)
        return snapshot.dump_text(
            self._tokenizer.fingerprint, self._add_special_tokens, text, self._native.ids(0, self._native.total)
        )

    def _check_positions(self, start: int, end: int) -> None:
        for position in (start, end):
            if not 0 <= position <= self.length:
                raise PositionError(f"position {position} is outside a text of {self.length} bytes")
            if not self._native.is_char_boundary(position):
                raise PositionError(f"position {position} is inside a character")
        if start > end:
            raise PositionError(f"a splice from {start} to {end} runs backwards")

    def _by_reference(self, start: int, end: int, text: str) -> Patch:
        """The edit by route D. Engine and reference must agree, or the session is left as it was."""
        new = encode_utf8(text)
        self._check_positions(start, end)
        native = self._native
        whole = b"".join((native.text(0, start), new, native.text(end, native.length))).decode()
        expected = self._tokenizer.reference.ids(whole)
        rebuilt = self._route.session(whole)
        if not np.array_equal(rebuilt.ids(0, rebuilt.total), expected):
            raise ReferenceFailedError("the engine and the reference disagree on this text")
        old, self._native = self.ids, rebuilt
        return full_patch(old, self.ids, self.offsets(), "forced", len(whole))
