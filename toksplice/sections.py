"""Where the sections of a text begin, and whether a section keeps spans in step with its characters.

A character map (Precompiled) that erases the very first characters of a section loses count of them: all spans of
that section are then too far left. Tokens cannot be counted by their spans there. This module tells of a place in
a text whether its section begins with a character after which nothing of the kind happens.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from toksplice.pointsets import Bits
from toksplice.structure import NotUnderstoodError

_FIRST_STRIDE = 4096
_BYTES_A_CHAR = 4


class SectionStarts:
    """Section starts for the added tokens `early`, which are matched before normalization.

    `steady`: characters with which a section keeps its spans in step. Raises `NotUnderstoodError` when one cannot
    tell from its surroundings alone whether an occurrence of a token is matched.
    """

    def __init__(self, early: Sequence[Mapping[str, Any]], steady: Bits, white: Bits) -> None:
        contents = [entry["content"] for entry in early]
        if _can_overlap(contents) or any(entry.get("single_word") for entry in early):
            raise NotUnderstoodError("added tokens that can overlap, or that are whole words, beside a character map")
        self._steady = steady
        self._white = white
        self._strips_right = {entry["content"].encode() for entry in early if entry.get("rstrip")}
        encoded = sorted((content.encode() for content in contents), key=len, reverse=True)
        self._longest = max(map(len, encoded), default=0)
        self._pattern = re.compile(b"|".join(map(re.escape, encoded))) if encoded else None

    def is_steady(self, text: bytes | bytearray, position: int) -> bool | None:
        """Whether the section that holds `position` begins steadily; None when no added token ends before it.

        `position`, in bytes, must not be inside or beside an occurrence of an added token.
        """
        found = self._last_before(text, position)
        if found is None:
            return None
        start = found.end()
        if found.group() in self._strips_right:
            start = self._after_white(text, start)
        # A section that begins at the cut itself begins with an opener, which is steady.
        return start >= position or self.begins_steadily(text, start)

    def begins_steadily(self, text: bytes | bytearray, start: int) -> bool:
        """Whether a section that begins at byte `start` keeps its spans in step."""
        return bool(self._steady[ord(_char_at(text, start))])

    def _last_before(self, text: bytes | bytearray, position: int) -> re.Match[bytes] | None:
        if self._pattern is None:
            return None
        high, stride = position, _FIRST_STRIDE
        while high > 0:
            low = max(0, high - stride)
            found = deque(self._pattern.finditer(text, low, min(position, high + self._longest)), maxlen=1)
            if found:
                return found[0]
            high, stride = low, 2 * stride
        return None

    def _after_white(self, text: bytes | bytearray, start: int) -> int:
        while start < len(text):
            char = _char_at(text, start)
            if not self._white[ord(char)]:
                break
            start += len(char.encode())
        return start


def _char_at(text: bytes | bytearray, start: int) -> str:
    return text[start : start + _BYTES_A_CHAR].decode(errors="ignore")[0]


def _can_overlap(contents: Sequence[str]) -> bool:
    """Whether some occurrence of one can share characters with another occurrence of one in some text."""
    whole = set(contents)
    beginnings = {content[:size] for content in whole for size in range(1, len(content))}
    for content in whole:
        for start in range(1, len(content)):
            if content[start:] in beginnings:
                return True
            if any(content[start:end] in whole for end in range(start + 1, len(content) + 1)):
                return True
        if content in beginnings:
            return True
    return False
