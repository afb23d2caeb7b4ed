"""Which texts share a launch, how long they wait for it, and what is let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np
import pytest

from gpu_worker.batcher import Batcher, Encoded, Launched, Outcome
from gpu_worker.encoder import Encoding, Refusal
from gpu_worker.reasons import Reason
from gpu_worker.settings import GpuSettings
from pipeline.clock import ManualClock

WAIT_S = 0.5


def encoding(text: bytes) -> Encoding:
    """One token that is the text's length: enough to tell whose answer is whose."""
    ids = np.array([len(text)], np.uint32)
    return Encoding(ids, np.zeros(1, np.uint32), np.zeros(1, np.uint32))


class Device:
    """Launches that the test ends."""

    def __init__(self) -> None:
        self.launches: list[tuple[str, list[bytes]]] = []
        self.held = False
        self.go = asyncio.Event()
        self.result: Exception | Reason | None = None
        self.too_few = False

    async def launch(self, fingerprint: str, texts: Sequence[bytes]) -> Launched | Reason:
        self.launches.append((fingerprint, list(texts)))
        if self.held:
            self.go.clear()
            await self.go.wait()
        if isinstance(self.result, Exception):
            raise self.result
        if isinstance(self.result, Reason):
            return self.result
        answers = [Refusal.NORMALIZATION if text == b"odd" else encoding(text) for text in texts]
        return Launched(answers[self.too_few :], 7)


@asynccontextmanager
async def batching(**settings: float) -> AsyncIterator[tuple[Batcher, Device, ManualClock]]:
    device, clock = Device(), ManualClock()
    batcher = Batcher(device.launch, GpuSettings(**{"batch_wait_s": WAIT_S, **settings}), clock)  # type: ignore[arg-type]
    batcher.start()
    async with asyncio.timeout(20):
        yield batcher, device, clock
    device.go.set()
    clock.advance(100)
    await batcher.stop(1)


def begin(batcher: Batcher, *texts: bytes, fingerprint: str = "f") -> list[asyncio.Task[Outcome]]:
    return [asyncio.create_task(batcher.encode(fingerprint, text)) for text in texts]


