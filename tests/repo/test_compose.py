"""docker-compose.yml: of the Compose Specification's shape, pinned, bounded, closed to the outside, and in
step with the code. No container engine runs here, so nothing is started."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml

import cli.main
from pipeline.settings import WorkerSettings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WORKERS = ("classifier", "repair-worker", "cpu-fallback", "gpu-worker", "shadow")
OPERATIONS = (ROOT / "docs/operations.md").read_text()

# Its image holds one static program and nothing that could probe it; Prometheus's `up` watches it instead.
WITHOUT_PROBE = {"otel-collector"}
# Programs that write outside their volume: Kafka's start script its configuration, Grafana its work files.
WRITABLE_ROOT = {"kafka", "grafana"}


def interpolate(value: object) -> str:
    """Compose's ${NAME:-default} and ${NAME-default} with nothing set."""
    return re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", str(value))


def seconds(duration: str) -> float:
    match = re.fullmatch(r"(\d+)(s|m)", duration)
    assert match, duration
    return int(match[1]) * {"s": 1, "m": 60}[match[2]]


def test_it_is_of_the_compose_specification() -> None:
    schema = json.loads((ROOT / "tests/repo/schemas/compose-spec.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(COMPOSE)


def test_a_wrong_key_would_be_noticed() -> None:
    schema = json.loads((ROOT / "tests/repo/schemas/compose-spec.json").read_text())
    wrong = {"services": {"kafka": {"image": "x", "helthcheck": {}}}}
    assert not jsonschema.Draft202012Validator(schema).is_valid(wrong)


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned_to_a_whole_version(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].rpartition(":")
    assert image, f"{name} has no tag"
    assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag), f"{name}: {tag!r} is not a version with three parts"
    if "build" in SERVICES[name]:
        assert tag == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_kafka_is_the_version_that_the_broker_tests_run() -> None:
    tested = re.search(r'^KAFKA_VERSION.* = "([\d.]+)"$', (ROOT / "tests/kafka_server.py").read_text(), re.M)
    assert tested
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{tested[1]}"


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port), f"{name}: {port}"


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_bounded_and_comes_back(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory"}
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_has_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    uid = str(service["user"]).partition(":")[0]
    assert uid.isdigit(), f"{name} does not name its user by number"
    assert uid != "0", f"{name} runs as root"
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("read_only", False) is (name not in WRITABLE_ROOT)
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc", "container_name"} & service.keys()
    assert "docker.sock" not in TEXT


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_a_probe(name: str) -> None:
    probe = SERVICES[name].get("healthcheck", {})
    if name in WITHOUT_PROBE:
        assert probe == {"disable": True}
    elif name in WORKERS:
        assert not probe, "the image's own probe serves all workers"
        assert "\nHEALTHCHECK " in (ROOT / "Dockerfile").read_text()
    else:
        assert {"test", "interval", "timeout", "retries", "start_period"} <= probe.keys()
        assert probe["test"][0] in {"CMD", "CMD-SHELL"}


@pytest.mark.parametrize("name", SERVICES)
def test_dependencies_exist_and_can_become_healthy(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        assert other in SERVICES
        assert other not in WITHOUT_PROBE, f"{name} would wait for {other} for ever"
        if name in WORKERS:
            assert other == "kafka", "a worker must start without anything that only watches it"


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_exists_and_is_read_only(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        if isinstance(volume, dict):
            assert volume["read_only"] is True
            assert volume["bind"] == {"create_host_path": False}
            continue
        source, target, *mode = volume.split(":")
        assert target.startswith("/")
        if source.startswith("."):
            assert (ROOT / source).exists(), f"{name} mounts {source}"
            assert mode == ["ro"]
        else:
            assert source in COMPOSE["volumes"]
    named = re.findall(r"- ?\"?([\w-]+-data):|\[\"([\w-]+-data):", TEXT)
    assert {a or b for a, b in named} == COMPOSE["volumes"].keys()


@pytest.mark.parametrize("name", WORKERS)
def test_workers_run_the_command_of_their_kind(name: str) -> None:
    service = SERVICES[name]
    assert service["command"][:2] == ["worker", name]
    assert service["command"][2:] == SERVICES["classifier"]["command"][2:]
    assert cli.main.build_parser("worker").parse_args(service["command"]).name == name
    assert interpolate(service["deploy"]["replicas"]) == "1"
    assert service["environment"] == SERVICES["classifier"]["environment"]


def test_only_the_gpu_worker_asks_for_a_device_and_only_when_it_is_wanted() -> None:
    with_device = {name for name, service in SERVICES.items() if "reservations" in service["deploy"]["resources"]}
    assert with_device == {name for name, service in SERVICES.items() if "profiles" in service} == {"gpu-worker"}
    (device,) = SERVICES["gpu-worker"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


def test_the_gpu_worker_s_image_has_the_extra_that_it_needs() -> None:
    build = SERVICES["gpu-worker"]["build"]
    assert build == {"context": SERVICES["classifier"]["build"], "args": {"EXTRAS": "[gpu]"}}
    assert SERVICES["gpu-worker"]["image"] != SERVICES["classifier"]["image"]
    assert "gpu" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert '\nARG EXTRAS=""\n' in dockerfile
    assert "${EXTRAS}" in dockerfile


def test_workers_have_time_to_drain() -> None:
    defaults = WorkerSettings()
    # The drain; the last samples, commit, service, consumer, producer and broker; the last spans and metrics.
    longest = defaults.drain_s + 6 * defaults.stop_s + 2 * 5
    for name in WORKERS:
        assert seconds(SERVICES[name]["stop_grace_period"]) > longest


def test_workers_and_kafka_agree() -> None:
    kafka = SERVICES["kafka"]["environment"]
    worker = SERVICES["classifier"]["environment"]
    listeners = dict(item.split("://") for item in kafka["KAFKA_LISTENERS"].split(","))
    advertised = dict(item.split("://") for item in kafka["KAFKA_ADVERTISED_LISTENERS"].split(","))
    protocols = dict(item.split(":") for item in kafka["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))

    options = cli.main.build_parser("worker").parse_args(SERVICES["classifier"]["command"])
    assert options.broker == "kafka://" + advertised["INTERNAL"]
    assert str(options.registry) == SERVICES["classifier"]["volumes"][0]["target"]
    assert SERVICES["kafka"]["ports"] == [f"{advertised['HOST']}:9092"]
    for name, address in advertised.items():
        assert address.endswith(listeners[name]), f"{name} listens on another port than it names"
    assert kafka["KAFKA_CONTROLLER_QUORUM_VOTERS"].endswith(listeners["CONTROLLER"])
    assert protocols.keys() == listeners.keys()
    assert SERVICES["kafka"]["hostname"] == "kafka"

    assert int(worker["TOKSPLICE_PARTITIONS"]) == WorkerSettings().partitions
    assert kafka["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    for name in ("KAFKA_MESSAGE_MAX_BYTES", "KAFKA_REPLICA_FETCH_MAX_BYTES"):
        assert int(kafka[name]) >= WorkerSettings().record_bytes


def test_workers_send_to_the_collector() -> None:
    endpoint = urlsplit(interpolate(SERVICES["classifier"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"]))
    collector = yaml.safe_load((ROOT / "ops/otel-collector.yaml").read_text())
    assert endpoint.hostname in SERVICES
    receiver = collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    assert receiver.rpartition(":")[2] == str(endpoint.port)


def test_variables_that_a_user_may_set_are_documented() -> None:
    for variable in set(re.findall(r"\$\{(\w+)", TEXT)):
        assert f"`{variable}`" in OPERATIONS, f"docs/operations.md does not name {variable}"


def test_every_service_is_documented() -> None:
    for name in SERVICES:
        assert f"`{name}`" in OPERATIONS, f"docs/operations.md does not name the service {name}"


def test_findings_outlive_the_container_that_writes_them() -> None:
    """The file lies in the one volume that a worker has, which the image gives to the workers' user."""
    store = Path(SERVICES["shadow"]["environment"]["TOKSPLICE_SHADOW_STORE"])
    assert f"shadow-data:{store.parent}" in SERVICES["shadow"]["volumes"]
    (made,) = re.findall(r"install --directory --owner=(\d+) .* (/\S+)", (ROOT / "Dockerfile").read_text())
    assert made == (SERVICES["shadow"]["user"].partition(":")[0], str(store.parent))
