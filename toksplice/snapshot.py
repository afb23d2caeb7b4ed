"""Session bytes: a versioned, checksummed form of a session's state.

Version 1 holds the tokens. Layout, little-endian: magic "TSPL", version u8, flags u8 (bit 0: add_special_tokens),
2 bytes 0, fingerprint (32 bytes), text bytes u64, tokens u64, then the UTF-8 text and three columns (ids, distance of
each start from the one before, length of each span), each as an item size u8 and the items; last a BLAKE2b-128 of all
that.

Version 2, for tokenizers that encode faster than tokens are read back, has the same header; then come the BLAKE2b-128
of the ids (u32 each), the text, and the digest of all that. Whoever reads it encodes the text again and compares.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

import numpy as np

from toksplice.errors import SnapshotError
from toksplice.reference import U32, Encoded

VERSION = 1
TEXT_VERSION = 2
_HEADER = struct.Struct("<4sBBxx32sQQ")
_DIGEST_BYTES = 16
_MAGIC = b"TSPL"


@dataclass(frozen=True, slots=True)
class State:
    """What a snapshot holds: UTF-8 `text` and its core `tokens`; `tokens` is None when only their digest is there."""

    fingerprint: str
    add_special_tokens: bool
    text: bytes
    tokens: Encoded | None
    ids_digest: bytes


def dump(fingerprint: str, add_special_tokens: bool, text: bytes, tokens: Encoded) -> bytes:
    """The bytes of a session: its UTF-8 `text` and its core `tokens`."""
    header = _header(VERSION, fingerprint, add_special_tokens, len(text), len(tokens))
    steps = np.diff(tokens.starts, prepend=np.uint32(0))
    parts = [header, text, _pack(tokens.ids), _pack(steps), _pack(tokens.ends - tokens.starts)]
    body = b"".join(parts)
    return body + digest(body)


def dump_text(fingerprint: str, add_special_tokens: bool, text: bytes, ids: U32) -> bytes:
    """The bytes of a state whose tokens are made again from the text."""
    header = _header(TEXT_VERSION, fingerprint, add_special_tokens, len(text), len(ids))
    body = b"".join([header, digest_of_ids(ids), text])
    return body + digest(body)


def digest_of_ids(ids: U32) -> bytes:
    """BLAKE2b-128 of the ids, u32 little-endian each."""
    return digest(ids.astype("<u4", copy=False).tobytes())


def _header(version: int, fingerprint: str, add_special_tokens: bool, text_bytes: int, tokens: int) -> bytes:
    flags = int(add_special_tokens)
    return _HEADER.pack(_MAGIC, version, flags, bytes.fromhex(fingerprint), text_bytes, tokens)


def parse(data: bytes) -> State:
    """The state of some bytes; raises `SnapshotError` when they are damaged or of another version."""
    body, claimed = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(body) < _HEADER.size or digest(body) != claimed:
        raise SnapshotError("the session bytes are damaged: wrong checksum")
    magic, version, flags, fingerprint, text_bytes, count = _HEADER.unpack_from(body)
    if magic != _MAGIC or version not in (VERSION, TEXT_VERSION):
        raise SnapshotError(f"session bytes of version {version}; this library reads {VERSION} and {TEXT_VERSION}")
    if version == TEXT_VERSION:
        at = _HEADER.size + _DIGEST_BYTES
        return State(fingerprint.hex(), bool(flags & 1), body[at:], None, body[_HEADER.size : at])
    at = _HEADER.size + text_bytes
    columns: list[U32] = []
    for _ in range(3):
        column, at = _unpack(body, at, count)
        columns.append(column)
    ids, steps, lengths = columns
    starts = np.cumsum(steps, dtype=np.uint32)
    text = body[_HEADER.size : _HEADER.size + text_bytes]
    tokens = Encoded(ids, starts, starts + lengths)
    return State(fingerprint.hex(), bool(flags & 1), text, tokens, digest_of_ids(ids))


def digest(body: bytes) -> bytes:
    """BLAKE2b-128 of the bytes before it."""
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


def _pack(values: U32) -> bytes:
    """Items in the fewest bytes that hold the largest."""
    largest = int(values.max(initial=0))
    size = 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4
    return bytes([size]) + values.astype(f"<u{size}").tobytes()


def _unpack(body: bytes, at: int, count: int) -> tuple[U32, int]:
    size = body[at]
    stop = at + 1 + size * count
    values = np.frombuffer(body[at + 1 : stop], dtype=f"<u{size}").astype(np.uint32)
    return values, stop
