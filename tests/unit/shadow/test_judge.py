"""Whether an answer is right, by the reference and by the engine."""

from __future__ import annotations

import io
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
import pytest
from families import family
from shadow_kit import TEXT, WRONG, sample, u32, with_wrong_id

from schemas.errors import ProtocolError
from schemas.limits import DEFAULT_LIMITS
from schemas.sample import HEAD_BYTES, DifferenceKind, SampleHead
from shadow import frames
from shadow.compare import Difference
from shadow.judge import Question, judge

MIXED = TEXT + "Dög, 世界 <|im_end|>\n"


def asked(engine: bool, **changes: Any) -> Difference | None:
    return judge(family("qwen", engine=engine), Question.of(sample(MIXED, **changes)), engine=engine)


@pytest.mark.parametrize("engine", [True, False])
@pytest.mark.parametrize("special", [True, False])
def test_a_right_answer_has_no_difference(engine: bool, special: bool) -> None:
    session = family("qwen", engine=False).session(MIXED, add_special_tokens=special)
    assert asked(engine, special=special) is None
    assert asked(engine, special=special, offsets=u32(session.offsets())) is None
    part = session.offsets_between(5, 9)
    assert asked(engine, special=special, offsets=u32(part), keep_left=5, first_changed=5, same_until=7) is None


@pytest.mark.parametrize("engine", [True, False])
def test_every_part_of_an_answer_is_judged(engine: bool) -> None:
    session = family("qwen", engine=False).session(MIXED)
    found = judge(family("qwen", engine=engine), Question.of(with_wrong_id(3)), engine=engine)
    assert found is not None
    assert (found.kind, found.index, found.answer_id) == (DifferenceKind.SUBSTITUTED, 3, WRONG)
    shifted = session.offsets_between(5, 9)
    shifted[2] += 1
    off = asked(engine, offsets=u32(shifted), keep_left=5)
    assert off is not None
    assert (off.kind, off.index) == (DifferenceKind.OFFSETS, 7)
    overstated = asked(engine, first_changed=6, same_until=5)
    assert overstated is not None
    assert (overstated.kind, overstated.index) == (DifferenceKind.FIRST_CHANGED, 5)
    all_ids = asked(engine, first_changed=session.total + 1, same_until=session.total)
    assert all_ids is not None
    assert (all_ids.index, all_ids.answer_id) == (session.total, None)


def test_where_the_engine_may_resume_is_judged_by_the_engine_alone() -> None:
    session = family("qwen").session(MIXED)
    right = session.restarts
    assert right is not None
    assert asked(True, restarts=right) is None
    for token in (0, 1, 9, session.total - 1):
        wrong = bytearray(right)
        wrong[token // 8] ^= 1 << (token % 8)
        found = asked(True, restarts=bytes(wrong))
        assert found is not None
        assert (found.kind, found.index) == (DifferenceKind.RESTARTS, token)
        assert asked(False, restarts=bytes(wrong)) is None
    for wrong_size in (right[:-1], right + b"\0", b""):
        found = asked(True, restarts=wrong_size)
        assert found is not None
        assert found.kind is DifferenceKind.RESTARTS


def test_a_split_that_moved_is_told_by_what_the_tokens_spell() -> None:
    tokenizer = family("qwen", engine=False)
    ids = tokenizer.encode(MIXED).tolist()
    at, parts = next(
        (at, [tokenizer.encode(char)[0] for char in piece])
        for at, token in enumerate(ids)
        if (piece := str(tokenizer.reference.token(token))).isalpha() and piece.isascii() and len(piece) == 2
    )
    found = asked(False, ids=ids[:at] + parts + ids[at + 1 :])
    assert found is not None
    assert (found.kind, found.index) == (DifferenceKind.MOVED_SPLIT, at)


@pytest.mark.parametrize("keep_left", [0, 5, 10**6])
def test_an_answer_whose_spans_fit_nowhere_is_judged_by_its_ids(keep_left: int) -> None:
    found = asked(False, ids=[1, 2], offsets=bytes(80), keep_left=keep_left)
    assert found is not None
    assert found.kind is not DifferenceKind.OFFSETS


def test_missing_special_tokens_are_called_so() -> None:
    tokenizer = family("llama3", engine=False)
    text = "Hello"
    right = tokenizer.encode(text, add_special_tokens=True)
    assert len(right) > len(tokenizer.encode(text))
    bare = sample(text, tokenizer.encode(text), add_special_tokens=True, fingerprint=tokenizer.fingerprint)
    found = judge(tokenizer, Question.of(bare), engine=False)
    assert found is not None
    assert found.kind is DifferenceKind.SPECIAL_TOKENS


def test_frames_carry_samples_and_differences_over() -> None:
    found = judge(family("qwen", engine=False), Question.of(with_wrong_id()), engine=False)
    value = sample(MIXED).encode()
    stream = io.BytesIO()
    for difference in (None, found):
        frames.write_map(stream, {"difference": frames.difference_to_map(difference)})
    frames.write(stream, value)
    stream.seek(0)
    for difference in (None, found):
        sent = frames.read_map(stream)
        assert sent is not None
        assert frames.difference_from_map(sent["difference"]) == difference
    assert frames.read(stream) == value
    assert frames.read(stream) is None


@pytest.mark.parametrize(
    ("cut_short_or_wrong", "error"),
    [
        (b"\xff\xff\xff\xff", ValueError),
        (b"\x01\x00", EOFError),
        (b"\x02\x00\x00\x00\x80", EOFError),
        (b"\x01\x00\x00\x00\xc1", ValueError),
        (b"\x01\x00\x00\x00\x01", ValueError),
    ],
)
def test_broken_frames_are_refused(cut_short_or_wrong: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        frames.read_map(io.BytesIO(cut_short_or_wrong))


def test_a_frame_has_a_longest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FRAME_BYTES_MAX", 3)
    with pytest.raises(ValueError, match="at most 3"):
        frames.write(io.BytesIO(), b"four")


def test_a_head_is_read_without_the_rest_and_its_faults_are_told() -> None:
    whole = sample("fox " * HEAD_BYTES)
    head = SampleHead.skim(whole.encode())
    assert (head.time_ms, head.fingerprint, head.tokenizer) == (whole.time_ms, whole.fingerprint, whole.tokenizer)
    assert (head.path, head.route) == (whole.path, whole.route)
    assert SampleHead.skim(whole.encode()[:HEAD_BYTES]) == head
    backwards = dict(reversed({"v": 1, **whole.to_map(DEFAULT_LIMITS)}.items()))
    assert SampleHead.skim(msgpack.packb(backwards)) == head
    for broken in (b"", b"\xc1", msgpack.packb({"v": 1}), msgpack.packb({"v": 2} | head.to_map(DEFAULT_LIMITS))):
        with pytest.raises(ProtocolError):
            SampleHead.skim(broken)


def test_numpy_reads_what_a_sample_holds() -> None:
    assert np.frombuffer(sample("fox").ids, "<u4").tolist() == family("qwen", engine=False).encode("fox").tolist()
