"""The last answers of a session, so that a repeated request gets the same answer and changes nothing.

An answer is kept as it was encoded. Ids and offsets over a bound are left out: while the session is still in
the state that the answer described they are cut from the session again, and afterwards the repeat is answered
`stale_revision`. Only a client that lost the answer to one of its last requests ever sees that, and it then
resends the text.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from schemas.reply import Reply

RequestId = str | bytes

ANSWER_BYTES: Final = 256
"""What one remembered answer weighs besides its encoded bytes and its request id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """One answer, as an encoded `Reply`."""

    encoded: bytes
    elided_total: int | None = None
    """None for an answer kept whole. Of one whose ids and offsets were left out: the `total` that it had,
    since a reply without its ids cannot state it."""

    def reply(self) -> Reply:
        """The answer as it was kept; an elided one has `total` = keep_left + keep_right and no ids."""
        return Reply.decode(self.encoded)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLimits:
    """Bounds of one session's history."""

    answers_max: int = 64
    bytes_max: int = 128 * 1024
    inline_bytes_max: int = 4096
    """Ids and offsets of one answer up to this size are kept; larger ones are rebuilt."""


class History:
    """Request id -> answer, oldest first, bounded in number and bytes."""

    __slots__ = ("_answers", "_bytes", "_limits")

    def __init__(self, limits: HistoryLimits, answers: Iterable[tuple[RequestId, Remembered]] = ()) -> None:
        self._limits = limits
        self._answers: OrderedDict[RequestId, Remembered] = OrderedDict()
        self._bytes = 0
        for request_id, answer in answers:
            self._keep(request_id, answer)

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[tuple[RequestId, Remembered]]:
        """Request ids and answers, oldest first: what `__init__` takes."""
        return iter(tuple(self._answers.items()))

    @property
    def size_bytes(self) -> int:
        """Bytes of everything kept."""
        return self._bytes

    def remember(self, reply: Reply) -> None:
        """Keep `reply` under its request id, and forget the oldest answers over the bounds."""
        if len(reply.ids) + len(reply.offsets or b"") <= self._limits.inline_bytes_max:
            self._keep(reply.request_id, Remembered(encoded=reply.encode()))
        else:
            kept = replace(reply, ids=b"", offsets=None, total=reply.keep_left + reply.keep_right)
            self.remember_elided(kept, reply.total)

    def remember_elided(self, reply: Reply, total: int) -> None:
        """Keep an answer whose ids are left out already, and the `total` that it had with them."""
        self._keep(reply.request_id, Remembered(encoded=reply.encode(), elided_total=total))

    def recall(self, request_id: RequestId) -> Remembered | None:
        """The answer given to this request, or None when there was none or it is forgotten."""
        return self._answers.get(request_id)

    def _keep(self, request_id: RequestId, answer: Remembered) -> None:
        previous = self._answers.pop(request_id, None)
        if previous is not None:
            self._bytes -= _weigh(request_id, previous)
        self._answers[request_id] = answer
        self._bytes += _weigh(request_id, answer)
        while len(self._answers) > self._limits.answers_max or self._bytes > self._limits.bytes_max:
            forgotten_id, forgotten = self._answers.popitem(last=False)
            self._bytes -= _weigh(forgotten_id, forgotten)


def _weigh(request_id: RequestId, answer: Remembered) -> int:
    size = len(request_id.encode()) if isinstance(request_id, str) else len(request_id)
    return ANSWER_BYTES + size + len(answer.encoded)
