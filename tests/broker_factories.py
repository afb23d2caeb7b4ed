"""Where tests get their brokers from: one factory for each adapter. `conftest.py` makes fixtures of them."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kafka_server import KafkaServer

from pipeline.kafka import KafkaBroker, KafkaSettings
from pipeline.kafka.admin import admin_client
from pipeline.memory import MemoryBroker, MemoryCluster, MemoryLimits

#: Short limits, so that tests of failures need not wait long.
TEST_KAFKA_SETTINGS = KafkaSettings(
    send_timeout_s=5,
    request_timeout_s=3,
    start_timeout_s=30,
    stop_timeout_s=3,
    session_timeout_s=3,
    rebalance_timeout_s=10,
    watchdog_interval_s=0.3,
    fetch_wait_s=0.05,
)
TEST_MEMORY_LIMITS = MemoryLimits(send_timeout_s=1, rebalance_timeout_s=5)

_namespaces = itertools.count()


class MemoryFactory:
    """Makes brokers on one memory cluster."""

    kind = "memory"

    def __init__(self) -> None:
        self.cluster = MemoryCluster(TEST_MEMORY_LIMITS)
        self._brokers: list[MemoryBroker] = []

    async def __call__(self) -> MemoryBroker:
        """A started broker; stopped after the test."""
        broker = MemoryBroker(cluster=self.cluster)
        await broker.start()
        self._brokers.append(broker)
        return broker

    @asynccontextmanager
    async def unreachable(self) -> AsyncIterator[None]:
        """The broker answers nobody inside this block."""
        with self.cluster.unreachable():
            yield

    async def close(self) -> None:
        """Stop everything."""
        await asyncio.gather(*(broker.stop() for broker in self._brokers))


class KafkaFactory:
    """Makes brokers in one namespace of one Kafka server."""

    kind = "kafka"

    def __init__(self, server: KafkaServer) -> None:
        self.server = server
        self.settings = dataclasses.replace(
            TEST_KAFKA_SETTINGS,
            bootstrap=server.bootstrap,
            namespace=f"t{os.getpid()}-{next(_namespaces)}-",
        )
        self._brokers: list[KafkaBroker] = []

    async def __call__(self, **changes: Any) -> KafkaBroker:
        """A started broker, with some settings changed; stopped after the test."""
        broker = KafkaBroker(dataclasses.replace(self.settings, **changes))
        await broker.start()
        self._brokers.append(broker)
        return broker

    @property
    def url(self) -> str:
        """The server, as the command line takes it."""
        return f"kafka://{self.server.bootstrap}"

    def environ(self) -> dict[str, str]:
        """Environment variables with which another process works in the same namespace."""
        return {
            "TOKSPLICE_KAFKA_BOOTSTRAP": self.server.bootstrap,
            "TOKSPLICE_KAFKA_NAMESPACE": self.settings.namespace,
            "TOKSPLICE_KAFKA_SESSION_TIMEOUT_S": str(self.settings.session_timeout_s),
        }

    @asynccontextmanager
    async def unreachable(self) -> AsyncIterator[None]:
        """The broker answers nobody inside this block; its connections stay open, as with a cut cable."""
        self.server.freeze()
        try:
            yield
        finally:
            self.server.thaw()

    async def close(self) -> None:
        """Stop everything and delete the topics, so that the server does not fill up over a session."""
        await asyncio.gather(*(broker.stop() for broker in self._brokers))
        async with admin_client(self.settings) as admin:
            names = await admin.list_topics()
            if mine := [name for name in names if name.startswith(self.settings.namespace)]:
                await admin.delete_topics(mine)


BrokerFactory = MemoryFactory | KafkaFactory
