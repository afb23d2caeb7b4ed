"""Writing records to Kafka.

What it defends against:

- The library's idempotent producer never gives a batch up and keeps its sequence numbers whatever happens.
  After a batch that the broker refused, or after the broker forgot the producer, every later batch fails
  with an out-of-order sequence number, for ever. So the producer behind this one is replaced, and the
  record sent again.
- Batches for all partitions of one node go into one request. A few of the largest records together would
  exceed the broker's `socket.request.max.bytes`, and the broker would cut the connection each time they are
  tried again. So the bytes in flight are bounded.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka

from pipeline.errors import BrokerUnavailableError, ClosedError, RecordTooLargeError, TopologyError
from pipeline.kafka.budget import Budget
from pipeline.kafka.guard import close, limited
from pipeline.kafka.names import Names
from pipeline.kafka.settings import KafkaSettings
from pipeline.ports import MAX_RECORD_BYTES, Headers, record_size
from schemas.topics import partition_for

_log = logging.getLogger(__name__)

#: How many producers one record is tried on.
PRODUCERS_PER_RECORD_MAX: Final = 3
#: Replaced producers that may still be closing.
RETIRED_PRODUCERS_MAX: Final = 4

#: After these a producer of the library never works again.
_FATAL: Final = (
    kafka.OutOfOrderSequenceNumber,
    kafka.UnknownProducerId,
    kafka.InvalidProducerEpoch,
    kafka.InvalidProducerIdMapping,
    kafka.ProducerFenced,
    kafka.ProducerClosed,
)


class KafkaProducer:
    """See `pipeline.ports.Producer`."""

    def __init__(self, settings: KafkaSettings, names: Names, *, batching: bool) -> None:
        self.closed = False
        #: How often the producer behind this one was replaced.
        self.replacements = 0
        self._settings = settings
        self._names = names
        self._batching = batching
        self._inner: AIOKafkaProducer | None = None
        self._replacing = asyncio.Lock()
        self._retired: set[asyncio.Task[None]] = set()
        self._budget = Budget(settings.in_flight_bytes)

    async def start(self) -> None:
        """Connect. Raises BrokerUnavailableError."""
        async with limited(self._settings.start_timeout_s, "starting a producer"):
            self._inner = await self._open()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> int:
        """See `pipeline.ports.Producer.send`."""
        self._check_open()
        if value is None and key is None:
            raise ValueError("a tombstone needs a key: it deletes one")
        size = record_size(key, value, headers)
        if size > MAX_RECORD_BYTES:
            raise RecordTooLargeError(
                f"a record of {size} bytes for {topic} is over the limit of {MAX_RECORD_BYTES} bytes"
            )
        async with (
            limited(self._settings.send_timeout_s, f"sending to {topic}"),
            self._budget.hold(size),
        ):
            for _ in range(PRODUCERS_PER_RECORD_MAX):
                self._check_open()
                inner = self._inner
                if inner is None:
                    raise ClosedError("this producer was not started")
                try:
                    return await self._send(inner, topic, value, key, partition, headers)
                except kafka.KafkaError as error:
                    if not isinstance(error, _FATAL) and inner._sender.sender_task.done() is False:
                        raise
                    self._check_open()
                    await self._replace(inner, error)
        raise BrokerUnavailableError(
            f"sending to {topic}: {PRODUCERS_PER_RECORD_MAX} producers in a row lost their place in the log"
        )

    async def stop(self) -> None:
        """See `pipeline.ports.Producer.stop`."""
        if self.closed:
            return
        self.closed = True
        inner, self._inner = self._inner, None
        closing = [asyncio.create_task(close(inner, self._settings.stop_timeout_s))] if inner else []
        if waiting := [*closing, *self._retired]:
            await asyncio.gather(*waiting)

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("this producer was stopped")

    async def _send(
        self,
        inner: AIOKafkaProducer,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Headers,
    ) -> int:
        outside = self._names.outside(topic)
        partitions = await inner.partitions_for(outside)
        if partition is None:
            # Our own murmur2, so that every adapter and every language agree by construction.
            count = len(partitions)
            partition = partition_for(key, count) if key is not None else random.randrange(count)
        elif partition not in partitions:
            raise TopologyError(f"topic {topic} has partitions 0 to {len(partitions) - 1}, not {partition}")
        written = await inner.send_and_wait(outside, value=value, key=key, partition=partition, headers=list(headers))
        return int(written.offset)

    async def _open(self) -> AIOKafkaProducer:
        settings = self._settings
        inner = AIOKafkaProducer(
            **settings.connection_options(),
            acks="all",
            enable_idempotence=True,
            linger_ms=settings.linger_ms if self._batching else 0,
            max_batch_size=settings.batch_bytes,
            compression_type="lz4" if self._batching else None,
            max_request_size=MAX_RECORD_BYTES,
            request_timeout_ms=round(settings.request_timeout_s * 1000),
        )
        try:
            await inner.start()
        except BaseException:
            await close(inner, settings.stop_timeout_s)
            raise
        return inner

    async def _replace(self, broken: AIOKafkaProducer, reason: Exception) -> None:
        async with self._replacing:
            if self._inner is not broken:
                return
            _log.warning("replacing a Kafka producer: %r", reason)
            self.replacements += 1
            self._inner = await self._open()
            if self.closed:  # stopped meanwhile; it did not see the new one
                await close(self._inner, self._settings.stop_timeout_s)
            # What it can still write, it may: other records of this producer are in flight on it.
            retiring = asyncio.create_task(close(broken, self._settings.stop_timeout_s))
            self._retired.add(retiring)
            retiring.add_done_callback(self._retired.discard)
            while len(self._retired) > RETIRED_PRODUCERS_MAX:
                await asyncio.wait(self._retired, return_when=asyncio.FIRST_COMPLETED)
