"""The file of findings: what goes in comes out, within bounds, and for its owner only."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from shadow_kit import finding

from shadow.alarm import redacted
from shadow.store import QuarantineStore, StoreError, StoreLimits


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "quarantine.sqlite"


def holds(path: Path, text: bytes) -> bool:
    return text in path.read_bytes()


def put(path: Path, content: bytes) -> None:
    """A file that was there before, readable by all."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o644)


async def ids_in(store: QuarantineStore) -> list[str]:
    return [listed.sample_id for listed in await store.list()]


async def test_what_is_saved_comes_back(path: Path) -> None:
    store = QuarantineStore(path)
    one, two = finding(1), redacted(finding(2))
    assert await store.save(one)
    assert await store.save(two)
    assert await store.get("sample-1") == one
    assert await store.get("sample-2") == two
    assert await store.get("sample-3") is None
    second, first = await store.list()
    assert (second.sample_id, second.redacted, first.sample_id, first.redacted) == ("sample-2", True, "sample-1", False)
    assert (first.tokenizer, first.path, first.route, first.kind, first.tier, first.index, first.time_ms) == (
        "test",
        "repair",
        "A",
        "substituted",
        "reference",
        3,
        1_001,
    )
    assert first.size_bytes == len(one.encode())
    await store.close()
    again = QuarantineStore(path)
    assert await ids_in(again) == ["sample-2", "sample-1"]
    await again.close()


async def test_a_finding_of_the_same_sample_takes_its_place(path: Path) -> None:
    store = QuarantineStore(path)
    for number in (1, 1, 1):
        assert await store.save(finding(number))
    assert await ids_in(store) == ["sample-1"]
    await store.close()


async def test_findings_can_be_forgotten(path: Path) -> None:
    store = QuarantineStore(path)
    for number in range(3):
        await store.save(finding(number))
    assert await store.delete("sample-1")
    assert not await store.delete("sample-1")
    assert await ids_in(store) == ["sample-2", "sample-0"]
    assert await store.clear() == 2
    assert await ids_in(store) == []
    await store.close()


async def test_the_oldest_make_room(path: Path) -> None:
    size = len(finding(0).encode())
    for limits in (StoreLimits(findings_max=3), StoreLimits(bytes_max=3 * size + 10)):
        store = QuarantineStore(path, limits)
        for number in range(6):
            assert await store.save(finding(number))
        assert await ids_in(store) == ["sample-5", "sample-4", "sample-3"]
        assert not await store.save(finding(9, "x" * 4 * size)) or limits.bytes_max > 4 * size
        await store.clear()
        await store.close()


async def test_only_the_owner_can_read_it(path: Path) -> None:
    put(path, b"")
    store = QuarantineStore(path)
    await store.save(finding())
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes
    assert set(modes.values()) == {0o600}
    await store.close()


async def test_what_is_deleted_leaves_the_file(path: Path) -> None:
    secret = "planted secret " * 50
    store = QuarantineStore(path)
    await store.save(finding(1, secret))
    await store.close()
    assert holds(path, b"planted secret")
    await store.clear()
    await store.close()
    assert not holds(path, b"planted secret")


async def test_what_is_deleted_leaves_the_log_beside_the_file_too(path: Path) -> None:
    """While a worker has the file open: the log is folded in by itself only when it is long, or closed."""
    store = QuarantineStore(path, StoreLimits(findings_max=1))
    await store.save(finding(1, "planted secret " * 50))
    await store.save(finding(2))
    is_open = path.with_name(f"{path.name}-wal").exists()
    left = [file for file in path.parent.iterdir() if holds(file, b"planted secret")]
    await store.close()
    assert is_open
    assert left == []


@pytest.mark.parametrize("step", range(1, 9))
async def test_a_save_that_is_given_up_locks_nobody_out(step: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled before any of its statements: before the first, the trimming, the commit, ..."""
    store = QuarantineStore(path)
    await store.save(finding(0))
    calls = 0

    async def call(self: aiosqlite.Connection, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == step:
            saving.cancel()
            await asyncio.sleep(0)
        return await inner(self, *arguments, **options)

    inner = aiosqlite.Connection._execute
    monkeypatch.setattr(aiosqlite.Connection, "_execute", call)
    saving = asyncio.create_task(store.save(finding(1)))
    await asyncio.wait([saving])
    other = sqlite3.connect(path, timeout=0)
    try:
        other.execute("BEGIN IMMEDIATE")
        other.rollback()
        assert await store.save(finding(2))
    finally:
        other.close()
        await store.close()


async def test_what_is_only_read_is_not_touched(path: Path) -> None:
    writer = QuarantineStore(path)
    await writer.save(finding(1))
    reader = QuarantineStore(path, read_only=True)
    assert await ids_in(reader) == ["sample-1"], "also while a worker has it"
    await writer.close()
    await reader.close()
    assert await ids_in(reader) == ["sample-1"]
    with pytest.raises(StoreError, match="readonly"):
        await reader.clear()
    await reader.close()
    foreign = path.with_name("foreign")
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE theirs (it)")
    connection.close()
    notes = path.with_name("notes")
    put(notes, b"these are somebody's notes, and no database at all" * 10)
    for file in (foreign, notes):
        file.chmod(0o644)
        before = file.read_bytes()
        reader = QuarantineStore(file, read_only=True)
        with pytest.raises(StoreError):
            await reader.list()
        assert (file.read_bytes(), file.stat().st_mode & 0o777) == (before, 0o644)
    for none in (path.parent, path.with_name("absent")):
        with pytest.raises(StoreError):
            await QuarantineStore(none, read_only=True).list()


async def test_a_redacted_finding_keeps_no_text(path: Path) -> None:
    secret = "planted secret " * 50
    store = QuarantineStore(path)
    await store.save(redacted(finding(1, secret)))
    kept = await store.get("sample-1")
    assert kept is not None
    assert (kept.sample.text, kept.sample.ids, kept.sample.offsets) == (b"", b"", None)
    assert (kept.answer_id, kept.expected_id) == (None, None), "an id is text to whoever has the vocabulary"
    assert (kept.index, kept.text_bytes) == (3, len(secret))
    await store.close()
    assert not holds(path, b"planted secret")


async def test_a_file_that_cannot_be_used_is_one_error_and_no_exception_of_save(path: Path) -> None:
    put(path, b"this is no database, and long enough to be told from one" * 10)
    store = QuarantineStore(path)
    assert not await store.save(finding())
    assert "cannot be used" in store.problem
    with pytest.raises(StoreError) as caught:
        await store.list()
    assert caught.value.code == "storage_full"
    put(path, b"")
    assert await store.save(finding()), "and it is tried again"
    assert store.problem == ""
    await store.close()


async def test_a_path_that_is_no_text_can_be_told_all_the_same(path: Path) -> None:
    put(path, b"")
    store = QuarantineStore(path / os.fsdecode(b"\xff"))
    assert not await store.save(finding())
    assert store.problem == f"{path}/\ufffd cannot be used: FileExistsError"
    good = QuarantineStore(path.with_name(os.fsdecode(b"100%? \xff#")))
    assert await good.save(finding())
    assert await ids_in(good) == ["sample-0"]
    await good.close()


async def test_a_file_of_another_format_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()
    store = QuarantineStore(path)
    with pytest.raises(StoreError, match="format 9"):
        await store.list()
    await store.close()


async def test_a_damaged_finding_is_named(path: Path) -> None:
    store = QuarantineStore(path)
    await store.save(finding(1))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE findings SET finding = x'c1'")
    connection.close()
    with pytest.raises(StoreError, match="sample-1"):
        await store.get("sample-1")
    await store.close()
