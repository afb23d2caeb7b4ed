"""Which tokenizers are on the device, and what becomes of them."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from gpu_kit import FakeDevice
from worker_kit import tiny, tiny_json

import toksplice
from gpu_worker.encoder import Encoder
from gpu_worker.encoders import RETRY_S_MAX, Encoders
from pipeline.clock import ManualClock

RESCAN_S = 30.0


class Registry:
    """Tokenizers by name; each name is its own fingerprint."""

    def __init__(self, *names: str) -> None:
        self.registered = list(names)
        self.broken: Exception | None = None

    def names(self) -> tuple[str, ...]:
        if self.broken is not None:
            raise self.broken
        return tuple(self.registered)

    def resolve(self, name_or_fingerprint: str) -> str:
        return name_or_fingerprint

    def name_of(self, fingerprint_hex: str) -> str:
        return fingerprint_hex

    def get(self, fingerprint_hex: str) -> toksplice.Tokenizer:
        if fingerprint_hex == "slow":
            return tiny(engine=False)
        return toksplice.load(tiny_json(), name=fingerprint_hex)


async def _run_here(fn: Callable[..., Any], *args: Any) -> Any:
    await asyncio.sleep(0)
    return fn(*args)


@asynccontextmanager
async def opened(
    registry: Registry, device: FakeDevice, tokenizers_max: int = 9
) -> AsyncIterator[tuple[Encoders, ManualClock]]:
    clock = ManualClock()
    encoders = Encoders(
        device.open,
        registry,
        run_blocking=_run_here,
        clock=clock,
        tokenizers_max=tokenizers_max,
        rescan_s=RESCAN_S,
    )
    async with asyncio.timeout(20):
        await encoders.open()
        await clock.sleeping(1)
        yield encoders, clock
    closing = asyncio.create_task(encoders.close(1))
    await asyncio.sleep(0)
    await closing


async def look_again(clock: ManualClock) -> None:
    clock.advance(RESCAN_S)
    await clock.sleeping(1)


async def test_every_registered_tokenizer_is_put_on_the_device_new_ones_later() -> None:
    registry, device = Registry("a", "b"), FakeDevice()
    async with opened(registry, device) as (encoders, clock):
        assert encoders.served == ("a", "b")
        assert encoders.get("a") is not None
        assert encoders.get("c") is None
        registry.registered.append("c")
        await look_again(clock)
        assert encoders.served == ("a", "b", "c")
        assert device.made == ["a", "b", "c"]


async def test_what_the_kernels_do_not_understand_is_tried_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    device = FakeDevice(unsupported=["b"])
    async with opened(Registry("a", "b", "slow"), device) as (encoders, clock):
        await look_again(clock)
        assert encoders.served == ("a",)
        told = [record.getMessage() for record in caplog.records if "left to the cpu" in record.getMessage()]
        assert len(told) == 2
        assert "made by a test" in told[0]
        assert "native engine" in told[1]


async def test_what_fails_for_another_reason_is_tried_again_after_pauses_that_double(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    device = FakeDevice()
    made, tries = device.make, []

    def make(tokenizer: toksplice.Tokenizer) -> Encoder:
        tries.append(round(clock.monotonic_s() / RESCAN_S))
        if len(tries) <= 3:
            raise MemoryError("secret")
        return made(tokenizer)

    registry = Registry()
    monkeypatch.setattr(device, "make", make)
    async with opened(registry, device) as (encoders, clock):
        registry.registered.append("a")
        for _ in range(8):
            assert encoders.served == ()
            await look_again(clock)
        assert tries == [1, 2, 4, 8]
        assert encoders.served == ("a",)
    assert "secret" not in caplog.text


async def test_the_pause_before_another_try_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    device, tries = FakeDevice(), []

    def make(tokenizer: toksplice.Tokenizer) -> Encoder:
        tries.append(clock.monotonic_s())
        raise MemoryError

    registry = Registry()
    monkeypatch.setattr(device, "make", make)
    async with opened(registry, device) as (_, clock):
        registry.registered.append("a")
        while clock.monotonic_s() < 6 * RETRY_S_MAX:
            await look_again(clock)
    pauses = [after - before for before, after in itertools.pairwise(tries)]
    assert pauses[-1] == pauses[-2] == RETRY_S_MAX


async def test_the_number_of_tokenizers_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with opened(Registry("a", "b", "c"), FakeDevice(), tokenizers_max=2) as (encoders, clock):
        await look_again(clock)
        assert encoders.served == ("a", "b")
        assert sum("that is the limit" in record.getMessage() for record in caplog.records) == 1


async def test_a_registry_that_cannot_be_read_is_read_again() -> None:
    registry = Registry("a")
    registry.broken = OSError("secret")
    async with opened(registry, FakeDevice()) as (encoders, clock):
        assert encoders.served == ()
        assert not encoders.complete.is_set()
        registry.broken = None
        await look_again(clock)
        assert encoders.served == ("a",)
        assert encoders.complete.is_set()


async def test_a_device_that_failed_is_opened_again_with_all_that_was_on_it() -> None:
    device = FakeDevice()
    async with opened(Registry("a"), device) as (encoders, clock):
        encoders.lose()
        encoders.lose()
        assert encoders.is_lost
        assert encoders.served == ()
        device.missing = RuntimeError("away")
        await look_again(clock)
        assert encoders.is_lost
        device.missing = None
        await look_again(clock)
        assert not encoders.is_lost
        assert encoders.served == ("a",)
        assert device.made == ["a", "a"]


async def test_a_tokenizer_made_for_a_device_that_failed_meanwhile_is_not_used() -> None:
    device, lost = FakeDevice(), asyncio.Event()
    registry = Registry("a")
    async with opened(registry, device) as (encoders, clock):
        made = device.make

        def make(tokenizer: toksplice.Tokenizer) -> Encoder:
            encoder = made(tokenizer)
            if not lost.is_set():
                lost.set()
                encoders.lose()
            return encoder

        device.make = make  # type: ignore[method-assign]
        encoders.lose()
        await look_again(clock)
        assert lost.is_set()
        assert encoders.served == ()
        await look_again(clock)
        assert encoders.served == ("a",)
