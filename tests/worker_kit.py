"""What the tests of the workers share: a small real tokenizer, a registry of it, and a service on a bench.

`Bench` gives one service a real `Context` on a producer that notes what is written, a clock that stands still, and
telemetry that can be read back; a test hands it records and looks at what came out. Nothing runs in between.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from tokenizers import AddedToken
from tokenizers import Tokenizer as Reference
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

import toksplice
from pipeline.blocking import BlockingPool
from pipeline.clock import ManualClock
from pipeline.context import Context
from pipeline.control import ControlState
from pipeline.errors import BrokerUnavailableError
from pipeline.follower import Followers
from pipeline.ports import Headers, Record
from pipeline.service import Service
from pipeline.settings import WorkerSettings
from pipeline.telemetry import Telemetry
from schemas.health import Control
from schemas.reply import Reply
from schemas.request import Base, Op, Request
from schemas.topics import CONTROL, REPLIES, partition_for, session_key
from schemas.work import Work, WorkRecord, decode_work_record
from toksplice.errors import UnknownTokenizerError

NAME = "tiny"
PARTITIONS = 4
NOW_MS = 1_700_000_000_000

#: Nothing waits longer than this in real time; it is reached only when a test fails.
GUARD_S = 20.0

_CORPUS = (
    "The quick brown fox jumps over the lazy dog. The dog sleeps; the fox runs on, and on, and on. "
    "Numbers: 1, 22, 333, 4444. Names: Ann, Bo, Cy. def main(): return 0 "
) * 20


@functools.cache
def tiny_json() -> bytes:
    """A byte-level BPE tokenizer of some 350 tokens, with a BOS token and one added token."""
    reference = Reference(BPE())
    reference.pre_tokenizer = ByteLevel(add_prefix_space=False)
    reference.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=350,
        special_tokens=["<bos>"],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    reference.train_from_iterator([_CORPUS], trainer)
    reference.add_special_tokens([AddedToken("<|end|>", special=True)])
    bos = reference.token_to_id("<bos>")
    reference.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", bos)])
    return reference.to_str().encode()


@functools.cache
def tiny(*, engine: bool = True) -> toksplice.Tokenizer:
    """The tokenizer of `tiny_json`, loaded once; without the native engine if that is asked for."""
    return toksplice.load(tiny_json(), name=NAME, engine=engine)


@functools.cache
def reference() -> Reference:
    """The reference library's own tokenizer, for answers that owe nothing to the code under test."""
    return Reference.from_str(tiny_json().decode())


def reference_ids(text: str, *, add_special_tokens: bool = False) -> list[int]:
    return list(reference().encode(text, add_special_tokens=add_special_tokens).ids)


class TinyRegistry:
    """A registry of `tiny`. `errors` are raised by the next calls of `get`, first come first served."""

    def __init__(self, *, engine: bool = True) -> None:
        self.engine = engine
        self.errors: list[Exception] = []
        self.gets = 0

    def names(self) -> tuple[str, ...]:
        return (NAME,)

    def resolve(self, name_or_fingerprint: str) -> str:
        if name_or_fingerprint not in (NAME, tiny().fingerprint):
            raise UnknownTokenizerError("no such tokenizer")
        return tiny().fingerprint

    def name_of(self, fingerprint_hex: str) -> str:
        return NAME if fingerprint_hex == tiny().fingerprint else ""

    def get(self, fingerprint_hex: str) -> toksplice.Tokenizer:
        self.gets += 1
        if self.errors:
            raise self.errors.pop(0)
        self.resolve(fingerprint_hex)
        return tiny(engine=self.engine)


@dataclass(frozen=True)
class Sent:
    """One record that the service wrote."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    headers: Headers


class NotingProducer:
    """Notes every record. `errors` are raised by the next sends to a topic."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.errors: dict[str, list[Exception]] = {}

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> int:
        await asyncio.sleep(0)
        if self.errors.get(topic):
            raise self.errors[topic].pop(0)
        self.sent.append(Sent(topic, value, key, partition, headers))
        return len(self.sent) - 1

    async def stop(self) -> None:
        return None

    def fail_next(self, topic: str) -> None:
        self.errors.setdefault(topic, []).append(BrokerUnavailableError("made by a test"))


class NotingFollowers:
    """Stands in for `pipeline.follower.Followers`: the test itself delivers the records."""

    def __init__(self) -> None:
        self.applies: dict[str, Callable[[Record], None]] = {}

    async def follow(self, topic: str, apply: Callable[[Record], None]) -> None:
        self.applies[topic] = apply


