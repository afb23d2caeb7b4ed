"""A session: one text and its exact tokens, kept in step under edits."""

from __future__ import annotations

from abc import ABC, abstractmethod

from toksplice.errors import PositionError
from toksplice.gather import Part, little_endian
from toksplice.patch import Patch
from toksplice.reference import U32


class Session(ABC):
    """A text and its tokens. Made by `Tokenizer.session`; not safe for use by two threads at once.

    Positions and lengths are UTF-8 bytes and must lie on character boundaries (`PositionError`). Text must be
    valid Unicode (`TextError`). When an edit raises, the session is as it was before.
    """

    @property
    @abstractmethod
    def length(self) -> int:
        """Bytes of the text."""

    @property
    @abstractmethod
    def total(self) -> int:
        """Tokens, special tokens included."""

    @property
    @abstractmethod
    def text(self) -> str: ...

    @abstractmethod
    def utf8(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of the text in UTF-8, of which there may be fewer; characters may be cut."""

    @property
    @abstractmethod
    def ids(self) -> U32:
        """All ids, special tokens included, u32 of shape (total,); valid until the next edit. To read some of them
        `ids_between` is cheaper."""

    @property
    @abstractmethod
    def add_special_tokens(self) -> bool: ...

    @property
    @abstractmethod
    def native(self) -> bool:
        """Whether the native engine serves this session: its edits take routes A or B, and the cost of one does not
        depend on the length of the text."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Memory held by the text and the tokens, growth slack included; shared memory by its share."""

    @property
    @abstractmethod
    def restarts(self) -> bytes | None:
        """Where the engine's scan may restart, by which it repairs edits: a bit for each token but the special ones,
        that of the first one lowest, zeros behind the last. A function of the text. None where no engine serves."""

    @abstractmethod
    def offsets(self) -> U32:
        """UTF-8 byte span of every token, u32 of shape (total, 2), as the reference gives them."""

    @abstractmethod
    def ids_between(self, start: int, stop: int) -> U32:
        """`ids[start:stop]`, a copy made without touching the other ids. Raises `PositionError` unless 0 <= start <=
        stop <= total."""

    @abstractmethod
    def offsets_between(self, start: int, stop: int) -> U32:
        """`offsets()[start:stop]`, made without touching the other spans. Raises `PositionError` as `ids_between`."""

    @abstractmethod
    def splice(self, start: int, end: int, text: str, *, force_full: bool = False) -> Patch:
        """Put `text` in place of bytes [start, end). `force_full`: by route D whatever the tokenizer allows."""

    @abstractmethod
    def update(self, text: str, *, force_full: bool = False) -> Patch:
        """Make `text` the whole text: what it shares with the old one, left and right, is kept."""

    @abstractmethod
    def fork(self) -> Session:
        """An independent session with the same text and tokens."""

    @abstractmethod
    def on_reference(self) -> Session:
        """A session with this text and these tokens that trusts the reference alone: this one when it does so already.
        The next edit with `force_full` corrects tokens that the engine had wrong."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """A snapshot for `Tokenizer.restore`, with a version and a checksum."""

    def utf8_parts(self, start: int, stop: int) -> tuple[Part, ...]:
        """`utf8(start, stop)` for `gather`; O(1) where the engine serves."""
        return (self.utf8(start, stop),)

    def ids_parts(self, start: int, stop: int) -> tuple[Part, ...]:
        """`ids_between(start, stop)` for `gather`, little-endian u32; O(1) where the engine serves."""
        return (little_endian(self.ids_between(start, stop)),)

    def append(self, text: str, *, force_full: bool = False) -> Patch:
        """Add `text` at the end."""
        return self.splice(self.length, self.length, text, force_full=force_full)

    def truncate(self, length: int, *, force_full: bool = False) -> Patch:
        """Keep the first `length` bytes."""
        return self.splice(length, self.length, "", force_full=force_full)

    def _check_stretch(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.total:
            raise PositionError(f"tokens {start} to {stop} are no stretch of {self.total} tokens")
