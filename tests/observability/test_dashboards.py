"""Every panel of every dashboard shows something: a real Prometheus scrapes a running pipeline under load.

Once it scrapes the live page of the pipeline's own process, once the collector that the pipeline sends OTLP to, with
the compose stack's configuration: the same expressions have to hold against both.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from collector_process import Collector, CollectorMissingError
from observed_kit import Watched, watched, watched_environment
from otlp_sink import otlp_sink
from prometheus_server import PrometheusMissingError, PrometheusServer

from cli.live.alerts import RULES

OPS = Path(__file__).parents[2] / "ops"
#: Rounds of load after which a panel that is still empty counts as empty; some five are needed.
ROUNDS_MAX = 60
RATE_INTERVAL = "1m"
SCRAPE_INTERVAL = "1s"


def panels() -> Iterator[tuple[str, str]]:
    """Every panel's title and expression, its variables set to "all"."""
    for path in sorted((OPS / "grafana/dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                expression = target["expr"].replace("$__rate_interval", RATE_INTERVAL)
                yield f"{path.stem}: {panel['title']} {target['refId']}", re.sub(r"\$\w+", ".*", expression)


def prometheus_config(folder: Path, targets: dict[str, str]) -> str:
    """The stack's configuration with other targets, scraped oftener; `targets`: job -> HOST:PORT."""
    config: dict[str, Any] = yaml.safe_load((OPS / "prometheus.yml").read_text())
    config["global"].update(scrape_interval=SCRAPE_INTERVAL, scrape_timeout=SCRAPE_INTERVAL)
    config["global"]["evaluation_interval"] = SCRAPE_INTERVAL
    config["rule_files"] = [str(OPS / name) for name in config["rule_files"]]
    jobs = [job for job in config["scrape_configs"] if job["job_name"] in targets]
    for job in jobs:
        job["static_configs"] = [{"targets": [targets[job["job_name"]]]}]
    return yaml.safe_dump({**config, "scrape_configs": jobs})


def has_numbers(series: list[dict[str, Any]]) -> bool:
    return any(not math.isnan(float(one["value"][1])) for one in series)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[list[PrometheusServer]]:
    """Servers that must not outlive the test."""
    started: list[PrometheusServer] = []
    yield started
    for server in started:
        server.stop()


def start_prometheus(started: list[PrometheusServer], folder: Path, targets: dict[str, str]) -> PrometheusServer:
    server = PrometheusServer(folder, prometheus_config(folder, targets))
    started.append(server)
    try:
        server.start()
    except PrometheusMissingError as missing:
        pytest.skip(f"no Prometheus to test with: {missing}")
    return server


async def assert_every_panel_fills(stack: Watched, server: PrometheusServer) -> None:
    empty = dict(panels())
    for _ in range(ROUNDS_MAX):
        await stack.drive()
        for name, expression in list(empty.items()):
            if has_numbers(await asyncio.to_thread(server.query, expression)):
                del empty[name]
        if not empty:
            return
    pytest.fail("these panels stay empty:\n" + "\n".join(f"{name}: {expr}" for name, expr in empty.items()))


async def assert_alerts_are_evaluated(server: PrometheusServer) -> None:
    """The rules run on what was scraped: the dead letters of the load are reported."""
    rules = await asyncio.to_thread(server.get, "rules")
    found = {rule["name"]: rule for group in rules["groups"] for rule in group["rules"]}
    assert {rule.name for rule in RULES} <= found.keys()
    assert all(rule["health"] == "ok" for rule in found.values()), found
    assert found["TokSpliceDeadLetters"]["state"] == "firing"


async def exemplar_traces(server: PrometheusServer) -> set[str]:
    query = "toksplice_request_duration_seconds_bucket"
    found = await asyncio.to_thread(server.get, "query_exemplars", query=query, start="0", end="9999999999")
    return {exemplar["labels"]["trace_id"] for series in found for exemplar in series["exemplars"]}


async def test_every_panel_shows_something_of_the_live_page(
    prometheus: list[PrometheusServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with otlp_sink() as sink:
        watched_environment(monkeypatch, otlp=sink.endpoint)
        async with watched(tmp_path, state=tmp_path) as stack:
            target = stack.url.removeprefix("http://").rstrip("/")
            server = await asyncio.to_thread(start_prometheus, prometheus, tmp_path, {"toksplice": target})
            await assert_every_panel_fills(stack, server)
            await assert_alerts_are_evaluated(server)
            traces = await exemplar_traces(server)
        assert traces, "no bucket has an exemplar"
        # Not all: an exporter that is behind drops spans.
        assert traces & sink.trace_ids(), "exemplars lead to no trace that was exported"


async def test_every_panel_shows_something_of_the_collector(
    prometheus: list[PrometheusServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector(tmp_path)
    try:
        await asyncio.to_thread(collector.start)
    except CollectorMissingError as missing:
        pytest.skip(f"no OpenTelemetry Collector to test with: {missing}")
    try:
        watched_environment(monkeypatch, otlp=collector.otlp)
        targets = {"toksplice": collector.metrics, "otel-collector": collector.own_metrics}
        async with watched(tmp_path, state=tmp_path) as stack:
            server = await asyncio.to_thread(start_prometheus, prometheus, tmp_path, targets)
            await assert_every_panel_fills(stack, server)
            await assert_alerts_are_evaluated(server)
            assert await exemplar_traces(server)
    finally:
        await asyncio.to_thread(collector.stop)
