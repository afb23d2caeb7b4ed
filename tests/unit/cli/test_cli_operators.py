"""`top` and `dlq`: what an operator sees, and sending a dead letter again."""

from dataclasses import replace
from typing import Any

import pytest
from broker_factories import MemoryFactory
from cli_kit import URL, connect_to
from rich.console import Console

from cli import dlq, top, topics
from cli.dlq import Letter
from cli.errors import CliError, ExitCode
from cli.top import Board
from pipeline.memory import MemoryBroker
from pipeline.ports import TopicPartition
from schemas.codes import Code
from schemas.deadletter import DeadLetter
from schemas.health import Cost, Health, PathStats
from schemas.topics import DLQ, HEALTH, REPAIR, REQUESTS, partition_for

NOW_MS = 1_700_000_000_000


def health(worker: str, *, age_s: float = 0, ready: bool = True) -> Health:
    return Health(
        worker=worker,
        kind="repair-worker",
        queue_depth=3,
        time_ms=NOW_MS - round(age_s * 1000),
        ready=ready,
        detail="" if ready else "loading",
        paths=dict.fromkeys(("repair/A", "cpu/D", "repair"), PathStats(count=1_234, p50_us=1_500, p99_us=9_000)),
        costs={"f": Cost(fixed_us=1, mib_us=2, record_us=3)},
    )


def letter(
    topic: str = REQUESTS, *, key: bytes | None = b"k", clipped: bool = False, time_ms: int = NOW_MS
) -> DeadLetter:
    return DeadLetter(
        topic=topic,
        partition=2,
        offset=17,
        code=Code.INTERNAL,
        error="KeyError",
        attempt=3,
        time_ms=time_ms,
        worker="w",
        key=key,
        value=b"a user's text",
        headers=(("traceparent", b"x"),),
        clipped=clipped,
    )


@pytest.fixture
async def broker(memory_factory: MemoryFactory, monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    """A memory broker that the commands take for the Kafka that they were named."""
    broker = await memory_factory()
    await connect_to(broker, monkeypatch, dlq, top)
    return broker


async def put(broker: MemoryBroker, *letters: DeadLetter) -> None:
    producer = await broker.producer()
    for number, one in enumerate(letters):
        await producer.send(DLQ, one.encode(), partition=number)


async def records_of(broker: MemoryBroker, topic: str, partition: int) -> list[Any]:
    tail = await broker.tail([TopicPartition(topic, partition)], from_start=True)
    records: list[Any] = []
    while not await tail.caught_up():
        records += await tail.fetch(max_records=10, timeout_s=0.1)
    return records


def text_of(board: Board) -> str:
    console = Console(width=160, record=True, file=None)
    with console.capture() as captured:
        console.print(board.render())
    return captured.get()


def test_the_board_shows_the_last_heartbeat_of_each_worker() -> None:
    board = Board(lambda: NOW_MS)
    board.note(b"a", health("a", age_s=100).encode())
    board.note(b"a", health("a", age_s=1).encode())
    board.note(b"b", health("b", age_s=60).encode())
    board.note(b"c", health("c", ready=False).encode())
    board.note(b"old", health("old", age_s=7_200).encode())
    board.note(b"bad", b"not a heartbeat")
    rows = board.as_dicts()
    assert [(row["worker"], row["stale"], row["ready"]) for row in rows] == [
        ("a", False, True),
        ("b", True, True),
        ("c", False, False),
    ]
    numbers = {"count": 1_234, "p50_us": 1_500, "p99_us": 9_000}
    assert rows[0]["paths"] == {
        "repair/A": {"path": "repair", "route": "A", "engine": "native", **numbers},
        "cpu/D": {"path": "cpu", "route": "D", "engine": "reference", **numbers},
        "repair": {"path": "repair", "route": "", "engine": "", **numbers},
    }
    assert rows[0]["costs"] == {"f": {"fixed_us": 1, "mib_us": 2, "record_us": 3}}
    text = text_of(board)
    assert "1,234" in text
    assert {"native", "reference"} <= set(text.split())
    assert "gone" in text
    assert "not ready loading" in text
    board.note(b"a", None)
    assert [row["worker"] for row in board.as_dicts()] == ["b", "c"]


def test_the_board_shows_what_a_ready_worker_has_to_say() -> None:
    board = Board(lambda: NOW_MS)
    board.note(b"a", replace(health("a"), detail="DRILL: wrong on purpose").encode())
    assert "ready DRILL: wrong on purpose" in text_of(board)


def test_an_empty_board_says_so() -> None:
    assert "no worker has been heard of" in text_of(Board(lambda: NOW_MS))


async def test_top_reads_what_is_there(broker: MemoryBroker) -> None:
    producer = await broker.producer()
    for number in range(3):
        await producer.send(HEALTH, health(f"w{number}").encode(), key=f"w{number}".encode())
    tail = await broker.tail([TopicPartition(HEALTH, n) for n in range(12)], from_start=True)
    board = Board(lambda: NOW_MS)
    await top._catch_up(tail, board)
    assert [one.worker for one in board.workers()] == ["w0", "w1", "w2"]


async def test_dead_letters_are_listed_without_their_content(broker: MemoryBroker) -> None:
    await put(broker, letter(), letter(REPAIR))
    producer = await broker.producer()
    await producer.send(DLQ, b"no dead letter", partition=5)
    letters = await dlq._list(URL)
    assert sorted(one.place for one in letters) == ["0:0", "1:0"]
    facts = letters[0].describe()
    assert facts["time"] == "2023-11-14 22:13:20"
    assert "text" not in str(facts)


async def test_a_dead_letter_goes_back_to_where_it_came_from(broker: MemoryBroker) -> None:
    await put(broker, letter(), letter(REPAIR, key=None), letter(clipped=True))
    sent, left_out = await dlq._replay(URL, None)
    assert sorted(sent) == ["0:0", "1:0"]
    assert left_out == {"2:0": "its content was cut to fit and cannot be sent again"}
    (request,) = await records_of(broker, REQUESTS, partition_for(b"k", 12))
    assert (request.value, request.key, request.headers) == (b"a user's text", b"k", (("traceparent", b"x"),))
    # A record between workers stays in its partition: it is its session's.
    (work,) = await records_of(broker, REPAIR, 2)
    assert work.value == b"a user's text"


async def test_only_the_named_dead_letters_are_replayed(broker: MemoryBroker) -> None:
    await put(broker, letter(), letter(REPAIR))
    sent, left_out = await dlq._replay(URL, {(1, 0), (7, 9)})
    assert sent == ["1:0"]
    assert left_out == {"7:9": "there is no such dead letter"}
    assert await records_of(broker, REQUESTS, partition_for(b"k", 12)) == []


def test_places_are_parsed() -> None:
    assert dlq._place("3:17") == (3, 17)
    with pytest.raises(Exception, match="PARTITION:OFFSET"):
        dlq._place("3")
    assert Letter(3, 17, letter()).place == "3:17"


def test_the_memory_broker_has_no_operators() -> None:
    with pytest.raises(CliError) as caught:
        topics.remote("memory://")
    assert caught.value.exit_code is ExitCode.USAGE
