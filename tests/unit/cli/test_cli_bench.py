"""`toksplice bench`: the protocol, with a tiny peer and with the real program; figures; scenarios; reports.

Nothing here is timed: what the clock gives is asserted to be there and no more.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_kit import Command

from cli.bench import environments, full, memory, repair, rounds
from cli.bench.corpus import LEAST_CHARS, Corpus, Fresh, load_corpus
from cli.bench.environments import PeerUnavailableError, bench_folder, python_of
from cli.bench.peer import ADAPTERS, byte_alphabet, digest_of
from cli.bench.peers import LANES, OURS, PEERS, REFERENCE, Lane, Peer
from cli.bench.process import PROGRAM, PeerProcess
from cli.bench.report import BEGIN, END, markdown, sheets, write_markdown
from cli.bench.rounds import Outcome, Runner, Subject, runners
from cli.bench.rows import FullRow, MemoryRow, RepairRow, Results, ThreadsRow
from cli.bench.scenarios import (
    ACCENT,
    APPENDS,
    CASES,
    CONTEXTS_CHARS,
    PLAIN,
    SIZES,
    TAIL,
    Draft,
    Scenario,
    Workshop,
    fitting,
)
from cli.bench.statistic import count, p50, p99, ratio
from cli.errors import CliError, ExitCode
from cli.sample_sessions import sample_sessions
from cli.sessions import write_sessions
from toksplice.registry import Registry

FAKE = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "die":
        sys.exit("out of luck")
    if request["op"] == "hang":
        sys.stdin.read()
    answer = {"error": "refused"} if request["op"] == "refuse" else {"seen": request}
    print(json.dumps(answer), flush=True)
"""
OUR_LANES = [lane for lane in LANES if lane.name in (OURS, REFERENCE)]


def say(message: str) -> None:
    """Progress is for people."""


@pytest.fixture
def fake(tmp_path: Path) -> list[str]:
    """The command of a peer that answers with what it was asked."""
    program = tmp_path / "fake.py"
    program.write_text(FAKE)
    return [sys.executable, str(program)]


@pytest.fixture
def subject(gpt2_file: Path) -> Subject:
    return Subject("gpt2", gpt2_file, "<|endoftext|>")


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load_corpus(None, 250_000)


