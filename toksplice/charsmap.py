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
Places = npt.NDArray[np.int64]
_BYTES = np.arange(1, 256, dtype=np.int64)
_LABELS = [bytes([byte]) for byte in range(256)]
#: Nodes whose children are looked for at once, which bounds memory.
_ROWS_AT_ONCE = 2048


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
    prefixes, bases = [b""], _offset(units[:1])
    for _ in range(MAX_SEQUENCE_BYTES):
        rows, nodes, labels = _children(units, bases)
        if not len(rows):
            return leaves
        prefixes = [prefixes[row] + _LABELS[label] for row, label in zip(rows.tolist(), labels.tolist(), strict=True)]
        bases = nodes ^ _offset(units[nodes])
        ends = np.flatnonzero(units[nodes] >> np.uint32(8) & np.uint32(1))
        if len(ends) and bases[ends].max() >= len(units):
            raise NotUnderstoodError("a character map that points outside itself")
        values = units[bases[ends]] & np.uint32(_LEAF - 1)
        leaves += zip([prefixes[end] for end in ends.tolist()], values.tolist(), strict=True)
        if len(leaves) > MAX_SEQUENCES:
            break
    raise NotUnderstoodError("a character map without an end")


def _children(units: Units, bases: Places) -> tuple[Places, Places, Places]:
    """All children of some nodes: for each child the index of its parent's base, its own place, and its byte."""
    parts = []
    for low in range(0, len(bases), _ROWS_AT_ONCE):
        children = bases[low : low + _ROWS_AT_ONCE, None] ^ _BYTES[None, :]
        found = units[np.minimum(children, len(units) - 1)]
        # A unit's label holds the top bit too: leaves have it set, so they are nobody's child.
        is_child = (children < len(units)) & (found & np.uint32(_LEAF | 0xFF) == _BYTES[None, :])
        rows, columns = np.nonzero(is_child)
        parts.append((rows + low, children[rows, columns], columns + 1))
    rows, nodes, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    return rows, nodes, labels


def _offset(units: Units) -> Places:
    wide = units.astype(np.int64)
    return (wide >> 10) << ((wide & (1 << 9)) >> 6)
