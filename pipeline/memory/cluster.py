"""What several `MemoryBroker`s share: topics, groups, and whether the broker is "gone"."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pipeline.clock import Clock, SystemClock
from pipeline.errors import BrokerUnavailableError, TopologyError
from pipeline.memory.group import Group
from pipeline.memory.limits import DEFAULT_MEMORY_LIMITS, MemoryLimits
from pipeline.memory.log import Log
from pipeline.ports import TopicPartition, TopicSpec
from schemas.topics import partition_for


class MemoryCluster:
    """The state of the broker. All its clients live on one event loop.

    `fail` and `recover` simulate a broker that cannot be reached: meanwhile calls raise
    `BrokerUnavailableError`, fetches return nothing, and nothing that was acknowledged is lost.
    """

    def __init__(self, limits: MemoryLimits = DEFAULT_MEMORY_LIMITS, *, clock: Clock | None = None) -> None:
        self.limits = limits
        self.clock: Clock = clock or SystemClock()
        self._specs: dict[str, TopicSpec] = {}
        self._logs: dict[str, list[Log]] = {}
        self._groups: dict[str, Group] = {}
        self._failure: Exception | None = None

    # Failing on purpose

    @property
    def failed(self) -> bool:
        """Whether the broker is unreachable now."""
        return self._failure is not None

    def fail(self, error: Exception | None = None) -> None:
        """Be unreachable from now on; `error` replaces the `BrokerUnavailableError` that calls raise."""
        self._failure = error or BrokerUnavailableError("the memory broker was made unreachable by a test")

    def recover(self) -> None:
        """Be reachable again."""
        self._failure = None
        for logs in self._logs.values():
            for log in logs:
                log.wake_writers()
                log.wake_readers()

    @contextmanager
    def unreachable(self, error: Exception | None = None) -> Iterator[None]:
        """`fail` for the length of a with block."""
        self.fail(error)
        try:
            yield
        finally:
            self.recover()

    def check_reachable(self) -> None:
        """Raise the failure that `fail` set, if any."""
        if self._failure is not None:
            raise self._failure

    # Topics

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        """See `pipeline.ports.Broker.ensure_topics`."""
        for spec in specs:
            if spec.partitions < 1:
                raise ValueError(f"topic {spec.name} needs at least one partition, not {spec.partitions}")
            existing = self._specs.get(spec.name)
            if existing is None:
                self._specs[spec.name] = spec
                self._logs[spec.name] = [Log(spec, i, self.limits) for i in range(spec.partitions)]
            elif existing.partitions != spec.partitions:
                raise TopologyError(
                    f"topic {spec.name} has {existing.partitions} partitions, not {spec.partitions}; "
                    "the partition count of a running installation never changes"
                )

    def spec(self, topic: str) -> TopicSpec:
        """The specification that `topic` was made with. Raises TopologyError if there is no such topic."""
        spec = self._specs.get(topic)
        if spec is None:
            raise TopologyError(f"topic {topic} does not exist; call ensure_topics first")
        return spec

    def log(self, source: TopicPartition) -> Log:
        """One partition's log. Raises TopologyError if there is no such partition."""
        count = self.spec(source.topic).partitions
        if not 0 <= source.partition < count:
            raise TopologyError(f"topic {source.topic} has partitions 0 to {count - 1}, not {source.partition}")
        return self._logs[source.topic][source.partition]

    def route(self, topic: str, key: bytes | None, partition: int | None) -> Log:
        """The log that a record goes to."""
        if partition is None:
            count = self.spec(topic).partitions
            partition = partition_for(key, count) if key is not None else random.randrange(count)
        return self.log(TopicPartition(topic, partition))

    # Groups

    def group(self, name: str) -> Group:
        """The group called `name`, made when it is first asked for."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name, self)
        return group

    async def settled(self) -> None:
        """Return when no group is in a rebalance."""
        for group in list(self._groups.values()):
            await group.settled()
