"""Bounds on what is read from, and written to, the wire."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

MIB = 1024 * 1024

#: The largest integer of the protocol. A double holds every integer up to here exactly, so that languages
#: whose only number is a double (JavaScript) read the same value.
INT_MAX = 2**53 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every bound of the decoder. Sizes are UTF-8 bytes for strings and bytes for binaries.

    Raises ValueError when a bound is not a positive integer, or when bounds contradict each other so that a
    message could be written and not read.
    """

    #: One whole record.
    record_bytes: int = 32 * MIB
    #: The text of one request.
    text_bytes: int = 16 * MIB
    request_id_bytes: int = 64
    tenant_bytes: int = 64
    session_id_bytes: int = 128
    #: A tokenizer's registered name or its fingerprint.
    tokenizer_bytes: int = 128
    #: Text written for people: the message of a reply, the error of a dead letter.
    message_bytes: int = 1024
    #: A machine-readable reason, a worker's kind, the name of a timing or of a path.
    reason_bytes: int = 128
    worker_bytes: int = 128
    topic_bytes: int = 249
    #: A record's key, as a dead letter keeps it.
    key_bytes: int = 1024
    header_name_bytes: int = 256
    header_value_bytes: int = 8 * 1024
    #: Headers of one record, as a dead letter keeps them.
    header_count: int = 64
    #: Entries of `timings`, of `paths` and of `tokenizers`.
    entry_count: int = 64
    #: Entries of any one map or array, unknown fields included.
    item_count: int = 256
    #: Maps and arrays in one record, unknown fields included: a bound on the memory that a small record can
    #: make the decoder take.
    container_count: int = 256
    #: Maps and arrays inside each other; the record's own map is level 1.
    nesting: int = 8

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{field.name} must be a positive integer")
        if self.text_bytes > self.record_bytes:
            raise ValueError("text_bytes must not be over record_bytes: such a text could never be sent")
        longest = max(self.entry_count, self.header_count)
        if longest > self.item_count or longest >= self.container_count:
            raise ValueError("entry_count and header_count must fit item_count and be below container_count")

    def of_records(self, record_bytes: int) -> Limits:
        """These for records of other lengths; no text may be longer than a record."""
        return replace(self, record_bytes=record_bytes, text_bytes=min(self.text_bytes, record_bytes))


DEFAULT_LIMITS = Limits()
