"""The shadow service on a bench: which tier judges, what a budget costs, and what follows from a wrong answer."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from families import family
from pipeline_kit import make_registry
from shadow_kit import GUARD_S, TEXT, WRONG, TellingShadow, sample, u32, with_wrong_id
from worker_kit import PARTITIONS, Bench, bench

from pipeline.errors import BrokerUnavailableError, SettingsError
from pipeline.settings import from_env
from schemas.errors import ProtocolError
from schemas.health import ALL_TOKENIZERS, Control
from schemas.reply import Route
from schemas.sample import DifferenceKind, Finding, Sample, Tier
from schemas.topics import CONTROL, QUARANTINE, REPAIR, SHADOW, partition_for, session_key
from schemas.work import Drop
from shadow.judges import Judges
from shadow.service import ENGINE_SHARE
from shadow.settings import ShadowSettings

BURST_S = 5.0
PLANTED = "planted secret"
_REFUSING = """
import sys
from shadow import frames
asked = open(sys.argv[1], "a")
while frames.read_map(sys.stdin.buffer) and frames.read(sys.stdin.buffer):
    print("asked", file=asked, flush=True)
    frames.write_map(sys.stdout.buffer, {"error": "no_engine", "cpu_s": 0.0})
    sys.stdout.buffer.flush()
"""
SERVES_NOTHING = (sys.executable, "-c", _REFUSING)
"""An engine's judge for a tokenizer that no engine serves; it notes each question in the file that it is given."""


@asynccontextmanager
async def shadow(folder: Path, **changes: Any) -> AsyncIterator[tuple[Bench, TellingShadow]]:
    record_bytes = changes.pop("record_bytes", 32 * 1024 * 1024)
    service = TellingShadow(make_registry(folder), folder, **changes)
    async with bench(service, record_bytes=record_bytes, sampling=0.25) as it:
        yield it, service


async def hand(it: Bench, *samples: Sample) -> None:
    for one in samples:
        await it.service.handle(it.record(one.encode(), SHADOW))


def checked(it: Bench, tier: str, result: str) -> float:
    return it.count("toksplice.shadow.checked", tokenizer="test", path="repair", tier=tier, result=result)


def gauge(it: Bench, name: str) -> float:
    (point,) = it.telemetry.metric_points(name)
    return float(point.value)  # type: ignore[union-attr]


def findings(it: Bench) -> list[Finding]:
    return [Finding.decode(sent.value or b"") for sent in it.sent(QUARANTINE)]


async def test_right_answers_are_counted_and_nothing_else_happens(tmp_path: Path) -> None:
    async with shadow(tmp_path) as (it, service):
        it.clock.advance(2.5)
        await hand(it, sample(), sample("", special=True), sample(TEXT + "é", special=True))
        assert checked(it, "reference", "equal") == 3
        assert gauge(it, "toksplice.shadow.lag") == 2.5
        assert gauge(it, "toksplice.shadow.coverage") == 1
        assert it.producer.sent == []
        assert it.count("toksplice.shadow.mismatches") == 0
        assert not await asyncio.to_thread(service._store.path.exists)


