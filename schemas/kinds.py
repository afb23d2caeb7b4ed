"""The types that fields can have: each checks a value, and says its bound for the documentation.

A kind has `read` (from the wire) and `write` (to the wire). Both check type and bound, so that a message that
was encoded here can always be decoded here, and both raise ProtocolError with the field's name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn, Protocol

from schemas.codes import Code
from schemas.errors import ProtocolError
from schemas.limits import INT_MAX, Limits


def fail(name: str, problem: str, code: Code = Code.BAD_TYPE) -> NoReturn:
    """Raise the ProtocolError that says `problem` of the field `name`."""
    raise ProtocolError(code, f"field {name} {problem}", name)


def _wrong_type(name: str, wanted: str, value: object) -> NoReturn:
    fail(name, f"must be {wanted}, not {type(value).__name__}")


def show_size(size: int) -> str:
    """A size in bytes for people: `64 bytes`, `8 KiB`, `16 MiB`."""
    for unit, name in ((1024 * 1024, "MiB"), (1024, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} bytes"


def utf8_size(text: str) -> int:
    """UTF-8 bytes of `text`; a lone surrogate counts as three and is left for the packer to refuse."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Kind(Protocol):
    """What the field table needs to know of a type."""

    @property
    def label(self) -> str:
        """The MessagePack type, for the documentation."""
        ...

    def bound(self, limits: Limits) -> str:
        """The bound in words; "" when the type says it all."""
        ...

    def read(self, value: object, name: str, limits: Limits) -> object:
        """The Python value of a decoded `value`; ProtocolError when it is not of this kind."""
        ...

    def write(self, value: object, name: str, limits: Limits) -> object:
        """The packable form of a Python `value`; ProtocolError when it is not of this kind."""
        ...


class _Scalar(ABC):
    """A kind whose values look the same in Python and on the wire."""

    __slots__ = ()

    @abstractmethod
    def read(self, value: object, name: str, limits: Limits) -> object:
        """As `Kind.read`."""

    def write(self, value: object, name: str, limits: Limits) -> object:
        return self.read(value, name, limits)


@dataclass(frozen=True, slots=True)
class Int(_Scalar):
    """An integer from 0 to INT_MAX; a bool is not one. `code` is for a value outside the bound."""

    code: Code = Code.BAD_TYPE
    label: str = "int"

    def bound(self, limits: Limits) -> str:
        return "0 to 2^53 - 1"

    def read(self, value: object, name: str, limits: Limits) -> object:
        if type(value) is not int:
            _wrong_type(name, "int", value)
        if not 0 <= value <= INT_MAX:
            fail(name, "must be from 0 to 2^53 - 1", self.code)
        return value


@dataclass(frozen=True, slots=True)
class Bool(_Scalar):
    """true or false, never 0 or 1."""

    label: str = "bool"

    def bound(self, limits: Limits) -> str:
        return ""

    def read(self, value: object, name: str, limits: Limits) -> object:
        if type(value) is not bool:
            _wrong_type(name, "bool", value)
        return value


@dataclass(frozen=True, slots=True)
class Fraction(_Scalar):
    """A number from 0 to 1. An int is taken too: some encoders write 1.0 as 1."""

    label: str = "float"

    def bound(self, limits: Limits) -> str:
        return "0 to 1"

    def read(self, value: object, name: str, limits: Limits) -> object:
        if type(value) not in (int, float):
            _wrong_type(name, "float", value)
        number = float(value)  # type: ignore[arg-type]
        if math.isnan(number) or not 0.0 <= number <= 1.0:
            fail(name, "must be from 0 to 1")
        return number


@dataclass(frozen=True, slots=True)
class Str(_Scalar):
    """A string of `least` to limits.`limit` UTF-8 bytes; if it goes into a record `key`, without NUL."""

    limit: str
    least: int = 0
    key: bool = False
    code: Code = Code.BAD_TYPE
    label: str = "str"

    def bound(self, limits: Limits) -> str:
        size = show_size(getattr(limits, self.limit))
        span = f"{self.least} to {size}" if self.least else f"at most {size}"
        return f"{span}, no NUL" if self.key else span

    def read(self, value: object, name: str, limits: Limits) -> object:
        if not isinstance(value, str):
            _wrong_type(name, "str", value)
        most: int = getattr(limits, self.limit)
        # A character has at most 4 bytes, so nearly every string passes without being encoded.
        if len(value) * 4 > most and utf8_size(value) > most:
            fail(name, f"has {utf8_size(value)} bytes; at most {most} are allowed", self.code)
        if len(value) < self.least:
            fail(name, "must not be empty")
        if self.key and "\0" in value:
            fail(name, "must not hold a NUL character")
        return value


