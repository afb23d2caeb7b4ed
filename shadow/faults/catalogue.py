"""The catalogue of injections: every fault that a drill can plant, by name.

A name says all there is to know, `path/shape/kind.variant/place`: which answers are struck, by what, and where. The
same name makes the same fault of the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from schemas.reply import Path
from schemas.request import Op, Request, Want


class Place(StrEnum):
    """Where in the ids that are struck: of an answer those that it sends, of a session all of them."""

    HEAD = "head"
    MIDDLE = "middle"
    TAIL = "tail"


class Shape(StrEnum):
    """Which answers are struck. The ids of an answer lie differently in each."""

    APPEND = "append"
    """A patch at the end of a session."""
    SPLICE = "splice"
    """A patch in the middle of one: ids are kept at both sides."""
    WHOLE = "whole"
    """A change of a session, answered with all of its ids."""
    FIRST = "first"
    """The first text of a session."""
    ONE_OFF = "one_off"
    """A text without a session, answered with offsets."""

    def matches(self, request: Request) -> bool:
        """Whether the answer to `request` has this shape. Only a worker knows whether a text is the first one."""
        match self:
            case Shape.FIRST:
                return request.op is Op.TEXT and bool(request.session_id)
            case Shape.ONE_OFF:
                return request.op is Op.TEXT and not request.session_id and request.offsets
            case Shape.WHOLE:
                return request.op is Op.TEXT or request.want is Want.IDS
            case _:
                return request.op.value == self.value and request.want is Want.PATCH


class Kind(StrEnum):
    """What is wrong. Most strike an answer when it is made; others the session that it is made from."""

    ID_SUBSTITUTED = "id_substituted"
    ID_DROPPED = "id_dropped"
    ID_DUPLICATED = "id_duplicated"
    IDS_SWAPPED = "ids_swapped"
    ID_ADDED = "id_added"
    SPLIT_MOVED = "split_moved"
    OFFSET_SHIFTED = "offset_shifted"
    SPECIAL_TOKEN = "special_token"  # noqa: S105
    KEPT_IDS = "kept_ids"
    FIRST_CHANGED = "first_changed"
    STALE_SESSION = "stale_session"
    WRONG_FINGERPRINT = "wrong_fingerprint"
    CACHE_POISONED = "cache_poisoned"
    WRONG_UNICODE_CLASS = "wrong_unicode_class"
    CACHE_AFTER_LONG_PREFIX = "cache_after_long_prefix"

    @property
    def of_engine(self) -> bool:
        """Whether the session's ids are wrong for its text, as by a faulty engine."""
        return self in _OF_ENGINE

    @property
    def of_session(self) -> bool:
        """Whether the session is wrong, by its engine or because it is in another state than it is taken for."""
        return self.of_engine or self is Kind.STALE_SESSION


_OF_ENGINE: Final = frozenset(
    {
        Kind.WRONG_FINGERPRINT,
        Kind.CACHE_POISONED,
        Kind.WRONG_UNICODE_CLASS,
        Kind.CACHE_AFTER_LONG_PREFIX,
    }
)

_VARIANTS: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.ID_SUBSTITUTED: ("next", "first", "bit_flipped"),
    Kind.ID_DROPPED: ("one", "three"),
    Kind.ID_DUPLICATED: ("once", "thrice"),
    Kind.IDS_SWAPPED: ("neighbours", "apart"),
    Kind.ID_ADDED: ("ordinary", "unknown"),
    Kind.SPLIT_MOVED: ("letters", "elsewhere"),
    Kind.OFFSET_SHIFTED: ("both", "start", "end", "following"),
    Kind.SPECIAL_TOKEN: ("missing", "other", "doubled"),
    Kind.STALE_SESSION: ("lacks_an_insertion", "lacks_a_removal"),
    Kind.WRONG_FINGERPRINT: ("fewer_merges", "no_added_tokens"),
    Kind.CACHE_POISONED: ("collision", "cut_short", "unmerged"),
    Kind.WRONG_UNICODE_CLASS: ("letter", "digit", "space", "punctuation"),
}
"""Of each kind that strikes any answer at any place."""

_SHAPES: Final[dict[Path, tuple[Shape, ...]]] = {
    Path.REPAIR: (Shape.APPEND, Shape.SPLICE, Shape.WHOLE),
    Path.CPU: (Shape.FIRST, Shape.ONE_OFF),
}
_PATCHES: Final = (Shape.APPEND, Shape.SPLICE)

_KEPT: Final = (
    ("left_more", Place.HEAD),
    ("left_fewer", Place.HEAD),
    ("right_more", Place.TAIL),
    ("right_fewer", Place.TAIL),
)
_OVERSTATED: Final = ("one", "all")


@dataclass(frozen=True, slots=True)
class Injection:
    """One persistent fault: every answer of `shape` on `path` is struck, as long as it is planted."""

    path: Path
    shape: Shape
    kind: Kind
    variant: str
    place: Place

    @property
    def name(self) -> str:
        return f"{self.path}/{self.shape}/{self.kind}.{self.variant}/{self.place}"


def _all() -> Iterator[Injection]:
    for path, shapes in _SHAPES.items():
        for shape in shapes:
            for kind, variants in _VARIANTS.items():
                for variant in variants:
                    for place in _places(kind, shape):
                        yield Injection(path, shape, kind, variant, place)
    for shape in _PATCHES:
        for variant, place in _KEPT:
            yield Injection(Path.REPAIR, shape, Kind.KEPT_IDS, variant, place)
        for variant in _OVERSTATED:
            yield Injection(Path.REPAIR, shape, Kind.FIRST_CHANGED, variant, Place.MIDDLE)
        for place in Place:
            yield Injection(Path.REPAIR, shape, Kind.CACHE_AFTER_LONG_PREFIX, "collision", place)


def _places(kind: Kind, shape: Shape) -> tuple[Place, ...]:
    """A patch sends no special tokens but those in the text."""
    if kind is Kind.SPECIAL_TOKEN and shape in _PATCHES:
        return (Place.MIDDLE,)
    return tuple(Place)


CATALOGUE: Final = MappingProxyType({injection.name: injection for injection in _all()})
"""Name -> injection, in a fixed order."""
