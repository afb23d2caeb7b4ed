"""MessagePack with bounds: one record to one map, and back.

The `msgpack` package allocates an array or a map from the length that the record claims, and a one-byte
record element can become an object of 60 bytes. So lengths, the number of containers and nesting are all
bounded here, before anybody looks at a field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgpack  # type: ignore[import-untyped]

from schemas.codes import Code
from schemas.errors import ProtocolError
from schemas.limits import Limits

_EXT_BYTES_MAX = 4096


class _StructureError(Exception):
    """Raised by the hooks below with a message about the structure of the record."""


_Pairs = list[tuple[object, object]]


def _hooks(
    limits: Limits,
) -> tuple[Callable[[_Pairs], dict[str, object]], Callable[[list[object]], list[object]]]:
    """Hooks for maps and arrays that count containers and refuse duplicate and non-string keys."""
    left = limits.container_count

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise _StructureError(f"more than {limits.container_count} maps and arrays in one record")

    def pairs(items: _Pairs) -> dict[str, object]:
        count()
        result: dict[str, object] = {}
        for key, value in items:
            if not isinstance(key, str):
                raise _StructureError("a map key is not a str")
            if key in result:
                raise _StructureError("a map key occurs twice")
            result[key] = value
        return result

    def array(items: list[object]) -> list[object]:
        count()
        return items

    return pairs, array


def _unpack(data: bytes, limits: Limits, unicode_errors: str) -> object:
    pairs, array = _hooks(limits)
    return msgpack.unpackb(
        data,
        raw=False,
        strict_map_key=True,
        unicode_errors=unicode_errors,
        object_pairs_hook=pairs,
        list_hook=array,
        # A string may fill the record: the field table says how long each one may be, with the right code.
        max_str_len=limits.record_bytes,
        max_bin_len=limits.record_bytes,
        max_array_len=limits.item_count,
        max_map_len=limits.item_count,
        max_ext_len=_EXT_BYTES_MAX,
    )


def _nesting(top: object, stop_at: int) -> int:
    """The depth of containers in `top`, counted no further than `stop_at`."""
    level: list[object] = [top]
    depth = 0
    while level and depth < stop_at:
        depth += 1
        inner: list[object] = []
        for container in level:
            values = container.values() if isinstance(container, dict) else container
            inner.extend(value for value in values if isinstance(value, dict | list))  # type: ignore[attr-defined]
        level = inner
    return depth


def find_bad_text(value: object, name: str = "") -> str | None:
    """The dotted name of the first string in `value` that UTF-8 cannot hold, or None if all are sound.

    A broken key counts for the map that it is in: `name`, which is "" for the record's own map.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return name
        return None
    items: list[tuple[str, object]] = []
    if isinstance(value, dict):
        for key, item in value.items():
            if find_bad_text(key) is not None:
                return name
            items.append((f"{name}.{key}" if name else key, item))
    elif isinstance(value, list | tuple):
        items = [(name, item) for item in value]
    for inner, item in items:
        found = find_bad_text(item, inner)
        if found is not None:
            return found
    return None


def _invalid_utf8(value: object) -> ProtocolError:
    field = find_bad_text(value) or None
    where = f"field {field}" if field else "a string of the record"
    return ProtocolError(Code.INVALID_UTF8, f"{where} is not valid UTF-8 (lone surrogates are not)", field)