class TestProcess:
    def test_a_request_arrives_and_its_answer_comes_back(self, fake: list[str]) -> None:
        with PeerProcess(fake, {}) as process:
            assert process.ask("text", text="naïve \u2028 日本\n") == {
                "seen": {"op": "text", "text": "naïve \u2028 日本\n"}
            }

    def test_a_text_is_sent_once(self, fake: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        with PeerProcess(fake, {}) as process:
            process.know("a", "text")
            monkeypatch.setattr(process, "ask", lambda *_, **__: pytest.fail("sent again"))
            process.know("a", "text")

    def test_a_refusal_is_the_peers_own_reason_and_ends_nothing(self, fake: list[str]) -> None:
        with PeerProcess(fake, {}) as process:
            with pytest.raises(PeerUnavailableError, match=r"^refused$"):
                process.ask("refuse")
            assert process.ask("more")["seen"] == {"op": "more"}

    def test_a_dead_process_says_its_last_words(self, fake: list[str]) -> None:
        with PeerProcess(fake, {}) as process:
            with pytest.raises(PeerUnavailableError, match="the process ended: out of luck"):
                process.ask("die")
            with pytest.raises(PeerUnavailableError, match="the process ended"):
                process.ask("more")

    def test_a_silent_process_is_given_up(self, fake: list[str]) -> None:
        with PeerProcess(fake, {}, answer_timeout_s=0.2) as process:
            with pytest.raises(PeerUnavailableError, match=r"no answer within 0\.2 s"):
                process.ask("hang")
            with pytest.raises(PeerUnavailableError, match="it was stopped"):
                process.ask("more")

    def test_closing_twice_is_harmless(self, fake: list[str]) -> None:
        process = PeerProcess(fake, {})
        process.close()
        process.close()


class TestProgram:
    def test_it_imports_the_standard_library_only(self) -> None:
        code = f"import runpy, sys; runpy.run_path({str(PROGRAM)!r}); print({{'numpy', 'cli'}} & {{*sys.modules}})"
        done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "set()\n"

    def test_every_lane_has_an_adapter_and_a_peer(self) -> None:
        assert {lane.adapter for lane in LANES} == set(ADAPTERS)
        assert {lane.peer for lane in LANES} == set(PEERS)

    @pytest.mark.parametrize("lane", OUR_LANES, ids=lambda lane: lane.name)
    def test_both_of_ours_give_the_same_ids_after_the_same_edits(self, lane: Lane, subject: Subject) -> None:
        draft = Draft("Hello, world. ")
        draft.append("naïve 日本 text")
        draft.replace(7, 12, "there")
        draft.replace(len(draft.text) - 4, len(draft.text), "")
        edits = draft.taken()
        versions: dict[str, str] = {}
        with runners([lane], subject, versions, say) as (one,):
            one.know("k", "Hello, world. ")
            answer = one.ask("edits", context="k", special=False, before=edits[:1], timed=edits[1:])
            whole = one.ask("encode", text=draft.text, times=2)
        assert list(versions) == [PEERS[lane.peer].package]
        assert (answer["digest"], answer["tokens"]) == (whole["digest"], whole["tokens"])
        assert (len(answer["ns"]), len(whole["ns"])) == (2, 2)

    def test_what_a_tokenizer_file_cannot_be_is_a_reason(self, tmp_path: Path) -> None:
        path = tmp_path / "broken.json"
        path.write_text("{}")
        with runners(OUR_LANES, Subject("broken", path, ""), {}, say) as found:
            assert all(one.reason for one in found)
            with pytest.raises(PeerUnavailableError):
                rounds.reference_of(found)

    def test_all_forms_of_ids_have_one_digest(self) -> None:
        ids = [0, 1, 70_000, 2**32 - 1]
        raw = np.array(ids, "<u4").tobytes()
        expected = (hashlib.sha256(raw).hexdigest(), 4)
        for form in (ids, tuple(ids), raw, np.array(ids, np.uint32), np.array(ids, np.int64)):
            assert digest_of(form) == expected

    def test_the_byte_alphabet_is_the_one_of_byte_level_vocabularies(self) -> None:
        alphabet = byte_alphabet()
        assert sorted(alphabet.values()) == list(range(256))
        assert (alphabet["Ġ"], alphabet["Ċ"], alphabet["!"], alphabet["ÿ"]) == (0x20, 0x0A, 0x21, 0xFF)


class TestEnvironments:
    def test_a_peer_without_requirements_runs_here(self, tmp_path: Path) -> None:
        assert python_of(PEERS[OURS], tmp_path) == Path(sys.executable)

    def test_a_complete_environment_is_used_again(self, tmp_path: Path) -> None:
        peer = Peer("some", "some", ("some==1",))
        place = tmp_path / f"some-{sys.implementation.cache_tag}"
        (place / "bin").mkdir(parents=True)
        (place / "bin" / "python").write_text("")
        (place / "ready").write_text("some==1")
        assert python_of(peer, tmp_path) == place / "bin" / "python"

    def test_another_version_makes_it_anew_and_a_failure_is_a_reason(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = tmp_path / f"some-{sys.implementation.cache_tag}"
        place.mkdir()
        (place / "ready").write_text("some==1")
        monkeypatch.setattr(environments.venv, "create", lambda folder, with_pip: folder.mkdir())
        failed = subprocess.CompletedProcess([], 1, "", "looking\nno matching distribution")
        monkeypatch.setattr(environments.subprocess, "run", lambda *_, **__: failed)
        with pytest.raises(PeerUnavailableError, match="pip cannot install some==2: no matching distribution"):
            python_of(Peer("some", "some", ("some==2",)), tmp_path)
        assert not (place / "ready").exists()

    def test_versions_are_pinned(self) -> None:
        pins = [pin for peer in PEERS.values() for pin in peer.requirements]
        assert pins
        assert all(pin.count("==") == 1 for pin in pins)


class TestStatistic:
    def test_percentiles_are_of_all_samples(self) -> None:
        samples = {1: list(range(1, 51)), 2: list(range(51, 101))}
        assert (p50(samples), p99(samples), count(samples)) == (50.5, 100, 100)

    def test_a_ratio_is_taken_round_by_round(self) -> None:
        # The machine was ten times slower in the second round: both lanes were, so the ratio stands.
        assert ratio({1: [20, 22, 24], 2: [220]}, {1: [11], 2: [110], 3: [5]}) == 2

    def test_without_a_common_round_there_is_no_ratio(self) -> None:
        assert ratio({1: [1]}, {2: [1]}) is None
        assert ratio({1: []}, {1: [1]}) is None


class TestScenarios:
    @pytest.mark.parametrize("scenario", [PLAIN, *SIZES, *CASES], ids=lambda one: f"{one.kind} {one.edit_chars}")
    def test_edits_are_in_characters_and_in_bytes(self, scenario: Scenario, corpus: Corpus) -> None:
        small = Scenario(scenario.case, scenario.kind, 20_000, min(scenario.edit_chars, 2_000))
        workshop = Workshop("é日" + corpus.text, Fresh(corpus.text), "<|x|>")
        pieces = workshop.pieces(small, 3)
        work = workshop.work(small, pieces)
        text, data = work.context, work.context.encode()
        for start, end, new, start_byte, end_byte in work.before + work.timed:
            text = text[:start] + new + text[end:]
            data = data[:start_byte] + new.encode() + data[end_byte:]
        assert text == work.final
        assert data == work.final.encode()
        assert len(work.timed) == len(pieces) == 3

    def test_each_kind_does_what_it_says(self, corpus: Corpus) -> None:
        made = {}
        for one in CASES:
            workshop = Workshop(corpus.text, Fresh("new text "), "<|x|>")
            small = Scenario(one.case, one.kind, 10_000, 9)
            made[one.kind] = workshop.work(small, workshop.pieces(small, 2))
        context = corpus.text[:10_000]
        assert made["tail"].final == context + "new text new text " + TAIL
        assert made["added"].final == context + "<|x|>\nnew text <|x|>\nnew text "
        assert made["accent"].final == context[:1_000] + ACCENT + context[1_000:] + "new text new text "
        assert made["insert"].final != context + "new text new text "
        assert made["undo"].final == context
        assert made["special"].final == context + "new text new text "
        assert [one.kind for one in CASES if one.special] == ["special"]

    def test_large_edits_are_fewer(self) -> None:
        workshop = Workshop("", Fresh("x"), "")
        assert [len(workshop.pieces(one, 20)) for one in SIZES] == [20, 20, 10, 2, 1]

    def test_contexts_that_do_not_fit_are_left_out(self) -> None:
        assert {one.context_chars for one in fitting(APPENDS, 2_000_000)} == set(CONTEXTS_CHARS[:2])

    def test_fresh_text_begins_again_when_it_is_used_up(self) -> None:
        fresh = Fresh("abcde")
        assert [fresh.take(3), fresh.take(3), fresh.take(7)] == ["abc", "dea", "bcdeabc"]
        with pytest.raises(ValueError, match="no text is left"):
            Fresh("")


class TestCorpus:
    def test_the_synthetic_one_is_always_the_same(self, corpus: Corpus) -> None:
        assert load_corpus(None, 250_000) == corpus
        assert len(corpus.text) >= 250_000

    def test_sessions_and_plain_text_are_read(self, tmp_path: Path, corpus: Corpus) -> None:
        plain = tmp_path / "some.txt"
        plain.write_text("é" * LEAST_CHARS)
        found = load_corpus(plain, 0)
        assert (found.text, len(found.sessions)) == ("é" * LEAST_CHARS, 1)
        packed = tmp_path / "some.jsonl.gz"
        write_sessions(packed, sample_sessions(4, seed=3))
        assert len(load_corpus(packed, 0).sessions) == 4

    def test_what_cannot_be_measured_on_is_one_clear_error(self, tmp_path: Path) -> None:
        short, binary = tmp_path / "short.txt", tmp_path / "binary.txt"
        short.write_text("short")
        binary.write_bytes(b"ab\xff")
        with pytest.raises(CliError, match="5 characters are too few"):
            load_corpus(short, 0)
        with pytest.raises(CliError, match="not UTF-8 text"):
            load_corpus(binary, 0)

    def test_pieces_are_of_one_size_and_share_no_text(self) -> None:
        text = "aé日🙂" * 400_000
        pieces = full.pieces_of(text, 3)
        assert [len(piece.encode()) // 10 for piece in pieces] == [full.PIECE_BYTES // 10] * 3
        assert text.startswith("".join(pieces))
        assert full.pieces_of("short", 3) == []


class TestMeasurements:
    """With real processes on GPT-2, at lengths that take no time."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        appends = tuple(Scenario("append", "append", chars, 500) for chars in (4_000, 20_000, 40_000))
        monkeypatch.setattr(repair, "APPENDS", appends)
        monkeypatch.setattr(repair, "PLAIN", appends[1])
        monkeypatch.setattr(repair, "MIDDLE", 20_000)
        monkeypatch.setattr(repair, "SIZES", (Scenario("append", "append", 20_000, 1_000),))
        monkeypatch.setattr(repair, "CASES", tuple(Scenario(one.case, one.kind, 20_000, 500) for one in CASES))
        monkeypatch.setattr(full, "PIECE_BYTES", 20_000)
        monkeypatch.setattr(full, "SMALL", 5_000)
        monkeypatch.setattr(full, "THREAD_EDIT_CHARS", 2_000)

    def test_repair_has_a_row_for_every_case_and_all_are_exact(self, subject: Subject, corpus: Corpus) -> None:
        with runners(OUR_LANES, subject, {}, say) as found:
            rows = repair.measure(subject, corpus, found, 2, say)
        ours = [row for row in rows if row.lane == OURS]
        assert [row.exact for row in ours] == [True] * (4 + len(CASES))
        assert all(row.samples == 40 and row.p50_us and row.p99_us and not row.note for row in ours)
        assert [row.context_chars for row in rows if row.lane == REFERENCE] == [4_000, 20_000]
        assert all(row.times_ours for row in rows if row.lane == REFERENCE)
        assert [row.context_chars for row in ours if row.times_small] == [20_000, 40_000]
        assert all(row.times_plain for row in ours[3:])

    def test_a_lane_that_cannot_is_shown_with_its_reason(self, subject: Subject, corpus: Corpus) -> None:
        with runners(OUR_LANES, subject, {}, say) as found:
            absent = Runner(Lane("absent", "gigatoken", "Gigatoken", keeps_state=True, encodes=True), None, "not here")
            repaired = repair.measure(subject, corpus, [*found, absent], 1, say)
            encoded = full.measure(subject, corpus, [*found, absent], 1, say)
        assert {row.note for row in repaired if row.lane == "absent"} == {"not here"}
        assert [row.note for row in encoded if row.lane == "absent"] == ["not here"]

    def test_full_counts_no_first_piece_and_compares_every_one(self, subject: Subject, corpus: Corpus) -> None:
        with runners(OUR_LANES, subject, {}, say) as found:
            rows = full.measure(subject, corpus, found, 3, say)
            threads = full.measure_threads(subject, corpus, found, 2, say)
        assert [(row.lane, row.pieces, row.exact) for row in rows] == [(OURS, 3, True), (REFERENCE, 3, None)]
        assert all(row.fresh_mb_s and row.again_mb_s and row.fresh_times_reference for row in rows)
        assert [(row.lane, row.rounds) for row in threads] == [(OURS, 2), (REFERENCE, 2)]
        assert all(row.throughput_ratio and not row.note for row in threads)

    def test_memory_is_what_the_sessions_say(self, subject: Subject, corpus: Corpus) -> None:
        with runners([OUR_LANES[0]], subject, {}, say) as found:
            (row,) = memory.measure(subject, corpus, found, say)
        assert row.sessions == len(corpus.sessions)
        assert row.text_bytes == len(corpus.text.encode())
        assert row.with_text
        assert row.without_text
        assert row.with_text - row.without_text == pytest.approx(row.text_bytes / row.tokens)

    def test_a_wrong_answer_is_marked(self) -> None:
        outcome = Outcome()
        for digest in ("a", "b", "a"):
            outcome.compare(digest, "a")
        assert outcome.exact is False

    def test_after_a_failure_a_lane_is_not_asked_again(self) -> None:
        def fail() -> None:
            raise PeerUnavailableError("cannot")

        outcome = Outcome()
        outcome.take(fail)
        outcome.take(lambda: pytest.fail("asked again"))
        assert outcome.reason == "cannot"


class TestReport:
    @pytest.fixture
    def results(self) -> Results:
        described = {"tokenizer": "t", "case": "append", "context_chars": 1_000_000, "edit_chars": 1_400}
        return Results(
            {"processor": "a|b"},
            repair=[
                RepairRow(**described, lane=OURS, samples=9, p50_us=41.26, p99_us=1234.5, times_small=1.5, exact=True),
                RepairRow(**described, lane="other", samples=9, p50_us=2e6, times_ours=48_000, exact=False),
                RepairRow(**described, lane="third", note="cannot [be] done"),
            ],
            full=[FullRow(tokenizer="t", lane=OURS, pieces=2, fresh_mb_s=123.4, fresh_times_reference=88.8)],
            threads=[ThreadsRow(tokenizer="t", lane=OURS, rounds=2, throughput_ratio=1.97)],
            memory=[MemoryRow(tokenizer="t", lane=OURS, sessions=1, tokens=5, with_text=7.32)],
        )

    def test_figures_have_three_digits_and_words_for_the_rest(self, results: Results) -> None:
        repaired, *others = sheets(results)
        ours, other, third = repaired.rows
        assert ours[4:] == ("0.0413", "1.23", "", "", "1.50", "9", "the reference's")
        assert other[4:] == ("2,000", "", "48,000", "", "", "9", "WRONG")
        assert third[4:] == ("", "", "", "", "", "0", "cannot [be] done")
        assert [sheet.rows[0][2] for sheet in others] == ["123", "1.97", "1"]
        assert all(len(row) == len(sheet.columns) for sheet in sheets(results) for row in sheet.rows)

    def test_markdown_has_every_table(self, results: Results) -> None:
        text = markdown(results)
        assert text.count("### ") == 4
        assert "- processor: a\\|b" in text
        assert "| append | other | 1,000,000 | 1,400 | 2,000 |" in text

    def test_only_what_is_between_the_marks_changes(self, results: Results, tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
        write_markdown(results, page)
        write_markdown(results, page)
        text = page.read_text()
        assert text.startswith(f"before\n{BEGIN}\n\n- processor")
        assert text.endswith(f"\n{END}\nafter\n")
        assert "old" not in text

    def test_a_new_page_is_made_and_a_strange_one_is_left_alone(self, results: Results, tmp_path: Path) -> None:
        write_markdown(results, tmp_path / "new.md")
        assert markdown(results) in (tmp_path / "new.md").read_text()
        strange = tmp_path / "strange.md"
        strange.write_text("mine")
        with pytest.raises(CliError, match="are missing"):
            write_markdown(results, strange)
        assert strange.read_text() == "mine"

    def test_the_page_of_the_repository_can_be_written_again(self) -> None:
        page = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text()
        assert page.count(BEGIN) == page.count(END) == 1


class TestCommand:
    def test_memory_alone_in_the_formats_that_are_asked_for(
        self, command: Command, registry: Registry, tmp_path: Path
    ) -> None:
        text, json_file, page = tmp_path / "some.jsonl", tmp_path / "out.json", tmp_path / "out.md"
        write_sessions(text, sample_sessions(3, seed=2, max_chars=160_000))
        done = command(
            "bench", "memory", "--tokenizer", "gpt2", "--text", text, "--peer", OURS, "--json", json_file,
            "--markdown", page,
        )  # fmt: skip
        assert done.code == ExitCode.OK, done.err
        (row,) = json.loads(json_file.read_text())["memory"]
        assert (row["tokenizer"], row["lane"], row["sessions"]) == ("gpt2", OURS, 3)
        assert "sessions held" in done.out
        assert "### Sessions held" in page.read_text()

    @pytest.mark.parametrize(
        ("words", "code", "message"),
        [
            (("bench", "speed"), ExitCode.USAGE, "invalid choice"),
            (("bench", "full", "--text", "absent.txt"), ExitCode.INPUT, "no such file"),
            (("bench", "full", "--tokenizer", "nobody"), ExitCode.TOKENIZER, "not registered"),
        ],
    )
    def test_what_is_wrong_is_one_line(
        self, command: Command, words: tuple[str, ...], code: ExitCode, message: str
    ) -> None:
        done = command(*words)
        assert done.code == code
        assert message in done.err

    def test_a_path_that_is_no_tokenizer_is_one_line(self, command: Command, tmp_path: Path) -> None:
        path = tmp_path / "tokenizer.json"
        path.write_text("[]")
        done = command("bench", "full", "--tokenizer", path)
        assert (done.code, len(done.err.splitlines())) == (ExitCode.TOKENIZER, 1)


def test_a_reason_names_no_folder_of_this_machine() -> None:
    reason = f"bad file: {bench_folder()}/quicktok/x.vocab is short"
    assert str(PeerUnavailableError(reason)) == "bad file: x.vocab is short"
