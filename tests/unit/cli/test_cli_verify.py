"""`verify`: the judge, the chains, the command; that a wrong answer is found, and that a killed run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import families
import numpy as np
import pytest
from cli_kit import Command

from cli import attack, verify, verify_work
from cli.attack import Chain, run_chain
from cli.errors import ExitCode
from cli.judge import Full, Judge, differences
from cli.oracle import U32, Oracle, OracleFailedError, byte_positions
from cli.outcome import MAX_FAILURES, Outcome
from cli.sessions import Conversation, read_sessions, write_sessions
from cli.verify_state import CHAINS_PER_BATCH, Done, State
from toksplice import Patch, Session, Tokenizer
from toksplice.adversarial import Edit, Stock
from toksplice.engine_session import EngineSession
from toksplice.errors import PositionError
from toksplice.registry import Registry

ROOT = Path(__file__).parents[3]
BATCH = CHAINS_PER_BATCH * attack.EDITS_PER_CHAIN
FAMILY = "qwen"


@pytest.fixture(scope="module")
def engine() -> Tokenizer:
    return families.family(FAMILY)


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(families.tokenizer_json(FAMILY))


@pytest.fixture(scope="module")
def stock(oracle: Oracle) -> Stock:
    return Stock(0, oracle.added_tokens)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer.json that the engine serves."""
    path = tmp_path_factory.mktemp("verify") / "tokenizer.json"
    path.write_bytes(families.tokenizer_json(FAMILY))
    return path


def faults(outcome: Outcome) -> str:
    return "; ".join(fault for failure in outcome.failures for fault in failure["faults"])


# The oracle and the judge


def test_the_oracle_counts_bytes(gpt2_file: Path) -> None:
    oracle = Oracle(gpt2_file.read_bytes())
    ids, spans = oracle.encode("é日😀 a", add_special_tokens=False)
    assert spans[-1].tolist() == [9, 11]
    assert len(ids) == len(spans)
    assert byte_positions("é日😀a").tolist() == [0, 2, 5, 9, 10]
    assert byte_positions("").tolist() == [0]
    assert oracle.encode("", add_special_tokens=False)[1].shape == (0, 2)
    assert oracle.ids_batch(["é日😀 a"], add_special_tokens=False)[0].tolist() == ids.tolist()
    assert oracle.added_tokens == ("<|endoftext|>",)


def test_the_oracle_contains_what_the_reference_refuses(gpt2_file: Path) -> None:
    oracle = Oracle(gpt2_file.read_bytes())
    with pytest.raises(OracleFailedError):
        oracle.encode("\ud800", add_special_tokens=False)
    assert oracle.encode("a", add_special_tokens=False)[0].tolist() == [64]


@pytest.mark.parametrize(
    ("found", "expected", "place"),
    [
        ([1, 2, 3], [1, 2, 4], 2),
        ([1, 2], [1, 2, 3], 2),
        ([], [1], 0),
        ([1], [], 0),
        ([[1, 2], [3, 4]], [[1, 2], [3, 5]], 1),
    ],
)
def test_a_difference_is_placed(found: list[Any], expected: list[Any], place: int) -> None:
    (sentence,) = differences("ids", np.array(found, np.uint32), np.array(expected, np.uint32).tobytes(), "others")
    assert sentence == f"ids differ from others from token {place} of {len(expected)} on"
    assert list(differences("ids", np.array(found, np.uint32), np.array(found, np.uint32).tobytes(), "others")) == []


def test_the_engine_judges_edits_and_the_reference_every_so_often(engine: Tokenizer, oracle: Oracle) -> None:
    judge = Judge(engine, oracle, 20)
    assert (judge.reference_only, judge.reference_every) == (False, 20)
    text = "e\u0301<|im_start|> 日本 123"
    full = judge.full(text, add_special_tokens=True)
    assert full == Full.of(*oracle.encode(text, add_special_tokens=True), engine.session(text).restarts)
    assert full.restarts is not None
    assert full.total == len(full.ids) // 4
    assert judge.objections(text, full, add_special_tokens=True) == []
    wrong = judge.full(text + "!", add_special_tokens=True)
    assert len(judge.objections(text, wrong, add_special_tokens=True)) == 2


