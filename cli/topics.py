"""Reading what is on a topic now, for the commands of operators."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from typing import Final

from cli.errors import CliError, ExitCode
from cli.wiring import is_memory
from pipeline.ports import Broker, Record, TopicPartition

FETCH_RECORDS: Final = 100
FETCH_S: Final = 0.5
READ_S: Final = 60.0
"""How long a topic may take to read."""


def remote(url: str) -> str:
    """The URL of a broker that other processes see. Raises `CliError` for the one in memory."""
    if is_memory(url):
        raise CliError(ExitCode.USAGE, "memory:// is seen from inside its process only: name a Kafka broker")
    return url


async def records_of(broker: Broker, topic: str, partitions: Iterable[int], what: str) -> AsyncIterator[Record]:
    """Every record that is on these partitions of a topic now. Raises `CliError` when `what`, in words, could not be
    read in time."""
    tail = await broker.tail([TopicPartition(topic, partition) for partition in partitions], from_start=True)
    limit = time.monotonic() + READ_S
    try:
        while not await tail.caught_up():
            if time.monotonic() > limit:
                raise CliError(ExitCode.BROKER, f"{what} could not be read within {READ_S:g} s")
            for record in await tail.fetch(max_records=FETCH_RECORDS, timeout_s=FETCH_S):
                yield record
    finally:
        await tail.stop()
