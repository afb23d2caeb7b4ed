"""Why a text leaves the GPU worker for the CPU: a bounded set, since it is part of the reply and a label of metrics."""

from __future__ import annotations

from enum import StrEnum

from gpu_worker.encoder import Refusal


class Reason(StrEnum):
    """The worker's own reasons, and those of `Refusal` with `gpu_` before them."""

    SHORT_TEXT = "short_text"
    """It is under the threshold."""
    BREAKER_OPEN = "breaker_open"
    """Only the reference may answer for its tokenizer."""
    NOT_SERVED = "gpu_not_served"
    """Its tokenizer is not on the device, or not yet."""
    SHED = "gpu_shed"
    """More waits than may, and this text was the shortest."""
    FAILED = "gpu_failed"
    """The worker itself failed on it."""
    ADDED_TOKENS = "gpu_added_tokens"
    NORMALIZATION = "gpu_normalization"
    PIECE_TOO_LONG = "gpu_piece_too_long"
    TEXT_TOO_LONG = "gpu_text_too_long"
    INVALID_UTF8 = "gpu_invalid_utf8"
    OUT_OF_MEMORY = "gpu_out_of_memory"
    DEVICE_ERROR = "gpu_device_error"

    @classmethod
    def of(cls, refusal: Refusal) -> Reason:
        """The reason that an encoder gave."""
        return cls(f"gpu_{refusal.value}")
