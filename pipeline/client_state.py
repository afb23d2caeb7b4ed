"""What a client keeps of a session: its text and ids, how one text becomes another, and how it reads replies.

No I/O and no waiting.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import DeadlineError, ReplyError
from schemas.codes import Code, Status
from schemas.reply import Path, Reply, Route

Ids = NDArray[np.uint32]

_WIRE_ID: Final = np.dtype("<u4")
_COMPARE_BYTES: Final = 64 * 1024
_FIRST_CAPACITY: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One accepted change, relative to the ids that the session had before it.

    The session's new ids are old[:keep_left] + ids + old[len(old) - keep_right:], `total` in number. `ids` is
    u32 of shape (n,); `offsets`, when asked for, u32 of shape (n, 2): byte spans in the session's text.
    `length` is in UTF-8 bytes, `timings` in microseconds. `resent` says that the whole text had to be sent
    again.
    """

    ids: Ids
    keep_left: int
    keep_right: int
    total: int
    first_changed: int
    offsets: NDArray[np.uint32] | None
    epoch: int
    revision: int
    length: int
    path: Path | None
    route: Route | None
    reason: str
    fingerprint: str
    encoded_chars: int
    timings: Mapping[str, int]
    replayed: bool
    resent: bool

    @classmethod
    def of(cls, reply: Reply, old: Ids, *, resent: bool) -> Answer:
        """The answer in a reply with status ok. A reply with all ids is told as a change of `old` too."""
        ids = np.frombuffer(reply.ids, _WIRE_ID).astype(np.uint32, copy=False)
        offsets = None
        if reply.offsets is not None:
            offsets = np.frombuffer(reply.offsets, _WIRE_ID).astype(np.uint32, copy=False).reshape(-1, 2)
        keep_left, first_changed = reply.keep_left, reply.first_changed
        if keep_left == 0 and reply.keep_right == 0:
            keep_left = first_changed = common_prefix(old, ids)
            ids = ids[keep_left:]
            offsets = None if offsets is None else offsets[keep_left:]
        return cls(
            ids=ids,
            keep_left=keep_left,
            keep_right=reply.keep_right,
            total=reply.total,
            first_changed=first_changed,
            offsets=offsets,
            epoch=reply.epoch,
            revision=reply.revision,
            length=reply.length,
            path=reply.path,
            route=reply.route,
            reason=reply.reason,
            fingerprint=reply.fingerprint,
            encoded_chars=reply.encoded_chars,
            timings=reply.timings,
            replayed=reply.replayed,
            resent=resent,
        )


class IdBuffer:
    """Token ids in one array that grows in place, so that an append costs what is new."""

    def __init__(self, ids: Ids | None = None) -> None:
        self._buffer: Ids = np.empty(0 if ids is None else len(ids), np.uint32)
        self._total = len(self._buffer)
        if ids is not None:
            self._buffer[:] = ids

    def __len__(self) -> int:
        return self._total

    @property
    def view(self) -> Ids:
        """The ids, read-only, shape (n,), without a copy: the next change may overwrite them."""
        view = self._buffer[: self._total]
        view.flags.writeable = False
        return view

    def patch(self, keep_left: int, ids: Ids, keep_right: int) -> None:
        """Replace what lies between the first `keep_left` and the last `keep_right` ids.

        Raises ValueError, and changes nothing, when more would be kept than there is.
        """
        old = self._total
        if keep_left < 0 or keep_right < 0 or keep_left + keep_right > old:
            raise ValueError(f"cannot keep {keep_left} + {keep_right} of {old} ids")
        new = keep_left + len(ids) + keep_right
        source = self._buffer
        if new > len(source):
            self._buffer = np.empty(max(new, 2 * len(source), _FIRST_CAPACITY), np.uint32)
            self._buffer[:keep_left] = source[:keep_left]
        if keep_right:
            self._buffer[new - keep_right : new] = source[old - keep_right : old]
        self._buffer[keep_left : keep_left + len(ids)] = ids
        self._total = new


@dataclass(frozen=True, slots=True)
class Splice:
    """Replace bytes [start, end) by `insert`: the one form that every change of a text has."""

    start: int
    end: int
    insert: bytes

    def length_after(self, length: int) -> int:
        """UTF-8 bytes of the text after the change, for one of `length` bytes before it."""
        return length - (self.end - self.start) + len(self.insert)

    def applied(self, text: bytearray) -> bytearray:
        """A changed copy of `text`."""
        return text[: self.start] + self.insert + text[self.end :]

    def check(self, text: bytearray) -> None:
        """Raises ReplyError bad_position unless both positions lie between characters of `text`, in order."""
        if not 0 <= self.start <= self.end <= len(text):
            raise bad_position(f"[{self.start}, {self.end}) is not a range of the {len(text)} bytes")
        for position in (self.start, self.end):
            if position < len(text) and _continues(text[position]):
                raise bad_position(f"byte {position} is inside a character")


def difference(old: bytearray, new: bytes) -> Splice:
    """The change from `old` to `new` (both UTF-8): longest common prefix, then suffix, cut between
    characters."""
    before, after = np.frombuffer(old, np.uint8), np.frombuffer(new, np.uint8)
    left = common_prefix(before, after)
    while left < len(old) and _continues(old[left]):
        left -= 1
    right = common_prefix(before[left:][::-1], after[left:][::-1])
    while right and _continues(old[len(old) - right]):
        right -= 1
    return Splice(left, len(old) - right, new[left : len(new) - right])


def common_prefix(a: NDArray[np.generic], b: NDArray[np.generic]) -> int:
    """Length of the longest common prefix of two arrays; compares in steps, so a short one costs little."""
    most = min(len(a), len(b))
    for start in range(0, most, _COMPARE_BYTES):
        stop = min(start + _COMPARE_BYTES, most)
        differ = a[start:stop] != b[start:stop]
        first = int(differ.argmax())
        if differ[first]:
            return start + first
    return most


def encode_text(text: str) -> bytes:
    """UTF-8 of `text`. Raises ReplyError invalid_utf8 for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ReplyError(Code.INVALID_UTF8, f"a lone surrogate at character {error.start}", retriable=False) from None


def new_request_id() -> str:
    """128 random bits: never used twice."""
    return secrets.token_hex(16)


def raise_for_failure(reply: Reply) -> Reply:
    """The reply, if its status is ok. Raises DeadlineError for `expired`, else ReplyError with its code and
    advice."""
    if reply.status is Status.OK:
        return reply
    code = reply.code or Code.INTERNAL
    if reply.status is Status.EXPIRED:
        raise DeadlineError(reply.message or code.meaning)
    raise ReplyError(code, f"{(reply.message or code.meaning).rstrip('.')}. {code.advice}", retriable=reply.retriable)


def inconsistent(reply: Reply) -> ReplyError:
    """The error for a reply with status ok that cannot be the answer to what was asked."""
    return ReplyError(
        Code.INTERNAL,
        f"the reply does not fit the text that was sent (length {reply.length}, {reply.total} ids)",
        retriable=False,
    )


def bad_position(message: str) -> ReplyError:
    """The error that a worker would answer with, without the way there and back."""
    return ReplyError(Code.BAD_POSITION, message, retriable=False)


def _continues(byte: int) -> bool:
    return byte & 0xC0 == 0x80
