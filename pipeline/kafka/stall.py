"""Tells a consumer that hangs from one that is merely busy. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokafka import TopicPartition as KafkaTopicPartition

#: Checks in a row at which a partition has to stand still before its consumer is taken to hang.
STALLED_CHECKS: Final = 2
#: Rounds in which a partition was left out although others were returned. The library takes partitions in
#: turn.
ROUNDS_LEFT_OUT: Final = 4


class StallDetector:
    """Fed with fetches and, now and then, with positions and ends.

    A partition counts as standing still between two checks if its position is the same although there were
    records beyond it at both, and `fetch` had the chance to return them: it came back empty, or it was
    called so often that the partition's turn must have come. A caller that does not fetch is busy; nothing
    hangs then.
    """

    def __init__(self) -> None:
        self._fetches = 0
        self._empty_fetches = 0
        self._behind: dict[KafkaTopicPartition, int | None] = {}
        self._still: dict[KafkaTopicPartition, int] = {}

    def fetched(self, records: int) -> None:
        """One `fetch` returned so many records."""
        self._fetches += 1
        self._empty_fetches += records == 0

    def check(
        self, positions: Mapping[KafkaTopicPartition, int], ends: Mapping[KafkaTopicPartition, int]
    ) -> frozenset[KafkaTopicPartition]:
        """The partitions that hang. `ends` names the watched ones; one without a position stands too."""
        behind: dict[KafkaTopicPartition, int | None] = {}
        for source, end in ends.items():
            position = positions.get(source)
            if end > (position if position is not None else 0):
                behind[source] = position
        # Without a chance nothing is learned, and the window goes on: a fetch may wait longer than it.
        had_a_chance = self._empty_fetches > 0 or self._fetches >= ROUNDS_LEFT_OUT * len(ends)
        self._still = {
            source: self._still.get(source, 0) + had_a_chance
            for source, position in behind.items()
            if source in self._behind and self._behind[source] == position
        }
        self._behind = behind
        if had_a_chance:
            self._fetches = self._empty_fetches = 0
        return frozenset(source for source, checks in self._still.items() if checks >= STALLED_CHECKS)
