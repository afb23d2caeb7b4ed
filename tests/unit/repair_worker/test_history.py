"""What a session remembers of its answers, and what it lets go."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from repair_worker.history import ANSWER_BYTES, History, HistoryLimits, Remembered
from schemas.codes import Status
from schemas.reply import Reply

LIMITS = HistoryLimits(answers_max=4, bytes_max=4000, inline_bytes_max=64)


def reply(request_id: str | bytes = "r", tokens: int = 1, **fields: object) -> Reply:
    given = {"request_id": request_id, "status": Status.OK, "ids": b"\1\0\0\0" * tokens, "total": tokens}
    return Reply(**(given | fields))  # type: ignore[arg-type]


def test_a_small_answer_comes_back_whole() -> None:
    history = History(LIMITS)
    answer = reply(tokens=3, keep_left=5, keep_right=2, total=10, offsets=b"\0" * 24, timings={"total_us": 7})
    history.remember(answer)
    remembered = history.recall("r")
    assert remembered is not None
    assert remembered.elided_total is None
    assert remembered.reply() == answer


def test_a_large_answer_comes_back_without_its_ids_and_with_its_total() -> None:
    history = History(LIMITS)
    history.remember(reply(tokens=17, keep_left=5, keep_right=2, total=24, epoch=3, revision=4))
    remembered = history.recall("r")
    assert remembered is not None
    assert remembered.elided_total == 24
    kept = remembered.reply()
    assert (kept.ids, kept.offsets, kept.keep_left, kept.keep_right) == (b"", None, 5, 2)
    assert (kept.epoch, kept.revision) == (3, 4)


def test_offsets_count_as_much_as_ids() -> None:
    history = History(LIMITS)
    history.remember(reply(tokens=6, offsets=b"\0" * 48))
    remembered = history.recall("r")
    assert remembered is not None
    assert remembered.elided_total == 6


def test_text_and_binary_request_ids_are_two() -> None:
    history = History(LIMITS)
    history.remember(reply("1", revision=1))
    history.remember(reply(b"1", revision=2))
    first, second = history.recall("1"), history.recall(b"1")
    assert first is not None and second is not None  # noqa: PT018
    assert (first.reply().revision, second.reply().revision) == (1, 2)


def test_the_oldest_answers_are_forgotten() -> None:
    history = History(LIMITS)
    for number in range(6):
        history.remember(reply(str(number)))
    assert [request_id for request_id, _ in history] == ["2", "3", "4", "5"]
    assert history.recall("1") is None


def test_an_answer_over_the_whole_budget_is_not_kept() -> None:
    history = History(HistoryLimits(answers_max=4, bytes_max=ANSWER_BYTES, inline_bytes_max=0))
    history.remember(reply())
    assert len(history) == 0
    assert history.size_bytes == 0


def test_a_history_can_be_carried_over() -> None:
    history = History(LIMITS)
    history.remember(reply("a"))
    history.remember(reply(b"b", tokens=30))
    copy = History(LIMITS, history)
    assert list(copy) == list(history)
    assert copy.size_bytes == history.size_bytes


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", b"a", "éé", b"\xff" * 9]), st.integers(0, 200)), max_size=20),
    st.integers(1, 6),
    st.integers(1, 3000),
)
def test_bytes_are_exact_and_bounds_hold(
    answers: list[tuple[str | bytes, int]], answers_max: int, bytes_max: int
) -> None:
    history = History(HistoryLimits(answers_max=answers_max, bytes_max=bytes_max, inline_bytes_max=64))
    for request_id, tokens in answers:
        history.remember(reply(request_id, tokens))

        def weight(request_id: str | bytes, answer: Remembered) -> int:
            size = len(request_id.encode() if isinstance(request_id, str) else request_id)
            return ANSWER_BYTES + size + len(answer.encoded)

        assert history.size_bytes == sum(weight(*kept) for kept in history)
        assert len(history) <= answers_max
        assert history.size_bytes <= bytes_max
