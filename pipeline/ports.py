"""The ports that workers and clients are written against.

A `Broker` hands out `Producer`s, group `Consumer`s and `Tail`s. Two adapters implement it:
`pipeline.memory` (one process, nothing to install) and `pipeline.kafka` (Apache Kafka). One test class
(`tests/broker/test_broker_contract.py`) runs on both, so whatever is promised here holds on either.

What holds everywhere:

- Records of one partition come in the order of their offsets; equal keys go to equal partition numbers on
  topics of equal partition counts.
- Delivery is at least once: what was not committed comes again, to this member or to the next one.
- Every call ends within a time limit of the adapter's settings. Calls that need the broker raise
  `BrokerUnavailableError` at that limit; `fetch` returns nothing instead, and goes on by itself once the
  broker is back.
- One task at a time calls `fetch` of one consumer or tail; everything else may be called from any task of
  the loop.
- Using something after its `stop` raises `ClosedError`; a second `stop` does nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

Headers = tuple[tuple[str, bytes], ...]

#: The largest record that either adapter takes, counted by `record_size`. Topics are made with the same
#: number as `max.message.bytes`; a Kafka broker needs `message.max.bytes` no smaller than this.
MAX_RECORD_BYTES: Final = 32 * 1024 * 1024

# Upper bounds on what Kafka's record format adds: the batch header (61 bytes) with the record's own
# varints, and the two varints of each header.
_RECORD_OVERHEAD_BYTES: Final = 128
_HEADER_OVERHEAD_BYTES: Final = 10


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Bytes that a record counts for against `MAX_RECORD_BYTES`: content and an allowance for the format."""
    size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name.encode()) + len(content) + _HEADER_OVERHEAD_BYTES
    return size


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record as read from a broker. `value` is None for a tombstone of a compacted topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    @property
    def source(self) -> TopicPartition:
        """Where the record was read."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """What a topic must look like; `ensure_topics` creates it or checks that it matches.

    `compacted`: the last record of each key is kept; a record with value None deletes its key.
    `drop_oldest`: a full log drops its oldest records even unread (replies, dead letters). Without it, a
    full log in memory refuses new records until its groups have read on. Kafka keeps by time only, so there
    it changes nothing. `retention_ms`: how long Kafka keeps a record; None leaves the broker's default.
    Memory keeps by count and bytes.
    """

    name: str
    partitions: int
    compacted: bool = False
    drop_oldest: bool = False
    retention_ms: int | None = None


class Producer(Protocol):
    """Writes records. `send` returns once the broker has acknowledged the record durably."""

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> int:
        """Write one record and return its offset.

        With no `partition` the record goes to Kafka's murmur2 partition of `key`, or to any partition if
        `key` is None too. Records that one task sends one after the other to one partition keep their
        order; after a cancelled or failed `send` the record may be written or not.

        Raises `BrokerUnavailableError` when there is no acknowledgement within the producer's time limit,
        `RecordTooLargeError` when the record is over `MAX_RECORD_BYTES`, `TopologyError` for an unknown
        topic or partition, and ValueError for a tombstone (`value` None) without a key.
        """

    async def stop(self) -> None:
        """Flush what is in flight, within a bound, and close."""


RebalanceListener = Callable[[frozenset[TopicPartition]], Awaitable[None]]


class Consumer(Protocol):
    """A member of a consumer group. Delivery is at least once; offsets move only by `commit`.

    Rebalances are eager, as in Kafka's classic protocol. Whenever the group's members change, and when an
    adapter replaces a consumer that hangs:

    1. `on_revoked` is awaited with everything held so far (not called if that is nothing). `fetch` returns
       nothing more meanwhile; `commit` still works, so this is the place to finish work in hand and commit
       it.
    2. The partitions are shared anew.
    3. `on_assigned` is awaited with everything held now, possibly nothing. Only after it has returned does
       `fetch` hand out records of the new assignment, each partition from its committed offset, or from its
       start if it has none.

    So a partition of the first set that is missing in the second was lost; one that is in both continues,
    and what was fetched from it but not committed comes again. Pauses do not outlive a rebalance. An
    exception from a listener is logged and the rebalance goes on. `stop` calls no listener.
    """

    async def fetch(self, *, max_records: int, timeout_s: float) -> Sequence[Record]:
        """Return up to `max_records` records, in order within each partition; empty after `timeout_s`."""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the next offset to read of each partition; partitions no longer held are dropped in silence.

        So are all of them when the group rebalanced meanwhile: the records come again. Raises
        `BrokerUnavailableError` when the broker does not confirm in time.
        """

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        """Stop returning records of these partitions; membership of the group goes on.

        Partitions that are not held are ignored, here and in `resume`.
        """

    def resume(self, partitions: frozenset[TopicPartition]) -> None:
        """Undo `pause`."""

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions held now; empty while a rebalance is between its two steps."""

    async def lag(self) -> Mapping[TopicPartition, int]:
        """Records between what `fetch` has returned and the end, for each held partition.

        Raises `BrokerUnavailableError` when the broker does not tell in time.
        """

    async def stop(self) -> None:
        """Leave the group and close, within a bound. Nothing is committed."""


class Tail(Protocol):
    """Reads partitions without a group: a client's reply partition, or a compacted topic from its start."""

    async def fetch(self, *, max_records: int, timeout_s: float) -> Sequence[Record]:
        """As `Consumer.fetch`."""

    async def caught_up(self) -> bool:
        """True once everything that was in the partitions when the tail was opened has been fetched."""

    async def stop(self) -> None:
        """Close, within a bound."""


class Broker(Protocol):
    """A message broker."""

    async def start(self) -> None:
        """Connect. Raises `BrokerUnavailableError` when it cannot."""

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Create missing topics; raises `TopologyError` when an existing one has another partition count."""

    async def producer(self, *, batching: bool = False) -> Producer:
        """A started producer; `batching` trades a few milliseconds for throughput (fan-out)."""

    async def consumer(
        self,
        topics: Sequence[str],
        *,
        group: str,
        on_assigned: RebalanceListener | None = None,
        on_revoked: RebalanceListener | None = None,
    ) -> Consumer:
        """A started member of `group` with range assignment, so that equal partition numbers go together.

        Returns after the first assignment; `on_assigned` has been called with it by then. All topics must
        exist.
        """

    async def tail(self, partitions: Sequence[TopicPartition], *, from_start: bool) -> Tail:
        """A started tail of these partitions; not `from_start` means: only what is written from now on."""

    async def stop(self) -> None:
        """Close everything this broker handed out."""
