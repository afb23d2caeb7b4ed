"""The judge of `verify`: the reference library itself, called without any of TokSplice's code around it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers

U32 = npt.NDArray[np.uint32]


class OracleFailedError(Exception):
    """The reference refused a text or panicked on it: there is no right answer to compare with."""


class Oracle:
    """Whole texts through the reference, with truncation, padding and dropout off."""

    def __init__(self, tokenizer_json: bytes) -> None:
        self._json = tokenizer_json.decode("utf-8")
        added = json.loads(self._json).get("added_tokens") or ()
        self.added_tokens = tuple(str(token["content"]) for token in added)
        """The contents of the added tokens, in the order of the file."""
        self._tokenizer = self._load()

    def encode(self, text: str, *, add_special_tokens: bool) -> tuple[U32, U32]:
        """Ids of shape (tokens,) and spans of shape (tokens, 2) in UTF-8 bytes.

        Raises `OracleFailedError`.
        """
        encoding = self._run(text, add_special_tokens)
        spans = np.fromiter(chain.from_iterable(encoding.offsets), dtype=np.uint32).reshape(-1, 2)
        if not text.isascii():
            spans = byte_positions(text)[spans]
        return np.array(encoding.ids, dtype=np.uint32), spans

    def ids_batch(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[U32]:
        """Ids of several texts at once, on all processors. Raises `OracleFailedError` for the whole batch."""
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in self._batch(texts, add_special_tokens)]

    def seconds(self, text: str) -> float:
        """How long the reference takes for the ids of one text, in seconds. Raises `OracleFailedError`."""
        started = time.perf_counter()
        self._batch([text], add_special_tokens=False)
        return time.perf_counter() - started

    def _load(self) -> tokenizers.Tokenizer:
        tokenizer = tokenizers.Tokenizer.from_str(self._json)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if getattr(tokenizer.model, "dropout", None):
            tokenizer.model.dropout = None
        return tokenizer

    def _run(self, text: str, add_special_tokens: bool) -> Any:
        with self._contained(len(text)):
            return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def _batch(self, texts: Sequence[str], add_special_tokens: bool) -> Any:
        with self._contained(sum(map(len, texts))):
            # The fast form leaves out the spans, which no replay compares.
            return self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)

    @contextmanager
    def _contained(self, chars: int) -> Iterator[None]:
        try:
            yield
        except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
            raise
        except BaseException as error:
            # A panic in Rust derives from BaseException and can leave a lock poisoned: start afresh.
            self._tokenizer = self._load()
            raise OracleFailedError(f"the reference failed on {chars} characters") from error


def byte_positions(text: str) -> U32:
    """The UTF-8 byte position of each character of `text` and of its end, u32 of shape (characters + 1,)."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    sizes = 1 + np.searchsorted(np.array([0x80, 0x800, 0x1_0000]), points, side="right")
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint32)
