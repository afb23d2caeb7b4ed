"""`verify`: the adversary, the oracle, and that a wrong answer is found."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_kit import Command

from cli import attack
from cli.attack import MAX_FAILURES, Outcome, run_chain
from cli.errors import ExitCode
from cli.oracle import Oracle, OracleFailedError, byte_positions
from toksplice import Patch, Session, Tokenizer, load
from toksplice.adversarial import MAX_ADDED_TOKENS, Adversary, Edit
from toksplice.errors import PositionError
from toksplice.reference_session import ReferenceSession
from toksplice.registry import Registry

TOKENS = ("<|im_start|>", "<think>")


@pytest.fixture(scope="module")
def tokenizer(gpt2_file: Path) -> Tokenizer:
    return load(gpt2_file)


@pytest.fixture(scope="module")
def oracle(gpt2_file: Path) -> Oracle:
    return Oracle(gpt2_file.read_bytes())


def edits(seed: int, count: int = 300) -> Iterator[tuple[str, Edit]]:
    adversary = Adversary(seed, TOKENS)
    text = adversary.text(500)
    for edit in adversary.edits(text, count):
        yield text, edit
        text = edit.after


def test_the_same_seed_makes_the_same_edits() -> None:
    assert list(edits(1)) == list(edits(1))
    assert list(edits(1)) != list(edits(2))


def test_an_edit_says_what_it_does_in_bytes() -> None:
    kinds = set()
    for before, edit in edits(5):
        kinds.add(edit.kind)
        data = before.encode()
        assert 0 <= edit.start <= edit.end <= len(data)
        data[: edit.start].decode()
        data[edit.end :].decode()
        if edit.kind != "update":
            assert (data[: edit.start] + edit.insert.encode() + data[edit.end :]).decode() == edit.after
        if edit.kind == "append":
            assert edit.start == edit.end == len(data)
        if edit.kind == "truncate":
            assert (edit.insert, edit.end) == ("", len(data))
    assert kinds == {"append", "splice", "truncate", "update", "fork"}


def test_texts_have_the_size_asked_for_and_are_valid() -> None:
    adversary = Adversary(0, TOKENS)
    for size in (0, 1, 17, 4_500):
        text = adversary.text(size)
        assert len(text) == size
        text.encode()
    assert any(adversary.context_size() > 4_000 for _ in range(20))


def test_few_added_tokens_are_drawn_of_a_vocabulary_with_many() -> None:
    many = [f"<{n}>" for n in range(1_000)]
    assert len(Adversary(0, many)._added) == MAX_ADDED_TOKENS
    assert Adversary(0, many).text(300) == Adversary(0, many[::-1]).text(300)


def test_the_oracle_counts_bytes(oracle: Oracle) -> None:
    ids, spans = oracle.encode("é日😀 a", add_special_tokens=False)
    assert spans[-1].tolist() == [9, 11]
    assert len(ids) == len(spans)
    assert byte_positions("é日😀a").tolist() == [0, 2, 5, 9, 10]
    assert byte_positions("").tolist() == [0]
    assert oracle.ids_batch(["é日😀 a"], add_special_tokens=False)[0].tolist() == ids.tolist()
    assert oracle.added_tokens == ("<|endoftext|>",)


def test_the_oracle_contains_what_the_reference_refuses(oracle: Oracle) -> None:
    with pytest.raises(OracleFailedError):
        oracle.encode("\ud800", add_special_tokens=False)
    assert oracle.encode("a", add_special_tokens=False)[0].tolist() == [64]


def test_a_chain_of_edits_agrees_with_the_oracle(tokenizer: Tokenizer, oracle: Oracle) -> None:
    outcome = Outcome()
    for seed in range(3):
        outcome.merge(run_chain(tokenizer, oracle, seed=f"test/{seed}", edits=8))
    assert outcome.failures == []
    assert outcome.failed == 0
    assert outcome.cases + outcome.skipped == 3 * 8 * 2
    assert sum(outcome.routes.values()) == outcome.cases


def wrong_ids(patch: Patch) -> Patch:
    return replace(patch, ids=patch.ids + np.uint32(1))


def wrong_offsets(patch: Patch) -> Patch:
    return replace(patch, offsets=patch.offsets + np.uint32(1))


def wrong_total(patch: Patch) -> Patch:
    return replace(patch, total=patch.total + 1)


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (wrong_ids, "does not lead from"),
        (wrong_offsets, "offsets are not those"),
        (wrong_total, "total is"),
    ],
)
def test_a_wrong_patch_is_found(
    tokenizer: Tokenizer,
    oracle: Oracle,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Patch], Patch],
    fault: str,
) -> None:
    apply = attack._apply

    def spoilt(session: Session, edit: Edit) -> tuple[Session, Patch]:
        edited, patch = apply(session, edit)
        return edited, spoil(patch)

    monkeypatch.setattr(attack, "_apply", spoilt)
    outcome = run_chain(tokenizer, oracle, seed="spoilt", edits=12)
    assert outcome.failed > 0
    assert any(fault in one for failure in outcome.failures for one in failure["faults"])
    assert len(outcome.failures) <= MAX_FAILURES


def test_wrong_ids_and_a_wrong_text_are_found(
    tokenizer: Tokenizer, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    splice = ReferenceSession.splice
    monkeypatch.setattr(ReferenceSession, "splice", lambda self, s, e, text, **kw: splice(self, s, e, text + "!", **kw))
    outcome = run_chain(tokenizer, oracle, seed="spoilt", edits=6)
    faults = " ".join(outcome.failures[0]["faults"])
    assert "ids differ from token" in faults
    assert "offsets differ from token" in faults
    assert "text is not the edited text" in faults


def test_an_edit_that_is_refused_is_a_failure_and_the_chain_goes_on(
    tokenizer: Tokenizer, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(session: Session, edit: Edit) -> tuple[Session, Patch]:
        raise PositionError("no")

    monkeypatch.setattr(attack, "_apply", refuses)
    outcome = run_chain(tokenizer, oracle, seed="x", edits=3)
    assert (outcome.cases, outcome.failed) == (6, 6)
    assert outcome.failures[0]["faults"] == ["raised PositionError: no"]


def test_texts_that_the_reference_cannot_encode_are_skipped(
    tokenizer: Tokenizer, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Oracle, text: str, *, add_special_tokens: bool) -> None:
        raise OracleFailedError

    monkeypatch.setattr(Oracle, "encode", fails)
    outcome = run_chain(tokenizer, oracle, seed="x", edits=3)
    assert (outcome.cases, outcome.skipped, outcome.failed) == (0, 6, 0)


def test_the_command_reports_routes_as_json(command: Command, registry: Registry) -> None:
    done = command("verify", "--tokenizer", "gpt2", "--cases", 40, "--seed", 3, "--jobs", 1, "--json")
    assert done.code == ExitCode.OK, done.err
    result = done.json
    assert (result["cases"] + result["skipped"], result["failed"], result["failures"]) == (40, 0, [])
    assert sum(result["by_route"].values()) == result["cases"]
    assert command("verify", "--tokenizer", "gpt2", "--cases", 40, "--seed", 3, "--jobs", 1, "--json").json == result


@pytest.mark.parametrize("cases", [1, 45])
def test_the_command_tries_as_many_cases_as_asked_for(command: Command, registry: Registry, cases: int) -> None:
    result = command("verify", "--tokenizer", "gpt2", "--cases", cases, "--jobs", 1, "--json").json
    assert result["cases"] + result["skipped"] == cases


def test_a_failure_ends_in_its_exit_code_and_can_be_seen_again(
    command: Command, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReferenceSession, "total", property(lambda self: 0))
    done = command("verify", "--tokenizer", "gpt2", "--cases", 40, "--jobs", 1)
    assert done.code == ExitCode.CHECK_FAILED
    assert "FAILED seed 0/0 edit" in done.err
    assert "--json" in done.err


def test_several_processes_do_the_same_work(command: Command, registry: Registry) -> None:
    words = ("verify", "--tokenizer", "gpt2", "--cases", 80, "--seed", 9, "--json")
    one, two = command(*words, "--jobs", 1).json, command(*words, "--jobs", 2).json
    assert one == two