@dataclass(frozen=True, slots=True)
class Bin(_Scalar):
    """Up to limits.`limit` bytes, in whole units of `unit` bytes."""

    limit: str
    unit: int = 1
    label: str = "bin"

    def bound(self, limits: Limits) -> str:
        size = show_size(getattr(limits, self.limit))
        return f"at most {size}" + (f", a multiple of {self.unit}" if self.unit > 1 else "")

    def read(self, value: object, name: str, limits: Limits) -> object:
        if not isinstance(value, bytes):
            _wrong_type(name, "bin", value)
        most: int = getattr(limits, self.limit)
        if len(value) > most:
            fail(name, f"has {len(value)} bytes; at most {most} are allowed")
        if len(value) % self.unit:
            fail(name, f"has {len(value)} bytes, which is not a multiple of {self.unit}")
        return value


@dataclass(frozen=True, slots=True)
class StrOrBin(_Scalar):
    """A string or a binary of 1 to limits.`limit` bytes, kept as it was given."""

    limit: str
    label: str = "str or bin"

    def bound(self, limits: Limits) -> str:
        return f"1 to {show_size(getattr(limits, self.limit))}"

    def read(self, value: object, name: str, limits: Limits) -> object:
        if isinstance(value, str):
            size = utf8_size(value)
        elif isinstance(value, bytes):
            size = len(value)
        else:
            _wrong_type(name, "str or bin", value)
        most: int = getattr(limits, self.limit)
        if not 1 <= size <= most:
            fail(name, f"has {size} bytes; it must have 1 to {most}")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the values of `enum`, written as its string."""

    enum: type[StrEnum]
    label: str = "str"

    def bound(self, limits: Limits) -> str:
        return ", ".join(f"`{member.value}`" for member in self.enum)

    def read(self, value: object, name: str, limits: Limits) -> object:
        if not isinstance(value, str):
            _wrong_type(name, "str", value)
        try:
            return self.enum(value)
        except ValueError:
            fail(name, f"must be one of {', '.join(self.enum)}")

    def write(self, value: object, name: str, limits: Limits) -> object:
        if not isinstance(value, self.enum):
            _wrong_type(name, self.enum.__name__, value)
        return value.value


def _array(value: object, name: str) -> Sequence[object]:
    # By exact type: msgpack's extension type is a tuple too.
    if type(value) is list or type(value) is tuple:
        return value
    _wrong_type(name, "array", value)


def _count(items: int, most: int, name: str) -> None:
    if items > most:
        fail(name, f"has {items} entries; at most {most} are allowed")


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map from short strings to values of one kind, with up to limits.`limit` entries."""

    kind: Kind
    limit: str = "entry_count"
    keys: Str = Str("reason_bytes", least=1)

    @property
    def label(self) -> str:
        return f"map of {self.kind.label}"

    def bound(self, limits: Limits) -> str:
        return f"at most {getattr(limits, self.limit)} entries"

    def read(self, value: object, name: str, limits: Limits) -> object:
        items = self._items(value, name, limits)
        return {key: self.kind.read(item, f"{name}.*", limits) for key, item in items}

    def write(self, value: object, name: str, limits: Limits) -> object:
        items = self._items(value, name, limits)
        return {key: self.kind.write(item, f"{name}.*", limits) for key, item in items}

    def _items(self, value: object, name: str, limits: Limits) -> Iterable[tuple[str, object]]:
        if not isinstance(value, dict):
            _wrong_type(name, "map", value)
        _count(len(value), getattr(limits, self.limit), name)
        for key in value:
            self.keys.read(key, f"{name} (a key)", limits)
        return value.items()


@dataclass(frozen=True, slots=True)
class ListOf:
    """An array of values of one kind, with up to limits.`limit` entries; a tuple in Python."""

    kind: Kind
    limit: str = "entry_count"

    @property
    def label(self) -> str:
        return f"array of {self.kind.label}"

    def bound(self, limits: Limits) -> str:
        return f"at most {getattr(limits, self.limit)} entries"

    def read(self, value: object, name: str, limits: Limits) -> object:
        return tuple(self.kind.read(item, f"{name}[]", limits) for item in self._items(value, name, limits))

    def write(self, value: object, name: str, limits: Limits) -> object:
        return [self.kind.write(item, f"{name}[]", limits) for item in self._items(value, name, limits)]

    def _items(self, value: object, name: str, limits: Limits) -> Iterable[object]:
        items = _array(value, name)
        _count(len(items), getattr(limits, self.limit), name)
        return items


@dataclass(frozen=True, slots=True)
class Pair:
    """An array of exactly two values, each of its own kind; a tuple in Python."""

    first: Kind
    second: Kind

    @property
    def label(self) -> str:
        return f"[{self.first.label}, {self.second.label}]"

    def bound(self, limits: Limits) -> str:
        return f"{self.first.bound(limits)}; {self.second.bound(limits)}"

    def read(self, value: object, name: str, limits: Limits) -> object:
        first, second = self._two(value, name)
        return self.first.read(first, name, limits), self.second.read(second, name, limits)

    def write(self, value: object, name: str, limits: Limits) -> object:
        first, second = self._two(value, name)
        return [self.first.write(first, name, limits), self.second.write(second, name, limits)]

    def _two(self, value: object, name: str) -> Sequence[object]:
        items = _array(value, name)
        if len(items) != 2:
            fail(name, "must be an array of two")
        return items
