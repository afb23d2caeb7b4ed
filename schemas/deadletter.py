"""tokenize.dlq: records that could not be processed, with all that is needed to process them again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self

from schemas.codes import Code
from schemas.kinds import Bin, Bool, Choice, Int, ListOf, Pair, Str, utf8_size
from schemas.limits import DEFAULT_LIMITS, Limits
from schemas.message import Field, Record
from schemas.reply import clip

#: Room that a dead letter keeps beside the value for everything else in it, headers excepted.
_OVERHEAD_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(Record):
    """A record that failed, where it came from, and why. `time_ms` is epoch milliseconds."""

    topic: str
    partition: int
    offset: int
    code: Code
    error: str
    attempt: int
    time_ms: int
    worker: str
    key: bytes | None = field(default=None, repr=False)
    value: bytes = field(repr=False)
    headers: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    clipped: bool = False

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("topic", Str("topic_bytes", least=1), "Topic that the record was read from.", "yes"),
        Field("partition", Int(), "Its partition.", "yes"),
        Field("offset", Int(), "Its offset.", "yes"),
        Field("code", Choice(Code), "Why it failed.", "yes"),
        Field("error", Str("message_bytes"), "The error, for people; never the record's text.", "yes"),
        Field("attempt", Int(), "Tries that were made.", "yes"),
        Field("time_ms", Int(), "Epoch milliseconds at which it was given up.", "yes"),
        Field("worker", Str("worker_bytes", least=1), "Id of the worker that gave it up.", "yes"),
        Field("key", Bin("key_bytes"), "Its key."),
        Field("value", Bin("record_bytes"), "Its value, byte for byte; empty for a tombstone.", "yes"),
        Field(
            "headers",
            ListOf(Pair(Str("header_name_bytes"), Bin("header_value_bytes")), "header_count"),
            "Its headers, in order.",
        ),
        Field("clipped", Bool(), "Whether key, value or headers were cut to fit; if so, it cannot be replayed."),
    )

    def fit(self, limits: Limits = DEFAULT_LIMITS) -> Self:
        """This dead letter with everything cut to its bound, so that it can always be written.

        Whatever a stranger sent must reach the dead letters, even a record as large as the broker takes. Only
        `error` is cut silently; cutting the key, the value or the headers sets `clipped`.
        """
        headers, taken = self._headers_that_fit(limits)
        key = None if self.key is None else self.key[: limits.key_bytes]
        value = self.value[: max(0, limits.record_bytes - _OVERHEAD_BYTES - taken)]
        cut = headers != self.headers or key != self.key or value != self.value
        return replace(
            self,
            error=clip(self.error, limits.message_bytes),
            key=key,
            value=value,
            headers=headers,
            clipped=self.clipped or cut,
        )

    def _headers_that_fit(self, limits: Limits) -> tuple[tuple[tuple[str, bytes], ...], int]:
        """The first headers that are within bounds and together within half a record, and their bytes."""
        kept: list[tuple[str, bytes]] = []
        taken = 0
        for name, value in self.headers:
            size = utf8_size(name) + len(value)
            if (
                len(kept) < limits.header_count
                and utf8_size(name) <= limits.header_name_bytes
                and len(value) <= limits.header_value_bytes
                and taken + size <= limits.record_bytes // 2
            ):
                kept.append((name, value))
                taken += size
        return tuple(kept), taken