async def settled() -> None:
    """Let everything that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


def number(outcome: Outcome) -> int:
    assert isinstance(outcome, Encoded)
    return int(outcome.encoding.ids[0])


async def crowd(batcher: Batcher, device: Device) -> None:
    """A launch of two texts, after which texts wait for company."""
    assert len(await asyncio.gather(*begin(batcher, b"1", b"2"))) == 2
    assert len(device.launches.pop()[1]) == 2


async def test_a_text_that_comes_alone_is_launched_at_once() -> None:
    async with batching() as (batcher, device, _):
        for text in (b"a", b"bc"):
            assert number(await batcher.encode("f", text)) == len(text)
        assert [texts for _, texts in device.launches] == [[b"a"], [b"bc"]]


async def test_what_comes_during_a_launch_shares_the_next_one() -> None:
    async with batching() as (batcher, device, _):
        device.held = True
        (first,) = begin(batcher, b"a")
        await settled()
        rest = begin(batcher, b"bb", b"odd", b"cccc")
        await settled()
        device.held = False
        device.go.set()
        outcomes = await asyncio.gather(first, *rest)
        assert [texts for _, texts in device.launches] == [[b"a"], [b"bb", b"odd", b"cccc"]]
        assert outcomes[2] is Reason.NORMALIZATION
        assert [number(outcomes[at]) for at in (0, 1, 3)] == [1, 2, 4]
        together = outcomes[1]
        assert isinstance(together, Encoded)
        assert (together.launch_us, together.launch_texts, together.launch_bytes) == (7, 3, 9)


async def test_after_a_launch_of_several_texts_one_waits_for_company_and_not_longer_than_that() -> None:
    async with batching() as (batcher, device, clock):
        await crowd(batcher, device)
        (alone,) = begin(batcher, b"abc")
        await settled()
        clock.advance(WAIT_S - 0.01)
        await settled()
        assert device.launches == []
        (company,) = begin(batcher, b"de")
        await settled()
        assert device.launches == []
        clock.advance(0.01)
        assert (number(await alone), number(await company)) == (3, 2)
        assert device.launches == [("f", [b"abc", b"de"])]


@pytest.mark.parametrize("limit", [{"batch_texts_max": 2}, {"batch_bytes_max": 5}])
async def test_a_full_launch_waits_for_nobody(limit: dict[str, float]) -> None:
    async with batching(**limit) as (batcher, device, _):
        await crowd(batcher, device)
        tasks = begin(batcher, b"abc")
        await settled()
        tasks += begin(batcher, b"de")
        assert [number(outcome) for outcome in await asyncio.gather(*tasks)] == [3, 2]
        assert device.launches == [("f", [b"abc", b"de"])]


async def test_a_launch_holds_what_it_may_and_one_text_whatever_its_length() -> None:
    async with batching(batch_bytes_max=5, batch_texts_max=3, batch_wait_s=0) as (batcher, device, _):
        device.held = True
        tasks = begin(batcher, b"x")
        await settled()
        tasks += begin(batcher, b"long text", b"abc", b"de", b"f", b"g", b"h", b"i")
        await settled()
        device.held = False
        device.go.set()
        await asyncio.gather(*tasks)
        assert [texts for _, texts in device.launches] == [
            [b"x"],
            [b"long text"],
            [b"abc", b"de"],
            [b"f", b"g", b"h"],
            [b"i"],
        ]


async def test_a_launch_is_of_one_tokenizer_the_one_that_waits_longest_first() -> None:
    async with batching(batch_wait_s=0) as (batcher, device, _):
        device.held = True
        tasks = begin(batcher, b"x")
        await settled()
        for fingerprint, text in (("g", b"1"), ("f", b"2"), ("g", b"3"), ("f", b"4")):
            tasks += begin(batcher, text, fingerprint=fingerprint)
        await settled()
        device.held = False
        device.go.set()
        await asyncio.gather(*tasks)
        assert device.launches[1:] == [("g", [b"1", b"3"]), ("f", [b"2", b"4"])]


@pytest.mark.parametrize(
    ("limit", "left"),
    [({"waiting_texts_max": 2}, {b"333", b"55555"}), ({"waiting_bytes_max": 8}, {b"333", b"55555"})],
)
async def test_over_a_bound_the_shortest_waiting_text_is_let_go(limit: dict[str, float], left: set[bytes]) -> None:
    async with batching(**limit) as (batcher, device, _):
        device.held = True
        tasks = begin(batcher, b"x")
        await settled()
        tasks += begin(batcher, b"1", b"333", b"22", b"55555")
        await settled()
        assert len(batcher) == 2
        device.held = False
        device.go.set()
        outcomes = await asyncio.gather(*tasks)
        assert set(device.launches[1][1]) == left
        assert [outcome is Reason.SHED for outcome in outcomes] == [False, True, False, True, False]


async def test_whoever_goes_away_is_not_launched() -> None:
    async with batching() as (batcher, device, _):
        device.held = True
        (first,) = begin(batcher, b"a")
        await settled()
        gone, stays = begin(batcher, b"bb", b"cc")
        await settled()
        gone.cancel()
        await settled()
        assert len(batcher) == 1
        device.held = False
        device.go.set()
        await asyncio.gather(first, stays)
        assert [texts for _, texts in device.launches] == [[b"a"], [b"cc"]]


async def test_whoever_goes_away_during_the_launch_harms_nobody() -> None:
    async with batching() as (batcher, device, _):
        device.held = True
        gone, stays = begin(batcher, b"bb", b"ccc")
        await settled()
        gone.cancel()
        await settled()
        device.held = False
        device.go.set()
        assert number(await stays) == 3


async def test_a_deadline_is_looked_at_before_the_launch() -> None:
    async with batching() as (batcher, device, clock):
        now = clock.now_ms()
        assert await batcher.encode("f", b"a", deadline_ms=now - 1) is None
        assert number(await batcher.encode("f", b"a", deadline_ms=now)) == 1
        assert device.launches == [("f", [b"a"])]


@pytest.mark.parametrize("result", [RuntimeError("a fault"), Reason.NOT_SERVED])
async def test_a_launch_that_comes_to_nothing_is_told_to_all_and_the_next_one_runs(result: Exception | Reason) -> None:
    async with batching() as (batcher, device, _):
        device.result = result
        outcomes = await asyncio.gather(*begin(batcher, b"a", b"b"))
        assert outcomes == [result if isinstance(result, Reason) else Reason.FAILED] * 2
        device.result = None
        clockless = await asyncio.gather(*begin(batcher, *[b"c"] * 64))
        assert {number(outcome) for outcome in clockless} == {1}


async def test_answers_of_another_number_than_the_texts_are_not_given_to_anybody() -> None:
    async with batching() as (batcher, device, _):
        device.too_few = True
        assert await asyncio.gather(*begin(batcher, b"a", b"b")) == [Reason.FAILED] * 2
