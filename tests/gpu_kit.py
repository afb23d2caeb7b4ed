"""An honest stand-in for an encoder on a device: the reference tokenizes, and a test says what fails.

It gives what the kernels give, ids, first bytes and pieces, made by other means, so that the worker around it can be
tested where there is neither a device nor a compiler. The kernels have tests of their own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from gpu_worker.encoder import Encoder, Encoding, Refusal, UnsupportedError
from gpu_worker.encoders import MakeEncoder
from gpu_worker.service import GpuService
from pipeline.service import ServiceHealth
from schemas.health import Cost
from toksplice import Tokenizer


async def until(condition: Callable[[], bool], *, every_s: float = 0) -> None:
    """Let others run until `condition` holds, which a thread, a process or another task brings about."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody that it happened
            await asyncio.sleep(every_s)


FREE = Cost(fixed_us=0, mib_us=0, record_us=0)


class EagerGpu(GpuService):
    """A GPU worker that says that it takes no time: what stands in for its device takes longer than the CPU, and the
    classifier would rightly leave it alone."""

    def health(self) -> ServiceHealth:
        health = super().health()
        return replace(health, costs=dict.fromkeys(health.tokenizers, FREE))


class ReferenceEncoder:
    """An encoder that has the reference encode. Notes its launches; `refusals` are given for texts that hold them."""

    def __init__(self, tokenizer: Tokenizer, device: FakeDevice) -> None:
        self._tokenizer = tokenizer
        self._device = device
        self._length = _lengths(tokenizer)

    def encode(self, texts: Sequence[bytes]) -> list[Encoding | Refusal]:
        self._device.launched(texts)
        return [self._device.answered(self._one(text)) for text in texts]

    def _one(self, text: bytes) -> Encoding | Refusal:
        for needle, refusal in self._device.refusals.items():
            if needle in text:
                return refusal
        found = self._tokenizer.reference.encode(text.decode())
        # The reference widens the spans of tokens inside a character to all of it; the kernels do not.
        starts = _tiled(self._length, found.ids)
        return Encoding(found.ids, starts, starts)


class FakeDevice:
    """A device that a test can break, and whose launches it can hold back."""

    def __init__(self, *, unsupported: Iterable[str] = ()) -> None:
        self.launches: list[list[bytes]] = []
        self.refusals: dict[bytes, Refusal] = {}
        self.errors: list[Exception] = []
        """Raised by the next launches."""
        self.opened = 0
        self.missing: Exception | None = None
        """Raised while the device is opened."""
        self.unsupported = frozenset(unsupported)
        """Names of tokenizers that the kernels do not understand."""
        self.made: list[str] = []
        self.go = threading.Event()
        """Launches wait for it."""
        self.go.set()

    def open(self) -> MakeEncoder:
        self.opened += 1
        if self.missing is not None:
            raise self.missing
        return self.make

    def make(self, tokenizer: Tokenizer) -> Encoder:
        if tokenizer.name in self.unsupported:
            raise UnsupportedError("made by a test")
        self.made.append(tokenizer.name)
        return ReferenceEncoder(tokenizer, self)

    def answered(self, answer: Encoding | Refusal) -> Encoding | Refusal:
        """What a device makes of the right answer."""
        return answer

    def launched(self, texts: Sequence[bytes]) -> None:
        self.launches.append(list(texts))
        if not self.go.wait(20):
            raise TimeoutError("the test never let the launch go")
        if self.errors:
            raise self.errors.pop(0)


def _tiled(length: Callable[[int], int], ids: np.ndarray) -> np.ndarray:
    """First bytes of tokens that tile their text: sums of the lengths of what they spell."""
    ends = np.cumsum([length(int(token)) for token in ids], dtype=np.uint32)
    return np.concatenate([np.zeros(min(1, len(ids)), np.uint32), ends[:-1]]).astype(np.uint32)


def _lengths(tokenizer: Tokenizer) -> Callable[[int], int]:
    """Bytes that a token of a byte-level vocabulary, or an added token, takes of the text."""
    added = {token.content for token in tokenizer.reference._tokenizer.get_added_tokens_decoder().values()}

    def length(token: int) -> int:
        spelled = tokenizer.reference.token(token)
        assert spelled is not None
        return len(spelled.encode()) if spelled in added else len(spelled)

    return length
