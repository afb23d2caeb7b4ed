"""`replay` and `demo`, end to end on the memory broker, and the parts that judge and show the answers."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_kit import Command

from cli.errors import ExitCode
from cli.oracle import Oracle, OracleFailedError
from cli.plots import Series, histogram, scatter
from cli.reference_cache import Answer, ReferenceCache, RunningKey
from cli.replay_check import ReferenceTimes, check, texts_of, time_reference
from cli.replay_run import Recording, Sample
from cli.replay_stats import sentences, summarize, table
from cli.sessions import Conversation
from toksplice.registry import Registry

TALKS = (
    Conversation("first", (("user", "Hello"), ("assistant", "Hi there"), ("tool", "x" * 300), ("assistant", "Done"))),
    Conversation(
        "second", (("system", "Be brief"), ("assistant", "OK"), ("assistant", "naïve 日本語 🙂"), ("user", "?"))
    ),
    Conversation("empty", (("user", "nobody answers"),)),
)
FINGERPRINT = "ab" * 32


@pytest.fixture
def sessions_file(tmp_path: Path) -> Path:
    path = tmp_path / "sessions.jsonl"
    lines = [json.dumps({"session": talk.name, "appends": talk.messages}) for talk in TALKS]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def oracle(gpt2_file: Path) -> Oracle:
    return Oracle(gpt2_file.read_bytes())


def samples_of(oracle: Oracle, talks: Sequence[Conversation] = TALKS) -> list[Sample]:
    """What a faultless replay records."""
    samples = []
    for session, talk in enumerate(talks):
        running, text = RunningKey(FINGERPRINT), ""
        for number, delta in enumerate(talk.deltas()):
            text += delta
            answer = Answer.of(oracle.encode(text, add_special_tokens=False)[0])
            samples.append(
                Sample(
                    session=session,
                    number=number,
                    context_chars=len(text),
                    delivered_chars=len(delta),
                    encoded_chars=len(delta) + 40,
                    latency_us=1_000 + number,
                    tokenize_us=500,
                    path="repair" if number else "cpu",
                    route="A" if number else "D",
                    reason="",
                    key=running.append(delta),
                    answer=answer,
                )
            )
    return samples


def conversations() -> Iterator[Conversation]:
    return iter(TALKS)


def test_replay_answers_everything_like_the_reference(
    command: Command, registry: Registry, sessions_file: Path, tmp_path: Path
) -> None:
    words = ("replay", sessions_file, "--verify", "--json", "-", "--reference-cache", tmp_path / "cache.sqlite")
    done = command(*words, "--report", tmp_path / "report.html")
    assert done.code == ExitCode.OK, done.err
    first = done.json
    assert (first["sessions"], first["requests"], first["failed"]) == (3, 4, 0)
    assert (first["checked"], first["checked_from_cache"], first["mismatches"]) == (4, 0, 0)
    assert first["delivered_chars"] == sum(len(delta) for talk in TALKS for delta in talk.deltas())
    assert sum(row["requests"] for row in first["rows"]) == 4
    assert "<svg" in (tmp_path / "report.html").read_text()
    again = command(*words, "--limit", 1, "--concurrency", 1).json
    assert (again["requests"], again["checked_from_cache"]) == (2, 2)


def test_a_mismatch_is_found_named_and_ends_in_its_exit_code(
    command: Command, registry: Registry, sessions_file: Path, tmp_path: Path, oracle: Oracle
) -> None:
    cache = tmp_path / "cache.sqlite"
    fingerprint = registry.resolve("gpt2")
    running = RunningKey(fingerprint)
    keys = [running.append(delta) for delta in TALKS[0].deltas()]
    with ReferenceCache(cache) as file:
        file.put([(keys[1], Answer(3, bytes(32)))])
    done = command("replay", sessions_file, "--verify", "--reference-cache", cache)
    assert done.code == ExitCode.CHECK_FAILED
    assert "MISMATCH: session 1, request 2" in done.err
    assert "1 mismatches" in done.out


def test_an_unreadable_sessions_file_is_one_clear_error(command: Command, registry: Registry, tmp_path: Path) -> None:
    assert command("replay", tmp_path / "nothing.jsonl").code == ExitCode.INPUT
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    assert "holds no session" in command("replay", empty).err
    assert command("replay", empty).code == ExitCode.INPUT
    bad = tmp_path / "bad.jsonl"
    bad.write_text("nonsense\n")
    done = command("replay", bad)
    assert done.code == ExitCode.INPUT
    assert "line 1" in done.err


def test_the_demo_falls_back_to_the_built_in_tokenizer(
    command: Command, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    report = tmp_path / "demo" / "report.html"
    written = tmp_path / "sessions.jsonl.gz"
    words = ("demo", "--sessions", 1, "--max-chars", 3_000, "--write-sessions", written)
    done = command(*words, "--report", report, "--json", tmp_path / "n.json")
    assert done.code == ExitCode.OK, done.err
    assert "Using gpt2 instead" in done.err
    numbers = json.loads((tmp_path / "n.json").read_text())
    assert numbers["tokenizer"] == "gpt2"
    assert numbers["checked"] == numbers["requests"] > 1
    page = report.read_text()
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "0 mismatches" in page
    assert "synthetic" in page
    assert "synthetic" in done.err
    assert command("replay", written, "--json", "-").json["delivered_chars"] == numbers["delivered_chars"] <= 3_000


def test_the_demo_writes_no_report_unless_asked_and_refuses_what_it_cannot_make(
    command: Command, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("demo", "--tokenizer", "gpt2", "--sessions", 1, "--max-chars")
    assert command(*words, 1_999).code == ExitCode.USAGE
    assert command(*words, 2_000).code == ExitCode.OK
    assert not (tmp_path / ".demo").exists()


def test_help_of_replay_tells_the_format(command: Command) -> None:
    assert '{"session": NAME, "appends": [[ROLE, TEXT], ...]}' in command("replay", "--help").out


@pytest.mark.parametrize(("low", "high", "least"), [(0.4, 200, 5), (1.1, 7, 4), (2, 2, 3), (3, 9_000_000, 4)])
def test_an_axis_has_several_ticks(low: float, high: float, least: int) -> None:
    page = scatter([Series("s", 0, [(low, 1), (high, 1)], joined=True)], x_label="x", y_label="y")
    assert page.count('text-anchor="middle"') - 2 >= least
    assert "<polyline" in page


async def test_checking_compares_what_the_cache_knows_and_encodes_the_rest(oracle: Oracle, tmp_path: Path) -> None:
    samples = samples_of(oracle)
    done: list[int] = []
    with ReferenceCache(tmp_path / "cache.sqlite") as cache:
        cache.put([(samples[0].key, samples[0].answer)])
        verdict = await check(samples, conversations, oracle, cache, done.append)
        assert (verdict.checked, verdict.cached, verdict.mismatches) == (4, 1, [])
        assert sum(done) == 4
        again = await check(samples, conversations, oracle, cache, done.append)
        assert (again.checked, again.cached) == (4, 4)


@pytest.mark.parametrize("known", [False, True])
async def test_checking_finds_a_wrong_answer(oracle: Oracle, tmp_path: Path, known: bool) -> None:
    samples = samples_of(oracle)
    right = samples[2].answer
    samples[2] = replace(samples[2], answer=Answer(right.count, bytes(32)))
    with ReferenceCache(tmp_path / "cache.sqlite") as cache:
        if known:
            cache.put([(samples[2].key, right)])
        verdict = await check(samples, conversations, oracle, cache, lambda _: None)
    assert verdict.mismatches == [(1, 0)]


async def test_a_text_that_the_reference_cannot_encode_is_counted_and_no_mismatch(
    oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = samples_of(oracle)
    original = Oracle.ids_batch

    def fails(self: Oracle, texts: Sequence[str], *, add_special_tokens: bool) -> object:
        if any("日本語" in text or "Be brief" in text for text in texts):
            raise OracleFailedError
        return original(self, texts, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(Oracle, "ids_batch", fails)
    with ReferenceCache(tmp_path / "cache.sqlite") as cache:
        verdict = await check(samples, conversations, oracle, cache, lambda _: None)
    assert (verdict.checked, verdict.reference_failed, verdict.mismatches) == (2, 2, [])


async def test_the_reference_is_timed_on_texts_of_the_same_requests(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Oracle, "seconds", lambda self, text: len(text) / 1e6)
    samples = samples_of(oracle)
    expected = sum(sample.context_chars for sample in samples) / 1e6
    times = await time_reference(samples, conversations, oracle)
    assert sum(times.seconds) == pytest.approx(expected)
    assert times.measured == tuple(sorted((sample.context_chars, sample.context_chars / 1e6) for sample in samples))
    assert await time_reference([], conversations, oracle) == ReferenceTimes()


def test_texts_are_rendered_again_only_where_wanted() -> None:
    deltas = list(TALKS[1].deltas())
    assert list(texts_of(TALKS, {(1, 1)})) == [((1, 1), "".join(deltas))]
    assert [place for place, _ in texts_of(TALKS, {(0, 0), (1, 1), (1, 0)})] == [(0, 0), (1, 0), (1, 1)]
    assert list(texts_of(TALKS, set())) == []


def test_the_numbers_of_a_replay(oracle: Oracle) -> None:
    recording = Recording(samples=samples_of(oracle), sessions=3, failed=1, failures=["x"], wall_s=1.0)
    times = ReferenceTimes(seconds=(0.5, 1.0, 0.5, 2.0))
    summary = summarize(recording, None, tokenizer="t", fingerprint=FINGERPRINT, broker="memory://", reference=times)
    assert [row.full_us for row in summary.rows] == [500_000, 1_500_000]
    assert summary.requests == 5
    assert summary.spliced_after_first == 1.0
    assert summary.tokenize_s == pytest.approx(0.002)
    assert summary.speed_up == pytest.approx(2_000)
    assert [(row.path, row.route, row.engine, row.requests, row.share) for row in summary.rows] == [
        ("cpu", "D", "reference", 2, 0.5),
        ("repair", "A", "native", 2, 0.5),
    ]
    assert not summary.ok
    assert table(summary).row_count == 2
    assert any("1 requests failed" in sentence for sentence in sentences(summary))
    json.dumps(summary.as_dict())


def test_numbers_of_nothing_are_no_error() -> None:
    summary = summarize(Recording(), None, tokenizer="t", fingerprint="", broker="memory://")
    assert (summary.requests, summary.spliced_after_first, summary.speed_up, summary.ok) == (0, None, None, True)
    assert sentences(summary)


@pytest.mark.parametrize("points", [[], [(1.0, 1.0)], [(5.0, 3.0)] * 3, [(n + 1, n * n) for n in range(4_000)]])
def test_plots_are_well_formed(points: list[tuple[float, float]]) -> None:
    series = [Series("a < b & c", 0, points), Series("none", 1, [])]
    for page in (scatter(series, x_label="x", y_label="y", diagonal=True), histogram(series, x_label="x")):
        ElementTree.fromstring(f"<div>{page}</div>")  # noqa: S314 - our own page
        assert page.count("<circle") <= 1_500


def test_a_request_that_fails_is_counted_and_the_replay_goes_on(
    command: Command, registry: Registry, sessions_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.client import ClientSession
    from pipeline.errors import ReplyError

    append = ClientSession.append

    async def fails(self: ClientSession, text: str, **options: object) -> object:
        if "Be brief" in text:
            raise ReplyError("reference_failed", "no", retriable=False)
        return await append(self, text, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ClientSession, "append", fails)
    done = command("replay", sessions_file, "--verify")
    assert done.code == ExitCode.CHECK_FAILED
    assert "failed: second, request 1: reference_failed" in done.err
    assert "1 requests failed" in done.out
