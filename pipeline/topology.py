"""Read this first: every topic of the pipeline, who writes it, who reads it, and in which consumer group.

One request travels like this (`docs/message-walkthrough.md` follows one record by record):

    client --requests--> classifier --repair-worker--> repair worker --replies--> client
                             |------gpu-worker-------> GPU worker ------|   ^
                             `------cpu-fallback-----> CPU fallback ----|---'
                                                                        `--repair-worker (adopt)

A worker that cannot serve a record forwards it down the same ladder. Beside the requests flow what workers
know about each other (sessions, health, control), sampled answers on their way to the shadow worker, and what
people look at (quarantine, dlq).

All topics have the same number of partitions, and every consumer uses range assignment, so one session is one
partition number on every topic and, for a worker that reads several topics, one process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.ports import TopicSpec
from schemas import topics

#: Partitions of every topic unless the operator chose another number before the first record.
DEFAULT_PARTITIONS: Final = topics.DEFAULT_PARTITIONS

CLASSIFIER_GROUP: Final = "toksplice.classifier"
REPAIR_GROUP: Final = "toksplice.repair-worker"
GPU_GROUP: Final = "toksplice.gpu-worker"
CPU_GROUP: Final = "toksplice.cpu-fallback"
SHADOW_GROUP: Final = "toksplice.shadow"

_HOUR_MS: Final = 60 * 60 * 1000
_DAY_MS: Final = 24 * _HOUR_MS

#: Unread work is worthless long before this: its deadline has passed. Requests hold users' text, so they go
#: early.
WORK_RETENTION_MS: Final = _DAY_MS
#: A reply is read within seconds or not at all.
REPLY_RETENTION_MS: Final = _HOUR_MS
#: Samples wait for the shadow worker, which may be switched off for a night.
SHADOW_RETENTION_MS: Final = _DAY_MS
#: What went wrong stays until an operator has had time to look.
OPERATOR_RETENTION_MS: Final = 30 * _DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic: what is in it, who writes it, who reads it.

    `groups` are consumer groups, which share the partitions and commit what they have dealt with; `tails`
    are readers without a group, each of which sees every record of the partitions it follows.
    """

    name: str
    purpose: str
    writers: tuple[str, ...]
    groups: tuple[str, ...] = ()
    tails: tuple[str, ...] = ()
    compacted: bool = False
    drop_oldest: bool = False
    retention_ms: int | None = None

    def spec(self, partitions: int) -> TopicSpec:
        """What a broker needs to know about this topic."""
        return TopicSpec(
            name=self.name,
            partitions=partitions,
            compacted=self.compacted,
            drop_oldest=self.drop_oldest,
            retention_ms=self.retention_ms,
        )


TOPOLOGY: Final[tuple[Topic, ...]] = (
    Topic(
        name=topics.REQUESTS,
        purpose="requests as clients write them",
        writers=("clients",),
        groups=(CLASSIFIER_GROUP,),
        retention_ms=WORK_RETENTION_MS,
    ),
    Topic(
        name=topics.REPAIR,
        purpose="changes to live sessions, states handed over by the other workers, and orders to drop one",
        writers=("classifier", "gpu-worker", "cpu-fallback", "shadow"),
        groups=(REPAIR_GROUP,),
        retention_ms=WORK_RETENTION_MS,
    ),
    Topic(
        name=topics.GPU,
        purpose="whole texts that are worth the GPU",
        writers=("classifier", "repair-worker"),
        groups=(GPU_GROUP,),
        retention_ms=WORK_RETENTION_MS,
    ),
    Topic(
        name=topics.CPU,
        purpose="everything that has no better place",
        writers=("classifier", "repair-worker", "gpu-worker"),
        groups=(CPU_GROUP,),
        retention_ms=WORK_RETENTION_MS,
    ),
    Topic(
        name=topics.REPLIES,
        purpose="answers; a client follows one partition and joins them to its requests by id",
        writers=("classifier", "repair-worker", "gpu-worker", "cpu-fallback"),
        tails=("clients",),
        drop_oldest=True,
        retention_ms=REPLY_RETENTION_MS,
    ),
    Topic(
        name=topics.SESSIONS,
        purpose="which sessions are live, one key each; a tombstone ends one",
        writers=("repair-worker", "gpu-worker", "cpu-fallback"),
        tails=("classifier",),
        compacted=True,
    ),
    Topic(
        name=topics.HEALTH,
        purpose="a heartbeat of each worker: kind, tokenizers, queue depth",
        writers=("every worker",),
        tails=("classifier", "operators"),
        compacted=True,
    ),
    Topic(
        name=topics.CONTROL,
        purpose="breakers and sampling rates, per tokenizer",
        writers=("operators", "shadow"),
        tails=("every worker",),
        compacted=True,
    ),
    Topic(
        name=topics.SHADOW,
        purpose="sampled answers with their texts, to be tokenized again by the reference",
        writers=("repair-worker", "gpu-worker", "cpu-fallback"),
        groups=(SHADOW_GROUP,),
        drop_oldest=True,
        retention_ms=SHADOW_RETENTION_MS,
    ),
    Topic(
        name=topics.QUARANTINE,
        purpose="answers that the reference contradicts",
        writers=("shadow",),
        tails=("operators",),
        drop_oldest=True,
        retention_ms=OPERATOR_RETENTION_MS,
    ),
    Topic(
        name=topics.DLQ,
        purpose="records that no worker could deal with, with the error and their origin",
        writers=("every worker",),
        tails=("operators",),
        drop_oldest=True,
        retention_ms=OPERATOR_RETENTION_MS,
    ),
)

BY_NAME: Final = {topic.name: topic for topic in TOPOLOGY}


def specs(partitions: int = DEFAULT_PARTITIONS) -> tuple[TopicSpec, ...]:
    """What `Broker.ensure_topics` needs, for every topic. Raises ValueError below one partition."""
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    return tuple(topic.spec(partitions) for topic in TOPOLOGY)
