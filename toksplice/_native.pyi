from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_U32 = npt.NDArray[np.uint32]

Spliced = tuple[int, _U32, int, int, _U32, int, int, int]
"""What an edit did: keep_left, ids, keep_right, first_changed, offsets, characters scanned, bytes scanned left of the
edit and right of it. A name for type checkers alone."""

def normalize(text: str, form: str) -> str:
    """`text` in normal form `form` by the engine's tables. Raises `ValueError`."""

class Engine:
    """A loaded BPE tokenizer; thread-safe. `levels`: (classes, columns, table, keeps gaps) of each split level, or None
    for a model without a pre-tokenizer; `added`: (content, id, normalized, lstrip, rstrip), the content in the form in
    which it is looked for. Raises `ValueError`."""

    def __new__(
        cls,
        tokenizer_json: bytes,
        *,
        levels: list[tuple[bytes, int, bytes, bool]] | None,
        normal_form: str | None,
        added: list[tuple[str, int, bool, bool, bool]],
        trim_offsets: bool,
        mark_spaces: bool,
        prepend: str,
        cache_entries: int,
    ) -> Engine: ...
    def encode(self, text: str) -> _U32:
        """The ids of `text`, u32 of shape (tokens,)."""

    def spans(self, text: bytes, ids: _U32, starts: _U32) -> _U32:
        """The spans, u32 of shape (tokens, 2), as the reference gives them, of tokens that tile `text`, UTF-8: their
        ids and first bytes. Raises `ValueError` when they do not."""

class Stretch:
    """A stretch of a session as it was when this was made; it shares the session's memory."""

    def __len__(self) -> int:
        """Its bytes."""

def gather(parts: Sequence[bytes | Stretch]) -> bytes:
    """All of `parts` in one, copied while other threads run."""

class Session:
    """A text and its tokens. Positions are UTF-8 bytes; not safe for two threads at once."""

    def __new__(cls, engine: Engine, text: str) -> Session: ...
    @property
    def length(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def is_char_boundary(self, byte: int) -> bool: ...
    def text(self, start: int, end: int) -> bytes:
        """Bytes [start, end) of the text."""

    def ids(self, start: int, end: int) -> _U32:
        """The ids of tokens [start, end), a copy."""

    def text_stretch(self, start: int, end: int) -> Stretch:
        """`text(start, end)` for `gather`."""

    def ids_stretch(self, start: int, end: int) -> Stretch:
        """`ids(start, end)` for `gather`, little-endian u32."""

    def offsets(self, start: int, end: int) -> _U32:
        """The byte spans of tokens [start, end), u32 of shape (tokens, 2)."""

    def restarts(self) -> bytes:
        """Where a scan may restart: a bit for each token, that of the first one lowest."""

    def splice(self, start: int, end: int, text: str) -> Spliced | None:
        """Put `text` in place of bytes [start, end); None when nothing changes. Raises `IndexError`."""

    def update(self, text: str) -> Spliced | None:
        """Make `text` the whole text, by the stretch in which they differ; None when nothing changes."""

    def fork(self) -> Session: ...
