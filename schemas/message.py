"""What every message shares: a field table, and one decoder and one encoder that follow it.

A message is a frozen dataclass with a `FIELDS` table, one row per field in wire order. The tables drive
decoding, encoding and the field tables in docs/protocol.md; there is no code per field. Rules that need more
than one field are in the message's `check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from schemas.codes import Code
from schemas.errors import ProtocolError
from schemas.kinds import Kind, fail
from schemas.limits import DEFAULT_LIMITS, Limits
from schemas.pack import pack_around, pack_map, unpack_map

#: The version of the protocol, in field `v` of every record.
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Field:
    """One row of a field table.

    `needed` says when the field must be there: "yes", a condition in words, or "" when it has a default. Only
    "yes" is enforced from the table; a condition is enforced by the message's `check`.
    """

    name: str
    kind: Kind
    doc: str
    needed: str = ""


class Message:
    """A map with a field table: a record's own map (`Record`) or a map inside one."""

    __slots__ = ()

    FIELDS: ClassVar[tuple[Field, ...]]

    def check(self, limits: Limits) -> None:
        """Rules over several fields, each of them already checked by itself; raises ProtocolError."""

    def to_map(self, limits: Limits, prefix: str = "") -> dict[str, object]:
        """The map to pack.

        Fields that are None are left out; all others are written, defaults too, so that readers in other
        languages need no table of defaults for what is written here.
        """
        result: dict[str, object] = {}
        for field in self.FIELDS:
            value = getattr(self, field.name)
            if value is None and field.needed != "yes":
                continue
            result[field.name] = field.kind.write(value, prefix + field.name, limits)
        self.check(limits)
        return result

    @classmethod
    def from_map(cls, raw: dict[str, object], limits: Limits, prefix: str = "") -> Self:
        """The message in a decoded map. nil counts as absent; unknown keys are ignored."""
        values: dict[str, Any] = {}
        for field in cls.FIELDS:
            value = raw.get(field.name)
            if value is not None:
                values[field.name] = field.kind.read(value, prefix + field.name, limits)
            elif field.needed == "yes":
                fail(prefix + field.name, "is needed")
        message = cls(**values)
        message.check(limits)
        return message


class Record(Message):
    """A message that is a record of its own: its map carries `v`, and `kind` where a topic mixes messages."""

    __slots__ = ()

    #: The value of the field `kind`; "" for a message that has no such field.
    KIND: ClassVar[str] = ""

    def encode(self, limits: Limits = DEFAULT_LIMITS) -> bytes:
        """This message as a record value. Raises ProtocolError when it breaks its own field table."""
        return pack_map(self._record_map(limits), limits)

    def encode_around(self, sizes: Mapping[str, int], limits: Limits = DEFAULT_LIMITS) -> tuple[bytes, ...]:
        """The record value in pieces, around the contents of its fields `sizes`: binary ones, in the order of the
        field table, with so many bytes. For contents that are put in without a copy being made of them first; those
        that this message holds are not looked at. Raises as `encode`."""
        return pack_around(self._record_map(limits), sizes, limits)

    def _record_map(self, limits: Limits) -> dict[str, object]:
        head: dict[str, object] = {"v": VERSION}
        if self.KIND:
            head["kind"] = self.KIND
        return head | self.to_map(limits)

    @classmethod
    def decode(cls, data: bytes, limits: Limits = DEFAULT_LIMITS) -> Self:
        """The message in a record value. Raises ProtocolError; never anything else, whatever the bytes."""
        return cls.from_record(unpack_map(data, limits), limits)

    @classmethod
    def from_record(cls, raw: dict[str, object], limits: Limits) -> Self:
        """The message in a record's decoded map, after its version and kind were checked."""
        check_version(raw)
        if cls.KIND and raw.get("kind") != cls.KIND:
            fail("kind", f"must be {cls.KIND}")
        return cls.from_map(raw, limits)


def check_version(raw: dict[str, object]) -> None:
    """Raise `bad_version` unless field `v` is the int 1."""
    version = raw.get("v")
    if type(version) is not int or version != VERSION:
        raise ProtocolError(Code.BAD_VERSION, f"field v must be {VERSION}", "v")


@dataclass(frozen=True, slots=True)
class Nested:
    """The kind of a field whose value is itself a message."""

    message: type[Message]
    label: str = "map"

    def bound(self, limits: Limits) -> str:
        return f"see {self.message.__name__}"

    def read(self, value: object, name: str, limits: Limits) -> object:
        if not isinstance(value, dict):
            fail(name, f"must be map, not {type(value).__name__}")
        return self.message.from_map(value, limits, f"{name}.")

    def write(self, value: object, name: str, limits: Limits) -> object:
        if not isinstance(value, self.message):
            fail(name, f"must be {self.message.__name__}, not {type(value).__name__}")
        return value.to_map(limits, f"{name}.")
