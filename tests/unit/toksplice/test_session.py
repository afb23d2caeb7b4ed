"""Sessions: edits, patches, errors, views, snapshots."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from families import family, tokenizer_json

from toksplice import (
    PositionError,
    ReferenceFailedError,
    Session,
    SnapshotError,
    TextError,
    Tokenizer,
    TokenizerError,
    load,
)
from toksplice import snapshot as snapshots
from toksplice.reference import Encoded
from toksplice.reference_session import ReferenceSession

PROSE = "The quick brown fox jumps over 12 lazy dogs.\ndef f(x):\n    return x + 1\n" * 80


def assert_exact(session: Session, tokenizer: Tokenizer) -> None:
    expected = tokenizer.reference.ids(session.text, add_special_tokens=session.add_special_tokens)
    assert np.array_equal(session.ids, expected)


def test_append_is_a_certified_splice(qwen: Tokenizer) -> None:
    session = qwen.session(PROSE)
    before = session.ids.copy()
    patch = session.append(" And more, 3 times.")
    assert_exact(session, qwen)
    assert (patch.route, patch.reason, patch.keep_right) == ("C", "certified", 0)
    assert patch.certificate is not None
    assert patch.certificate.left_tokens >= 2
    assert patch.certificate.left_chars > qwen.explain().longest_token_chars
    assert patch.chars_encoded == 512 + len(" And more, 3 times.")
    assert np.array_equal(patch.apply(before), session.ids)
    assert patch.total == session.total == len(session.ids)


def test_middle_edit_keeps_both_sides(qwen: Tokenizer) -> None:
    session = qwen.session(PROSE)
    patch = session.splice(2000, 2010, "something else entirely")
    assert_exact(session, qwen)
    assert patch.route == "C"
    assert patch.keep_left > 100
    assert patch.keep_right > 100
    assert patch.certificate is not None
    assert patch.certificate.right_tokens >= 2


def test_edits_right_at_the_start_and_the_end(qwen: Tokenizer) -> None:
    session = qwen.session(PROSE)
    for patch in (session.splice(0, 4, "A "), session.splice(0, 0, "\n"), session.truncate(session.length - 1)):
        assert patch.route == "C"
        assert_exact(session, qwen)


def test_short_text_takes_the_reference(qwen: Tokenizer) -> None:
    session = qwen.session("What?")
    patch = session.append("?")
    assert (patch.route, patch.reason) == ("D", "window_is_whole_text")
    assert_exact(session, qwen)


def test_force_full(qwen: Tokenizer) -> None:
    session = qwen.session(PROSE)
    patch = session.append("x", force_full=True)
    assert (patch.route, patch.reason, patch.chars_encoded) == ("D", "forced", len(PROSE) + 1)
    assert patch.keep_left > 0
    assert_exact(session, qwen)


def test_no_certificate_without_a_boundary(qwen: Tokenizer) -> None:
    """A window of one letter has no boundary in it, however often it is doubled."""
    session = qwen.session("a" * 40_000)
    patch = session.append("b")
    assert (patch.route, patch.reason) == ("D", "uncertified")
    assert_exact(session, qwen)


def test_windows_stop_growing_when_a_full_encoding_is_cheaper(qwen: Tokenizer) -> None:
    session = qwen.session("a" * 1_300)
    patch = session.append("b")
    assert (patch.route, patch.reason) == ("D", "not_worth_it")
    assert_exact(session, qwen)


def test_a_family_without_a_rule_says_so() -> None:
    tokenizer = family("llama2", engine=False)
    assert tokenizer.explain().routes == ("D",)
    assert "Metaspace" in tokenizer.explain().reason
    session = tokenizer.session(PROSE)
    patch = session.append(" more")
    assert (patch.route, patch.reason) == ("D", "no_rule")
    assert_exact(session, tokenizer)


def test_update_finds_the_edit(qwen: Tokenizer) -> None:
    session = qwen.session(PROSE)
    changed = PROSE[:1000] + "é" + PROSE[1001:] + "!"
    patch = session.update(changed)
    assert session.text == changed
    assert patch.route == "C"
    assert patch.keep_left > 100
    assert_exact(session, qwen)


def test_update_with_half_a_character_in_common(qwen: Tokenizer) -> None:
    session = qwen.session("x世" * 10)
    session.update("x世" * 5 + "丗" + "x世" * 5)  # shares bytes of its first character with the old text
    assert_exact(session, qwen)
    session.update("")
    assert session.total == 0


@pytest.mark.parametrize("edit", ["append", "splice", "truncate", "update"])
def test_nothing_changes(qwen: Tokenizer, edit: str) -> None:
    session = qwen.session(PROSE)
    calls = {
        "append": lambda: session.append(""),
        "splice": lambda: session.splice(0, 3, "The"),
        "truncate": lambda: session.truncate(session.length),
        "update": lambda: session.update(PROSE),
    }
    patch = calls[edit]()
    assert (patch.reason, patch.keep_left, len(patch.ids), patch.keep_right) == ("unchanged", session.total, 0, 0)
    assert patch.chars_encoded == 0


def test_first_changed_is_the_first_different_token(qwen: Tokenizer) -> None:
    session = qwen.session(PROSE)
    for start, end, text in (
        (50, 50, " of the"),
        (0, 0, "The quick"),
        (3000, 3100, ""),
        (5000, 5000, "z"),
    ):
        before = session.ids.copy()
        patch = session.splice(start, end, text)
        after = session.ids
        size = min(len(before), len(after))
        differs = np.flatnonzero(before[:size] != after[:size])
        assert patch.first_changed == (differs[0] if len(differs) else size)


def test_special_tokens_stand_around_the_text() -> None:
    tokenizer = family("llama3", engine=False)
    session = tokenizer.session(PROSE, add_special_tokens=True)
    assert session.total == len(tokenizer.encode(PROSE)) + 1
    patch = session.append(" more")
    assert patch.route == "C"
    assert_exact(session, tokenizer)
    assert session.offsets()[0].tolist() == [0, 0]


def test_special_tokens_at_the_end_are_kept_on_the_right() -> None:
    tokenizer = family("bert", engine=False)
    session = tokenizer.session("the token", add_special_tokens=True)
    patch = session.append(" return")
    assert patch.keep_right == 1
    assert_exact(session, tokenizer)


def test_a_fork_copies_nothing_until_one_of_the_two_changes(qwen: Tokenizer) -> None:
    session = qwen.session(PROSE)
    fork = session.fork()
    assert np.shares_memory(fork.ids, session.ids)
    expected, text = session.ids.copy(), session.text
    session.append(" in the original")
    session.splice(100, 110, "é, in the middle")
    assert not np.shares_memory(fork.ids, session.ids)
    assert np.array_equal(fork.ids, expected)
    assert fork.text == text
    assert_exact(session, qwen)
    memory = session.ids
    session.append("!")
    assert np.shares_memory(memory, session.ids), "a session that shares nothing is changed in place"


@pytest.mark.parametrize("force_full", [False, True])
def test_of_many_forks_each_goes_its_own_way(qwen: Tokenizer, force_full: bool) -> None:
    session = qwen.session(PROSE)
    forks = [session.fork() for _ in range(3)]
    forks.append(forks[0].fork())
    for number, one in enumerate([*forks, session]):
        one.splice(number * 50, number * 50 + 9, f"fork {number}", force_full=force_full)
        for each in (*forks, session):
            assert_exact(each, qwen)
    assert len({each.text for each in (*forks, session)}) == 5


def test_a_fork_that_is_gone_costs_no_copy(qwen: Tokenizer) -> None:
    session = qwen.session(PROSE)
    session.append("x")
    fork = session.fork()
    memory = session.ids
    del fork
    session.append("!")
    assert np.shares_memory(memory, session.ids)


def test_the_same_text_again_by_force_corrects_wrong_tokens(qwen: Tokenizer) -> None:
    right = qwen.session(PROSE)
    spans = right.offsets()
    wrong = right.ids.copy()
    wrong[3] = 7
    session = ReferenceSession(qwen, PROSE.encode(), Encoded(wrong, spans[:, 0], spans[:, 1]), add_special_tokens=False)
    assert session.update(PROSE).reason == "unchanged"
    assert not np.array_equal(session.ids, right.ids)
    patch = session.update(PROSE, force_full=True)
    assert (patch.route, patch.keep_left, len(patch.ids)) == ("D", 3, 1)
    assert np.array_equal(session.ids, right.ids)


def test_fork_is_independent(qwen: Tokenizer) -> None:
    session = qwen.session(PROSE)
    fork = session.fork()
    fork.append(" in the fork")
    assert session.text == PROSE
    assert_exact(session, qwen)
    assert_exact(fork, qwen)


def test_ids_are_a_read_only_view(qwen: Tokenizer) -> None:
    session = qwen.session(PROSE)
    assert session.ids.base is not None
    with pytest.raises(ValueError, match="read-only"):
        session.ids[0] = 1


def test_offsets_are_utf8_bytes(qwen: Tokenizer) -> None:
    session = qwen.session("é世😀x")
    text = session.text.encode()
    spans = {text[a:b].decode() for a, b in session.offsets().tolist()}
    assert spans == {"é", "世", "😀", "x"}


@pytest.mark.parametrize(
    ("start", "end"),
    [(-1, 0), (0, 100), (1, 2), (2, 1), (0, 1), (3, 2)],
)
def test_bad_positions_change_nothing(qwen: Tokenizer, start: int, end: int) -> None:
    session = qwen.session("é世")
    with pytest.raises(PositionError) as caught:
        session.splice(start, end, "x")
    assert (caught.value.code, caught.value.retriable) == ("bad_position", False)
    assert session.text == "é世"


@pytest.mark.parametrize("position", [True, 1.0, "1", None])
def test_positions_are_ints(qwen: Tokenizer, position: object) -> None:
    session = qwen.session("abc")
    with pytest.raises(PositionError, match="must be an int"):
        session.truncate(position)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", b"bytes", None, 7])
def test_text_must_be_unicode(qwen: Tokenizer, text: str) -> None:
    session = qwen.session(PROSE)
    for call in (session.append, session.update, qwen.session, qwen.encode):
        with pytest.raises(TextError) as caught:
            call(text)
        assert caught.value.code == "invalid_utf8"
    assert session.text == PROSE


def test_a_panic_of_the_reference_is_contained() -> None:
    """An lstrip token inside the white space that an rstrip token swallowed: the reference slices backwards."""
    config = json.loads(tokenizer_json("stripping"))
    config["added_tokens"][2]["content"] = " \n"
    tokenizer = load(json.dumps(config).encode(), engine=False)
    session = tokenizer.session(PROSE)
    with pytest.raises(ReferenceFailedError) as caught:
        session.append("<mask> <mask>   \n ")
    assert caught.value.code == "reference_failed"
    assert session.text == PROSE
    session.append(" and on")
    assert_exact(session, tokenizer)


def test_size_counts_text_and_columns(qwen: Tokenizer) -> None:
    session = qwen.session(PROSE)
    columns = session.size_bytes - sys.getsizeof(bytearray(PROSE.encode()))
    assert columns == 12 * session.total
    session.append(" x")
    grown = session.size_bytes - sys.getsizeof(bytearray(session.text.encode()))
    assert 12 * session.total <= grown <= 12 * session.total * 9 / 8 + 3072 + len(PROSE) // 8


def test_snapshot_round_trip(qwen: Tokenizer) -> None:
    for text in ("", PROSE, "é世😀 \x03" * 20):
        session = qwen.session(text, add_special_tokens=bool(text))
        copy = qwen.restore(session.to_bytes())
        assert copy.text == text
        assert np.array_equal(copy.ids, session.ids)
        assert np.array_equal(copy.offsets(), session.offsets())
        copy.append(" on")
        assert_exact(copy, qwen)


def test_damaged_snapshots_are_refused(qwen: Tokenizer, gpt2: Tokenizer) -> None:
    data = qwen.session(PROSE).to_bytes()
    for damaged in (b"", data[:-1], data[:100], data + b"x", bytes([data[0] ^ 1]) + data[1:]):
        with pytest.raises(SnapshotError, match="checksum"):
            qwen.restore(damaged)
    with pytest.raises(SnapshotError, match="another tokenizer"):
        gpt2.restore(data)
    future = data[:4] + bytes([snapshots.TEXT_VERSION + 1]) + data[5:-16]
    with pytest.raises(SnapshotError, match="version"):
        qwen.restore(future + snapshots.digest(future))


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"{}", b'{"model": {}}', b"\xff\xfe"])
def test_bad_tokenizer_files_are_refused(data: bytes) -> None:
    with pytest.raises(TokenizerError):
        load(data)


def test_a_missing_tokenizer_file() -> None:
    with pytest.raises(TokenizerError, match="No such file"):
        load("no/such/tokenizer.json")
