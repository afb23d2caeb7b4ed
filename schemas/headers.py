"""Record headers: their names, and how to read them without trusting them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from schemas.limits import DEFAULT_LIMITS, Limits

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
CORRELATION_ID: Final = "correlation-id"
REPLY_PARTITION: Final = "reply-partition"

Headers = tuple[tuple[str, bytes], ...]

#: No partition number has more digits; bounds the integer that is parsed from a header.
_PARTITION_DIGITS_MAX: Final = 9


def find(headers: Iterable[tuple[str, bytes]], name: str) -> bytes | None:
    """The value of the last header called `name`, as Kafka's `lastHeader`; None when there is none."""
    found = None
    for key, value in headers:
        if key == name:
            found = value
    return found


def correlation_id(headers: Iterable[tuple[str, bytes]], limits: Limits = DEFAULT_LIMITS) -> bytes | None:
    """The correlation id, or None when it is absent, empty or longer than a request id may be."""
    value = find(headers, CORRELATION_ID)
    return value if value and len(value) <= limits.request_id_bytes else None


def reply_partition(headers: Iterable[tuple[str, bytes]], partitions: int) -> int | None:
    """The partition of tokenize.replies that the client asks for, or None.

    It is written in decimal digits; anything else, or a number not below `partitions`, counts as absent.
    """
    value = find(headers, REPLY_PARTITION)
    if not value or len(value) > _PARTITION_DIGITS_MAX or not value.isdigit():
        return None
    partition = int(value)
    return partition if partition < partitions else None


def trace_context(headers: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """The W3C trace headers that are present and ASCII, as a carrier for a propagator."""
    carrier = {}
    for name in (TRACEPARENT, TRACESTATE):
        value = find(headers, name)
        if value and value.isascii():
            carrier[name] = value.decode("ascii")
    return carrier


def with_header(headers: Iterable[tuple[str, bytes]], name: str, value: bytes) -> Headers:
    """`headers` with `name` set to `value`, once, at the end."""
    return (*((key, old) for key, old in headers if key != name), (name, value))
