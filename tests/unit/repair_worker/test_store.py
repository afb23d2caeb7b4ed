"""The session store: each bound by itself, then all of them together against a model."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from repair_worker.history import History, HistoryLimits
from repair_worker.store import ENTRY_BYTES, Cause, Entry, Identity, SessionStore, StoreLimits
from schemas.codes import Status
from schemas.reply import Reply

TTL_S = 100.0


@dataclass
class FakeSession:
    size_bytes: int


class Kit:
    """A store on a clock of its own, with a journal of what left it."""

    def __init__(self, **limits: float) -> None:
        self.now_s = 0.0
        self.removed: list[tuple[str, Cause]] = []
        self.store: SessionStore[FakeSession] = SessionStore(
            StoreLimits(**({"ttl_s": TTL_S} | limits)),  # type: ignore[arg-type]
            monotonic_s=lambda: self.now_s,
            on_removed=lambda entry, cause: self.removed.append((entry.identity.session_id, cause)),
        )

    def put(self, name: str, size: int = 0, partition: int = 0) -> Entry[FakeSession]:
        entry = make(name, size, partition)
        self.store.put(entry)
        return entry

    def names(self) -> list[str]:
        return [entry.identity.session_id for entry in self.store]


def identity(name: str) -> Identity:
    return Identity("tenant", name, "f" * 64, False)


def make(name: str, size: int = 0, partition: int = 0) -> Entry[FakeSession]:
    return Entry(
        identity=identity(name),
        partition=partition,
        session=FakeSession(size),
        length=0,
        epoch=1,
        revision=1,
        history=History(HistoryLimits()),
    )


def room_for(*sizes: int) -> int:
    return sum(sizes) + ENTRY_BYTES * len(sizes)


def test_get_finds_what_was_put_and_nothing_else() -> None:
    kit = Kit()
    entry = kit.put("a")
    assert kit.store.get(identity("a")) is entry
    assert kit.store.get(identity("b")) is None
    assert kit.store.get(identity("a")._replace(add_special_tokens=True)) is None


def test_a_session_expires_after_its_ttl_and_not_before() -> None:
    kit = Kit()
    kit.put("a")
    kit.now_s = TTL_S
    assert kit.store.get(identity("a")) is not None
    kit.now_s = 2 * TTL_S + 0.001
    assert kit.store.get(identity("a")) is None
    assert kit.removed == [("a", Cause.TTL)]


def test_sweeping_lets_go_of_the_oldest_first_and_of_no_more_than_asked() -> None:
    kit = Kit()
    for name in "abc":
        kit.put(name)
    kit.now_s = TTL_S / 2
    kit.store.get(identity("a"))
    kit.now_s = TTL_S + 1
    assert kit.store.sweep(1) == 1
    assert kit.store.sweep(10) == 1
    assert kit.names() == ["a"]
    assert kit.removed == [("b", Cause.TTL), ("c", Cause.TTL)]


def test_peek_does_not_keep_a_session_alive() -> None:
    kit = Kit()
    kit.put("a")
    kit.now_s = TTL_S
    assert kit.store.peek(identity("a")) is not None
    kit.now_s = TTL_S + 1
    assert kit.store.get(identity("a")) is None


def test_the_least_recently_used_session_makes_room() -> None:
    kit = Kit(bytes_max=room_for(10, 10))
    kit.put("a", 10)
    kit.put("b", 10)
    kit.store.get(identity("a"))
    kit.put("c", 10)
    assert kit.names() == ["a", "c"]
    assert kit.removed == [("b", Cause.LRU)]


def test_a_session_that_grows_makes_others_go() -> None:
    kit = Kit(bytes_max=room_for(10, 10))
    kit.put("a", 10)
    entry = kit.put("b", 10)
    entry.session.size_bytes = 11
    kit.store.settle(entry)
    assert kit.names() == ["b"]
    assert kit.store.bytes_used == room_for(11)


def test_histories_count() -> None:
    kit = Kit()
    entry = kit.put("a")
    before = kit.store.bytes_used
    entry.history.remember(Reply(request_id="r", status=Status.OK))
    kit.store.settle(entry)
    assert kit.store.bytes_used == before + entry.history.size_bytes


def test_the_number_of_sessions_is_bounded() -> None:
    kit = Kit(sessions_max=2)
    for name in "abc":
        kit.put(name)
    assert kit.names() == ["b", "c"]


def test_a_session_over_the_whole_budget_does_not_stay() -> None:
    kit = Kit(bytes_max=room_for(10))
    entry = kit.put("a", 11)
    assert not entry.held
    assert kit.store.bytes_used == 0


def test_a_pinned_session_outlives_a_shortage_and_goes_once_it_is_free() -> None:
    kit = Kit(bytes_max=room_for(10))
    entry = kit.put("a", 10)
    with kit.store.pinned(entry):
        entry.session.size_bytes = 20
        kit.store.settle(entry)
        kit.now_s = 2 * TTL_S
        assert kit.store.sweep(10) == 0
        assert entry.held
    assert not entry.held
    assert kit.store.bytes_used == 0


def test_a_replacement_takes_the_place_of_the_session_before() -> None:
    kit = Kit()
    first = kit.put("a", 10)
    second = kit.put("a", 20)
    assert not first.held
    assert kit.store.get(identity("a")) is second
    assert kit.removed == [("a", Cause.REPLACED)]
    assert kit.store.bytes_used == room_for(20)
    # What was replaced no longer counts, whatever is done with it.
    first.session.size_bytes = 10**9
    kit.store.settle(first)
    assert not kit.store.remove(first, Cause.CLOSE)
    assert kit.store.bytes_used == room_for(20)


def test_lost_partitions_take_their_sessions_along_pinned_or_not() -> None:
    kit = Kit()
    pinned = kit.put("a", partition=1)
    kit.put("b", partition=2)
    kit.put("c", partition=1)
    with kit.store.pinned(pinned):
        assert kit.store.drop_partitions(frozenset({1, 3})) == 2
    assert kit.names() == ["b"]
    assert kit.removed == [("a", Cause.LOST), ("c", Cause.LOST)]


def test_an_entry_is_put_once() -> None:
    kit = Kit()
    entry = kit.put("a")
    with pytest.raises(ValueError, match="settle"):
        kit.store.put(entry)


@pytest.mark.parametrize("wrong", [{"ttl_s": 0}, {"bytes_max": 0}, {"sessions_max": 0}])
def test_limits_are_positive(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="positive"):
        StoreLimits(**wrong)


NAMES = st.sampled_from("abcdef")
SIZES = st.integers(0, 5000)


class StoreMachine(RuleBasedStateMachine):
    """The store against a plain list of (entry, last use), least recently used first."""

    @initialize(bytes_max=st.integers(1, 12_000), sessions_max=st.integers(1, 5))
    def begin(self, bytes_max: int, sessions_max: int) -> None:
        self.kit = Kit(bytes_max=bytes_max, sessions_max=sessions_max)
        self.bytes_max, self.sessions_max = bytes_max, sessions_max
        self.model: list[tuple[Entry[FakeSession], float]] = []
        self.expected: list[tuple[str, Cause]] = []
        self.pinned: Entry[FakeSession] | None = None
        self.pin = None

    # The model

    def find(self, name: str) -> Entry[FakeSession] | None:
        return next((entry for entry, _ in self.model if entry.identity.session_id == name), None)

    def drop(self, entry: Entry[FakeSession], cause: Cause) -> None:
        self.model = [(other, used) for other, used in self.model if other is not entry]
        self.expected.append((entry.identity.session_id, cause))

    def touch(self, entry: Entry[FakeSession]) -> None:
        self.model = [(other, used) for other, used in self.model if other is not entry]
        self.model.append((entry, self.kit.now_s))

    def make_room(self) -> None:
        while True:
            weight = sum(entry.weigh() for entry, _ in self.model)
            if weight <= self.bytes_max and len(self.model) <= self.sessions_max:
                return
            free = [entry for entry, _ in self.model if entry is not self.pinned]
            if not free:
                return
            self.drop(free[0], Cause.LRU)

    # What happens

    @rule(name=NAMES, size=SIZES, partition=st.integers(0, 2))
    def put(self, name: str, size: int, partition: int) -> None:
        previous = self.find(name)
        if previous is not None:
            self.drop(previous, Cause.REPLACED)
        entry = make(name, size, partition)
        self.model.append((entry, self.kit.now_s))
        self.kit.store.put(entry)
        self.make_room()

    @rule(name=NAMES)
    def get(self, name: str) -> None:
        expected = self.find(name)
        if expected is not None:
            used = next(used for entry, used in self.model if entry is expected)
            if self.kit.now_s - used > TTL_S:
                self.drop(expected, Cause.TTL)
                expected = None
            else:
                self.touch(expected)
        assert self.kit.store.get(identity(name)) is expected

    @rule(name=NAMES, size=SIZES)
    def change(self, name: str, size: int) -> None:
        entry = self.find(name)
        if entry is not None:
            entry.session.size_bytes = size
            self.touch(entry)
            self.kit.store.settle(entry)
            self.make_room()

    @rule(name=NAMES)
    def close(self, name: str) -> None:
        entry = self.find(name)
        if entry is not None:
            assert self.kit.store.remove(entry, Cause.CLOSE)
            self.drop(entry, Cause.CLOSE)

    @rule(seconds=st.floats(0, TTL_S * 1.5))
    def wait(self, seconds: float) -> None:
        self.kit.now_s += seconds

    @rule(most=st.integers(0, 4))
    def sweep(self, most: int) -> None:
        expired = []
        for entry, used in self.model:
            if len(expired) >= most or self.kit.now_s - used <= TTL_S:
                break
            if entry is not self.pinned:
                expired.append(entry)
        for entry in expired:
            self.drop(entry, Cause.TTL)
        assert self.kit.store.sweep(most) == len(expired)

    @rule(partition=st.integers(0, 2))
    def lose(self, partition: int) -> None:
        doomed = [entry for entry, _ in self.model if entry.partition == partition]
        for entry in doomed:
            self.drop(entry, Cause.LOST)
        assert self.kit.store.drop_partitions(frozenset({partition})) == len(doomed)

    @precondition(lambda self: self.pinned is None)
    @rule(name=NAMES)
    def hold_on(self, name: str) -> None:
        entry = self.find(name)
        if entry is not None:
            self.pinned, self.pin = entry, self.kit.store.pinned(entry)
            self.pin.__enter__()

    @precondition(lambda self: self.pinned is not None)
    @rule()
    def let_go(self) -> None:
        assert self.pin is not None
        pin, self.pinned, self.pin = self.pin, None, None
        pin.__exit__(None, None, None)
        self.make_room()

    # What always holds

    @invariant()
    def same_as_the_model(self) -> None:
        assert list(self.kit.store) == [entry for entry, _ in self.model]
        assert len(self.kit.store) == len(self.model)
        assert self.kit.removed == self.expected
        assert self.kit.store.bytes_used == sum(entry.weigh() for entry, _ in self.model)
        assert all(entry.held for entry, _ in self.model)

    @invariant()
    def within_bounds(self) -> None:
        if self.pinned is None:
            assert self.kit.store.bytes_used <= self.bytes_max
            assert len(self.kit.store) <= self.sessions_max


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
