"""Snapshots: what survives a restart, and everything that can be wrong with the file."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from repair_kit import FIRST_EPOCH, Follower, adopt, repair_bench
from worker_kit import GUARD_S, Bench, ids_of, reference_ids, work

from pipeline.telemetry import Telemetry
from repair_worker.history import History, HistoryLimits
from repair_worker.keeper import Keeper
from repair_worker.settings import SnapshotSettings
from repair_worker.snapshots import DAMAGED, FORMAT, Snapshot, SnapshotFile
from repair_worker.store import Identity
from schemas.codes import Status
from schemas.reply import Reply
from schemas.request import Op, Want
from schemas.topics import SESSIONS
from toksplice.engine_session import EngineSession

TEXT = "The quick brown fox jumps over the lazy dog. " * 30


class Desk:
    """A snapshot file on a clock of its own, with its failures by code."""

    def __init__(self, path: Path, **settings: int) -> None:
        self.path = path
        self.now_ms = 1_000_000
        self.telemetry = Telemetry.in_memory()
        self.file = SnapshotFile(
            path,
            SnapshotSettings(**settings),  # type: ignore[arg-type]
            now_ms=lambda: self.now_ms,
            ttl_s=100.0,
            failures=self.telemetry.snapshot_failures,
            run_blocking=asyncio.to_thread,
        )

    def failures(self) -> dict[str, int]:
        points = self.telemetry.metric_points("toksplice.snapshot.failures")
        counts = {str((point.attributes or {})["code"]): point.value for point in points}  # type: ignore[union-attr]
        return {code: count for code, count in counts.items() if count}


@asynccontextmanager
async def desk(path: Path, **settings: int) -> AsyncIterator[Desk]:
    it = Desk(path, **settings)
    try:
        await it.file.open()
        yield it
    finally:
        await it.file.close()
        it.telemetry.shutdown()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.sqlite"


def snapshot(name: str = "s", state: bytes = b"state", **fields: int) -> Snapshot:
    history = History(HistoryLimits())
    history.remember(Reply(request_id="r", status=Status.OK, total=0))
    history.remember(Reply(request_id=b"\xff", status=Status.OK, ids=b"\0" * 8000, total=2000))
    given = {"epoch": 2**53 - 1, "revision": 3, "origin_epoch": 5} | fields
    return Snapshot(identity=Identity("t", name, "f" * 64, True), state=state, history=tuple(history), **given)


def modes(folder: Path) -> list[int]:
    return [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()]


def wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def copy_of(path: Path) -> tuple[bytes, bytes]:
    return path.read_bytes(), wal(path).read_bytes()


def put_back(path: Path, copy: tuple[bytes, bytes]) -> None:
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    path.write_bytes(copy[0])
    wal(path).write_bytes(copy[1])


def make_readable_by_all(path: Path) -> None:
    path.touch(mode=0o644)
    path.chmod(0o644)


def spoil(path: Path) -> None:
    path.write_bytes(b"this is not a database, and long enough to be seen as none" * 100)


def make_folder(path: Path) -> None:
    path.mkdir()


def rows(path: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT key, length(state) FROM sessions ORDER BY written_ms").fetchall()
    connection.close()
    return found


async def test_what_is_saved_is_loaded(path: Path) -> None:
    async with desk(path) as it:
        assert await it.file.load(snapshot().identity) is None
        assert await it.file.save(snapshot())
        assert await it.file.load(snapshot().identity) == snapshot()
        assert await it.file.save(snapshot(revision=4))
    async with desk(path) as it:
        assert await it.file.load(snapshot().identity) == snapshot(revision=4)
        await it.file.delete(snapshot().identity)
        assert await it.file.load(snapshot().identity) is None
        assert it.failures() == {}


async def test_only_the_owner_can_read_the_file(path: Path) -> None:
    make_readable_by_all(path)
    async with desk(path) as it:
        await it.file.save(snapshot())
        found = modes(path.parent)
        assert len(found) > 1
        assert set(found) == {0o600}


async def test_old_snapshots_are_neither_restored_nor_kept(path: Path) -> None:
    async with desk(path) as it:
        await it.file.save(snapshot("old"))
        it.now_ms += 100_001
        await it.file.save(snapshot("new"))
        assert await it.file.load(snapshot("old").identity) is None
        assert len(rows(path)) == 2
        await it.file.trim()
        assert [key for key, _ in rows(path)] == [snapshot("new").key]


async def test_the_ones_written_longest_ago_make_room(path: Path) -> None:
    async with desk(path, bytes_max=4000) as it:
        for number in range(6):
            it.now_ms += 1
            await it.file.save(snapshot(f"s{number}", b"x" * 1000))
        await it.file.trim()
        kept = [key for key, _ in rows(path)]
        assert kept == [snapshot(f"s{number}").key for number in (4, 5)]
        assert it.failures() == {}


async def test_a_snapshot_over_the_whole_budget_is_left_out_and_an_older_one_goes(path: Path) -> None:
    async with desk(path, bytes_max=4000) as it:
        await it.file.save(snapshot())
        assert await it.file.save(snapshot(state=b"x" * 4000))
        assert await it.file.load(snapshot().identity) is None
        assert it.failures() == {"quota_exceeded": 1}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE sessions SET state = x'00'",
        "UPDATE sessions SET history = x'c1'",
        "UPDATE sessions SET revision = 2",
        "UPDATE sessions SET epoch = -1",
        "UPDATE sessions SET origin_epoch = 'x'",
        "UPDATE sessions SET digest = x'00'",
        "UPDATE sessions SET state = 'text'",
    ],
)
async def test_a_damaged_row_is_dropped_and_counted(path: Path, damage: str) -> None:
    async with desk(path) as it:
        await it.file.save(snapshot())
        with sqlite3.connect(path) as connection:
            connection.execute(damage)
        connection.close()
        assert await it.file.load(snapshot().identity) is None
        assert it.failures() == {DAMAGED: 1}
        assert rows(path) == []


async def test_a_file_of_another_format_is_emptied(path: Path) -> None:
    async with desk(path) as it:
        await it.file.save(snapshot())
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
        connection.execute("ALTER TABLE sessions ADD COLUMN more")
    connection.close()
    async with desk(path) as it:
        assert rows(path) == []
        assert await it.file.save(snapshot())
        assert await it.file.load(snapshot().identity) == snapshot()


async def test_a_file_that_is_no_database_costs_snapshots_only(path: Path) -> None:
    spoil(path)
    async with desk(path) as it:
        assert "cannot be opened" in it.file.problem
        assert not await it.file.save(snapshot())
        assert await it.file.load(snapshot().identity) is None
        assert it.failures()["storage_full"] == 3


async def test_a_folder_that_is_not_there_costs_snapshots_only(path: Path) -> None:
    async with desk(path / "nowhere") as it:
        assert not await it.file.save(snapshot())
        assert it.failures()["storage_full"] == 2
        make_folder(path)
        # The next use tries again, and the trouble is over.
        assert await it.file.save(snapshot())
        assert it.file.problem == ""


async def test_a_full_disk_costs_snapshots_only(path: Path) -> None:
    async with desk(path) as it:
        await it.file.save(snapshot())
        connection = it.file._connection
        assert connection is not None
        await connection.execute("PRAGMA max_page_count = 20")
        assert not await it.file.save(snapshot("big", b"x" * 1_000_000))
        assert "written" in it.file.problem
        assert it.failures() == {"storage_full": 1}
        # What was there is still there.
        assert await it.file.load(snapshot().identity) == snapshot()
        assert it.file.problem == ""


# With the service


def keeper(it: Bench) -> Keeper:
    found = it.service._keeper  # type: ignore[attr-defined]
    assert isinstance(found, Keeper)
    return found


async def test_a_session_outlives_a_restart_and_takes_a_new_epoch(path: Path) -> None:
    async with repair_bench(snapshot_path=path) as it:
        await it.handle(adopt(TEXT, add_special_tokens=True))
        client = Follower(it, TEXT, add_special_tokens=True)
        await client.append("And on.")
        assert client.base.epoch == FIRST_EPOCH
        # Kept between runs, so nobody is told that they ended.
        assert all(sent.value is not None for sent in it.sent(SESSIONS))
    async with repair_bench(snapshot_path=path) as it:
        client.it = it
        reply = await client.append("And on again.")
        assert (reply.epoch, reply.revision) == (1000, 3)
        assert len(it.sent(SESSIONS)) == 1
        assert (await client.append("And on.")).epoch == 1000


async def test_answers_outlive_a_restart_too(path: Path) -> None:
    change = work("r", Op.TEXT, text=TEXT + "fox")
    async with repair_bench(snapshot_path=path, history_inline_bytes_max=0) as it:
        await it.handle(adopt(TEXT))
        first = await it.ask(change)
    async with repair_bench(snapshot_path=path) as it:
        again = await it.ask(change)
        assert again.replayed
        assert (again.epoch, again.revision, ids_of(again)) == (first.epoch, first.revision, ids_of(first))


async def test_a_delta_of_the_time_that_was_lost_never_applies(path: Path) -> None:
    async with repair_bench(snapshot_path=path) as it:
        await it.handle(adopt(TEXT))
        client = Follower(it, TEXT)
        await client.append("1")
        await keeper(it).tidy()
        saved = copy_of(path)
        await client.append("lost")
        lost = client.base
    put_back(path, saved)
    async with repair_bench(snapshot_path=path) as it:
        # Another client brings the session to the same revision and length by another text.
        other = await it.ask(work("o", Op.TEXT, text=TEXT + "1" + "tsol"))
        assert (other.status, other.revision, other.length) == (Status.OK, lost.revision, lost.length)
        reply = await it.ask(work("x", Op.APPEND, text="!", base=lost))
        assert reply.status is Status.CONFLICT


async def test_a_closed_session_does_not_come_back(path: Path) -> None:
    async with repair_bench(snapshot_path=path) as it:
        await it.handle(adopt(TEXT))
        await keeper(it).tidy()
        assert len(rows(path)) == 1
        await it.ask(work("c", Op.CLOSE))
        assert rows(path) == []


async def test_an_evicted_session_comes_back_from_its_snapshot(path: Path) -> None:
    async with repair_bench(snapshot_path=path, sessions_max=1) as it:
        await it.handle(adopt(TEXT))
        await keeper(it).tidy()
        client = Follower(it, TEXT)
        await it.handle(adopt(TEXT, session_id="other"))
        assert (await client.append("x")).status is Status.OK


async def test_a_state_that_cannot_be_restored_is_dropped(path: Path) -> None:
    identity = Identity("", "s", adopt(TEXT).fingerprint, False)
    async with desk(path) as it:
        it.now_ms = 1_700_000_000_000
        await it.file.save(Snapshot(identity=identity, epoch=1, revision=1, origin_epoch=1, state=b"nonsense"))
    async with repair_bench(snapshot_path=path) as it:
        assert await it.handle(work("r", text=TEXT)) is None
        assert it.count("toksplice.snapshot.failures", code=DAMAGED) == 1
        assert rows(path) == []


async def test_a_failing_file_is_told_in_the_health_and_tried_again(path: Path) -> None:
    async with repair_bench(snapshot_path=path / "nowhere") as it:
        await it.handle(adopt(TEXT))
        await Follower(it, TEXT).append("x")
        await keeper(it).tidy()
        assert "snapshots cannot be written" in it.service.health().detail
        assert it.count("toksplice.snapshot.failures", code="storage_full") >= 1
        make_folder(path)
        await keeper(it).tidy()
        assert it.service.health().detail == ""
    assert len(rows(path / "nowhere")) == 1


async def test_a_round_writes_no_more_than_its_batch_oldest_first(path: Path) -> None:
    async with repair_bench(snapshot_path=path, snapshots=SnapshotSettings(batch_max=2)) as it:
        for number in range(5):
            await it.handle(adopt(TEXT, session_id=f"s{number}"))
        await keeper(it).tidy()
        assert len(rows(path)) == 2
    assert len(rows(path)) == 5


async def test_the_answer_does_not_wait_for_the_snapshot(path: Path) -> None:
    async with repair_bench(snapshot_path=path) as it:
        await it.handle(adopt(TEXT))
        await Follower(it, TEXT).append("x")
        assert rows(path) == []


async def test_a_restored_session_is_exact(path: Path) -> None:
    changes: list[Callable[[str], str]] = [
        lambda text: text + "é",
        lambda text: text[40:],
        lambda text: "<|end|>" + text,
    ]
    text = TEXT
    for number, change in enumerate(changes):
        async with repair_bench(snapshot_path=path) as it:
            if number == 0:
                await it.handle(adopt(text))
            text = change(text)
            reply = await it.ask(work(f"r{number}", text=text, want=Want.IDS))
            assert ids_of(reply) == reference_ids(text)


async def test_a_session_is_changed_while_it_is_written_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for a long text to be written, and the shared memory of the copy is not forgotten after."""
    begun, go_on = threading.Event(), threading.Event()
    to_bytes = EngineSession.to_bytes

    def slow(session: EngineSession) -> bytes:
        begun.set()
        assert go_on.wait(GUARD_S)
        return to_bytes(session)

    async with repair_bench(snapshot_path=path) as it:
        await it.handle(adopt(TEXT))
        keeper: Keeper = it.service._keeper  # type: ignore[attr-defined]
        monkeypatch.setattr(EngineSession, "to_bytes", slow)
        tidying = asyncio.create_task(keeper.tidy())
        await asyncio.to_thread(begun.wait, GUARD_S)
        client = Follower(it, TEXT)
        async with asyncio.timeout(GUARD_S):
            await client.append("and on.")
        go_on.set()
        await tidying
        (entry,) = keeper._store
        assert keeper._store.bytes_used == entry.accounted_bytes == entry.weigh()
    # What was written at the end is the later state.
    async with repair_bench(snapshot_path=path) as it:
        again = await it.ask(work("r", text=client.text, want=Want.IDS))
        assert (again.revision, ids_of(again)) == (3, reference_ids(client.text))
