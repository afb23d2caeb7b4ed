"""What `verify` compares sessions with: a full encode by the engine each time, the reference every so often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cli.oracle import U32, Oracle
from toksplice import Tokenizer

ID_BYTES = 4
SPAN_BYTES = 8


@dataclass(frozen=True, slots=True)
class Full:
    """A full encode as bytes, which compare several times faster than arrays: `ids` as native u32, `spans` as pairs of
    them, UTF-8 byte positions, `restarts` as a session has them."""

    ids: bytes
    spans: bytes
    restarts: bytes | None = None

    @property
    def total(self) -> int:
        return len(self.ids) // ID_BYTES

    @classmethod
    def of(cls, ids: U32, spans: U32, restarts: bytes | None = None) -> Full:
        """From arrays of shape (tokens,) and (tokens, 2)."""
        return cls(ids.tobytes(), spans.tobytes(), restarts)


class Judge:
    """Full encodes of edited texts.

    Where an engine serves the tokenizer, the edited session must hold what a session has that begins with the edited
    text, and every so often the reference must agree too. Where none does, the reference judges every edit.
    """

    def __init__(self, tokenizer: Tokenizer, oracle: Oracle, reference_every: int = 1) -> None:
        self._tokenizer = tokenizer
        self._oracle = oracle
        self.reference_only = tokenizer.native is None
        self.reference_every = 1 if self.reference_only else reference_every
        self.added_tokens = oracle.added_tokens

    def full(self, text: str, *, add_special_tokens: bool) -> Full:
        """What a session of `text` must hold. Raises `OracleFailedError` when the reference judges and fails."""
        if self.reference_only:
            return Full.of(*self._oracle.encode(text, add_special_tokens=add_special_tokens))
        fresh = self._tokenizer.session(text, add_special_tokens=add_special_tokens)
        return Full.of(fresh.ids, fresh.offsets(), fresh.restarts)

    def objections(self, text: str, engine: Full, *, add_special_tokens: bool) -> list[str]:
        """What is wrong with the engine's full encode of `text`, by the reference. Raises `OracleFailedError`."""
        ids, spans = self._oracle.encode(text, add_special_tokens=add_special_tokens)
        reference = Full.of(ids, spans)
        encoded = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return [
            *differences("the reference's ids", ids, engine.ids, "the engine's"),
            *differences("the reference's offsets", spans, engine.spans, "the engine's"),
            *differences("the ids of encode()", encoded, reference.ids, "the reference's"),
        ]


def differences(what: str, found: U32, expected: bytes, whose: str) -> Iterator[str]:
    """A sentence where an array of shape (tokens,) or (tokens, 2) does not hold the expected values."""
    if found.tobytes() == expected:
        return
    values = np.frombuffer(expected, np.uint32).reshape(-1, *found.shape[1:])
    size = min(len(found), len(values))
    same = found[:size] == values[:size]
    if same.ndim > 1:
        same = same.all(axis=1)
    first = size if same.all() else int(np.argmin(same))
    yield f"{what} differ from {whose} from token {first} of {len(values)} on"
