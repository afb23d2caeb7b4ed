"""What the live page says: changes between readings, quantiles, shares, alerts; and the same for a Prometheus."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from cli.live.alerts import CONSUMER_LAG_MAX, EVENTS_S, RULES, Alerts, Rule
from cli.live.exposition import exposition, family_name
from cli.live.history import SPAN_S, STEP_S, Histogram, History, Reading
from cli.live.page import Board, content_security_policy
from cli.live.view import view
from pipeline.clock import ManualClock
from pipeline.readings import Kind
from pipeline.telemetry import Telemetry

PAGE = Path(__file__).parents[3] / "cli/live/page.html"
MADE = {"path": "repair", "route": "A", "engine": "native", "tokenizer": "qwen3", "reason": "session_operation"}


class Watch:
    """A board whose readings a test takes by hand."""

    def __init__(self, workers: int = 1) -> None:
        self.clock = ManualClock()
        self.telemetries = [Telemetry.in_memory(instance=str(n)) for n in range(workers)]
        self.telemetry = self.telemetries[0]
        self.history = History()
        self.alerts = Alerts()
        self.read()

    def read(self, after_s: float = 0) -> None:
        self.clock.advance(after_s)
        points = [point for telemetry in self.telemetries for point in telemetry.points()]
        self.history.note(Reading.of(self.clock.monotonic_s(), points))

    def firing(self, after_s: float = 0) -> dict[str, str]:
        self.read(after_s)
        found = self.alerts.judge(self.clock.monotonic_s(), self.history)
        return {alert["name"]: alert["state"] for alert in found}

    def view(self) -> dict[str, object]:
        return view(self.history, [], now_ms=self.clock.now_ms(), up_s=0)

    def answer(self, count: int = 1, **labels: str) -> None:
        self.telemetry.requests.add(count, {**MADE, "status": "ok", **labels})


# Changes


def test_a_change_is_what_happened_between_two_readings() -> None:
    watch = Watch()
    watch.answer(3)
    watch.read(STEP_S)
    watch.answer(2)
    watch.answer(5, path="cpu")
    watch.read(STEP_S)
    recent = watch.history.since(STEP_S)
    assert recent.seconds == STEP_S
    assert recent.increase("toksplice.requests", ("path",)) == {("repair",): 2, ("cpu",): 5}
    assert watch.history.since(2 * STEP_S).total("toksplice.requests", path="repair") == 5
    assert watch.history.ever().total("toksplice.requests") == 10
    assert recent.total("toksplice.requests", path="gpu") == 0
    assert recent.increase("toksplice.nothing") == {}


def test_workers_are_added_up() -> None:
    watch = Watch(workers=2)
    for number, telemetry in enumerate(watch.telemetries):
        telemetry.replays.add(1)
        telemetry.sessions.set(10 + number)
        telemetry.request_duration.record(0.001, MADE)
    watch.read()
    ever = watch.history.ever()
    assert ever.total("toksplice.replays") == 2
    assert ever.gauge("toksplice.sessions") == {(): 21}
    assert ever.gauge("toksplice.sessions", join=max) == {(): 11}
    assert ever.histogram("toksplice.request.duration", ("path",))["repair",].count == 2


def test_readings_are_bounded_and_old_ones_go() -> None:
    watch = Watch()
    for _ in range(round(SPAN_S / STEP_S) * 2):
        watch.answer()
        watch.read(STEP_S / 2)
        watch.read(STEP_S / 2)
    kept = len(watch.history._kept)
    assert kept == round(SPAN_S / STEP_S) + 1
    assert watch.history.since(SPAN_S).total("toksplice.requests") == kept - 1
    assert watch.history.since(1e9).seconds == SPAN_S


@pytest.mark.parametrize(
    ("counts", "q", "expected"),
    [
        ((0, 0, 0), 0.5, None),
        ((4, 0, 0), 0.5, 0.5),
        ((2, 2, 0), 0.5, 1.0),
        ((2, 2, 0), 0.75, 2.0),
        ((0, 4, 0), 0.99, 2.98),
        ((0, 0, 9), 0.5, 3.0),  # above every bound: the last one, as Prometheus says
    ],
)
def test_quantiles_are_prometheus_s(counts: tuple[int, ...], q: float, expected: float | None) -> None:
    found = Histogram((1.0, 3.0), tuple(map(float, counts))).quantile(q)
    assert found == expected if expected is None else found == pytest.approx(expected)


# The view


def test_the_view_of_a_process_that_did_nothing_is_whole() -> None:
    shown = Watch().view()
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert shown["latency"] == []
    assert shown["sessions"] == {"held": 0, "bytes": 0, "hit_rate": None, "evictions": 0}
    assert shown["shadow"]["coverage"] is None  # type: ignore[index]


def test_the_view_tells_paths_routes_sessions_and_shadow() -> None:
    watch = Watch()
    telemetry = watch.telemetry
    watch.answer(6)
    watch.answer(2, path="cpu", route="D", engine="reference", reason="short_text")
    telemetry.need_text.add(2)
    for _ in range(100):
        telemetry.request_duration.record(0.0004, {**MADE, "op": "append", "status": "ok"})
    telemetry.sessions.set(3)
    telemetry.session_bytes.set(4096)
    telemetry.session_evictions.add(1, {"cause": "lru"})
    telemetry.consumer_lag.set(2, {"topic": "tokenize.requests", "partition": "0"})
    telemetry.consumer_lag.set(3, {"topic": "tokenize.requests", "partition": "1"})
    telemetry.queue_depth.set(1, {"topic": "tokenize.requests", "partition": "1"})
    telemetry.shadow_samples.add(9, {"tokenizer": "qwen3", "path": "repair"})
    telemetry.shadow_checked.add(8, {"tokenizer": "qwen3", "path": "repair", "tier": "reference", "result": "equal"})
    telemetry.shadow_mismatches.add(1, {"tokenizer": "qwen3", "path": "repair", "route": "A", "kind": "ids"})
    telemetry.shadow_dropped.add(1, {"reason": "budget"})
    telemetry.shadow_coverage.set(0.8)
    telemetry.shadow_lag.set(1.5)
    telemetry.breaker_open.set(1, {"tokenizer": "qwen3"})
    telemetry.breaker_open.set(0, {"tokenizer": "llama3"})
    watch.read(STEP_S)
    shown = watch.view()
    assert shown["requests"] == {"total": 8, "recent": 8}
    (latency,) = shown["latency"]  # type: ignore[misc]
    assert (latency["path"], latency["recent"]) == ("repair", 100)
    assert 0.00025 < latency["p50_s"] < latency["p95_s"] < latency["p99_s"] < 0.0005
    assert [(row["route"], row["share"]) for row in shown["routes"]] == [("A", 0.75), ("D", 0.25)]  # type: ignore[attr-defined]
    assert [row["reason"] for row in shown["reasons"]] == ["session_operation", "short_text"]  # type: ignore[attr-defined]
    assert shown["sessions"] == {"held": 3, "bytes": 4096, "hit_rate": 0.75, "evictions": 1}
    assert shown["queues"] == [{"topic": "tokenize.requests", "lag": 5, "depth": 1}]
    assert shown["shadow"] == {
        "coverage": 0.8,
        "lag_s": 1.5,
        "samples": 9,
        "dropped": 1,
        "checked": {"reference equal": 8},
        "mismatches": 1,
        "recent_mismatches": 1,
        "open_breakers": ["qwen3"],
    }


# Alerts


def test_no_alert_on_a_healthy_process() -> None:
    watch = Watch()
    watch.answer(100)
    watch.telemetry.report_zero("classifier", ["tokenize.requests"])
    watch.telemetry.consumer_lag.set(CONSUMER_LAG_MAX, {"topic": "t", "partition": "0"})
    watch.telemetry.shadow_coverage.set(0.1)
    watch.telemetry.shadow_lag.set(60)
    watch.telemetry.breaker_open.set(0, {"tokenizer": "qwen3"})
    watch.telemetry.fallbacks.add(100, {"reason": "no_rule"})
    watch.telemetry.fallbacks.add(3, {"reason": "session_not_held"})
    watch.telemetry.fallbacks.add(2, {"reason": "gpu_shed"})
    watch.telemetry.need_text.add(5)
    watch.answer(1, status="error")
    assert watch.firing(STEP_S) == {}


def break_(telemetry: Telemetry, name: str) -> None:
    labels = {"tokenizer": "qwen3", "path": "repair", "route": "A", "kind": "ids"}
    {
        "TokSpliceShadowMismatch": lambda: telemetry.shadow_mismatches.add(1, labels),
        "TokSpliceBreakerOpen": lambda: telemetry.breaker_open.set(1, {"tokenizer": "qwen3"}),
        "TokSpliceShadowBehind": lambda: telemetry.shadow_lag.set(61),
        "TokSpliceShadowCoverageLow": lambda: telemetry.shadow_coverage.set(0.09),
        "TokSpliceErrors": lambda: telemetry.requests.add(5, {**MADE, "status": "error"}),
        "TokSpliceFallbacks": lambda: telemetry.fallbacks.add(30, {"reason": "session_not_held"}),
        "TokSpliceGpuLost": lambda: telemetry.fallbacks.add(1, {"reason": "gpu_worker_gone"}),
        "TokSpliceNeedText": lambda: telemetry.need_text.add(30),
        "TokSpliceConsumerBehind": lambda: telemetry.consumer_lag.set(1001, {"topic": "t", "partition": "0"}),
        "TokSpliceDeadLetters": lambda: telemetry.dead_letters.add(1, {"topic": "t", "code": "internal"}),
        "TokSpliceRecordsStuck": lambda: telemetry.handlers_stuck.add(1, {"topic": "t"}),
        "TokSpliceSnapshotsFail": lambda: telemetry.snapshot_failures.add(1, {"code": "storage_full"}),
    }[name]()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_alert_fires_after_its_time_and_goes(rule: Rule) -> None:
    watch = Watch()
    watch.answer(100)
    watch.read(STEP_S)
    for _ in range(int(rule.for_s / STEP_S)):
        watch.answer(100)
        break_(watch.telemetry, rule.name)
        assert watch.firing(STEP_S) == {rule.name: "pending"}
    break_(watch.telemetry, rule.name)
    assert watch.firing(STEP_S) == {rule.name: "firing"}
    if rule.name not in ("TokSpliceBreakerOpen", "TokSpliceShadowBehind", "TokSpliceShadowCoverageLow"):
        watch.telemetry.consumer_lag.set(0, {"topic": "t", "partition": "0"})
        for _ in range(int(EVENTS_S / STEP_S) + 1):
            watch.read(STEP_S)
        assert watch.firing() == {}


def test_an_alert_that_comes_back_waits_anew() -> None:
    watch = Watch()
    for lag, state in ((1001, {"TokSpliceConsumerBehind": "pending"}), (0, {})):
        watch.telemetry.consumer_lag.set(lag, {"topic": "t", "partition": "0"})
        assert watch.firing(STEP_S) == state
    watch.telemetry.consumer_lag.set(1001, {"topic": "t", "partition": "0"})
    assert watch.firing(120) == {"TokSpliceConsumerBehind": "pending"}
    assert watch.firing(120) == {"TokSpliceConsumerBehind": "firing"}


def test_of_several_shadow_workers_the_worst_counts() -> None:
    watch = Watch(workers=2)
    for telemetry, coverage, lag_s in zip(watch.telemetries, (0.05, 1.0), (90, 1), strict=True):
        telemetry.shadow_coverage.set(coverage)
        telemetry.shadow_lag.set(lag_s)
    watch.read(STEP_S)
    shadow = watch.view()["shadow"]
    assert (shadow["coverage"], shadow["lag_s"]) == (0.05, 90)  # type: ignore[index]
    assert watch.firing().keys() == {"TokSpliceShadowCoverageLow", "TokSpliceShadowBehind"}


def test_an_alert_says_what_it_is_about() -> None:
    watch = Watch()
    break_(watch.telemetry, "TokSpliceShadowMismatch")
    watch.read(STEP_S)
    (alert,) = watch.alerts.judge(watch.clock.monotonic_s(), watch.history)
    assert alert["subjects"] == ["tokenizer qwen3, path repair, route A, kind ids"]
    assert (alert["severity"], alert["held_s"]) == ("critical", 0)


# The board


async def test_the_board_reads_while_nobody_looks() -> None:
    clock = ManualClock()
    telemetry = Telemetry.in_memory()
    board = Board([telemetry], clock)
    watching = asyncio.create_task(board.watch())
    await clock.sleeping(1)
    telemetry.dead_letters.add(1, {"topic": "t", "code": "internal"})
    clock.advance(STEP_S)
    await clock.sleeping(1)
    clock.advance(EVENTS_S - STEP_S)
    await clock.sleeping(1)
    (alert,) = json.loads(board.data().body)["alerts"]
    assert (alert["name"], alert["held_s"]) == ("TokSpliceDeadLetters", EVENTS_S - STEP_S)
    watching.cancel()


def test_the_page_runs_its_own_script_and_nothing_else() -> None:
    page = PAGE.read_bytes()
    policy = content_security_policy(page)
    assert len(re.findall(r"script-src 'sha256-[A-Za-z0-9+/]{43}='(;|$)", policy)) == 1
    assert len(re.findall(r"style-src 'sha256-[A-Za-z0-9+/]{43}='(;|$)", policy)) == 1
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert content_security_policy(page.replace(b"EVERY_MS", b"every_ms")) != policy
    text = page.decode()
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text), "it needs nothing from anywhere"
    assert "innerHTML" not in text
    assert not re.search(r"\son\w+=", text)


# For a Prometheus


def test_the_exposition_is_what_was_recorded() -> None:
    telemetry = Telemetry.in_memory(kind="repair-worker", instance="i-1")
    with telemetry.span("work") as span:
        telemetry.request_duration.record(0.003, {"path": "repair"})
    telemetry.request_duration.record(100, {"path": "repair"})
    telemetry.requests.add(2, {"path": 'a"b\\c\nd'})
    telemetry.session_bytes.set(5)
    families = {
        family.name: family for family in text_string_to_metric_families(exposition(telemetry.points()).decode())
    }
    (requests,) = families["toksplice_requests"].samples
    assert requests.name == "toksplice_requests_total"
    assert requests.labels == {"path": 'a"b\\c\nd', "job": "toksplice-repair-worker", "instance": "i-1"}
    assert requests.value == 2
    (size,) = families["toksplice_session_bytes"].samples
    assert size.value == 5
    samples = families["toksplice_request_duration_seconds"].samples
    buckets = {sample.labels["le"]: sample for sample in samples if sample.name.endswith("_bucket")}
    assert [buckets[le].value for le in ("0.0025", "0.005", "60.0", "+Inf")] == [0, 1, 1, 2]
    assert {sample.value for sample in samples if sample.name.endswith("_count")} == {2}
    assert {sample.value for sample in samples if sample.name.endswith("_sum")} == {100.003}
    exemplars = {le: sample.exemplar for le, sample in buckets.items() if sample.exemplar}
    assert exemplars.keys() == {"0.005"}
    assert exemplars["0.005"].labels == {"trace_id": f"{span.get_span_context().trace_id:032x}"}


@pytest.mark.parametrize(
    ("name", "unit", "kind", "expected"),
    [
        ("toksplice.request.duration", "s", Kind.HISTOGRAM, "toksplice_request_duration_seconds"),
        ("toksplice.requests", "{request}", Kind.COUNTER, "toksplice_requests"),
        ("toksplice.session.bytes", "By", Kind.GAUGE, "toksplice_session_bytes"),
        ("toksplice.shadow.coverage", "1", Kind.GAUGE, "toksplice_shadow_coverage_ratio"),
    ],
)
def test_names_are_the_collector_s(name: str, unit: str, kind: Kind, expected: str) -> None:
    assert family_name(name, unit, kind) == expected
