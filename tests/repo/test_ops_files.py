"""The collector's, Prometheus's, Grafana's and Docker's files agree with each other and with the code."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import json
import os
import re
import socket
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.metrics import NoOpMeter

from pipeline.instruments import Instruments
from pipeline.settings import SETTINGS_CLASSES, render_table, specs

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops"

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
COLLECTOR: dict[str, Any] = yaml.safe_load((OPS / "otel-collector.yaml").read_text())
JAEGER: dict[str, Any] = yaml.safe_load((OPS / "jaeger.yaml").read_text())
PROMETHEUS: dict[str, Any] = yaml.safe_load((OPS / "prometheus.yml").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((OPS / "prometheus-alerts.yml").read_text())
DASHBOARDS = sorted((OPS / "grafana/dashboards").glob("*.json"))
OPERATIONS = ROOT / "docs/operations.md"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PYPROJECT["tool"]["maturin"]["python-packages"]


# Metric names: from OpenTelemetry to Prometheus


@dataclasses.dataclass(frozen=True)
class Metric:
    """One instrument as its declaration gives it; `labels` are the attributes its description lists."""

    name: str
    kind: str
    unit: str
    labels: frozenset[str]


class Recorder(NoOpMeter):
    """A meter that keeps what the code declares and makes nothing."""

    def __init__(self) -> None:
        super().__init__("recorder")
        self.metrics: list[Metric] = []

    def _keep(self, kind: str, name: str, unit: str, description: str) -> None:
        braces = re.search(r"\{([^}]*)\}", description)
        labels = [part.split("=")[0].strip() for part in braces[1].split(",")] if braces else []
        self.metrics.append(Metric(name, kind, unit, frozenset(labels)))

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Any:
        self._keep("counter", name, unit, description)
        return super().create_counter(name, unit, description)

    def create_gauge(self, name: str, unit: str = "", description: str = "") -> Any:
        self._keep("gauge", name, unit, description)
        return super().create_gauge(name, unit, description)

    def create_histogram(self, name: str, unit: str = "", description: str = "", **kwargs: Any) -> Any:
        self._keep("histogram", name, unit, description)
        return super().create_histogram(name, unit, description, **kwargs)


def declared_metrics() -> list[Metric]:
    meter = Recorder()
    Instruments(meter)
    return meter.metrics


def prometheus_names(metric: Metric) -> set[str]:
    """The collector's rule UnderscoreEscapingWithSuffixes: dots become underscores; a unit (none in braces)
    and a counter's `total` are added at the end unless they are there; a gauge of unit 1 is a ratio; a histogram
    has three series."""
    words = re.split(r"[^A-Za-z0-9]+", metric.name)
    unit = {"s": "seconds", "By": "bytes"}.get(metric.unit, "")
    if (metric.kind, metric.unit) == ("gauge", "1"):
        unit = "ratio"
    assert unit or metric.unit.startswith("{"), f"{metric.name}: unit {metric.unit!r} has no rule here"
    if unit and unit not in words:
        words.append(unit)
    if metric.kind == "counter" and "total" not in words:
        words.append("total")
    name = "_".join(words)
    return {f"{name}_{part}" for part in ("bucket", "sum", "count")} if metric.kind == "histogram" else {name}


KNOWN = {name: metric for metric in declared_metrics() for name in prometheus_names(metric)}


def dashboard_expressions() -> Iterator[tuple[str, str]]:
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield f"{path.stem}: {panel['title']}", target["expr"]


def alert_expressions() -> Iterator[tuple[str, str]]:
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


EXPRESSIONS = [*dashboard_expressions(), *alert_expressions()]


def labels_of(expression: str) -> set[str]:
    grouped = re.findall(r"\b(?:by|ignoring|on)\s*\(([^)]*)\)", expression)
    matched = re.findall(r"\{([^}]*)\}", expression)
    labels = {label.strip() for group in grouped for label in group.split(",")}
    return labels | {pair.strip() for m in matched for pair in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", m)}


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (
            Metric("toksplice.request.duration", "histogram", "s", frozenset()),
            "request_duration_seconds_bucket",
        ),
        (Metric("toksplice.requests", "counter", "{request}", frozenset()), "requests_total"),
        (Metric("toksplice.session.bytes", "gauge", "By", frozenset()), "session_bytes"),
        (Metric("toksplice.need_text", "counter", "{request}", frozenset()), "need_text_total"),
        (Metric("toksplice.sessions", "gauge", "{session}", frozenset()), "sessions"),
        (Metric("toksplice.shadow.coverage", "gauge", "1", frozenset()), "shadow_coverage_ratio"),
    ],
)
def test_the_rule_for_names(metric: Metric, expected: str) -> None:
    assert f"toksplice_{expected}" in prometheus_names(metric)


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_expressions_name_metrics_and_labels_that_exist(where: str, expression: str) -> None:
    names = set(re.findall(r"\btoksplice_\w+", expression))
    for name in names:
        assert name in KNOWN, f"{where}: no instrument becomes {name}"
    if not names:
        assert re.search(r"\bup\b", expression), f"{where} asks for nothing of ours"
    # le is the histogram's own, job and instance are set from the resource.
    known = {"le", "job", "instance"}.union(*(KNOWN[name].labels for name in names))
    assert labels_of(expression) <= known, f"{where}: {labels_of(expression) - known} is not recorded"


def test_every_metric_is_on_a_dashboard() -> None:
    shown = {name for _, expression in dashboard_expressions() for name in re.findall(r"toksplice_\w+", expression)}
    unseen = [metric.name for metric in declared_metrics() if not prometheus_names(metric) & shown]
    assert not unseen, "add a panel"


# Dashboards


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_are_whole(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    source = yaml.safe_load((OPS / "grafana/provisioning/datasources/toksplice.yaml").read_text())
    uids = {item["uid"] for item in source["datasources"]}
    panels = dashboard["panels"]

    assert dashboard["uid"]
    assert dashboard["title"].startswith("TokSplice: ")
    assert len({panel["id"] for panel in panels}) == len(panels), "panel ids repeat"
    assert len({panel["title"] for panel in panels}) == len(panels), "panel titles repeat"
    for variable in dashboard["templating"]["list"]:
        assert variable["datasource"]["uid"] in uids
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()
        assert label in KNOWN[metric].labels
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    for panel in panels:
        if panel["type"] == "row":
            continue
        assert panel["datasource"]["uid"] in uids
        assert panel["description"], f"{panel['title']} does not say what it shows"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            assert target["expr"].strip()
            assert target["legendFormat"].strip()
            assert target["datasource"]["uid"] in uids
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= names, f"{panel['title']}: unknown variable"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_do_not_overlap(path: Path) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(path.read_text())["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for cell in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            assert taken.setdefault(cell, panel["title"]) == panel["title"]


def test_latency_leads_to_traces() -> None:
    dashboard = json.loads((OPS / "grafana/dashboards/latency-per-path.json").read_text())
    panel = next(panel for panel in dashboard["panels"] if panel["title"] == "Latency by path")
    for quantile in ("0.5", "0.95", "0.99"):
        assert any(f"histogram_quantile({quantile}," in target["expr"] for target in panel["targets"])
    assert any(target.get("exemplar") for target in panel["targets"])
    source = yaml.safe_load((OPS / "grafana/provisioning/datasources/toksplice.yaml").read_text())
    link = source["datasources"][0]["jsonData"]["exemplarTraceIdDestinations"][0]
    published = COMPOSE["services"]["jaeger"]["ports"][0].rpartition(":")[0]
    assert link["url"].startswith(f"http://{published}/trace/$$")
    assert COLLECTOR["exporters"]["prometheus"]["enable_open_metrics"] is True
    assert "--enable-feature=exemplar-storage" in COMPOSE["services"]["prometheus"]["command"]


def test_grafana_is_provisioned_from_what_is_mounted() -> None:
    mounts = dict(v.split(":")[:2] for v in COMPOSE["services"]["grafana"]["volumes"])
    provider = yaml.safe_load((OPS / "grafana/provisioning/dashboards/toksplice.yaml").read_text())["providers"][0]
    assert provider["options"]["path"] == mounts["./ops/grafana/dashboards"]
    home = COMPOSE["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).parent == Path(provider["options"]["path"])
    assert Path(home).name in {path.name for path in DASHBOARDS}
    source = yaml.safe_load((OPS / "grafana/provisioning/datasources/toksplice.yaml").read_text())
    data = source["datasources"][0]
    assert data["url"] == "http://prometheus:9090"
    assert data["jsonData"]["timeInterval"] == PROMETHEUS["global"]["scrape_interval"]


# The collector, Jaeger, Prometheus


@pytest.mark.parametrize("config", [COLLECTOR, JAEGER], ids=["otel-collector", "jaeger"])
def test_pipelines_use_all_that_is_defined_and_nothing_else(config: dict[str, Any]) -> None:
    service = config["service"]
    assert set(service["extensions"]) == config["extensions"].keys()
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in service["pipelines"].values() for name in pipeline[kind]}
        assert used == config[kind].keys(), kind


def test_the_collector_is_bounded() -> None:
    for pipeline in COLLECTOR["service"]["pipelines"].values():
        assert pipeline["processors"] == ["memory_limiter", "batch"]
    limiter = COLLECTOR["processors"]["memory_limiter"]
    container = COMPOSE["services"]["otel-collector"]
    soft = int(container["environment"]["GOMEMLIMIT"].removesuffix("MiB"))
    hard = int(container["deploy"]["resources"]["limits"]["memory"].removesuffix("m"))
    assert limiter["spike_limit_mib"] < limiter["limit_mib"] < soft < hard


def test_the_collector_hands_on_to_jaeger() -> None:
    exporter = COLLECTOR["exporters"]["otlp_grpc/jaeger"]["endpoint"]
    host, port = exporter.split(":")
    assert host in COMPOSE["services"]
    assert JAEGER["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"].endswith(f":{port}")


def test_prometheus_scrapes_what_the_collector_offers() -> None:
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in PROMETHEUS["scrape_configs"]}
    offered = COLLECTOR["exporters"]["prometheus"]["endpoint"].rpartition(":")[2]
    reader = COLLECTOR["service"]["telemetry"]["metrics"]["readers"][0]["pull"]["exporter"]["prometheus"]
    assert targets["toksplice"] == [f"otel-collector:{offered}"]
    assert targets["otel-collector"] == [f"otel-collector:{reader['port']}"]
    ours = next(job for job in PROMETHEUS["scrape_configs"] if job["job_name"] == "toksplice")
    assert ours["honor_labels"] is True
    for name in PROMETHEUS["rule_files"]:
        assert f"./ops/{name}:/etc/prometheus/{name}:ro" in COMPOSE["services"]["prometheus"]["volumes"]


def test_every_panel_and_alert_is_explained() -> None:
    text = OPERATIONS.read_text()
    for where, _ in dashboard_expressions():
        assert where.partition(": ")[2] in text, f"docs/operations.md does not explain {where}"
    for name, _ in alert_expressions():
        assert f"`{name}`" in text, f"docs/operations.md does not say what to do for {name}"


def test_promtool_accepts_the_configuration(promtool: str) -> None:
    run = subprocess.run([promtool, "check", "config", OPS / "prometheus.yml"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_promtool_parses_every_expression_of_the_dashboards(promtool: str, tmp_path: Path) -> None:
    # As recording rules, since promtool has no stable command that only parses an expression.
    rules = [
        {"record": f"parsed:{n}", "expr": re.sub(r"\$\w+", "x", expr.replace("$__rate_interval", "5m"))}
        for n, (_, expr) in enumerate(dashboard_expressions())
    ]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    run = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(rules)} rules found" in run.stdout


# The image


def test_the_image_is_pinned_small_and_not_root() -> None:
    text = (ROOT / "Dockerfile").read_text()
    stages = re.split(r"^FROM ", text, flags=re.M)[1:]
    bases = [stage.split()[0] for stage in stages]
    rust, wheel, environment, final = bases
    assert environment == final, "the environment's python is a link to its base's"
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", final)
    assert re.fullmatch(r"rust:1\.\d+\.\d+-slim-bookworm", rust)
    # One Python and one Debian throughout: the engine is linked against the C library that it will meet.
    assert wheel == final.replace("-slim", "")
    assert "pip install" not in stages[-1]
    assert "apt-get" not in text
    assert re.findall(r"--from=(\w+)", stages[-1]) == ["build"], "no compiler in the final image"
    user = re.findall(r"^USER (\S+)$", stages[-1], flags=re.M)
    assert user == [COMPOSE["services"]["classifier"]["user"]]
    assert re.search(r'^ENTRYPOINT \["toksplice"\]$', stages[-1], flags=re.M)
    # The build programs' versions are the ones that the tests build with.
    requirements = re.findall(r"(\w+==[\d.]+)", stages[1])
    assert requirements
    assert [line for line in requirements if line not in PYPROJECT["dependency-groups"]["dev"]] == []


def test_the_image_compiles_with_a_rust_that_the_engine_takes() -> None:
    (version,) = re.findall(r"^FROM rust:(\d+)\.(\d+)", (ROOT / "Dockerfile").read_text(), flags=re.M)
    cargo = tomllib.loads((ROOT / "native/Cargo.toml").read_text())
    assert tuple(map(int, version)) >= tuple(map(int, cargo["package"]["rust-version"].split(".")))


def test_the_image_is_built_from_the_packages_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    probe = "ops/worker_probe.py"
    assert allowed == {*PACKAGES, "native", "pyproject.toml", PYPROJECT["project"]["readme"], "LICENSE", probe}
    assert {"native/target", "**/*.so"} <= set(lines), "what was compiled on this machine stays here"
    assert f"COPY {probe} " in (ROOT / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def probe() -> Any:
    spec = importlib.util.spec_from_file_location("worker_probe", OPS / "worker_probe.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("command", "ports"),
    [
        (["worker", "classifier", "--broker", "kafka://kafka:29092"], {29092}),
        (["worker", "classifier", "--broker=kafka://a:1,b:2,c"], {1, 2, 9092}),
        (["up"], set()),
    ],
)
def test_the_probe_knows_the_brokers_ports(probe: Any, command: list[str], ports: set[int]) -> None:
    assert probe.broker_ports(command) == ports


def test_the_probe_counts_established_connections_only(probe: Any) -> None:
    established = "   0: 020014AC:C350 030014AC:71A4 01 00000000:00000000 00:00000000 00000000 10001 0 1 1"
    closing = established.replace(":71A4 01", ":71A5 08")
    assert probe.connected_ports([established, closing, ""]) == {0x71A4}


def test_the_probe_sees_a_real_connection_come_and_go(
    probe: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not probe.TABLES[0].exists():
        pytest.skip("needs Linux's /proc/net/tcp")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = tmp_path / "cmdline"
        command.write_text(f"toksplice\0worker\0classifier\0--broker\0kafka://127.0.0.1:{port}\0")
        monkeypatch.setattr(probe, "COMMAND", command)
        assert probe.main() == 1
        with socket.create_connection(("127.0.0.1", port)):
            assert probe.main() == 0
        assert probe.main() == 1


# Settings


def settings_classes() -> list[type[Any]]:
    """Every class that is declared with `setting`: the chassis's first, then the services' by file name."""
    found = list(SETTINGS_CLASSES)
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        if "setting(" not in path.read_text() or path == ROOT / "pipeline/settings.py":
            continue
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for value in vars(module).values():
            if isinstance(value, type) and dataclasses.is_dataclass(value) and value not in found:
                fields = dataclasses.fields(value)
                if fields and all("toksplice.setting" in field.metadata for field in fields):
                    found.append(value)
    return found


def variables_in_code() -> set[str]:
    """Every literal in the packages that is a name of an environment variable."""
    names: set[str] = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.update(re.findall(r"\A(?:TOKSPLICE|OTEL)_[A-Z0-9_]*[A-Z0-9]\Z", node.value))
    return names


def test_the_table_of_settings_is_in_step() -> None:
    """Write it anew with: UPDATE_DOCS=1 python -m pytest tests/repo/test_ops_files.py -k table_of_settings"""
    start, end = "<!-- generated: settings -->\n", "<!-- end of generated: settings -->"
    before, _, rest = OPERATIONS.read_text().partition(start)
    _, _, after = rest.partition(end)
    assert after, f"docs/operations.md lost its marks {start.strip()} and {end}"
    wanted = f"{before}{start}\n{render_table(*settings_classes())}\n{end}{after}"
    if os.environ.get("UPDATE_DOCS"):
        OPERATIONS.write_text(wanted)
    assert OPERATIONS.read_text() == wanted, "the table of settings is out of step"


def test_every_variable_is_documented() -> None:
    text = OPERATIONS.read_text()
    assert {spec.env for cls in settings_classes() for spec in specs(cls).values()} <= variables_in_code()
    missing = sorted(name for name in variables_in_code() if f"`{name}`" not in text)
    assert not missing, "docs/operations.md does not name them"


def test_compose_sets_only_variables_that_the_code_reads() -> None:
    for name in ("classifier", "repair-worker", "cpu-fallback", "gpu-worker", "shadow"):
        unknown = COMPOSE["services"][name]["environment"].keys() - variables_in_code()
        assert not unknown, f"{name} is given a variable that nothing reads"
