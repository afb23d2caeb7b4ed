"""Whether an answer is right, by the reference and by the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from families import family
from shadow_kit import TEXT, WRONG, sample, u32, with_wrong_id

from schemas.sample import DifferenceKind
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


def test_frames_carry_questions_and_differences_over() -> None:
    question = Question.of(sample(MIXED, offsets=bytes(8)))
    assert frames.question_from_map(frames.unpack(frames.pack(frames.question_to_map(question))[4:])) == question
    found = judge(family("qwen", engine=False), Question.of(with_wrong_id()), engine=False)
    for difference in (None, found):
        sent = frames.unpack(frames.pack({"difference": frames.difference_to_map(difference)})[4:])
        assert frames.difference_from_map(sent["difference"]) == difference
    with pytest.raises(ValueError, match="at most"):
        frames.length_of(b"\xff\xff\xff\xff")


def test_numpy_reads_what_a_sample_holds() -> None:
    assert np.frombuffer(sample("fox").ids, "<u4").tolist() == family("qwen", engine=False).encode("fox").tolist()
