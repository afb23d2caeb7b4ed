"""The tokenizers that are on the device: put there one after the other behind the answers, and gone when it fails.

A bounded number of the registered tokenizers is served. Which ones can be is found out by trying: what the kernels do
not understand is noted and not tried again. When the device fails all of them are gone; now and then it is opened
anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from gpu_worker.encoder import Encoder, UnsupportedError
from pipeline.clock import Clock
from pipeline.failures import without_words
from pipeline.tokenizers import TokenizerSource, fingerprints
from pipeline.waiting import cancel
from toksplice import Tokenizer

MakeEncoder = Callable[[Tokenizer], Encoder]
"""Puts a tokenizer on the device. Blocks for seconds; raises `UnsupportedError`, and anything when the device fails."""

OpenDevice = Callable[[], MakeEncoder]
"""Finds the device. Blocks; raises anything when there is none."""


class RunBlocking(Protocol):
    """`Context.run_blocking`."""

    def __call__(self, fn: Callable[..., Any], *args: Any) -> Awaitable[Any]: ...


RETRY_S_MAX: Final = 3_600.0
"""Longest pause before a tokenizer that could not be put on the device is tried again; pauses double up to it."""

_log = logging.getLogger(__name__)


class Encoders:
    """Encoders by fingerprint. All of it belongs to the event loop's thread, but for what blocks."""

    def __init__(
        self,
        open_device: OpenDevice,
        tokenizers: TokenizerSource,
        *,
        run_blocking: RunBlocking,
        clock: Clock,
        tokenizers_max: int,
        rescan_s: float,
    ) -> None:
        self._open_device = open_device
        self._tokenizers = tokenizers
        self._run_blocking = run_blocking
        self._clock = clock
        self._tokenizers_max = tokenizers_max
        self._rescan_s = rescan_s
        self._make: MakeEncoder | None = None
        self._encoders: dict[str, Encoder] = {}
        self._refused: set[str] = set()
        self._retries: dict[str, tuple[float, float]] = {}
        """By fingerprint, when one that failed is tried again, and the pause before that; monotonic seconds."""
        self._said_full = False
        self._task: asyncio.Task[None] | None = None
        self.complete = asyncio.Event()
        """Set once every registered tokenizer was looked at, until the device fails."""

    async def open(self) -> None:
        """Find the device, and begin to put tokenizers on it. Raises what `open_device` raises."""
        self._make = await self._run_blocking(self._open_device)
        self._task = asyncio.create_task(self._keep(), name="gpu tokenizers")

    async def close(self, limit_s: float) -> None:
        """Put no more on the device, and let go of what is there."""
        if self._task is not None:
            await cancel([self._task], limit_s, self._clock)
        self._encoders.clear()
        self._make = None

    @property
    def is_lost(self) -> bool:
        """Whether the device failed and was not found again."""
        return self._make is None

    @property
    def served(self) -> tuple[str, ...]:
        """Fingerprints of the tokenizers on the device."""
        return tuple(sorted(self._encoders))

    def get(self, fingerprint: str) -> Encoder | None:
        """The encoder of a tokenizer, None when it is not on the device."""
        return self._encoders.get(fingerprint)

    def lose(self) -> None:
        """The device failed: nothing that is on it can be trusted to work."""
        if self._make is not None:
            _log.error("the device failed: texts go to the cpu until it can be opened again")
        self._make = None
        self._encoders.clear()
        self._refused.clear()
        self._retries.clear()
        self.complete.clear()

    # Behind the answers

    async def _keep(self) -> None:
        while True:
            try:
                await self._scan()
            except Exception as error:
                _log.error("tokenizers could not be looked for: %s", without_words(error))
            await self._clock.sleep(self._rescan_s)

    async def _scan(self) -> None:
        """Open the device if it is lost, then put on it what is registered and not there yet."""
        if self._make is None:
            try:
                self._make = await self._run_blocking(self._open_device)
            except Exception as error:
                _log.warning("the device cannot be opened: %s", without_words(error))
                return
            _log.info("the device is there again")
        make = self._make
        for fingerprint in await self._run_blocking(fingerprints, self._tokenizers):
            if fingerprint in self._encoders or fingerprint in self._refused or self._is_put_off(fingerprint):
                continue
            if len(self._encoders) >= self._tokenizers_max:
                self._say_full()
                break
            encoder = await self._made(make, fingerprint)
            if self._make is not make:
                return  # lost meanwhile
            if encoder is not None:
                self._encoders[fingerprint] = encoder
        self.complete.set()

    async def _made(self, make: MakeEncoder, fingerprint: str) -> Encoder | None:
        name = self._tokenizers.name_of(fingerprint) or fingerprint[:12]
        try:
            encoder: Encoder = await self._run_blocking(_make_encoder, make, self._tokenizers, fingerprint)
        except UnsupportedError as error:
            _log.info("tokenizer %s is left to the cpu: %s", name, error)
            self._refused.add(fingerprint)
            return None
        except Exception as error:
            _log.warning("tokenizer %s is not on the device yet: %s", name, without_words(error))
            self._put_off(fingerprint)
            return None
        _log.info("tokenizer %s is on the device", name)
        return encoder

    def _is_put_off(self, fingerprint: str) -> bool:
        due_s, _ = self._retries.get(fingerprint, (0.0, 0.0))
        return self._clock.monotonic_s() < due_s

    def _put_off(self, fingerprint: str) -> None:
        """Compiling takes seconds, so that what fails each time must not be tried each time."""
        _, before_s = self._retries.get(fingerprint, (0.0, self._rescan_s / 2))
        pause_s = min(2 * before_s, RETRY_S_MAX)
        self._retries[fingerprint] = self._clock.monotonic_s() + pause_s, pause_s

    def _say_full(self) -> None:
        if not self._said_full:
            self._said_full = True
            _log.info("%d tokenizers are on the device, and that is the limit (said once)", self._tokenizers_max)


def _make_encoder(make: MakeEncoder, tokenizers: TokenizerSource, fingerprint: str) -> Encoder:
    """Blocking: load the tokenizer and put it on the device."""
    tokenizer = tokenizers.get(fingerprint)
    if tokenizer.native is None:
        # Its sessions could only be handed over to the reference, which would encode every change in full.
        raise UnsupportedError("the native engine does not serve it, so that its sessions could not be repaired")
    return make(tokenizer)
