"""A message broker inside one process, for the embedded way of running and for tests.

    broker = MemoryBroker()
    await broker.start()

It keeps Kafka's semantics (partition logs, groups with range assignment and eager rebalances, committed
offsets, redelivery, compaction) and nothing outside the process: what it holds is gone when the process
ends. Several `MemoryBroker`s on one `MemoryCluster` are several clients of one broker.
"""

from pipeline.memory.broker import MemoryBroker
from pipeline.memory.cluster import MemoryCluster
from pipeline.memory.limits import MemoryLimits

__all__ = ["MemoryBroker", "MemoryCluster", "MemoryLimits"]
