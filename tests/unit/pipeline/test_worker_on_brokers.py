"""Worker and client together, on the memory broker and on a real Apache Kafka, with the machine's clock."""

from __future__ import annotations

import asyncio

from broker_factories import BrokerFactory
from chassis_kit import PARTITIONS, running, settings

from pipeline.client import Client
from pipeline.context import Context
from pipeline.ports import Record
from pipeline.service import ServiceHealth
from pipeline.settings import ClientSettings
from pipeline.telemetry import Telemetry
from pipeline.topology import specs
from pipeline.worker import Worker
from schemas.codes import Status
from schemas.reply import Reply
from schemas.request import Request
from schemas.topics import REQUESTS

CALLS = 30


class ByteTokenizer:
    """Answers every text with its bytes as ids."""

    kind = "cpu-fallback"
    topics = (REQUESTS,)
    group = "bytes"
    drains = True

    def __init__(self) -> None:
        self.ctx: Context
        self.handled = 0

    async def start(self, ctx: Context) -> None:
        self.ctx = ctx

    async def stop(self) -> None: ...

    async def partitions_assigned(self, partitions: frozenset[int]) -> None: ...

    async def partitions_lost(self, partitions: frozenset[int]) -> None: ...

    def health(self) -> ServiceHealth:
        return ServiceHealth()

    async def handle(self, record: Record) -> None:
        request = Request.decode(record.value or b"")
        text = (request.text or "").encode()
        ids = b"".join(byte.to_bytes(4, "little") for byte in text)
        reply = Reply(request_id=request.request_id, status=Status.OK, ids=ids, total=len(text), length=len(text))
        self.handled += 1  # before whoever asked can know
        await self.ctx.reply(record, reply)


async def test_calls_are_answered_through_joins_leaves_and_an_outage(broker_factory: BrokerFactory) -> None:
    first, second = ByteTokenizer(), ByteTokenizer()
    telemetry = Telemetry.in_memory()
    broker = await broker_factory()
    await broker.ensure_topics(specs(PARTITIONS))
    limits = ClientSettings(deadline_s=60.0)

    async def calls(client: Client, name: str) -> None:
        texts = [f"{name} {number}" for number in range(CALLS)]
        answers = await asyncio.gather(*(client.encode(text, "t") for text in texts))
        assert [bytes(answer.ids.tolist()).decode() for answer in answers] == texts

    async with Client(broker, PARTITIONS, settings=limits, telemetry=telemetry) as client:
        async with running(Worker(await broker_factory(), first, settings(worker_id="w1"))):
            await calls(client, "alone")
            async with running(Worker(await broker_factory(), second, settings(worker_id="w2"))):
                await calls(client, "together")
                async with broker_factory.unreachable():
                    asked = asyncio.create_task(calls(client, "away"))
                    await asyncio.sleep(0)
                await asked
                assert first.handled
                assert second.handled
            await calls(client, "alone again")
        async with running(Worker(await broker_factory(), first, settings(worker_id="w3"))):
            handled = first.handled
            await calls(client, "restarted")
            assert first.handled == handled + CALLS, "what was committed does not come again"
