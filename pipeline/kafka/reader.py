"""What consumers and tails have in common: fetching, and staying alive.

The library's consumer can hang in silence after a rebalance or an outage: no error, no records, although
there are some. So a supervisor task holds its position against the end of its partitions, and replaces a
consumer that stands still although records wait, or that has failed for good. Replacing happens beside
`fetch`, which returns nothing meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka import errors as kafka

from pipeline.errors import BrokerRefusedError, ClosedError, PipelineError
from pipeline.kafka.guard import close, limited, translate
from pipeline.kafka.names import Names
from pipeline.kafka.settings import KafkaSettings
from pipeline.kafka.stall import StallDetector
from pipeline.kafka.undecodable import UndecodableError, UndecodableSkipper
from pipeline.ports import Record

_log = logging.getLogger(__name__)

#: A wait for a position that should be known already.
_POSITION_S: Final = 0.05
#: Slack for the library to notice that its own time is up.
_FETCH_SLACK_S: Final = 0.05

REPLACE_BACKOFF_S: Final = 0.1
REPLACE_BACKOFF_MAX_S: Final = 10.0


class KafkaReader:
    """A consumer of the library and its supervisor. `_open` makes one; subclasses say how."""

    def __init__(self, settings: KafkaSettings, names: Names, what: str) -> None:
        self.closed = False
        #: How often the consumer behind this one was replaced.
        self.replacements = 0
        self._settings = settings
        self._names = names
        self._what = what
        self._inner: AIOKafkaConsumer | None = None
        self._usable = asyncio.Event()
        self._attention = asyncio.Event()
        self._failure: str | None = None
        self._failures_in_a_row = 0
        self._stall = StallDetector()
        self._undecodable = UndecodableSkipper(what)
        # The offset after the last record that `fetch` has got, of each partition that it has got any from.
        self._next: dict[KafkaTopicPartition, int] = {}
        self._supervisor: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the first consumer. Raises BrokerUnavailableError, BrokerRefusedError, TopologyError."""
        self._inner = await self._open()
        self._usable.set()
        self._supervisor = asyncio.create_task(self._supervise(), name=f"supervisor of {self._what}")

    async def fetch(self, *, max_records: int, timeout_s: float) -> Sequence[Record]:
        """See `pipeline.ports.Consumer.fetch`. Raises BrokerRefusedError when rights are missing."""
        self._check_open()
        if max_records < 1:
            raise ValueError(f"max_records must be at least 1, not {max_records}")
        deadline = asyncio.get_running_loop().time() + timeout_s
        if not await wait_for(self._usable, timeout_s):
            return ()
        records = await self._fetch_inner(max_records, deadline)
        self._stall.fetched(len(records))
        if records:
            self._failures_in_a_row = 0
        return records

    async def stop(self) -> None:
        """Close, within a bound."""
        if self.closed:
            return
        self.closed = True
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
        inner, self._inner = self._inner, None
        if inner is not None:
            await close(inner, self._settings.stop_timeout_s)

    @property
    def undecodable(self) -> int:
        """How many records were skipped because the library cannot decode them."""
        return self._undecodable.skipped

    # For subclasses

    async def _open(self) -> AIOKafkaConsumer:
        raise NotImplementedError

    async def _before_replacing(self) -> None:
        """The consumer is about to be closed because it failed."""

    def _overdue(self) -> str | None:
        """Something besides a stall that shows that the consumer hangs."""
        return None

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError(f"this {type(self).__name__} was stopped")

    def _new_consumer(self, **options: Any) -> AIOKafkaConsumer:
        settings = self._settings
        return AIOKafkaConsumer(
            **settings.connection_options(),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=round(settings.fetch_wait_s * 1000),
            fetch_max_bytes=settings.fetch_bytes,
            max_partition_fetch_bytes=settings.fetch_partition_bytes,
            **options,
        )

    async def _fetch_inner(self, max_records: int, deadline: float) -> Sequence[Record]:
        """One `getmany`. A time limit loses no records: the library returns in the turn in which it takes them."""
        inner = self._inner
        if inner is None:
            return ()
        remaining = max(0.0, deadline - asyncio.get_running_loop().time())
        try:
            # `getmany` waits for a rebalance to end without a limit of its own.
            async with asyncio.timeout(remaining + _FETCH_SLACK_S):
                records = await self._get(inner, max_records, deadline, remaining)
        except (TimeoutError, kafka.ConsumerStoppedError):
            return ()
        except UndecodableError:
            await self._search_undecodable(inner)
            return ()
        except kafka.KafkaError as error:
            refused = translate(error, self._what)
            if isinstance(refused, BrokerRefusedError):
                raise refused from error
            self._fail(inner, repr(error))
            return ()
        for record in records:
            self._next[KafkaTopicPartition(record.topic, record.partition)] = record.offset + 1
        return [self._names.record(record) for record in records]

    async def _get(self, inner: AIOKafkaConsumer, max_records: int, deadline: float, remaining: float) -> list[Any]:
        if self._undecodable.searching:
            wait_s = self._settings.fetch_wait_s + _FETCH_SLACK_S
            return await self._undecodable.read(inner, deadline, wait_s)
        batches = await inner.getmany(timeout_ms=round(remaining * 1000), max_records=max_records)
        return [record for batch in batches.values() for record in batch]

    async def _search_undecodable(self, inner: AIOKafkaConsumer) -> None:
        """Go back to what `fetch` has got: the call that raised may have passed records of other partitions."""
        sources = inner.assignment()
        try:
            async with limited(self._settings.request_timeout_s, f"going back in {self._what}"):
                for source in sources:
                    inner.seek(source, await self._resume_at(inner, source))
        except PipelineError as error:
            self._fail(inner, str(error))
        else:
            self._undecodable.search(sources)

    async def _resume_at(self, inner: AIOKafkaConsumer, source: KafkaTopicPartition) -> int:
        """Where to go on in a partition, be it one that nothing was read from yet."""
        return self._next[source]

    async def _positions(self, sources: Iterable[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The next offset of each partition, as far as it is known; does not wait for the broker."""
        positions: dict[KafkaTopicPartition, int] = {}
        for source in sources:
            if self._inner is not None:
                try:
                    async with asyncio.timeout(_POSITION_S):
                        positions[source] = await self._inner.position(source)
                except (TimeoutError, kafka.KafkaError):
                    continue
        return positions

    # Supervision

    def _fail(self, inner: AIOKafkaConsumer, reason: str) -> None:
        if inner is self._inner and self._failure is None:
            self._failure = reason
            self._usable.clear()
            self._attention.set()

    async def _supervise(self) -> None:
        while True:
            await wait_for(self._attention, self._settings.watchdog_interval_s)
            try:
                if self._failure is None:
                    await self._check()
                if self._failure is not None:
                    await self._replace(self._failure)
            except PipelineError as error:
                _log.warning("%s: %s", self._what, error)

    async def _check(self) -> None:
        inner = self._inner
        if inner is None:
            return
        if (overdue := self._overdue()) is not None:
            self._fail(inner, overdue)
            return
        watched = inner.assignment() - inner.paused()
        ends: Mapping[KafkaTopicPartition, int] = {}
        if watched:
            async with limited(self._settings.request_timeout_s, f"checking {self._what}"):
                ends = await inner.end_offsets(list(watched))
        stalled = self._stall.check(await self._positions(watched), ends)
        if stalled:
            listed = ", ".join(str(self._names.partition_inside(source)) for source in sorted(stalled))
            self._fail(inner, f"it stands still although records wait in {listed}")

    async def _replace(self, reason: str) -> None:
        _log.warning("replacing the Kafka consumer of %s: %s", self._what, reason)
        self.replacements += 1
        self._usable.clear()
        await self._before_replacing()
        broken, self._inner = self._inner, None
        if broken is not None:
            await close(broken, self._settings.stop_timeout_s)
        while self._inner is None:
            await asyncio.sleep(min(REPLACE_BACKOFF_S * 2**self._failures_in_a_row, REPLACE_BACKOFF_MAX_S))
            self._failures_in_a_row = min(self._failures_in_a_row + 1, 16)
            try:
                self._inner = await self._open()
            except PipelineError as error:
                _log.warning("%s cannot be opened again yet: %s", self._what, error)
        self._stall = StallDetector()
        self._undecodable.clear()
        self._failure = None
        self._attention.clear()
        self._usable.set()


async def wait_for(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait for `event`; False when it was not set within `timeout_s`."""
    if event.is_set():
        return True
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
