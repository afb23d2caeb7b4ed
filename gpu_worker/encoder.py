"""The seam between the GPU worker and what encodes: one tokenizer on one device, texts in, tokens or a refusal out.

`gpu_worker.program.compile_for` makes a `Program` of a tokenizer, and `gpu_worker.chain.Chain` is the `Encoder` of a
program on a `gpu_worker.device.Device`: a CUDA device, or the emulation of one that the tests have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

U32 = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Encoding:
    """The tokens of one text, without special tokens around it. Positions are bytes of the text in UTF-8.

    `ids`, `starts`: u32 of shape (tokens,), the reference's ids and the first byte of each; a token ends where the next
    one starts, and the last one where the text does. `pieces`: u32 of shape (pieces,), ascending, the first byte of
    each piece of the pre-tokenizer; an added token is a piece of its own.
    """

    ids: U32
    starts: U32
    pieces: U32


class Refusal(StrEnum):
    """Why a text has to be encoded on the host. The values are stable."""

    ADDED_TOKENS = "added_tokens"
    """Added tokens overlap, or one of them swallows white space: which of them count takes the reference's rules."""
    NORMALIZATION = "normalization"
    """The normalizer may change this text."""
    PIECE_TOO_LONG = "piece_too_long"
    """The pre-tokenizer leaves a piece that is longer than what a block of threads merges."""
    TEXT_TOO_LONG = "text_too_long"
    """The text is longer than the largest buffer."""
    INVALID_UTF8 = "invalid_utf8"
    """The bytes are no UTF-8."""
    OUT_OF_MEMORY = "out_of_memory"
    """The device has no memory for a text of this size now."""
    DEVICE_ERROR = "device_error"
    """The device failed; every later text is refused too."""


class UnsupportedError(Exception):
    """The kernels cannot serve a tokenizer; the message says why."""


class Encoder(Protocol):
    """One tokenizer on one device. Safe for several threads, which it serves one after the other."""

    def encode(self, texts: Sequence[bytes]) -> list[Encoding | Refusal]:
        """Encode UTF-8 texts, blocking: an answer for each, in their order. As many as the largest buffer holds go in
        one launch. Never raises for what a text holds, or for what the device does."""
        ...
