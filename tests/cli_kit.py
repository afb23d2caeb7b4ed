"""A command that a test ran in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from pipeline.memory import MemoryBroker
from pipeline.topology import specs


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Done]

URL = "kafka://example:9092"
"""The Kafka that commands are told, where `connect_to` gives them another broker."""


async def connect_to(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Have the commands of `modules` take a memory broker, now with its topics, for the Kafka at `URL`."""
    await broker.ensure_topics(specs())

    @asynccontextmanager
    async def connected(url: str, settings: Any) -> AsyncIterator[MemoryBroker]:
        assert url == URL
        yield broker

    for module in modules:
        monkeypatch.setattr(module, "connected", connected)