def test_the_reference_judges_every_edit_where_no_engine_is(oracle: Oracle) -> None:
    judge = Judge(families.family(FAMILY, engine=False), oracle, 20)
    assert (judge.reference_only, judge.reference_every) == (True, 1)


# Chains


@pytest.mark.parametrize("engine", [True, False])
def test_a_chain_of_edits_agrees(oracle: Oracle, stock: Stock, engine: bool) -> None:
    tokenizer = families.family(FAMILY, engine=engine)
    judge = Judge(tokenizer, oracle, 5)
    outcome = Outcome()
    for number in range(4):
        outcome.merge(run_chain(tokenizer, judge, stock, Chain("t", number, edits=30)))
    assert outcome.failures == []
    assert outcome.failed == 0
    assert outcome.edits + outcome.skipped >= 4 * 30
    for counts in (outcome.kinds, outcome.rules, outcome.contexts, outcome.special_tokens, outcome.routes):
        assert counts.total() == outcome.edits
    assert outcome.special_tokens["with"] == outcome.special_tokens["without"] == 60
    assert outcome.reference_encodes == (outcome.edits if not engine else 4 * 30 // 5)


def spoil_patch(**changes: Callable[[Patch], Any]) -> Callable[[Patch], Patch]:
    return lambda patch: replace(patch, **{name: change(patch) for name, change in changes.items()})


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (spoil_patch(ids=lambda patch: patch.ids + np.uint32(1)), "does not lead from"),
        (spoil_patch(keep_left=lambda patch: patch.keep_left - 1), "does not lead from"),
        (spoil_patch(keep_left=lambda patch: 1 << 20), "does not lead from"),
        (spoil_patch(offsets=lambda patch: patch.offsets + np.uint32(1)), "offsets are not those"),
        (spoil_patch(total=lambda patch: patch.total + 1), "total is"),
        (spoil_patch(first_changed=lambda patch: patch.first_changed + 1), "do not differ first at"),
    ],
)
def test_a_wrong_patch_is_found(
    engine: Tokenizer,
    oracle: Oracle,
    stock: Stock,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Patch], Patch],
    fault: str,
) -> None:
    apply = attack._apply

    def spoilt(session: Session, edit: Edit) -> tuple[Session, Patch]:
        edited, patch = apply(session, edit)
        return edited, spoil(patch)

    monkeypatch.setattr(attack, "_apply", spoilt)
    outcome = run_chain(engine, Judge(engine, oracle, 20), stock, Chain("t", 0))
    assert outcome.failed > 0
    assert fault in faults(outcome)
    assert len(outcome.failures) <= MAX_FAILURES


