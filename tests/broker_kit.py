"""What the broker tests share: reading until something is there, and watching a group's assignments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from pipeline.ports import Consumer, Record, Tail, TopicPartition

#: Longest wait for something that must happen; far beyond what it takes.
PATIENCE_S = 30.0


async def take(reader: Consumer | Tail, count: int) -> list[Record]:
    """Fetch until `count` records have come."""
    records: list[Record] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(records) < count:
            records += await reader.fetch(max_records=count - len(records), timeout_s=1)
    return records


def values(records: Iterable[Record]) -> list[bytes | None]:
    """The records' values, in the order given."""
    return [record.value for record in records]


class Membership:
    """Rebalance listeners that keep what they were told."""

    def __init__(self) -> None:
        self.assigned: list[frozenset[TopicPartition]] = []
        self.revoked: list[frozenset[TopicPartition]] = []
        self._changed = asyncio.Condition()

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        async with self._changed:
            self.assigned.append(partitions)
            self._changed.notify_all()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        async with self._changed:
            self.revoked.append(partitions)
            self._changed.notify_all()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Return once `reached` is true, looked at after every callback."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(reached)

    async def until_held(self, count: int) -> None:
        """Return once the newest assignment has `count` partitions."""
        await self.until(lambda: bool(self.assigned) and len(self.assigned[-1]) == count)
