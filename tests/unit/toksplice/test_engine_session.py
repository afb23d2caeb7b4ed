"""Sessions on the native engine: what they share with the reference's, and how the two take over from each other."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from families import family, tokenizer_json

from toksplice import PositionError, Session, SnapshotError, TextError, Tokenizer, load, snapshot
from toksplice.engine_session import EngineSession
from toksplice.gather import gather
from toksplice.reference_session import ReferenceSession

PROSE = "The quick brown fox — jumped over 12 lazy dögs.\ndef f(x):\n    return x + 1\n" * 400
BOTH = pytest.mark.parametrize("engine", [True, False])


@pytest.fixture
def llama3() -> Tokenizer:
    return family("llama3")


def assert_exact(session: Session, tokenizer: Tokenizer) -> None:
    expected = tokenizer.reference.encode(session.text)
    special = int(session.add_special_tokens)  # this family puts one before the text
    assert np.array_equal(session.ids[special:], expected.ids)
    assert np.array_equal(session.offsets()[special:], np.stack([expected.starts, expected.ends], axis=1))


def test_the_engine_is_the_default() -> None:
    data = tokenizer_json("llama3")
    with_engine, without = load(data), load(data, engine=False)
    assert isinstance(with_engine.session("a"), EngineSession)
    assert isinstance(with_engine.session("a", engine=False), ReferenceSession)
    assert isinstance(without.session("a"), ReferenceSession)
    assert (with_engine.whole_text_route, without.whole_text_route) == ("A", "D")
    assert (with_engine.explain().routes, without.explain().routes) == (("A",), ("C", "D"))
    assert (with_engine.session("a").native, without.session("a").native) == (True, False)


def test_what_route_c_needs_is_not_found_out_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("route C was planned")

    monkeypatch.setattr("toksplice.tokenizer.plan", fail)
    tokenizer = load(tokenizer_json("llama3"))
    assert tokenizer.explain().synchronising_pairs == 0
    session = tokenizer.session(PROSE)
    session.append("more")
    tokenizer.restore(session.to_bytes()).truncate(10)


@BOTH
@pytest.mark.parametrize("specials", [False, True])
def test_stretches_are_gathered_as_they_were(engine: bool, specials: bool) -> None:
    session = family("llama3", engine=engine).session(PROSE, add_special_tokens=specials)
    text, ids, total = session.text.encode(), session.ids.copy(), session.total
    for start, stop in ((0, 0), (0, 1), (0, 5_000), (4_095, 4_097), (total - 1, total), (0, total)):
        assert gather(session.ids_parts(start, stop)) == ids[start:stop].astype("<u4").tobytes()
        assert gather(session.utf8_parts(start, stop)) == text[start:stop]
    parts = (b"<", *session.utf8_parts(0, len(text)), b"|", *session.ids_parts(0, total), b">")
    right = b"".join((b"<", text, b"|", ids.astype("<u4").tobytes(), b">"))
    assert sum(map(len, parts)) == len(right)
    start, stop = (len(PROSE[:at].encode()) for at in (100, 20_000))
    session.splice(start, stop, "something else")
    session.append("and more " * 2_000)
    del session
    assert gather(parts) == right


def test_nothing_else_is_gathered() -> None:
    assert gather(()) == b""
    for wrong in ("text", 7, None):
        with pytest.raises(TypeError):
            gather((b"a", wrong))  # type: ignore[arg-type]


@BOTH
@pytest.mark.parametrize("specials", [False, True])
def test_some_ids_and_spans_are_read_without_the_others(engine: bool, specials: bool) -> None:
    session = family("llama3", engine=engine).session(PROSE, add_special_tokens=specials)
    ids, offsets = session.ids.copy(), session.offsets()
    total = session.total
    for start, stop in ((0, 0), (0, 1), (0, total), (1, 9), (5000, 5003), (total - 1, total), (total, total)):
        assert np.array_equal(session.ids_between(start, stop), ids[start:stop])
        found = session.offsets_between(start, stop)
        assert found.shape == (stop - start, 2)
        assert np.array_equal(found, offsets[start:stop])
    for start, stop in ((-1, 2), (3, 2), (0, total + 1)):
        with pytest.raises(PositionError):
            session.ids_between(start, stop)
        with pytest.raises(PositionError):
            session.offsets_between(start, stop)


@BOTH
@pytest.mark.parametrize("force_full", [False, True])
@pytest.mark.parametrize(
    ("start", "end"),
    [(-1, 2), (3, 2), (0, 10**6), (0, 2**70), (22, 23), (True, 2), (0, True), (0.0, 2), (0, 2.0), (np.int64(1), 2)],
)
def test_positions_that_are_none_are_refused(engine: bool, force_full: bool, start: int, end: int) -> None:
    session = family("llama3", engine=engine).session(PROSE)
    with pytest.raises(PositionError) as caught:
        session.splice(start, end, "x", force_full=force_full)
    assert caught.value.code == "bad_position"
    assert session.text == PROSE


@BOTH
def test_text_that_is_none_is_refused(engine: bool) -> None:
    session = family("llama3", engine=engine).session(PROSE)
    for text in ("\ud800", "a" * 5000 + "\udfff é", b"bytes", None):
        for edit in (session.append, session.update):
            with pytest.raises(TextError):
                edit(text)  # type: ignore[arg-type]
    assert session.text == PROSE


def test_no_copy_stays_in_the_caller_s_text(llama3: Tokenizer) -> None:
    text = "→ naïve 漢字 🤷 " * 1000
    size = sys.getsizeof(text)
    session = llama3.session(text)
    session.append(text)
    session.update(text)
    assert np.array_equal(session.ids, llama3.encode(text))
    # An str counts the UTF-8 that the interpreter keeps beside it.
    assert sys.getsizeof(text) == size


@pytest.mark.parametrize("specials", [False, True])
def test_a_session_goes_on_by_the_reference_alone(llama3: Tokenizer, specials: bool) -> None:
    session = llama3.session(PROSE, add_special_tokens=specials)
    session.append(" x")
    moved = session.on_reference()
    assert isinstance(moved, ReferenceSession)
    assert moved.on_reference() is moved
    assert np.array_equal(moved.ids, session.ids)
    assert_exact(moved, llama3)
    assert moved.append(" more").route == "C"
    assert moved.splice(10, 20, "é", force_full=True).route == "D"
    assert_exact(moved, llama3)
    assert session.text == PROSE + " x"


def test_bytes_of_either_kind_become_a_session_of_the_engine(llama3: Tokenizer) -> None:
    for engine in (True, False):
        session = llama3.session(PROSE, add_special_tokens=True, engine=engine)
        restored = llama3.restore(session.to_bytes())
        assert isinstance(restored, EngineSession)
        assert_exact(restored, llama3)
    reference_only = load(tokenizer_json("llama3"), engine=False)
    restored = reference_only.restore(llama3.session(PROSE).to_bytes())
    assert isinstance(restored, ReferenceSession)
    assert_exact(restored, reference_only)


def test_tokens_that_the_engine_would_not_give_stay_with_the_reference(llama3: Tokenizer) -> None:
    right = llama3.reference.encode(PROSE)
    other = type(right)(right.ids[::-1].copy(), right.starts, right.ends)
    restored = llama3.restore(snapshot.dump(llama3.fingerprint, False, PROSE.encode(), other))
    assert isinstance(restored, ReferenceSession)
    assert np.array_equal(restored.ids, other.ids)
    with pytest.raises(SnapshotError, match="other tokens"):
        llama3.restore(snapshot.dump_text(llama3.fingerprint, False, PROSE.encode(), other.ids))


def test_a_refused_tokenizer_says_why() -> None:
    config = json.loads(tokenizer_json("llama3"))
    config["model"]["dropout"] = 0.1
    explanation = load(json.dumps(config).encode()).explain()
    assert explanation.routes == ("C", "D")
    assert "no engine: BPE with dropout" in explanation.reason
