"""What an engine answers depends on the text alone: not on what it was asked before, nor on what it remembers, nor on
who else asks at the same time."""

from __future__ import annotations

import json
import random
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pytest
from families import CHAT_TOKENS, ENGINE, tokenizer_json

import toksplice.engine
from toksplice import _native
from toksplice.adversarial import Adversary, Edit, Stock
from toksplice.engine import CACHE_ENTRIES, NativeRoute
from toksplice.program import Program, program
from toksplice.reference import U32

ORDINARY = (
    "The quick brown fox — jumped over 12 lazy dögs.\n"
    "def argument(self, name=None):\n    return self.parser.add_argument('--' + name, type=int)\n"
    "世界 こんにちは 한국어\r\n\r\n  {'value': [1, 22, 333, 4444]}\n"
)
#: Long enough for the engine to release the interpreter, so that two threads are in it at once.
LONG_CHARS = 6_000
HOSTILE_TEXTS = 6
CHAINS = 4
EDITS = 6
#: Pieces that a thread remembers: almost none, few, many.
CACHE_SIZES = (1, 2, 64, CACHE_ENTRIES)
THREADS = 2
ROUNDS = 3

Expected = dict[str, tuple[U32, U32]]


class Route(Protocol):
    """What answers: an engine, or what stands before one."""

    def encode(self, text: str) -> U32: ...
    def session(self, text: str) -> _native.Session: ...


@dataclass(frozen=True)
class Chain:
    """A text and edits of it, each of the text that the one before it leaves."""

    text: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Work:
    """Texts to encode and chains to follow, with ids and spans of every text among them."""

    texts: tuple[str, ...]
    chains: tuple[Chain, ...]
    expected: Expected

    def check(self, text: str, ids: U32, spans: U32 | None = None) -> None:
        wanted_ids, wanted_spans = self.expected[text]
        assert np.array_equal(ids, wanted_ids), text
        assert spans is None or np.array_equal(spans, wanted_spans), text


def work(seed: str, fresh: Callable[[], Route]) -> Work:
    """Seeded work, the answers to which come from engines that were asked nothing else."""
    stock = Stock(seed, CHAT_TOKENS)
    adversary = Adversary(seed, stock)
    ordinary = ORDINARY * (LONG_CHARS // len(ORDINARY))
    texts = [ORDINARY, ordinary, *(adversary.text(40 * 3**n) for n in range(HOSTILE_TEXTS - 1))]
    texts.append(adversary.text(LONG_CHARS))
    starts = (ORDINARY, ordinary, *(adversary.text(300 * 3**n) for n in range(CHAINS - 2)))
    chains = [Chain(start, tuple(adversary.edits(start, EDITS))) for start in starts]
    every = {*texts, *(chain.text for chain in chains), *(edit.after for chain in chains for edit in chain.edits)}
    expected = {}
    for text in every:
        session = fresh().session(text)
        expected[text] = session.ids(0, session.total), session.offsets(0, session.total)
    return Work(tuple(texts), tuple(chains), expected)


def run(route: Route, work: Work, seed: int) -> None:
    """All texts and chains, several times, each step at a random turn between those of the others."""
    rng = random.Random(seed)
    turns = [*range(len(work.texts)), *(-1 - n for n, chain in enumerate(work.chains) for _ in (chain, *chain.edits))]
    for _ in range(ROUNDS):
        rng.shuffle(turns)
        sessions: dict[int, _native.Session] = {}
        done = [0] * len(work.chains)
        for turn in turns:
            if turn >= 0:
                work.check(work.texts[turn], route.encode(work.texts[turn]))
                continue
            number = -1 - turn
            chain = work.chains[number]
            if number not in sessions:
                session = sessions[number] = route.session(chain.text)
                text = chain.text
            else:
                session, edit = sessions[number], chain.edits[done[number]]
                session.splice(edit.start, edit.end, edit.insert)
                done[number] += 1
                text = edit.after
            work.check(text, session.ids(0, session.total), session.offsets(0, session.total))


@dataclass(frozen=True)
class Family:
    data: bytes
    facts: Program
    work: Work

    def engine(self, monkeypatch: pytest.MonkeyPatch, cache: int) -> NativeRoute:
        with monkeypatch.context() as patched:
            patched.setattr(toksplice.engine, "CACHE_ENTRIES", cache)
            return native(self.data, self.facts)


def native(data: bytes, facts: Program) -> NativeRoute:
    return NativeRoute(toksplice.engine._engine(data, facts), "A")


@pytest.fixture(scope="module", params=ENGINE)
def family(request: pytest.FixtureRequest) -> Family:
    data = tokenizer_json(request.param)
    facts = program(json.loads(data))
    return Family(data, facts, work(request.param, lambda: native(data, facts)))


@pytest.mark.parametrize("cache", CACHE_SIZES)
def test_answers_do_not_depend_on_what_came_before(family: Family, cache: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run(family.engine(monkeypatch, cache), family.work, seed=cache)


@pytest.mark.parametrize("cache", CACHE_SIZES)
def test_answers_do_not_depend_on_who_else_asks(family: Family, cache: int, monkeypatch: pytest.MonkeyPatch) -> None:
    route = family.engine(monkeypatch, cache)
    together = threading.Barrier(THREADS)

    def one(seed: int) -> None:
        together.wait()
        run(route, family.work, seed)

    with ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(one, seed) for seed in range(THREADS)]:
            future.result()


class Colliding:
    """A fault to be found: takes texts for the same whose hashes begin alike."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._answers: dict[int, U32] = {}

    def encode(self, text: str) -> U32:
        return self._answers.setdefault(zlib.crc32(text.encode()) & 3, self._route.encode(text))

    def session(self, text: str) -> _native.Session:
        return self._route.session(text)


def test_an_engine_that_mixes_texts_up_is_found_out(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    route = Colliding(family.engine(monkeypatch, CACHE_ENTRIES))
    with pytest.raises(AssertionError):
        run(route, family.work, seed=0)
