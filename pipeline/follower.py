"""Following compacted topics: everything from the start, then whatever comes, across broker failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from pipeline.clock import Clock
from pipeline.failures import without_words
from pipeline.ports import Broker, Record, Tail, TopicPartition
from pipeline.settings import WorkerSettings
from pipeline.waiting import backoff, cancel, within

FETCH_MAX_RECORDS: Final = 500

_log = logging.getLogger(__name__)


class Followers:
    """The topics that one worker follows, one task each."""

    def __init__(self, broker: Broker, settings: WorkerSettings, clock: Clock) -> None:
        self._broker = broker
        self._settings = settings
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    async def follow(self, topic: str, apply: Callable[[Record], None]) -> None:
        """See `Context.follow`."""
        caught_up = asyncio.Event()
        self._tasks.append(asyncio.create_task(self._follow(topic, apply, caught_up), name=f"follow {topic}"))
        await caught_up.wait()

    async def stop(self) -> None:
        """Stop following; bounded by `settings.stop_s`."""
        if not await cancel(self._tasks, self._settings.stop_s, self._clock):
            _log.warning("a follower did not stop in time")
        self._tasks.clear()

    async def _follow(self, topic: str, apply: Callable[[Record], None], caught_up: asyncio.Event) -> None:
        partitions = [TopicPartition(topic, number) for number in range(self._settings.partitions)]
        pauses = None
        while True:
            try:
                tail = await self._broker.tail(partitions, from_start=True)
                try:
                    pauses = None
                    await self._read(tail, apply, caught_up)
                finally:
                    await within(tail.stop(), self._settings.stop_s, self._clock)
            except Exception as error:
                pauses = pauses or backoff(self._settings.broker_backoff_s, self._settings.broker_backoff_max_s)
                _log.warning("following %s failed (%s); it starts again", topic, type(error).__name__)
                await self._clock.sleep(next(pauses))

    async def _read(self, tail: Tail, apply: Callable[[Record], None], caught_up: asyncio.Event) -> None:
        while True:
            records = await tail.fetch(max_records=FETCH_MAX_RECORDS, timeout_s=self._settings.fetch_timeout_s)
            for record in records:
                try:
                    apply(record)
                except Exception as error:
                    place = f"{record.topic}/{record.partition}/{record.offset}"
                    _log.error("record %s could not be applied: %s", place, without_words(error))
            if not caught_up.is_set() and await tail.caught_up():
                caught_up.set()