@dataclass
class Bench:
    """A service on its own. Made by `bench`."""

    service: Service
    clock: ManualClock
    producer: NotingProducer
    followers: NotingFollowers
    telemetry: Telemetry
    control: ControlState
    ctx: Context
    _offsets: Any = field(default_factory=itertools.count)

    def record(self, value: bytes | None, topic: str, partition: int = 0, headers: Headers = ()) -> Record:
        return Record(
            topic=topic,
            partition=partition,
            offset=next(self._offsets),
            key=None,
            value=value,
            headers=headers,
            timestamp_ms=self.clock.now_ms(),
        )

    async def handle(self, message: Request | WorkRecord, headers: Headers = ()) -> Awaitable[None] | None:
        """Hand one message to the service, in its session's partition."""
        about = message.request if isinstance(message, Work) else message
        partition = partition_for(session_key(about.tenant, about.session_id), PARTITIONS)
        topic = self.service.topics[0]
        return await self.service.handle(self.record(message.encode(), topic, partition, headers))

    def sent(self, topic: str) -> list[Sent]:
        return [sent for sent in self.producer.sent if sent.topic == topic]

    def replies(self) -> list[Reply]:
        return [Reply.decode(sent.value or b"") for sent in self.sent(REPLIES)]

    async def ask(self, message: Request | WorkRecord) -> Reply:
        """Hand over a message that is answered at once; returns the answer."""
        before = len(self.sent(REPLIES))
        assert await self.handle(message) is None
        (reply,) = self.replies()[before:]
        return reply

    def passed_on(self, topic: str) -> list[WorkRecord]:
        return [decode_work_record(sent.value or b"") for sent in self.sent(topic)]

    def count(self, metric: str, **attributes: str) -> float:
        """Sum of a counter over its points that bear these attributes."""
        return sum(
            cast("Any", point).value
            for point in self.telemetry.metric_points(metric)
            if attributes.items() <= dict(point.attributes or {}).items()
        )


@asynccontextmanager
async def bench(
    service: Service, *, sampling: float = 0.0, switched: Control | None = None, **settings: Any
) -> AsyncIterator[Bench]:
    """Start a service on a bench; stop it afterwards. `switched` is on tokenize.control before the start."""
    clock = ManualClock(now_ms=NOW_MS)
    producer, followers, telemetry = NotingProducer(), NotingFollowers(), Telemetry.in_memory()
    control = ControlState(default_sampling=sampling)
    pool = BlockingPool(2, name="test")

    async def make_producer() -> NotingProducer:
        return producer

    ctx = Context(
        producer=producer,
        telemetry=telemetry,
        clock=clock,
        settings=WorkerSettings(**({"worker_id": "worker-1", "partitions": PARTITIONS} | settings)),
        worker_id="worker-1",
        control=control,
        followers=cast("Followers", followers),
        pool=pool,
        make_producer=make_producer,
    )
    it = Bench(service, clock, producer, followers, telemetry, control, ctx)
    if switched is not None:
        control.apply(it.record(switched.encode(), CONTROL))
    async with asyncio.timeout(GUARD_S):
        await service.start(ctx)
    try:
        yield it
    finally:
        async with asyncio.timeout(GUARD_S):
            await service.stop()
        pool.close()
        telemetry.shutdown()


def request(request_id: str | bytes, op: Op = Op.TEXT, **fields: Any) -> Request:
    """A request of session "s" with the tiny tokenizer."""
    return Request(**({"request_id": request_id, "session_id": "s", "tokenizer": NAME, "op": op} | fields))


def work(request_id: str | bytes, op: Op = Op.TEXT, *, reason: str = "why", hops: int = 0, **fields: Any) -> Work:
    """The same as it comes to a worker."""
    return Work(
        request=request(request_id, op, **fields),
        fingerprint=tiny().fingerprint,
        reason=reason,
        received_us=NOW_MS * 1_000,
        hops=hops,
    )


def base_of(reply: Reply) -> Base:
    """The state that a reply tells of, as the next delta names it."""
    return Base(revision=reply.revision, length=reply.length, epoch=reply.epoch)


def ids_of(reply: Reply) -> list[int]:
    return [int.from_bytes(reply.ids[i : i + 4], "little") for i in range(0, len(reply.ids), 4)]


def patched(old: list[int], reply: Reply) -> list[int]:
    """The session's new ids, by the protocol's rule."""
    return old[: reply.keep_left] + ids_of(reply) + old[len(old) - reply.keep_right :]