def unpack_map(data: bytes, limits: Limits) -> dict[str, object]:
    """The one map in `data`.

    Raises ProtocolError: `text_too_large` for a record over `limits.record_bytes`, `invalid_utf8`, or
    `malformed` for anything else that is not one well-formed, bounded map with distinct string keys.
    """
    if len(data) > limits.record_bytes:
        raise ProtocolError(
            Code.TEXT_TOO_LARGE, f"the record has {len(data)} bytes; at most {limits.record_bytes} are read"
        )
    try:
        value = _unpack(data, limits, "strict")
    except UnicodeDecodeError:
        raise _locate_invalid_utf8(data, limits) from None
    except _StructureError as error:
        raise ProtocolError(Code.MALFORMED, str(error)) from None
    except (ValueError, msgpack.UnpackException) as error:
        # The package's own messages tell sizes and limits, never contents.
        raise ProtocolError(Code.MALFORMED, f"the record is not one MessagePack map: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError(Code.MALFORMED, "the record is not a MessagePack map")
    if _nesting(value, limits.nesting + 1) > limits.nesting:
        raise ProtocolError(Code.MALFORMED, f"maps and arrays are nested over {limits.nesting} levels")
    return value


def _locate_invalid_utf8(data: bytes, limits: Limits) -> ProtocolError:
    """Decode once more, leniently, to name the field; only broken records pay for it."""
    try:
        value = _unpack(data, limits, "surrogateescape")
        if _nesting(value, limits.nesting + 1) <= limits.nesting:
            return _invalid_utf8(value)
    except (_StructureError, ValueError, msgpack.UnpackException):
        pass  # Broken in more than one way.
    return _invalid_utf8(None)


def _refuse_container(value: object) -> object:
    raise _StructureError("a scalar was expected")


def skim_map(data: bytes, names: frozenset[str], limits: Limits) -> dict[str, object]:
    """The first value of each of `names` in the map that `data` begins with, as far as the bytes are sound.

    Reads entry by entry and stops at the first that is broken, so it works on records that `unpack_map`
    refuses. Only scalars are read: a map or an array in place of one ends the reading, and everything else is
    skipped without building objects, so that no record costs memory here.
    """
    found: dict[str, object] = {}
    try:
        unpacker = msgpack.Unpacker(
            raw=False,
            max_buffer_size=limits.record_bytes,
            list_hook=_refuse_container,
            object_hook=_refuse_container,
            max_array_len=limits.item_count,
            max_map_len=limits.item_count,
        )
        unpacker.feed(data)
        for _ in range(min(unpacker.read_map_header(), limits.item_count)):
            name = unpacker.unpack()
            if name in names and name not in found:
                found[name] = unpacker.unpack()
            else:
                unpacker.skip()
    except (ValueError, TypeError, _StructureError, msgpack.UnpackException, msgpack.BufferFull):
        pass  # What was found before the fault is the answer.
    return found


def pack_map(value: dict[str, object], limits: Limits) -> bytes:
    """`value` as one record.

    Raises ProtocolError: `invalid_utf8` for a string with a lone surrogate, naming the field, and
    `text_too_large` when the record would be over `limits.record_bytes`.
    """
    try:
        data: bytes = msgpack.packb(value, use_bin_type=True)
    except UnicodeEncodeError:
        raise _invalid_utf8(value) from None
    _check_size(len(data), limits)
    return data


def pack_around(value: dict[str, object], sizes: Mapping[str, int], limits: Limits) -> tuple[bytes, ...]:
    """The pieces of the record of `value` around the contents of some of its binary fields, whose `sizes` in bytes
    are given in the order of the map: with these contents in between they are what `pack_map` makes. What stands in
    the map for them is not looked at. Raises as `pack_map`."""
    packer = msgpack.Packer(use_bin_type=True, autoreset=False)
    pieces: list[bytes] = []
    try:
        packer.pack_map_header(len(value))
        for name, item in value.items():
            packer.pack(name)
            if name in sizes:
                pieces.append(packer.bytes() + _bin_header(sizes[name]))
                packer.reset()
            else:
                packer.pack(item)
    except UnicodeEncodeError:
        raise _invalid_utf8(value) from None
    pieces.append(packer.bytes())
    _check_size(sum(map(len, pieces)) + sum(sizes.values()), limits)
    return tuple(pieces)


def _bin_header(size: int) -> bytes:
    """How MessagePack begins a binary of so many bytes, as short as it can be."""
    for code, width in ((0xC4, 1), (0xC5, 2), (0xC6, 4)):
        if size < 1 << 8 * width:
            return bytes((code,)) + size.to_bytes(width)
    raise ProtocolError(Code.TEXT_TOO_LARGE, f"a field has {size} bytes, more than MessagePack can write")


def _check_size(size: int, limits: Limits) -> None:
    if size > limits.record_bytes:
        raise ProtocolError(
            Code.TEXT_TOO_LARGE, f"the record would have {size} bytes; at most {limits.record_bytes} are sent"
        )
