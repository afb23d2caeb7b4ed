"""Fixtures for tests that need a broker.

- `broker_factory`: once on the memory broker and once, marked `broker`, on a real Apache Kafka.
  `await broker_factory()` gives a started broker; called again, another client of the same cluster.
  Everything is stopped after the test. No test sees another one's topics or groups: on Kafka the factory
  has a namespace of its own.
- `broker`: `await broker_factory()`.
- `memory_factory`, `kafka_factory`: the same, on one of the two only.
- `running_pipeline_on_kafka`: every worker on Kafka, in this process.
- `kafka_bootstrap`: `host:port` of the session's Kafka server. Skips where Java, Maven or the jars are
  missing, and says which.
- `promtool`: the path of Prometheus's promtool. Skips where it cannot be had.

A process that a test starts reaches the factory's cluster with `kafka_factory.environ()` and
`kafka_factory.url`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
from broker_factories import BrokerFactory, KafkaFactory, MemoryFactory
from kafka_server import KafkaMissingError, KafkaServer
from pipeline_kit import make_registry, make_services, running
from prometheus_server import PrometheusMissingError, program

from pipeline.ports import Broker
from pipeline.settings import WorkerSettings


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """The session's Kafka server."""
    server = KafkaServer(tmp_path_factory.mktemp("kafka"))
    try:
        server.start()
    except KafkaMissingError as missing:
        pytest.skip(f"no Kafka to test against: {missing}")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_server: KafkaServer) -> str:
    """`host:port` of the session's Kafka server."""
    return kafka_server.bootstrap


@pytest.fixture
async def memory_factory() -> AsyncIterator[MemoryFactory]:
    """Brokers on a fresh memory cluster."""
    factory = MemoryFactory()
    yield factory
    await factory.close()


@pytest.fixture
async def kafka_factory(kafka_server: KafkaServer) -> AsyncIterator[KafkaFactory]:
    """Brokers in a fresh namespace of the session's Kafka server."""
    factory = KafkaFactory(kafka_server)
    yield factory
    await factory.close()


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.broker)])
async def broker_factory(request: pytest.FixtureRequest) -> AsyncIterator[BrokerFactory]:
    """Brokers on either adapter."""
    in_memory = request.param == "memory"
    factory = MemoryFactory() if in_memory else KafkaFactory(request.getfixturevalue("kafka_server"))
    yield factory
    await factory.close()


@pytest.fixture
async def broker(broker_factory: BrokerFactory) -> Broker:
    """A started broker on either adapter."""
    return await broker_factory()


@pytest.fixture
async def running_pipeline_on_kafka(
    kafka_factory: KafkaFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[str]:
    """Every worker in this process on Kafka, with the tokenizer "test"; gives the server's `host:port`.

    A process that the test starts finds the namespace in its environment.
    """
    for name, value in kafka_factory.environ().items():
        monkeypatch.setenv(name, value)
    async with running(await kafka_factory(), make_services(make_registry(tmp_path)), settings=WorkerSettings()):
        yield kafka_factory.server.bootstrap


@pytest.fixture(scope="session")
def promtool() -> str:
    """The path of promtool. Skips where it is missing, and says why."""
    try:
        return program("promtool")
    except PrometheusMissingError as missing:
        pytest.skip(f"no promtool to test with: {missing}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the Kafka log with the failure of a test that used the server."""
    report = yield
    used = getattr(item, "funcargs", {})
    factory = used.get("broker_factory") or used.get("kafka_factory")
    if report.failed and isinstance(factory, KafkaFactory):
        report.sections.append(("Kafka log", factory.server.log_tail()))
    return report