async def test_a_wrong_answer_has_every_consequence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wrong = replace(with_wrong_id(text=PLANTED + TEXT), tenant="acme")
    caplog.set_level(logging.ERROR)
    async with shadow(tmp_path) as (it, service):
        with it.telemetry.span("process"):
            await hand(it, wrong)
        assert checked(it, "reference", "different") == 1
        labels = {"tokenizer": "test", "path": "repair", "route": "A", "kind": "substituted"}
        assert it.count("toksplice.shadow.mismatches", **labels) == 1
        (switched,) = it.sent(CONTROL)
        assert switched.key == wrong.fingerprint.encode()
        assert Control.decode(switched.value or b"") == Control(
            tokenizer=wrong.fingerprint, breaker_open=True, sampling=None
        ), "each worker goes on at its own rate, which need not be that of this one"
        (dropped,) = it.sent(REPAIR)
        assert Drop.decode(dropped.value or b"") == Drop(tenant="acme", session_id="s", fingerprint=wrong.fingerprint)
        assert dropped.partition == partition_for(session_key("acme", "s"), PARTITIONS)
        (found,) = findings(it)
        assert (found.sample, found.tier, found.kind) == (wrong, Tier.REFERENCE, DifferenceKind.SUBSTITUTED)
        assert (found.index, found.answer_id, found.worker, found.redacted) == (3, WRONG, "worker-1", False)
        assert await service._store.get("sample-1") == found
        (record,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
        assert "substituted at token 3; sample sample-1" in record.getMessage()
        assert PLANTED not in record.getMessage()
        (span,) = (span for span in it.telemetry.finished_spans() if span.name == "process")
        (event,) = span.events
        assert event.name == "toksplice.shadow.mismatch"
        assert dict(event.attributes or {})["toksplice.kind"] == "substituted"
        assert PLANTED not in str([event.attributes, span.attributes])
        assert not span.status.is_ok


async def test_a_rate_that_was_set_stays_when_a_breaker_opens(tmp_path: Path) -> None:
    async with shadow(tmp_path) as (it, _):
        control = Control(tokenizer=sample().fingerprint, breaker_open=False, sampling=0.5)
        it.control.apply(it.record(control.encode(), CONTROL))
        await hand(it, with_wrong_id())
        (switched,) = it.sent(CONTROL)
        assert Control.decode(switched.value or b"").sampling == 0.5


async def test_an_open_breaker_is_not_opened_again_and_a_one_off_has_no_session_to_drop(tmp_path: Path) -> None:
    async with shadow(tmp_path) as (it, _):
        control = Control(tokenizer=sample().fingerprint, breaker_open=True, sampling=1.0)
        it.control.apply(it.record(control.encode(), CONTROL))
        await hand(it, replace(with_wrong_id(), session_id=""))
        assert it.sent(CONTROL) == []
        assert it.sent(REPAIR) == []
        assert len(findings(it)) == 1


async def test_the_breaker_of_all_does_not_stand_in_for_the_tokenizer_s_own(tmp_path: Path) -> None:
    async with shadow(tmp_path) as (it, _):
        control = Control(tokenizer=ALL_TOKENIZERS, breaker_open=True, sampling=0.5)
        it.control.apply(it.record(control.encode(), CONTROL))
        await hand(it, with_wrong_id())
        (opened,) = it.sent(CONTROL)
        own = Control.decode(opened.value or b"")
        assert (own.tokenizer, own.breaker_open, own.sampling) == (sample().fingerprint, True, None)


@pytest.mark.parametrize("topic", [CONTROL, REPAIR, QUARANTINE])
async def test_what_a_broker_refuses_is_done_when_the_sample_comes_again(topic: str, tmp_path: Path) -> None:
    async with shadow(tmp_path) as (it, service):
        it.producer.fail_next(topic)
        with pytest.raises(BrokerUnavailableError):
            await hand(it, with_wrong_id())
        await hand(it, with_wrong_id())
        assert {sent.topic for sent in it.producer.sent} == {CONTROL, REPAIR, QUARANTINE}
        assert len(await service._store.list()) == 1
        assert it.count("toksplice.shadow.mismatches") == 1


async def test_what_was_found_is_not_left_to_a_second_check(tmp_path: Path) -> None:
    """The broker fails after the check, and by the next try the budget is spent."""
    async with shadow(tmp_path) as (it, service):
        record = it.record(with_wrong_id().encode(), SHADOW)
        it.producer.fail_next(CONTROL)
        with pytest.raises(BrokerUnavailableError):
            await service.handle(record)
        for budget in service._budgets.values():
            budget.charge(1_000_000)
        await service.handle(record)
        assert {sent.topic for sent in it.producer.sent} == {CONTROL, REPAIR, QUARANTINE}
        assert findings(it)[0].tier is Tier.REFERENCE
        assert checked(it, "reference", "different") == 1
        assert service.health().counts["samples"] == 1
        await service.handle(record)
        assert it.count("toksplice.shadow.dropped", reason="budget") == 1, "only until it has had its consequences"


async def test_what_was_found_goes_with_its_partition(tmp_path: Path) -> None:
    async with shadow(tmp_path) as (it, service):
        record = it.record(with_wrong_id().encode(), SHADOW)
        it.producer.fail_next(CONTROL)
        with pytest.raises(BrokerUnavailableError):
            await service.handle(record)
        await service.partitions_lost(frozenset({record.partition}))
        assert service._found == {}


async def test_texts_can_be_kept_out_of_everything(tmp_path: Path) -> None:
    async with shadow(tmp_path, text_policy="redact") as (it, service):
        await hand(it, with_wrong_id(text=PLANTED + TEXT))
        (found,) = findings(it)
        assert (found.redacted, found.sample.text, found.sample.ids, found.text_bytes) == (
            True,
            b"",
            b"",
            len(PLANTED + TEXT),
        )
        assert await service._store.get("sample-1") == found
        assert not [sent for sent in it.producer.sent if PLANTED.encode() in (sent.value or b"")]


async def test_a_finding_that_does_not_fit_a_record_goes_out_without_its_text(tmp_path: Path) -> None:
    """And whole into the file: the sample had filled its record."""
    async with shadow(tmp_path, record_bytes=256 * 1024) as (it, service):
        limit = it.ctx.write_limits.record_bytes
        wrong = with_wrong_id(text="fox " * 6_000)
        filled = replace(wrong, offsets=bytes(8 * ((limit - len(wrong.encode()) - 20) // 8)))
        assert limit - 60 < len(filled.encode()) <= limit
        await hand(it, filled)
        (found,) = findings(it)
        assert found.redacted
        stored = await service._store.get("sample-1")
        assert stored is not None
        assert stored.sample == filled


async def test_a_full_disk_does_not_keep_the_breaker_from_opening(tmp_path: Path) -> None:
    async with shadow(tmp_path) as (it, service):
        service._store.path = tmp_path / "registry" / "names.json" / "quarantine.sqlite"
        await hand(it, with_wrong_id())
        assert {sent.topic for sent in it.producer.sent} == {CONTROL, REPAIR, QUARANTINE}
        assert "cannot be used" in it.service.health().detail


async def test_what_the_reference_s_budget_does_not_pay_for_the_engine_judges(tmp_path: Path) -> None:
    async with shadow(tmp_path, cpu_share=0.5, cpu_burst_s=BURST_S) as (it, service):
        await hand(it, sample())
        service._budgets[Tier.REFERENCE].charge(BURST_S)
        await hand(it, sample(), with_wrong_id())
        assert checked(it, "reference", "equal") == 1
        assert checked(it, "engine", "equal") == 1
        assert checked(it, "engine", "different") == 1
        assert findings(it)[0].tier is Tier.ENGINE
        assert gauge(it, "toksplice.shadow.coverage") == pytest.approx(1 / 3)
        it.clock.advance(BURST_S / (0.5 * (1 - ENGINE_SHARE)))
        await hand(it, sample())
        assert checked(it, "reference", "equal") == 2
        assert gauge(it, "toksplice.shadow.coverage") == 0.5


async def test_a_check_takes_what_it_cost_from_the_budget(tmp_path: Path) -> None:
    """Loading the tokenizer alone takes more than this budget ever has."""
    async with shadow(tmp_path, cpu_share=0.5, cpu_burst_s=0.001) as (it, _):
        by_reference = replace(sample(), route=Route.D)
        await hand(it, by_reference, by_reference)
        assert (checked(it, "reference", "equal"), checked(it, "engine", "equal")) == (1, 1)


async def test_what_neither_budget_pays_for_is_dropped_and_counted(tmp_path: Path) -> None:
    async with shadow(tmp_path, cpu_share=0.0) as (it, _):
        await hand(it, sample(), with_wrong_id())
        assert it.count("toksplice.shadow.dropped", reason="budget") == 2
        assert gauge(it, "toksplice.shadow.coverage") == 0
        assert it.producer.sent == []


async def test_the_engine_judges_only_what_it_serves(tmp_path: Path) -> None:
    async with shadow(tmp_path) as (it, service):
        service._budgets[Tier.REFERENCE].charge(1000)
        notes = tmp_path / "notes"
        command = (*SERVES_NOTHING, str(notes))
        service.judges[Tier.ENGINE] = Judges(it.clock, processes=1, limit_s=GUARD_S, command=command)
        await hand(it, sample(), sample())
        assert it.count("toksplice.shadow.dropped", reason="budget") == 2
        assert await asyncio.to_thread(notes.read_text) == "asked\n", "it is known from then on"
        assert checked(it, "engine", "equal") == 0


async def test_a_sample_whose_judge_dies_is_counted_as_failed_and_the_next_one_is_judged(tmp_path: Path) -> None:
    async with shadow(tmp_path) as (it, service):
        await hand(it, sample())
        (judge,) = service.judges[Tier.REFERENCE].all
        assert judge.pid is not None
        os.kill(judge.pid, signal.SIGKILL)
        await hand(it, with_wrong_id(), with_wrong_id())
        assert checked(it, "reference", "failed") == 1
        assert checked(it, "reference", "different") == 1
        assert it.count("toksplice.shadow.dropped") == 0


async def test_a_text_that_is_none_is_counted_as_failed_by_either_tier(tmp_path: Path) -> None:
    async with shadow(tmp_path) as (it, service):
        await hand(it, replace(sample(), text=b"\xff"))
        service._budgets[Tier.REFERENCE].charge(1000)
        await hand(it, replace(sample(), text=b"\xff"))
        assert (checked(it, "reference", "failed"), checked(it, "engine", "failed")) == (1, 1)


async def test_a_tokenizer_that_is_not_registered_here_is_counted(tmp_path: Path) -> None:
    async with shadow(tmp_path) as (it, _):
        await hand(it, replace(sample(), fingerprint="e" * 64))
        assert it.count("toksplice.shadow.dropped", reason="unknown_tokenizer") == 1


async def test_a_record_that_is_no_sample_is_a_dead_letter(tmp_path: Path) -> None:
    async with shadow(tmp_path) as (it, _):
        broken_behind_its_head = sample().encode() + b"\xc1"
        for value in (None, b"\xc1", Drop(session_id="s", fingerprint="f").encode(), broken_behind_its_head):
            with pytest.raises(ProtocolError):
                await it.service.handle(it.record(value, SHADOW))


async def test_wrong_offsets_and_first_changes_are_found(tmp_path: Path) -> None:
    spans = family("qwen", engine=False).session(TEXT).offsets()
    spans[4] += 1
    async with shadow(tmp_path) as (it, _):
        await hand(it, sample(offsets=u32(spans)), replace(sample(), sample_id="2", first_changed=9, same_until=8))
        assert [found.kind for found in findings(it)] == [DifferenceKind.OFFSETS, DifferenceKind.FIRST_CHANGED]


async def test_a_wrong_place_to_resume_is_found_behind_a_right_answer(tmp_path: Path) -> None:
    right = family("qwen").session(TEXT).restarts
    assert right is not None
    async with shadow(tmp_path) as (it, _):
        await hand(it, sample(restarts=right))
        assert findings(it) == []
        await hand(it, sample(restarts=bytes([right[0] ^ 2]) + right[1:]))
        (found,) = findings(it)
        assert (found.tier, found.kind, found.index) == (Tier.ENGINE, DifferenceKind.RESTARTS, 1)
        assert checked(it, "reference", "equal") == 2
        assert checked(it, "engine", "different") == 1
        assert len(it.sent(REPAIR)) == 1, "its session is dropped"


def test_settings_that_make_no_sense_are_named() -> None:
    with pytest.raises(SettingsError, match="TOKSPLICE_SHADOW_TEXT"):
        from_env(ShadowSettings, {"TOKSPLICE_SHADOW_TEXT": "burn"})
    assert from_env(ShadowSettings, {"TOKSPLICE_SHADOW_TEXT": "redact"}).text_policy == "redact"
    with pytest.raises(SettingsError, match="TOKSPLICE_SHADOW_PRIORITY"):
        from_env(ShadowSettings, {"TOKSPLICE_SHADOW_PRIORITY": "high"})
