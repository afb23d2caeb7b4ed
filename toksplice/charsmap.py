"""The character map of a Precompiled normalizer (SentencePiece): which sequences become what.

The blob is a little-endian u32, the size of a double-array trie in bytes; the trie, one u32 a unit; then the
replacements, each ended by a zero byte. A sequence that is in the trie has a leaf whose value is the position
of its replacement. The reference replaces a whole grapheme cluster by the replacement of the shortest sequence
that begins it; where none does, and in clusters of six bytes or more, it looks at each character by itself.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from toksplice.structure import NotUnderstoodError

#: No sequence of a known map has more than 30 bytes; a trie that goes on beyond this is a loop.
MAX_SEQUENCE_BYTES = 256
MAX_SEQUENCES = 1 << 20

_NODE_SPAN = 256
_LEAF = 1 << 31

Units = npt.NDArray[np.uint32]
_BYTES = np.arange(1, 256, dtype=np.int64)


def read_charsmap(encoded: str) -> dict[str, str]:
    """Replacement of each sequence of a `precompiled_charsmap`; raises `NotUnderstoodError` when it is damaged."""
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotUnderstoodError("a character map that is not base64") from error
    size = int.from_bytes(blob[:4], "little")
    if len(blob) < 8 or size % 4 or not 4 <= size <= len(blob) - 4:
        raise NotUnderstoodError("a character map of another form")
    units = np.frombuffer(blob, dtype="<u4", count=size // 4, offset=4)
    replacements = blob[4 + size :]
    try:
        return {key.decode(): _replacement(replacements, value) for key, value in _leaves(units)}
    except UnicodeDecodeError as error:
        raise NotUnderstoodError("a character map with sequences that are not UTF-8") from error


def write_charsmap(replacements: Mapping[str, str]) -> bytes:
    """The blob of a small map, each node of whose trie has 256 units to itself."""
    nodes: dict[bytes, int] = {b"": 0}
    for key in replacements:
        encoded = key.encode()
        for size in range(1, len(encoded) + 1):
            nodes.setdefault(encoded[:size], len(nodes))
    units = np.zeros(_NODE_SPAN * len(nodes), dtype="<u4")
    for prefix, number in nodes.items():
        if prefix:
            at, children = _NODE_SPAN * nodes[prefix[:-1]] + prefix[-1], _NODE_SPAN * number
            units[at] = (at ^ children) << 10 | prefix[-1]
    text = b""
    for key, replacement in replacements.items():
        encoded = key.encode()
        units[_NODE_SPAN * nodes[encoded[:-1]] + encoded[-1]] |= 1 << 8
        units[_NODE_SPAN * nodes[encoded]] = _LEAF | len(text)
        text += replacement.encode() + b"\0"
    trie = units.tobytes()
    return len(trie).to_bytes(4, "little") + trie + text


def _replacement(replacements: bytes, start: int) -> str:
    if start >= len(replacements):
        raise NotUnderstoodError("a character map that points outside itself")
    end = replacements.find(b"\0", start)
    return replacements[start : end if end >= 0 else len(replacements)].decode()


def _leaves(units: Units) -> list[tuple[bytes, int]]:
    """Every sequence with its value, found level by level."""
    leaves: list[tuple[bytes, int]] = []
    prefixes, bases = [b""], np.array([_offset(units[:1])[0]], dtype=np.int64)
    for _ in range(MAX_SEQUENCE_BYTES):
        children = bases[:, None] ^ _BYTES[None, :]
        found = units[np.minimum(children, len(units) - 1)]
        # A unit's label holds the top bit too: leaves have it set, so they are nobody's child.
        rows, columns = np.nonzero((children < len(units)) & (found & np.uint32(0x8000_00FF) == _BYTES[None, :]))
        if not len(rows):
            return leaves
        nodes = children[rows, columns]
        prefixes = [prefixes[row] + bytes([column + 1]) for row, column in zip(rows, columns, strict=True)]
        bases = nodes ^ _offset(units[nodes])
        for i in np.flatnonzero(units[nodes] >> np.uint32(8) & np.uint32(1)):
            if bases[i] >= len(units):
                raise NotUnderstoodError("a character map that points outside itself")
            leaves.append((prefixes[i], int(units[bases[i]]) & 0x7FFF_FFFF))
        if len(leaves) > MAX_SEQUENCES:
            break
    raise NotUnderstoodError("a character map without an end")


def _offset(units: Units) -> npt.NDArray[np.int64]:
    wide = units.astype(np.int64)
    return (wide >> 10) << ((wide & (1 << 9)) >> 6)
