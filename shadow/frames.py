"""How a shadow worker and its judge processes speak over pipes: byte strings, each behind its length.

A question is two of them, a MessagePack map and the sample's record as it came; an answer is a map. Both ends are this
version of this code, so there is no version in it; the length is bounded all the same.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import IO, Any, Final

import msgpack  # type: ignore[import-untyped]

from schemas.sample import DifferenceKind
from shadow.compare import Difference

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""Longest frame; a sample is one record, which is shorter."""

_HEADER: Final = struct.Struct("<I")


def write(stream: IO[bytes], body: bytes) -> None:
    """Put a frame into a blocking stream. Raises ValueError when it would be too long."""
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {len(body)} bytes; at most {FRAME_BYTES_MAX} are allowed")
    stream.write(_HEADER.pack(len(body)))
    stream.write(body)


def read(stream: IO[bytes]) -> bytes | None:
    """The next frame of a blocking stream; None at its end. Raises EOFError in the middle of one, ValueError when it
    would be too long."""
    header = stream.read(_HEADER.size)
    if not header:
        return None
    if len(header) < _HEADER.size:
        raise EOFError("the pipe ended inside a frame")
    (length,) = _HEADER.unpack(header)
    if length > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {length} bytes is announced; at most {FRAME_BYTES_MAX} are allowed")
    body = stream.read(length)
    if len(body) < length:
        raise EOFError("the pipe ended inside a frame")
    return body


def write_map(stream: IO[bytes], message: dict[str, Any]) -> None:
    """Put a map into a blocking stream."""
    write(stream, msgpack.packb(message))


def read_map(stream: IO[bytes]) -> dict[str, Any] | None:
    """The map in the next frame; None at the end of the stream. Raises as `read` does, and ValueError for what is no
    map."""
    body = read(stream)
    if body is None:
        return None
    message = msgpack.unpackb(body)
    if not isinstance(message, dict):
        raise ValueError("a frame holds no map")
    return message


def difference_to_map(difference: Difference | None) -> dict[str, Any] | None:
    return None if difference is None else dataclasses.asdict(difference)


def difference_from_map(message: dict[str, Any] | None) -> Difference | None:
    if message is None:
        return None
    values = dict(message, kind=DifferenceKind(message["kind"]))
    for name in ("answer_span", "reference_span"):
        values[name] = None if values[name] is None else tuple(values[name])
    return Difference(**values)
