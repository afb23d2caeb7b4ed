"""How a shadow worker and its judge processes speak over pipes: MessagePack maps, each behind its length.

Both ends are this version of this code, so there is no version in it; the length is bounded all the same.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any, BinaryIO, Final

import msgpack  # type: ignore[import-untyped]

from schemas.sample import DifferenceKind
from shadow.compare import Difference
from shadow.judge import Question

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""Longest frame; a sample is one record, which is shorter."""

HEADER: Final = struct.Struct("<I")


def pack(message: dict[str, Any]) -> bytes:
    """A frame. Raises ValueError when it would be too long."""
    body: bytes = msgpack.packb(message)
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {len(body)} bytes; at most {FRAME_BYTES_MAX} are allowed")
    return HEADER.pack(len(body)) + body


def unpack(body: bytes) -> dict[str, Any]:
    """The message in a frame's body."""
    message: dict[str, Any] = msgpack.unpackb(body)
    return message


def length_of(header: bytes) -> int:
    """The length that a header gives. Raises ValueError when it is over the bound."""
    (length,) = HEADER.unpack(header)
    if length > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {length} bytes is announced; at most {FRAME_BYTES_MAX} are allowed")
    return int(length)


def read(stream: BinaryIO) -> dict[str, Any] | None:
    """The next message of a blocking stream; None at its end. Raises EOFError in the middle of a frame."""
    header = stream.read(HEADER.size)
    if not header:
        return None
    if len(header) < HEADER.size:
        raise EOFError("the pipe ended inside a frame")
    length = length_of(header)
    body = stream.read(length)
    if len(body) < length:
        raise EOFError("the pipe ended inside a frame")
    return unpack(body)


def question_to_map(question: Question) -> dict[str, Any]:
    return {row.name: getattr(question, row.name) for row in dataclasses.fields(question)}


def question_from_map(message: dict[str, Any]) -> Question:
    return Question(**{row.name: message[row.name] for row in dataclasses.fields(Question)})


def difference_to_map(difference: Difference | None) -> dict[str, Any] | None:
    return None if difference is None else dataclasses.asdict(difference)


def difference_from_map(message: dict[str, Any] | None) -> Difference | None:
    if message is None:
        return None
    values = dict(message, kind=DifferenceKind(message["kind"]))
    for name in ("answer_span", "reference_span"):
        values[name] = None if values[name] is None else tuple(values[name])
    return Difference(**values)
