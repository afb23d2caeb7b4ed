"""Consumer groups: membership, range assignment, eager rebalances, committed offsets."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pipeline.errors import BrokerUnavailableError
from pipeline.failures import without_words
from pipeline.memory.log import Log
from pipeline.memory.reader import Reader
from pipeline.ports import RebalanceListener, TopicPartition

if TYPE_CHECKING:
    from pipeline.memory.cluster import MemoryCluster

_log = logging.getLogger(__name__)


class MemoryConsumer(Reader):
    """A member of a group. See `pipeline.ports.Consumer`."""

    def __init__(
        self,
        cluster: MemoryCluster,
        group: Group,
        topics: Sequence[str],
        *,
        on_assigned: RebalanceListener | None,
        on_revoked: RebalanceListener | None,
    ) -> None:
        super().__init__(cluster)
        self.topics = tuple(dict.fromkeys(topics))
        self.joined = asyncio.Event()
        self._group = group
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._fetching_allowed = False

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `pipeline.ports.Consumer.commit`."""
        self._check_open()
        self._cluster.check_reachable()
        for source, offset in offsets.items():
            if (log := self._logs.get(source)) is not None:
                log.committed[self._group.name] = offset
                log.trim()
        await asyncio.sleep(0)

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        """See `pipeline.ports.Consumer.pause`."""
        self._check_open()
        self._paused |= partitions & self._logs.keys()

    def resume(self, partitions: frozenset[TopicPartition]) -> None:
        """See `pipeline.ports.Consumer.resume`."""
        self._check_open()
        self._paused -= partitions
        self.wake()

    def assignment(self) -> frozenset[TopicPartition]:
        """See `pipeline.ports.Consumer.assignment`."""
        return frozenset(self._logs)

    async def lag(self) -> Mapping[TopicPartition, int]:
        """See `pipeline.ports.Consumer.lag`."""
        self._check_open()
        self._cluster.check_reachable()
        return {source: log.records_from(self._positions[source]) for source, log in self._logs.items()}

    async def stop(self) -> None:
        """See `pipeline.ports.Consumer.stop`."""
        if not self.closed:
            self.closed = True
            self._detach()
            self.wake()
            self._group.leave(self)

    def _readable(self) -> bool:
        return self._fetching_allowed and super()._readable()

    # What the group calls during a rebalance

    async def revoke(self) -> None:
        """Hand back everything, after the listener had its say."""
        self._fetching_allowed = False
        held = self.assignment()
        if held:
            await self._notify(self._on_revoked, held)
        self._detach()

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Start reading these partitions, after the listener had its say."""
        if self.closed:
            return
        self._attach(positions)
        await self._notify(self._on_assigned, self.assignment())
        self._fetching_allowed = True
        self.joined.set()
        self.wake()

    async def _notify(self, listener: RebalanceListener | None, partitions: frozenset[TopicPartition]) -> None:
        if listener is None:
            return
        limit_s = self._cluster.limits.rebalance_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await listener(partitions)
        except TimeoutError:
            _log.error("a rebalance listener of group %s took over %g s", self._group.name, limit_s)
        except Exception as error:
            _log.error("a rebalance listener of group %s failed: %s", self._group.name, without_words(error))


class Group:
    """One consumer group. Rebalances run one at a time, in a task that ends when there is none to do."""

    def __init__(self, name: str, cluster: MemoryCluster) -> None:
        self.name = name
        self._cluster = cluster
        self._members: dict[int, MemoryConsumer] = {}
        self._numbers = itertools.count()
        self._changed = False
        self._task: asyncio.Task[None] | None = None

    async def join(self, member: MemoryConsumer) -> None:
        """Add `member` and return after its first assignment.

        Raises BrokerUnavailableError when the other members hold the rebalance up for too long.
        """
        for topic in member.topics:
            for source in _partitions(topic, self._cluster.spec(topic).partitions):
                log = self._cluster.log(source)
                log.committed.setdefault(self.name, log.start_offset)
        self._members[next(self._numbers)] = member
        self._rebalance()
        # Everybody may use the whole time for each of the two listeners.
        limit_s = 3 * self._cluster.limits.rebalance_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await member.joined.wait()
        except BaseException as error:
            await member.stop()
            if isinstance(error, TimeoutError):
                raise BrokerUnavailableError(f"group {self.name} did not settle in {limit_s:g} s") from error
            raise

    def leave(self, member: MemoryConsumer) -> None:
        """Remove `member`; what it did not commit goes to the others again."""
        self._members = {number: other for number, other in self._members.items() if other is not member}
        self._rebalance()

    async def settled(self) -> None:
        """Return when no rebalance is going on."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    def _rebalance(self) -> None:
        self._changed = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"memory-group-{self.name}-rebalance")

    async def _run(self) -> None:
        while self._changed:
            await asyncio.gather(*(member.revoke() for member in self._members.values()))
            # Whoever joined or left while listeners ran is part of this round.
            self._changed = False
            members = dict(self._members)
            shares = self._share(members)
            await asyncio.gather(
                *(member.assign(self._positions(shares[number])) for number, member in members.items())
            )

    def _share(self, members: Mapping[int, MemoryConsumer]) -> dict[int, list[TopicPartition]]:
        """Kafka's range assignment: per topic, consecutive partitions to each member, first ones one more."""
        shares: dict[int, list[TopicPartition]] = {number: [] for number in members}
        for topic in sorted({topic for member in members.values() for topic in member.topics}):
            numbers = [number for number, member in members.items() if topic in member.topics]
            sources = _partitions(topic, self._cluster.spec(topic).partitions)
            each, rest = divmod(len(sources), len(numbers))
            first = 0
            for i, number in enumerate(numbers):
                last = first + each + (i < rest)
                shares[number].extend(sources[first:last])
                first = last
        return shares

    def _positions(self, sources: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        logs: dict[TopicPartition, Log] = {source: self._cluster.log(source) for source in sources}
        return {source: max(log.committed[self.name], log.start_offset) for source, log in logs.items()}


def _partitions(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]
