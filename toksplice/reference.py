"""The reference: the Hugging Face `tokenizers` library, contained.

Nothing else in this package calls the reference's encoder. It is run with truncation, padding and BPE
dropout off, so that its answer is a function of the text alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers

from toksplice.errors import ReferenceFailedError, TextError, TokenizerError

U32 = npt.NDArray[np.uint32]

#: From this many characters on, encode through the batch call: it costs 0.6 ms more but releases the GIL.
RELEASE_GIL_FROM_CHARS = 8192

_SPECIAL_PROBES = ("a", "Hello, world", "x\ny 12")


@dataclass(frozen=True, slots=True)
class Encoded:
    """Tokens of one text: `ids`, and `starts`/`ends` as UTF-8 byte positions, each u32 of shape (tokens,)."""

    ids: U32
    starts: U32
    ends: U32

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Specials:
    """Ids that the post-processor puts around a text when `add_special_tokens` is set."""

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()

    def around(self, ids: U32) -> U32:
        """`ids` with the special ones before and after them; without any, `ids` itself."""
        if not self.prefix and not self.suffix:
            return ids
        return np.concatenate([np.array(self.prefix, np.uint32), ids, np.array(self.suffix, np.uint32)])


def encode_utf8(text: str) -> bytes:
    """UTF-8 of `text`; raises `TextError` on a lone surrogate or anything that is not a str."""
    if not isinstance(text, str):
        raise TextError(f"text must be a str, not {type(text).__name__}")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextError(f"text has a lone surrogate at character {error.start}") from None


class Reference:
    """One reference tokenizer. Thread-safe; `encode` of a large text releases the GIL."""

    def __init__(self, config_json: str) -> None:
        self._config_json = config_json
        self._tokenizer = self._load()

    @property
    def config_json(self) -> str:
        """The tokenizer.json it was made of."""
        return self._config_json

    def _load(self) -> tokenizers.Tokenizer:
        try:
            tokenizer = tokenizers.Tokenizer.from_str(self._config_json)
        except Exception as error:
            raise TokenizerError(f"the reference refuses this tokenizer.json: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if getattr(tokenizer.model, "dropout", None):
            tokenizer.model.dropout = None
        return tokenizer

    def ids(self, text: str, *, add_special_tokens: bool = False) -> U32:
        """Token ids of `text`, without positions: about 40% cheaper than `encode`."""
        encoding = self._run(text, add_special_tokens, with_offsets=False)
        return np.array(encoding.ids, dtype=np.uint32)

    def encode(self, text: str) -> Encoded:
        """Tokens of `text` without special tokens; raises `TextError`, `ReferenceFailedError`."""
        encoding = self._run(text, add_special_tokens=False, with_offsets=True)
        ids = np.array(encoding.ids, dtype=np.uint32)
        spans = np.array(encoding.offsets, dtype=np.uint32).reshape(-1, 2)
        if not text.isascii():
            spans = char_starts(text)[spans]
        return Encoded(ids, np.ascontiguousarray(spans[:, 0]), np.ascontiguousarray(spans[:, 1]))

    def normalize(self, text: str) -> str:
        """`text` as the normalizer, if there is one, leaves it."""
        normalizer = self._tokenizer.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def token(self, token_id: int) -> str | None:
        """What the vocabulary spells an id as; None for an id that it does not have."""
        found: str | None = self._tokenizer.id_to_token(token_id)
        return found

    def piece_ids(self, piece: str) -> list[int]:
        """The model's ids of one piece of a pre-tokenizer, spelled as the vocabulary spells it."""
        return [token.id for token in self._tokenizer.model.tokenize(piece)]

    def specials(self) -> Specials | None:
        """What the post-processor adds around a text; None when it does more than that."""
        found: set[Specials] = set()
        for probe in _SPECIAL_PROBES:
            core = self._run(probe, add_special_tokens=False, with_offsets=True).ids
            full = self._run(probe, add_special_tokens=True, with_offsets=True)
            lead = full.special_tokens_mask.index(0) if 0 in full.special_tokens_mask else 0
            if not core or full.ids[lead : lead + len(core)] != core:
                return None
            found.add(Specials(tuple(full.ids[:lead]), tuple(full.ids[lead + len(core) :])))
        return found.pop() if len(found) == 1 else None

    def _run(self, text: str, add_special_tokens: bool, *, with_offsets: bool) -> Any:
        try:
            if not with_offsets:
                return self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0]
            if len(text) >= RELEASE_GIL_FROM_CHARS:
                return self._tokenizer.encode_batch([text], add_special_tokens=add_special_tokens)[0]
            return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        except Exception as error:
            encode_utf8(text)  # names the fault when it is the text's
            raise ReferenceFailedError(f"the reference refused a text of {len(text)} characters") from error
        except BaseException as error:
            # A Rust panic surfaces as PanicException, which is no Exception: contain it, and start afresh,
            # since a lock inside the old object may be poisoned.
            if type(error).__name__ != "PanicException":
                raise
            self._tokenizer = self._load()
            raise ReferenceFailedError(f"the reference panicked on a text of {len(text)} characters") from None


def code_points(text: str) -> U32:
    """Code points of `text`, u32 of shape (characters,)."""
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)


def char_starts(text: str) -> U32:
    """UTF-8 byte position of each character of `text` and of its end, u32 of shape (characters + 1,)."""
    starts = np.arange(len(text) + 1, dtype=np.uint32)
    if not text.isascii():
        points = code_points(text)
        wide = (points >= 0x80).astype(np.uint32) + (points >= 0x800) + (points >= 0x10000)
        starts[1:] += np.cumsum(wide, dtype=np.uint32)
    return starts
