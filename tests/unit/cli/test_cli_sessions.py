"""Sessions files, the chat template, the sample sessions and the reference cache."""

import gzip
import hashlib
import json
import sqlite3
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from cli.chat_template import GENERATION_PROMPT, render, request_deltas
from cli.errors import CliError, ExitCode
from cli.reference_cache import Answer, ReferenceCache, RunningKey
from cli.sample_sessions import LEAST_SESSION_CHARS, sample_sessions
from cli.sessions import Conversation, read_sessions, write_sessions

TALK = (
    ("system", "Be brief."),
    ("user", "Hi"),
    ("assistant", "Hello!"),
    ("assistant", "Anything else?"),
    ("tool", "42"),
    ("assistant", ""),
    ("user", "Bye"),
)


def whole_texts(messages: tuple[tuple[str, str], ...]) -> list[str]:
    """The definition, written the slow way."""
    return [
        "".join(render(*message) for message in messages[:number]) + "<|im_start|>assistant\n"
        for number, (role, _) in enumerate(messages)
        if role == "assistant"
    ]


def test_a_message_is_rendered_exactly() -> None:
    assert render("user", "Hi\n") == "<|im_start|>user\nHi\n<|im_end|>\n"
    assert GENERATION_PROMPT == "<|im_start|>assistant\n"


@pytest.mark.parametrize("messages", [TALK, TALK[2:], TALK[:2], (), (("assistant", "x"),)])
def test_deltas_add_up_to_the_whole_text_of_each_request(messages: tuple[tuple[str, str], ...]) -> None:
    text = ""
    texts = []
    for delta in request_deltas(messages):
        text += delta
        texts.append(text)
    assert texts == whole_texts(messages)
    assert len(texts) == Conversation("x", messages).requests


@pytest.mark.parametrize("packed", [False, True])
def test_sessions_are_read_plain_and_packed(tmp_path: Path, packed: bool) -> None:
    lines = [json.dumps({"session": "a", "appends": TALK}), "", json.dumps({"appends": []})]
    data = "\n".join(lines).encode()
    path = tmp_path / "sessions"
    path.write_bytes(gzip.compress(data) if packed else data)
    sessions = list(read_sessions(path))
    assert sessions == [Conversation("a", TALK), Conversation("session-3", ())]
    assert list(read_sessions(path, limit=1)) == sessions[:1]


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[]",
        "{}",
        '{"appends": [["user"]]}',
        '{"appends": [["user", 1]]}',
        '{"appends": [["user", "\\ud800"]]}',
        "\xff",
    ],
)
def test_a_line_that_is_no_session_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"appends": []}\n' + line.encode("latin-1") + b"\n")
    with pytest.raises(CliError, match="line 2") as caught:
        list(read_sessions(path))
    assert caught.value.exit_code is ExitCode.INPUT


def test_a_file_that_is_cut_short_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"appends": []}\n' * 9_000)[:-20])
    with pytest.raises(CliError, match=r"cut\.jsonl\.gz"):
        list(read_sessions(path))


def test_sample_sessions_are_the_same_every_time_and_shaped_like_agents() -> None:
    sessions = sample_sessions(4, seed=3, max_chars=80_000)
    assert sessions == sample_sessions(4, seed=3, max_chars=80_000)
    assert sessions != sample_sessions(4, seed=4, max_chars=80_000)
    sizes = sorted(sum(map(len, session.deltas())) for session in sessions)
    assert 45_000 < sizes[0] < sizes[-1] <= 80_000
    appends = [len(delta) for session in sessions for delta in list(session.deltas())[1:]]
    assert 900 < median(appends) < 1_900
    assert max(appends) < 40_000


@pytest.mark.parametrize("most", [LEAST_SESSION_CHARS, 5_000, 60_000])
def test_no_sample_session_is_longer_than_asked_for(most: int) -> None:
    for session in sample_sessions(12, seed=1, max_chars=most):
        assert sum(map(len, session.deltas())) <= most
        assert session.requests > 1


@pytest.mark.parametrize("name", ["s.jsonl", "s.jsonl.gz"])
def test_written_sessions_are_read_again(tmp_path: Path, name: str) -> None:
    sessions = sample_sessions(3, seed=2, max_chars=3_000)
    write_sessions(tmp_path / "new" / name, sessions)
    assert list(read_sessions(tmp_path / "new" / name)) == sessions
    assert ((tmp_path / "new" / name).read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")


def test_the_running_key_is_the_key_of_the_whole_text() -> None:
    for flag, mark in ((False, "0"), (True, "1")):
        running = RunningKey("ab" * 32, add_special_tokens=flag)
        assert running.append("Hé") == hashlib.sha256(("ab" * 32 + f"\n{mark}\nHé").encode()).digest()
        assert running.append("llo") == hashlib.sha256(("ab" * 32 + f"\n{mark}\nHéllo").encode()).digest()


def test_an_answer_is_the_hash_of_little_endian_ids() -> None:
    ids = np.array([1, 2, 70_000], dtype=np.int64)
    assert Answer.of(ids) == Answer(3, hashlib.sha256(b"\1\0\0\0\2\0\0\0p\x11\1\0").digest())
    assert Answer.of(ids[:0]) == Answer(0, hashlib.sha256(b"").digest())


def test_the_cache_gives_back_what_was_put_in_also_to_another_run(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "cache.sqlite"
    known = {bytes([n % 256, n // 256]) * 16: Answer(n, bytes(32)) for n in range(1_200)}
    with ReferenceCache(path) as cache:
        cache.put(known.items())
    with ReferenceCache(path) as cache:
        assert cache.get([*known, b"unknown"]) == known
        cache.put([(next(iter(known)), Answer(7, bytes(32)))])
        assert cache.get([next(iter(known))])[next(iter(known))].count == 7
    rows = sqlite3.connect(path).execute("SELECT key, count, digest FROM reference").fetchall()
    assert len(rows) == 1_200


def test_a_file_that_is_no_cache_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(CliError, match=r"cache\.sqlite"):
        ReferenceCache(path)
