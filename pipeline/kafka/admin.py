"""Creating topics, and checking that existing ones are what the pipeline needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import NodeNotReadyError, NoError, TopicAlreadyExistsError, for_code

from pipeline.errors import TopologyError
from pipeline.kafka.guard import limited, translate
from pipeline.kafka.names import Names
from pipeline.kafka.settings import KafkaSettings
from pipeline.ports import MAX_RECORD_BYTES, TopicSpec

_log = logging.getLogger(__name__)

#: How often a cluster is asked whether it has brokers, and new topics their leaders. It tells nobody by
#: itself.
_READY_POLL_S: Final = 0.05
#: Compaction leaves the segment that is written alone, so compacted topics start a new one this often.
_COMPACTED_SEGMENT_MS: Final = 60 * 60 * 1000


@asynccontextmanager
async def admin_client(settings: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connected admin client. Raises BrokerUnavailableError when there is no connection in time."""
    async with limited(settings.start_timeout_s, f"connecting to Kafka at {settings.bootstrap}"):
        client = await _connect(settings)
    try:
        yield client
    finally:
        async with asyncio.timeout(settings.stop_timeout_s):
            await client.close()


async def _connect(settings: KafkaSettings) -> AIOKafkaAdminClient:
    """A client that knows a broker. One that just started can answer before it knows of any, itself included."""
    while True:
        client = AIOKafkaAdminClient(
            **settings.connection_options(), request_timeout_ms=round(settings.request_timeout_s * 1000)
        )
        try:
            await client.start()
            cluster = await client.describe_cluster()
        except NodeNotReadyError:
            await client.close()
        except BaseException:
            await client.close()
            raise
        else:
            if cluster["brokers"]:
                return client
            await client.close()
        await asyncio.sleep(_READY_POLL_S)


async def ensure_topics(settings: KafkaSettings, names: Names, specs: Sequence[TopicSpec]) -> None:
    """See `pipeline.ports.Broker.ensure_topics`."""
    wanted = {names.outside(spec.name): spec for spec in specs}
    async with (
        admin_client(settings) as client,
        limited(settings.start_timeout_s, "creating topics"),
    ):
        # Asking for a topic by name would create it, with another partition count, where the broker is set
        # to do so.
        existing = set(await client.list_topics())
        missing = [name for name in wanted if name not in existing]
        if missing:
            answer = await client.create_topics([_new_topic(name, wanted[name], settings) for name in missing])
            for name, code, *message in answer.topic_errors:
                # Another process may have been faster.
                if (kind := for_code(code)) not in (NoError, TopicAlreadyExistsError):
                    raise translate(kind(*message), f"creating topic {name}")
            _log.info("created the topics %s", ", ".join(missing))
        while True:
            if await _check(client, wanted):
                return
            await asyncio.sleep(_READY_POLL_S)


async def _check(client: AIOKafkaAdminClient, wanted: dict[str, TopicSpec]) -> bool:
    """Whether all topics are there, with leaders. Raises TopologyError for another partition count."""
    ready = True
    for topic in await client.describe_topics(list(wanted)):
        spec = wanted[topic["topic"]]
        leaders = [partition["leader"] for partition in topic["partitions"] if partition["leader"] >= 0]
        count = len(topic["partitions"])
        if topic["error_code"] or len(leaders) < count or count == 0:
            ready = False
        elif count != spec.partitions:
            raise TopologyError(
                f"topic {spec.name} has {count} partitions, not {spec.partitions}; "
                "the partition count of a running installation never changes"
            )
    return ready


def _new_topic(name: str, spec: TopicSpec, settings: KafkaSettings) -> NewTopic:
    configs = {"max.message.bytes": str(MAX_RECORD_BYTES)}
    if spec.compacted:
        configs |= {"cleanup.policy": "compact", "segment.ms": str(_COMPACTED_SEGMENT_MS)}
    elif spec.retention_ms is not None:
        configs |= {"retention.ms": str(spec.retention_ms)}
    return NewTopic(
        name=name,
        num_partitions=spec.partitions,
        replication_factor=settings.replication,
        topic_configs=configs,
    )