def test_a_wrong_text_is_found(
    engine: Tokenizer, oracle: Oracle, stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    splice = EngineSession.splice
    monkeypatch.setattr(EngineSession, "splice", lambda self, s, e, text, **kw: splice(self, s, e, text + "!", **kw))
    found = faults(run_chain(engine, Judge(engine, oracle, 20), stock, Chain("t", 0, edits=6)))
    assert "ids differ from those of a full encode from token" in found
    assert "offsets differ from those of a full encode from token" in found
    assert "text is not the edited text" in found


def test_a_wrong_restart_place_is_found(
    engine: Tokenizer, oracle: Oracle, stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack, "_apply", _with_no_restarts(attack._apply))
    found = faults(run_chain(engine, Judge(engine, oracle, 20), stock, Chain("t", 0, edits=2)))
    assert "the places where a scan may restart are not those of a full encode" in found


def _with_no_restarts(apply: Callable[[Session, Edit], tuple[Session, Patch]]) -> Any:
    class WithNone(EngineSession):
        @property
        def restarts(self) -> bytes:
            return bytes(len(super().restarts))

    def spoilt(session: Session, edit: Edit) -> tuple[Session, Patch]:
        edited, patch = apply(session, edit)
        edited.__class__ = WithNone
        return edited, patch

    return spoilt


def test_a_fork_that_shares_too_much_is_found_at_once(
    engine: Tokenizer, oracle: Oracle, stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack._Original, "ids", property(lambda self: b"", lambda self, value: None), raising=False)
    outcome = Outcome()
    for number in range(4):
        outcome.merge(run_chain(engine, Judge(engine, oracle, 20), stock, Chain("t", number)))
    assert outcome.failed > 0
    assert "the original of the fork changed" in faults(outcome)


def test_a_fork_whose_original_changes_later_is_found(
    engine: Tokenizer, oracle: Oracle, stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    originals: list[Session] = []
    meddled: list[Patch] = []
    fork = EngineSession.fork

    def remember(self: EngineSession) -> EngineSession:
        originals.append(self)
        return fork(self)

    class Meddling(attack._Run):
        def close(self) -> None:
            if originals:
                meddled.append(originals[-1].append("!"))
            originals.clear()
            super().close()

    monkeypatch.setattr(EngineSession, "fork", remember)
    monkeypatch.setattr(attack, "_Run", Meddling)
    outcome = Outcome()
    for number in range(4):
        outcome.merge(run_chain(engine, Judge(engine, oracle, 20), stock, Chain("t", number)))
    assert outcome.failed == len(meddled) > 0
    for failure in outcome.failures:
        assert (failure["kind"], failure["faults"]) == ("fork", ["the original of the fork changed"])


def test_an_edit_that_is_refused_is_a_failure_and_the_chain_goes_on(
    engine: Tokenizer, oracle: Oracle, stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(session: Session, edit: Edit) -> tuple[Session, Patch]:
        raise PositionError("no")

    monkeypatch.setattr(attack, "_apply", refuses)
    outcome = run_chain(engine, Judge(engine, oracle, 20), stock, Chain("t", 0, edits=3))
    assert (outcome.edits, outcome.failed) == (3, 3)
    assert outcome.failures[0]["faults"] == ["raised PositionError: no"]


def test_a_panic_is_a_failure_and_an_interrupt_is_none(
    engine: Tokenizer, oracle: Oracle, stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        pass

    raised: list[BaseException] = [PanicException("index out of bounds")]

    def panics(session: Session, edit: Edit) -> tuple[Session, Patch]:
        raise raised[-1]

    monkeypatch.setattr(attack, "_apply", panics)
    judge = Judge(engine, oracle, 20)
    assert "PanicException" in faults(run_chain(engine, judge, stock, Chain("t", 0, edits=1)))
    raised.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run_chain(engine, judge, stock, Chain("t", 0, edits=1))


@pytest.mark.parametrize("with_engine", [True, False])
def test_texts_that_the_reference_cannot_encode_are_skipped(
    oracle: Oracle, stock: Stock, monkeypatch: pytest.MonkeyPatch, with_engine: bool
) -> None:
    def fails(self: Oracle, text: str, *, add_special_tokens: bool) -> None:
        raise OracleFailedError

    tokenizer = families.family(FAMILY, engine=with_engine)
    judge = Judge(tokenizer, oracle, 1)
    monkeypatch.setattr(Oracle, "encode", fails)
    outcome = run_chain(tokenizer, judge, stock, Chain("t", 0, edits=3))
    assert (outcome.skipped, outcome.failed, outcome.reference_encodes) == (3, 0, 0)
    assert outcome.edits == (3 if with_engine else 0)


def test_after_a_text_that_the_reference_cannot_encode_the_next_one_is_compared(
    engine: Tokenizer, oracle: Oracle, stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Oracle.encode
    calls: list[str] = []

    def fails_once(self: Oracle, text: str, *, add_special_tokens: bool) -> tuple[U32, U32]:
        calls.append(text)
        if len(calls) == 1:
            raise OracleFailedError
        return encode(self, text, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(Oracle, "encode", fails_once)
    outcome = run_chain(engine, Judge(engine, oracle, 1_000_000), stock, Chain("t", 0))
    assert (outcome.skipped, outcome.reference_encodes, len(calls)) == (1, 1, 2)


def test_outcomes_add_up_in_any_order() -> None:
    def outcome(chain: int) -> Outcome:
        one = Outcome(edits=chain)
        one.kinds["append"] += 1
        for edit in range(15):
            one.fail({"chain": chain, "edit": edit})
        return one

    forth, back = Outcome(), Outcome()
    for chain in range(3):
        forth.merge(outcome(chain))
        back.merge(outcome(2 - chain))
    assert forth == back
    assert (forth.edits, forth.failed, len(forth.failures)) == (3, 45, MAX_FAILURES)
    assert Outcome.from_json(json.loads(json.dumps(forth.to_json()))) == forth


# The command


def timeless(report: dict[str, Any]) -> dict[str, Any]:
    """The report without what differs between two runs of the same edits."""
    for each in report["tokenizers"]:
        del each["seconds"], each["edits_per_second"]
    return report


def test_the_command_reports_as_json(command: Command, registry: Registry, file: Path) -> None:
    words = ("verify", "--tokenizer", "gpt2", "--tokenizer", file, "--edits", 100, "--seed", 3, "--jobs", 1, "--json")
    done = command(*words)
    assert done.code == ExitCode.OK, done.err
    report = done.json
    assert (report["seed"], report["edits"], report["reference_every"]) == ("3", 100, 20)
    assert set(report["versions"]) == {"toksplice", "tokenizers", "engine"}
    assert [each["tokenizer"] for each in report["tokenizers"]] == ["gpt2", str(file)]
    for each in report["tokenizers"]:
        assert (each["edits"], each["failed"], each["failures"]) == (100, 0, [])
        for counts in ("by_kind", "by_route", "by_rule", "by_context_chars", "by_special_tokens"):
            assert sum(each[counts].values()) == 100
    engine = report["tokenizers"][1]
    assert engine["by_route"] == {"A": 100}
    assert engine["engine"]["routes"] == ["A"]
    assert engine["engine"]["reason"]
    assert engine["reference_encodes"] == 5
    assert timeless(command(*words).json) == timeless(report)


def test_a_table_for_people(command: Command, file: Path) -> None:
    done = command("verify", "--tokenizer", file, "--edits", 60, "--jobs", 1)
    assert done.code == ExitCode.OK
    assert "60 edits, 0 failed, 3 compared with the reference" in done.out


def test_several_processes_do_the_same_work(command: Command, file: Path) -> None:
    words = ("verify", "--tokenizer", file, "--edits", 2 * BATCH + 5, "--seed", 9, "--json")
    one, two = command(*words, "--jobs", 1).json, command(*words, "--jobs", 2).json
    assert timeless(one) == timeless(two)
    assert one["tokenizers"][0]["edits"] == 2 * BATCH + 5


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    """Two recorded sessions of three and two turns."""
    messages = [("user", "What is 1 + 1? <think>"), ("assistant", "2"), ("tool", "é 漢字 \U0001f937\n" * 40)]
    recorded = [
        Conversation("one", (*messages, ("assistant", "Done."), ("user", "e\u0301"), ("assistant", "ok"))),
        Conversation("two", (*messages, ("assistant", "<|im_end|>"))),
    ]
    path = tmp_path / "sessions.jsonl.gz"
    write_sessions(path, recorded)
    return path


def test_recorded_sessions_are_replayed_turn_by_turn(command: Command, file: Path, sessions: Path) -> None:
    words = ("verify", "--tokenizer", file, "--sessions", sessions, "--reference-every", 2, "--jobs", 1, "--json")
    done = command(*words)
    assert done.code == ExitCode.OK, done.err
    assert done.json["edits"] == 5
    assert len(done.json["sessions"]) == 64
    (report,) = done.json["tokenizers"]
    assert (report["edits"], report["by_rule"], report["by_kind"]) == (5, {"recorded": 5}, {"append": 5})
    assert report["by_special_tokens"] == {"with": 2, "without": 3}
    assert report["reference_encodes"] == 3
    texts = [text for conversation in read_sessions(sessions) for text in accumulate(conversation.deltas())]
    assert report["chars_in_texts"] == sum(map(len, texts))


def test_a_fault_in_a_recorded_session_is_found(
    command: Command, file: Path, sessions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splice = EngineSession.splice

    def wrong(self: EngineSession, start: int, end: int, text: str, *, force_full: bool = False) -> Patch:
        patch = splice(self, start, end, text, force_full=force_full)
        return replace(patch, total=patch.total + 1) if "Done." in text else patch

    monkeypatch.setattr(EngineSession, "splice", wrong)
    done = command("verify", "--tokenizer", file, "--sessions", sessions, "--jobs", 1, "--json")
    assert done.code == ExitCode.CHECK_FAILED
    (failure,) = done.json["tokenizers"][0]["failures"]
    assert (failure["seed"], failure["chain"], failure["edit"]) == ("sessions.jsonl.gz", 0, 2)


@pytest.mark.parametrize(("data", "words"), [(b"{}\n", "line 1"), (None, "cannot be read")])
def test_sessions_that_cannot_be_read_are_one_error(
    command: Command, file: Path, tmp_path: Path, data: bytes | None, words: str
) -> None:
    path = tmp_path / "sessions.jsonl"
    if data is not None:
        path.write_bytes(data)
    done = command("verify", "--tokenizer", file, "--sessions", path)
    assert done.code == ExitCode.INPUT
    assert words in done.err


@pytest.mark.parametrize("name", ["nowhere.json", "no-such-tokenizer"])
def test_a_tokenizer_that_is_not_there_is_one_error(command: Command, registry: Registry, name: str) -> None:
    done = command("verify", "--tokenizer", name, "--edits", 1)
    assert done.code == ExitCode.TOKENIZER
    assert name in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_line_says_how_far_it_is_where_no_bar_can(
    command: Command, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "LINE_EVERY_S", 0.0)
    done = command("verify", "--tokenizer", file, "--edits", BATCH + 1, "--jobs", 1)
    assert f"{BATCH:,} of {BATCH + 1:,} edits, 0 failed" in done.err


class WrongSession(EngineSession):
    """A session whose ids have one wrong bit once the text has been edited."""

    edited = False

    def splice(self, start: int, end: int, text: str, *, force_full: bool = False) -> Patch:
        self.edited = True
        return super().splice(start, end, text, force_full=force_full)

    @property
    def ids(self) -> U32:
        ids = super().ids.copy()
        if self.edited and len(ids):
            ids[-1] ^= 1
        return ids


def test_a_wrong_id_in_an_edited_session_ends_in_the_exit_code_and_the_report(
    command: Command, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def session(self: Tokenizer, text: str = "", *, add_special_tokens: bool = False) -> Session:
        route = self.native
        assert route is not None
        return WrongSession(self, route, route.session(text), add_special_tokens=add_special_tokens)

    monkeypatch.setattr(Tokenizer, "session", session)
    # No text is due for the reference: the engine's own full encode shows it.
    words = ("verify", "--tokenizer", file, "--edits", 40, "--jobs", 1, "--reference-every", 1_000_000)
    done = command(*words)
    assert done.code == ExitCode.CHECK_FAILED
    assert "FAILED seed 0 chain 0 edit" in done.err
    assert "ids differ from those of a full encode" in done.err
    assert "--json" in done.err
    done = command(*words, "--json")
    assert done.code == ExitCode.CHECK_FAILED
    (report,) = done.json["tokenizers"]
    assert report["failed"] > MAX_FAILURES // 2
    failure = report["failures"][0]
    assert any(fault.startswith("ids differ") for fault in failure["faults"])
    before = failure["before"].encode()
    after = before[: failure["start"]] + failure["insert"].encode() + before[failure["end"] :]
    assert after.decode() == failure["after"]


def test_an_engine_that_is_wrong_throughout_is_found_by_the_reference(
    command: Command, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids: property = vars(EngineSession)["ids"]
    monkeypatch.setattr(EngineSession, "ids", property(lambda self: ids.__get__(self) ^ np.uint32(1)))
    done = command("verify", "--tokenizer", file, "--edits", 20, "--jobs", 1, "--reference-every", 5, "--json")
    assert done.code == ExitCode.CHECK_FAILED
    assert "the reference's ids differ from the engine's" in json.dumps(done.json["tokenizers"][0]["failures"])


# The state file


def state_words(file: Path, state: Path, *more: object) -> tuple[object, ...]:
    words = ("verify", "--tokenizer", file, "--edits", 4 * BATCH, "--jobs", 1, "--json", "--state", state)
    return (*words, *more)


KILL_AFTER_TWO_BATCHES = f"""
import os, signal, sys
from cli.main import main
from cli.sessions import Conversation, read_sessions, write_sessions
from cli.verify_state import State
record, records = State.record, []
def record_and_die(self):
    record(self)
    records.append(1)
    if len(records) == 2:
        os.kill(os.getpid(), signal.{signal.SIGKILL.name})
State.record = record_and_die
sys.exit(main(sys.argv[1:]))
"""


def test_a_killed_run_goes_on_where_it_stopped(
    command: Command, home: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "new" / "state.json"
    words = [sys.executable, "-c", KILL_AFTER_TWO_BATCHES, *map(str, state_words(file, state))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=250, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert killed.stdout == ""
    run, ran = verify_work._run, []

    def count(batch: verify_work.Batch) -> tuple[int, Outcome]:
        ran.append(batch[0])
        return run(batch)

    monkeypatch.setattr(verify_work, "_run", count)
    resumed = command(*state_words(file, state))
    assert ran == [2, 3]
    whole = command("verify", "--tokenizer", file, "--edits", 4 * BATCH, "--jobs", 1, "--json")
    assert timeless(resumed.json) == timeless(whole.json)
    ran.clear()
    assert timeless(command(*state_words(file, state)).json) == timeless(whole.json)
    assert ran == []


def test_ctrl_c_keeps_what_is_done(
    command: Command, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state.json"
    run = verify_work._run

    def interrupted(batch: verify_work.Batch) -> tuple[int, Outcome]:
        if batch[0] == 1:
            raise KeyboardInterrupt
        return run(batch)

    monkeypatch.setattr(verify_work, "_run", interrupted)
    assert command(*state_words(file, state)).code == ExitCode.INTERRUPTED
    (done,) = json.loads(state.read_bytes())["done"].values()
    assert done["batches"] == [[0, 0]]
    assert done["outcome"]["edits"] == BATCH


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (("--seed", 1), "seed 0, not 1"),
        (("--edits", 7), f"edits {4 * BATCH}, not 7"),
        (("--reference-every", 3), "reference_every 20, not 3"),
        (("--tokenizer", "gpt2"), "tokenizers ["),
    ],
)
def test_the_state_of_another_run_is_refused(
    command: Command, registry: Registry, file: Path, tmp_path: Path, more: tuple[object, ...], what: str
) -> None:
    state = empty_state(command, file, tmp_path)
    before = state.read_bytes()
    done = command(*state_words(file, state, *more))
    assert done.code == ExitCode.INPUT
    assert what in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert state.read_bytes() == before


def test_the_state_of_another_engine_is_refused(
    command: Command, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = empty_state(command, file, tmp_path)
    monkeypatch.setattr("cli.verify_state.versions", lambda: {"toksplice": "9", "tokenizers": "9", "engine": "9"})
    done = command(*state_words(file, state))
    assert done.code == ExitCode.INPUT
    assert "versions" in done.err


def empty_state(command: Command, file: Path, folder: Path) -> Path:
    """The state file of a run that has done nothing."""
    state = folder / "state.json"
    with pytest.MonkeyPatch.context() as patch:

        def interrupted(batch: verify_work.Batch) -> tuple[int, Outcome]:
            raise KeyboardInterrupt

        patch.setattr(verify_work, "_run", interrupted)
        command(*state_words(file, state))
        patch.setattr(verify_work, "_run", lambda batch: (batch[0], Outcome()))
        assert command(*state_words(file, state)).code == ExitCode.OK
    return state


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"run": {}, "done": {"a": {}}}', b"\xff"])
def test_a_file_that_is_no_state_is_refused(command: Command, file: Path, tmp_path: Path, data: bytes) -> None:
    state = tmp_path / "state.json"
    state.write_bytes(data)
    done = command(*state_words(file, state))
    assert done.code == ExitCode.INPUT
    assert "not a state file of verify" in done.err
    assert state.read_bytes() == data


def test_a_state_that_cannot_be_written_is_one_error(command: Command, file: Path, tmp_path: Path) -> None:
    (tmp_path / "no-folder").write_text("")
    done = command(*state_words(file, tmp_path / "no-folder" / "state.json"))
    assert done.code == ExitCode.STORAGE
    assert len(done.err.strip().splitlines()) == 1


def test_done_batches_are_kept_as_ranges() -> None:
    done = Done({0, 1, 2, 5, 7, 8}, Outcome(edits=3), 1.5)
    assert done.to_json()["batches"] == [[0, 2], [5, 5], [7, 8]]
    assert Done.from_json(json.loads(json.dumps(done.to_json()))) == done


def test_without_a_file_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    state = State(None, {})
    state.done("x").outcome.edits = 3
    state.record()
    assert state.done("x").outcome.edits == 3
    assert list(tmp_path.iterdir()) == []
