"""A member of a consumer group on Kafka.

What it defends against, besides hanging (`reader`): the library's default assignor is round robin, which
would part the partitions of one session; it commits partitions it no longer holds; a rebalance hands out
records before the listener has returned; and a failed commit after a rebalance looks like an error,
although it is normal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka import errors as kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from pipeline.errors import BrokerUnavailableError
from pipeline.failures import without_words
from pipeline.kafka.guard import close, limited
from pipeline.kafka.names import Names
from pipeline.kafka.reader import KafkaReader, wait_for
from pipeline.kafka.settings import KafkaSettings
from pipeline.ports import RebalanceListener, Record, TopicPartition

_log = logging.getLogger(__name__)

_HEARTBEAT_MAX_S: Final = 3.0
#: How much longer than a rebalance the answer to "join" may take.
_JOIN_SLACK_S: Final = 5.0
#: A member that does not call `fetch` for so long leaves the group.
_POLL_INTERVAL_MS: Final = 300_000


class KafkaConsumer(KafkaReader):
    """See `pipeline.ports.Consumer`."""

    def __init__(
        self,
        settings: KafkaSettings,
        names: Names,
        topics: Sequence[str],
        *,
        group: str,
        on_assigned: RebalanceListener | None,
        on_revoked: RebalanceListener | None,
    ) -> None:
        super().__init__(settings, names, f"group {group}")
        self._topics = tuple(dict.fromkeys(topics))
        self._group = group
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._held: frozenset[TopicPartition] = frozenset()
        # Open while the assignment is in use: from the end of `on_assigned` to the start of `on_revoked`.
        self._gate = asyncio.Event()
        self._revoked_at_s: float | None = None
        # Records that came while the gate was closed: the library does not wait for the listener.
        self._early: list[Record] = []

    async def fetch(self, *, max_records: int, timeout_s: float) -> Sequence[Record]:
        """See `pipeline.ports.Consumer.fetch`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        if not self._gate.is_set():
            self._check_open()
            if not await wait_for(self._gate, timeout_s):
                return ()
        if self._early and (ready := self._take_early(max_records)):
            return ready
        return await super().fetch(max_records=max_records, timeout_s=max(0.0, deadline - loop.time()))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `pipeline.ports.Consumer.commit`."""
        self._check_open()
        inner = self._inner
        held = {
            self._names.partition_outside(source): offset for source, offset in offsets.items() if source in self._held
        }
        if not held or inner is None:
            return
        async with limited(self._settings.request_timeout_s, f"committing for {self._what}"):
            try:
                await inner.commit(held)
            except (kafka.CommitFailedError, kafka.IllegalStateError) as error:
                # Too late: the group has rebalanced.
                _log.info("%s: offsets dropped, their records come again: %r", self._what, error)

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        """See `pipeline.ports.Consumer.pause`."""
        self._check_open()
        if self._inner is not None:
            self._inner.pause(*self._assigned(self._inner, partitions))

    def resume(self, partitions: frozenset[TopicPartition]) -> None:
        """See `pipeline.ports.Consumer.resume`."""
        self._check_open()
        if self._inner is not None:
            self._inner.resume(*self._assigned(self._inner, partitions))

    def assignment(self) -> frozenset[TopicPartition]:
        """See `pipeline.ports.Consumer.assignment`."""
        return self._held

    async def lag(self) -> Mapping[TopicPartition, int]:
        """See `pipeline.ports.Consumer.lag`."""
        self._check_open()
        inner = self._inner
        if inner is None:
            raise BrokerUnavailableError(f"the consumer of {self._what} is being replaced")
        sources = self._assigned(inner, self._held)
        if not sources:
            return {}
        async with limited(self._settings.request_timeout_s, f"asking for the lag of {self._what}"):
            ends = await inner.end_offsets(sources)
            positions = {source: await inner.position(source) for source in sources}
        lag = {self._names.partition_inside(source): max(0, ends[source] - positions[source]) for source in sources}
        for record in self._early:
            lag[record.source] = lag.get(record.source, 0) + 1
        return lag

    async def stop(self) -> None:
        """See `pipeline.ports.Consumer.stop`."""
        await super().stop()
        self._held = frozenset()
        self._early.clear()

    # For the reader

    async def _open(self) -> AIOKafkaConsumer:
        settings = self._settings
        inner = self._new_consumer(
            group_id=self._names.outside(self._group),
            partition_assignment_strategy=(RangePartitionAssignor,),
            session_timeout_ms=round(settings.session_timeout_s * 1000),
            heartbeat_interval_ms=round(min(_HEARTBEAT_MAX_S, settings.session_timeout_s / 3) * 1000),
            rebalance_timeout_ms=round(settings.rebalance_timeout_s * 1000),
            max_poll_interval_ms=_POLL_INTERVAL_MS,
            # The answer to "join" comes when the whole group has joined; giving up earlier would start it
            # anew.
            request_timeout_ms=round(
                max(settings.request_timeout_s, settings.rebalance_timeout_s + _JOIN_SLACK_S) * 1000
            ),
        )
        # Listeners run before this returns, and may pause what they get.
        self._inner = inner
        try:
            async with limited(settings.start_timeout_s, f"joining {self._what}"):
                inner.subscribe([self._names.outside(topic) for topic in self._topics], listener=_Listener(self))
                await inner.start()
                await self._gate.wait()
        except BaseException:
            self._inner = None
            await close(inner, settings.stop_timeout_s)
            raise
        return inner

    async def _before_replacing(self) -> None:
        await self.revoked()

    def _overdue(self) -> str | None:
        # Between the end of `on_revoked` and `on_assigned` only the broker and the other members take time.
        if self._revoked_at_s is None:
            return None
        limit_s = 2 * self._settings.rebalance_timeout_s + self._settings.session_timeout_s
        waited_s = asyncio.get_running_loop().time() - self._revoked_at_s
        return f"a rebalance has been going on for {waited_s:.0f} s" if waited_s > limit_s else None

    async def _resume_at(self, inner: AIOKafkaConsumer, source: KafkaTopicPartition) -> int:
        if source in self._next:
            return self._next[source]
        committed = await inner.committed(source)
        if committed is not None:
            return int(committed)
        starts = await inner.beginning_offsets([source])
        return int(starts[source])

    async def _fetch_inner(self, max_records: int, deadline: float) -> Sequence[Record]:
        records = await super()._fetch_inner(max_records, deadline)
        if records and not self._gate.is_set():
            self._early.extend(records)
            remaining = deadline - asyncio.get_running_loop().time()
            return self._take_early(max_records) if await wait_for(self._gate, remaining) else ()
        return records

    # For the listener

    async def revoked(self) -> None:
        """A rebalance starts, or the consumer is replaced: everything held is handed back."""
        self._gate.clear()
        self._early.clear()
        self._next.clear()
        self._undecodable.clear()
        held = self._held
        if held:
            await self._notify(self._on_revoked, held)
        self._held = frozenset()
        self._revoked_at_s = asyncio.get_running_loop().time()

    async def assigned(self, held: Iterable[KafkaTopicPartition]) -> None:
        """A rebalance ends."""
        self._revoked_at_s = None
        self._held = self._names.partitions_inside(held)
        await self._notify(self._on_assigned, self._held)
        self._gate.set()

    async def _notify(self, listener: RebalanceListener | None, partitions: frozenset[TopicPartition]) -> None:
        if listener is None:
            return
        limit_s = self._settings.rebalance_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await listener(partitions)
        except TimeoutError:
            _log.error("a rebalance listener of %s took over %g s", self._what, limit_s)
        except Exception as error:
            _log.error("a rebalance listener of %s failed: %s", self._what, without_words(error))

    def _take_early(self, max_records: int) -> list[Record]:
        paused: frozenset[TopicPartition] = frozenset()
        if self._inner is not None:
            paused = self._names.partitions_inside(self._inner.paused())
        ready = [record for record in self._early if record.source not in paused][:max_records]
        taken = {(record.source, record.offset) for record in ready}
        self._early = [record for record in self._early if (record.source, record.offset) not in taken]
        return ready

    def _assigned(self, inner: AIOKafkaConsumer, partitions: Iterable[TopicPartition]) -> list[KafkaTopicPartition]:
        assigned = inner.assignment()
        wanted = (self._names.partition_outside(source) for source in partitions)
        return [source for source in wanted if source in assigned]


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the library has no types
    """Passes the library's callbacks on."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: Iterable[KafkaTopicPartition]) -> None:
        # The library names what it held; the consumer knows that itself, also when it is about to be
        # replaced.
        await self._consumer.revoked()

    async def on_partitions_assigned(self, assigned: Iterable[KafkaTopicPartition]) -> None:
        await self._consumer.assigned(assigned)
