"""The alert rules: promtool runs their own tests, and finds each rule that is spoiled."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.live import alerts
from cli.live.alerts import RULES as PAGE_RULES

OPS = Path(__file__).parents[2] / "ops"
FILE = OPS / "prometheus-alerts.yml"
CASES = OPS / "prometheus-alerts-test.yml"
RULES: list[dict[str, Any]] = [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]
NAMES = [rule["alert"] for rule in RULES]
#: The live page is in the process whose telemetry would be missing.
NOT_ON_THE_PAGE = {"TokSpliceTelemetryMissing"}


def test_the_rules_pass_their_tests(promtool: str) -> None:
    done = subprocess.run([promtool, "test", "rules", CASES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    seen: dict[str, set[bool]] = defaultdict(set)
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for check in case["alert_rule_test"]:
            seen[check["alertname"]].add(bool(check["exp_alerts"]))
    assert seen == {name: {True, False} for name in NAMES}


@pytest.mark.parametrize("way", ["never", "always", "at once"])
def test_the_cases_find_every_rule_that_is_spoiled(promtool: str, tmp_path: Path, way: str) -> None:
    def spoiled(rule: dict[str, Any]) -> dict[str, Any]:
        if way == "at once":
            return {key: value for key, value in rule.items() if key != "for"}
        expr = f"({rule['expr']}) and vector(0) > 1" if way == "never" else f"({rule['expr']}) or vector(1)"
        return {**rule, "expr": expr}

    (tmp_path / FILE.name).write_text(
        yaml.safe_dump({"groups": [{"name": "toksplice", "rules": [spoiled(rule) for rule in RULES]}]})
    )
    (tmp_path / CASES.name).write_text(CASES.read_text())
    command = [promtool, "test", "rules", tmp_path / CASES.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = set(re.findall(r"alertname: ?(\w+)", done.stdout + done.stderr))
    assert found == {rule["alert"] for rule in RULES if way != "at once" or "for" in rule}


# The live page says the same


def test_the_live_page_has_the_same_alerts() -> None:
    assert {rule.name for rule in PAGE_RULES} == set(NAMES) - NOT_ON_THE_PAGE
    page = {rule.name: (rule.severity, rule.for_s) for rule in PAGE_RULES}
    file = {
        rule["alert"]: (rule["labels"]["severity"], float(re.sub(r"m$", "", rule.get("for", "0m"))) * 60)
        for rule in RULES
        if rule["alert"] not in NOT_ON_THE_PAGE
    }
    assert page == file


@pytest.mark.parametrize(
    ("name", "threshold", "range_s"),
    [
        ("TokSpliceConsumerBehind", alerts.CONSUMER_LAG_MAX, None),
        ("TokSpliceErrors", alerts.ERROR_SHARE_MAX, alerts.RATES_S),
        ("TokSpliceFallbacks", alerts.FALLBACK_SHARE_MAX, alerts.RATES_S),
        ("TokSpliceGpuLost", 0, alerts.EVENTS_S),
        ("TokSpliceNeedText", alerts.NEED_TEXT_SHARE_MAX, alerts.RATES_S),
        ("TokSpliceShadowBehind", alerts.SHADOW_LAG_S_MAX, None),
        ("TokSpliceShadowCoverageLow", alerts.SHADOW_COVERAGE_MIN, None),
        ("TokSpliceShadowMismatch", 0, alerts.EVENTS_S),
        ("TokSpliceDeadLetters", 0, alerts.EVENTS_S),
        ("TokSpliceRecordsStuck", 0, alerts.EVENTS_S),
        ("TokSpliceSnapshotsFail", 0, alerts.EVENTS_S),
    ],
)
def test_the_live_page_has_the_same_thresholds(name: str, threshold: float, range_s: float | None) -> None:
    (expr,) = (rule["expr"] for rule in RULES if rule["alert"] == name)
    assert {float(number) for number in re.findall(r"[<>] ([0-9.]+)", expr)} == {threshold}
    ranges = {float(minutes) * 60 for minutes in re.findall(r"\[(\d+)m\]", expr)}
    assert ranges == (set() if range_s is None else {range_s})
