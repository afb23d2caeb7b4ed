"""Growable state of a session: its text and its tokens.

Appending costs what is appended (amortized); replacing in the middle moves what stands right of it.
"""

from __future__ import annotations

import copy

import numpy as np

from toksplice.reference import U32, Encoded

#: Slack kept when a buffer grows: one eighth, so that appends are amortized and memory stays near its need.
GROWTH_SHIFT = 3
MIN_CAPACITY = 256


class Column:
    """A growable u32 array; `view` is zero-copy and read-only, and valid until the next change."""

    def __init__(self, values: U32) -> None:
        self._data: U32 = np.array(values, dtype=np.uint32)
        self._size = len(values)

    def __len__(self) -> int:
        return self._size

    @property
    def view(self) -> U32:
        view = self._data[: self._size]
        view.flags.writeable = False
        return view

    @property
    def size_bytes(self) -> int:
        return int(self._data.nbytes)

    def replace(self, start: int, stop: int, values: U32) -> None:
        """Put `values` in place of [start, stop)."""
        size = self._size - (stop - start) + len(values)
        if size > len(self._data):
            grown = np.empty(max(MIN_CAPACITY, size + (size >> GROWTH_SHIFT)), dtype=np.uint32)
            grown[:start] = self._data[:start]
            grown[start + len(values) : size] = self._data[stop : self._size]
            self._data = grown
        elif len(values) != stop - start:
            self._data[start + len(values) : size] = self._data[stop : self._size]
        self._data[start : start + len(values)] = values
        self._size = size

    def shift(self, start: int, stop: int, delta: int) -> None:
        """Add `delta`, which may be negative, to [start, stop)."""
        if delta:
            self._data[start:stop] += np.uint32(delta & 0xFFFFFFFF)


class TokenBuffer:
    """Ids with their byte spans; the ids of special tokens stand first and last, with empty spans at 0."""

    def __init__(self, tokens: Encoded, prefix: tuple[int, ...], suffix: tuple[int, ...]) -> None:
        self.prefix, self.suffix = len(prefix), len(suffix)
        before, after = np.zeros(self.prefix, np.uint32), np.zeros(self.suffix, np.uint32)
        special = [np.array(prefix, np.uint32), tokens.ids, np.array(suffix, np.uint32)]
        self._ids = Column(np.concatenate(special))
        self._starts = Column(np.concatenate([before, tokens.starts, after]))
        self._ends = Column(np.concatenate([before, tokens.ends, after]))

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> U32:
        return self._ids.view

    @property
    def starts(self) -> U32:
        return self._starts.view

    @property
    def ends(self) -> U32:
        return self._ends.view

    def copy(self) -> TokenBuffer:
        """The same tokens in memory of their own."""
        twin = copy.copy(self)
        twin._ids, twin._starts, twin._ends = (Column(column.view) for column in (self._ids, self._starts, self._ends))
        return twin

    @property
    def core(self) -> Encoded:
        """The tokens of the text itself, without special tokens; zero-copy."""
        inner = slice(self.prefix, len(self) - self.suffix)
        return Encoded(self.ids[inner], self.starts[inner], self.ends[inner])

    @property
    def size_bytes(self) -> int:
        return self._ids.size_bytes + self._starts.size_bytes + self._ends.size_bytes

    def replace(self, start: int, stop: int, tokens: Encoded, delta: int) -> None:
        """Put `tokens` in place of the core tokens [start, stop); spans right of them move by `delta` bytes."""
        start, stop = start + self.prefix, stop + self.prefix
        self._ids.replace(start, stop, tokens.ids)
        self._starts.replace(start, stop, tokens.starts)
        self._ends.replace(start, stop, tokens.ends)
        moved = slice(start + len(tokens), len(self) - self.suffix)
        self._starts.shift(moved.start, moved.stop, delta)
        self._ends.shift(moved.start, moved.stop, delta)
