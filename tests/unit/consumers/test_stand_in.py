"""What is passed on when no GPU worker is there."""

from __future__ import annotations

import pytest
from worker_kit import bench, work

from consumers.cpu_fallback.stand_in import StandInService
from pipeline.errors import BrokerUnavailableError
from schemas.errors import ProtocolError
from schemas.request import Base, Op
from schemas.topics import CPU, GPU, REPLIES
from schemas.work import Adopt, Work


async def test_everything_goes_on_to_the_cpu_with_its_reason() -> None:
    async with bench(StandInService()) as it:
        given = [
            work("r1", text="x" * 5_000, hops=1),
            work("r2", text="short", session_id="", deadline_ms=1),
            work("r3", Op.APPEND, text="x", base=Base(revision=1, length=1)),
        ]
        for one in given:
            assert await it.handle(one) is None
        for one, onward in zip(given, it.passed_on(CPU), strict=True):
            assert isinstance(onward, Work)
            assert (onward.request, onward.received_us) == (one.request, one.received_us)
            assert (onward.reason, onward.hops) == ("gpu_worker_gone", one.hops + 1)
        assert it.sent(REPLIES) == []
        assert it.count("toksplice.fallbacks", reason="gpu_worker_gone") == 3


async def test_it_waits_for_the_acknowledgement() -> None:
    async with bench(StandInService()) as it:
        it.producer.fail_next(CPU)
        with pytest.raises(BrokerUnavailableError):
            await it.handle(work("r1", text="x"))


async def test_records_that_do_not_belong_here_are_refused() -> None:
    async with bench(StandInService()) as it:
        with pytest.raises(ProtocolError):
            await it.handle(Adopt(session_id="s", fingerprint="f", epoch=1, revision=1, state=b"x"))
        for value in (None, b"\xc1"):
            with pytest.raises(ProtocolError):
                await it.service.handle(it.record(value, GPU))
