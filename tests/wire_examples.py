"""One full message of each kind, every field set, and tools to bend their bytes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator

import msgpack

from schemas.codes import Code, Status
from schemas.deadletter import DeadLetter
from schemas.health import Control, Cost, Health, PathStats
from schemas.message import Field, Message, Nested, Record
from schemas.reply import Path, Reply, Route
from schemas.request import Base, Op, Request, Want
from schemas.sample import DifferenceKind, Finding, Sample, Tier
from schemas.state import SessionRecord
from schemas.work import Adopt, Drop, Served, Work

REQUEST = Request(
    request_id="r-1",
    tenant="acme",
    session_id="s-1",
    tokenizer="qwen3",
    add_special_tokens=True,
    op=Op.SPLICE,
    base=Base(revision=3, length=20, epoch=5),
    text="né",
    start=2,
    end=4,
    length=6,
    new_session="s-2",
    want=Want.IDS,
    offsets=True,
    deadline_ms=1_700_000_000_000,
)

SAMPLE = Sample(
    sample_id="a" * 32,
    time_ms=7,
    tenant="acme",
    session_id="s-1",
    request_id=b"\x00\x01",
    op=Op.APPEND,
    fingerprint="f",
    tokenizer="qwen3",
    add_special_tokens=True,
    path=Path.REPAIR,
    route=Route.A,
    reason="session_operation",
    epoch=5,
    revision=4,
    text="né".encode(),
    ids=b"\x01\0\0\0\x02\0\0\0",
    offsets=bytes(8),
    restarts=b"\x03",
    keep_left=1,
    keep_right=0,
    first_changed=1,
    same_until=1,
    certificate="Resumption(back_bytes=64, forward_bytes=0)",
    engine="native",
    engine_version="0.1.0",
    libraries={"tokenizers": "0.23.3"},
    worker="repair-1",
)

EXAMPLES: tuple[Record, ...] = (
    REQUEST,
    Reply(
        request_id=b"\x00\x01",
        tenant="acme",
        session_id="s-1",
        status=Status.CONFLICT,
        code=Code.STALE_REVISION,
        message="the base is revision 3, the session is at 4",
        path=Path.REPAIR,
        reason="stale",
        route=Route.C,
        epoch=5,
        revision=4,
        length=21,
        keep_left=1,
        ids=b"\x01\0\0\0\x02\0\0\0",
        keep_right=2,
        total=5,
        first_changed=1,
        offsets=bytes(16),
        fingerprint="f" * 64,
        timings={"encode": 12},
        replayed=True,
    ),
    Work(request=REQUEST, fingerprint="f", reason="delta", received_us=1, hops=2),
    Adopt(
        tenant="acme",
        session_id="s-1",
        fingerprint="f",
        add_special_tokens=True,
        epoch=5,
        revision=1,
        state=b"\xff\x00",
        served=Served(request_id="r-1", path=Path.GPU, reason="large", route=Route.D),
    ),
    SessionRecord(
        tenant="acme", session_id="s-1", fingerprint="f", add_special_tokens=True, epoch=5, worker="repair-1"
    ),
    Health(
        worker="repair-1",
        kind="repair-worker",
        tokenizers=("qwen3",),
        queue_depth=3,
        time_ms=7,
        ready=True,
        detail="fine",
        paths={"repair": PathStats(count=9, p50_us=8, p99_us=7)},
        counts={"samples": 12, "reference": 11},
        costs={"f": Cost(fixed_us=3, mib_us=4, record_us=5)},
    ),
    Control(tokenizer="*", breaker_open=True, sampling=0.5),
    Drop(tenant="acme", session_id="s-1", fingerprint="f", add_special_tokens=True),
    SAMPLE,
    Finding(
        sample=SAMPLE,
        tier=Tier.REFERENCE,
        kind=DifferenceKind.SUBSTITUTED,
        index=1,
        answer_id=2,
        expected_id=3,
        answer_total=2,
        expected_total=2,
        redacted=False,
        text_bytes=3,
        time_ms=8,
        worker="shadow-1",
    ),
    DeadLetter(
        topic="tokenize.requests",
        partition=1,
        offset=2,
        code=Code.MALFORMED,
        error="cut short",
        attempt=3,
        time_ms=4,
        worker="classifier-1",
        key=b"k",
        value=b"\xc1",
        headers=(("correlation-id", b"c"),),
        clipped=True,
    ),
)

IDS = [type(example).__name__ for example in EXAMPLES]

#: One value of every MessagePack type; what a field's label accepts is taken out by `wrong_values`.
VALUES: dict[str, object] = {
    "nil": None,
    "bool": True,
    "int": 1,
    "float": 1.5,
    "str": "1",
    "bin": b"1",
    "array": [1],
    "map": {"a": 1},
    "ext": msgpack.ExtType(5, b"x"),
}


def raw(message: Record) -> dict[str, object]:
    """The map that `message` encodes to."""
    value = msgpack.unpackb(message.encode())
    assert isinstance(value, dict)
    return value


def pack(value: object) -> bytes:
    """Any value as MessagePack, lone surrogates as their three bytes."""
    return msgpack.packb(value, unicode_errors="surrogatepass")


def wrong_values(field: Field) -> Iterator[object]:
    """A value of every MessagePack type that `field` must refuse."""
    label = field.kind.label
    accepted = {name for name in VALUES if name in label.split(" ")[0::2]}
    if label.startswith("map"):
        accepted = {"map"}
    if label.startswith("array"):
        accepted = {"array"}
    if label == "float":
        accepted = {"float", "int"}
    if field.needed != "yes":
        accepted |= {"nil"}
    return (value for name, value in VALUES.items() if name not in accepted)


def places(message: Record) -> Iterator[tuple[str, Field, Callable[[dict[str, object], object], None]]]:
    """Every field of `message`, nested ones too: dotted name, row, and how to set it in the raw map."""
    yield from _places(type(message), "", lambda top: top)


def _places(
    kind: type[Message], prefix: str, find: Callable[[dict[str, object]], dict[str, object]]
) -> Iterator[tuple[str, Field, Callable[[dict[str, object], object], None]]]:
    for row in kind.FIELDS:

        def put(top: dict[str, object], value: object, name: str = row.name) -> None:
            find(top)[name] = value

        yield prefix + row.name, row, put
        if isinstance(row.kind, Nested):

            def inner(top: dict[str, object], name: str = row.name) -> dict[str, object]:
                value = find(top)[name]
                assert isinstance(value, dict)
                return value

            yield from _places(row.kind.message, f"{prefix}{row.name}.", inner)


def without_defaults(message: Record) -> list[str]:
    """Names of the fields of `message` that a constructor call cannot leave out."""
    parameters = inspect.signature(type(message)).parameters
    return [
        field.name
        for field in dataclasses.fields(message)  # type: ignore[arg-type]
        if parameters[field.name].default is inspect.Parameter.empty
    ]
