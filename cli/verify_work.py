"""The processes of `verify`: each loads the tokenizer once and runs batches of chains."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import toksplice
from cli.attack import Chain, run_chain, run_session
from cli.judge import Judge
from cli.oracle import Oracle
from cli.outcome import Outcome
from cli.sessions import read_sessions
from toksplice.adversarial import Stock

MAX_JOBS = 64
WAITING_PER_JOB = 2
"""Batches handed to the processes before they are asked for."""

Batch = tuple[int, tuple[Chain, ...]]
"""Its number, and its chains."""


@dataclass(frozen=True, slots=True)
class Work:
    """What all batches of one tokenizer have in common."""

    tokenizer_json: Path
    seed: str
    reference_every: int
    sessions: Path | None = None
    """A file whose sessions are the chains, by number; without it chains are made from the seed."""


def outcomes(work: Work, batches: Iterable[Batch], jobs: int) -> Generator[tuple[int, Outcome]]:
    """The number and the outcome of each batch, in the order in which they finish; one job needs no process."""
    if jobs == 1:
        _start(work)
        yield from map(_run, batches)
        return
    # Fresh processes: a fork would copy the reference's locked thread pool.
    context = multiprocessing.get_context("spawn")
    left = iter(batches)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_start, initargs=(work,)) as pool:
        waiting: set[Future[tuple[int, Outcome]]] = set()
        try:
            while True:
                room = jobs * WAITING_PER_JOB - len(waiting)
                waiting |= {pool.submit(_run, batch) for batch in islice(left, room)}
                if not waiting:
                    return
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in waiting:
                future.cancel()


class _Attacker:
    """This process's tokenizer and what judges it; loading them takes longer than a chain."""

    def __init__(self, work: Work) -> None:
        data = work.tokenizer_json.read_bytes()
        self.tokenizer = toksplice.load(data)
        self.judge = Judge(self.tokenizer, Oracle(data), work.reference_every)
        self.stock = Stock(work.seed, self.judge.added_tokens)
        self.sessions = None if work.sessions is None else list(read_sessions(work.sessions))

    def run(self, chains: Iterable[Chain]) -> Outcome:
        total = Outcome()
        for chain in chains:
            total.merge(self._outcome(chain))
        return total

    def _outcome(self, chain: Chain) -> Outcome:
        if self.sessions is None:
            return run_chain(self.tokenizer, self.judge, self.stock, chain)
        return run_session(self.tokenizer, self.judge, chain, self.sessions[chain.number].deltas())


_attackers: list[_Attacker] = []


def _start(work: Work) -> None:
    # One thread a process: the processes are the parallelism.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _attackers[:] = [_Attacker(work)]


def _run(batch: Batch) -> tuple[int, Outcome]:
    number, chains = batch
    return number, _attackers[0].run(chains)
