"""Which answers are sampled for checking: exactly one of each block of n, at a place that no fault can know.

The answers of one tokenizer on one path of one worker are a stream, cut into blocks of n = `block_size(rate)`. One
answer of each block is sampled, at a position that is a pure function of the seed, the stream and the number of the
block. So any 2n - 1 answers in a row hold a sampled one: a fault that stays is sampled within 39 answers at one in
20, for certain.

The first answers of each tokenizer and engine version that a worker gives are all sampled: what is new is not yet
trusted.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

STREAMS_MAX: Final = 1024
"""Streams of one worker that are remembered; the one used longest ago is forgotten, and begins again with a block."""

FIRST_ANSWERS: Final = 100
"""Answers of a new tokenizer or engine version that are all sampled."""


def block_size(rate: float) -> int:
    """Answers of which one is sampled, for a share of 0 to 1; 0 when none is.

    1/rate is cut to a whole number, so that never less is sampled than was asked for.
    """
    return math.floor(1 / rate + 1e-9) if rate > 0 else 0


def position(seed: int, stream: str, block: int, size: int) -> int:
    """The answer of a block that is sampled, from 0 to `size` - 1."""
    digest = hashlib.blake2b(f"{seed}\0{stream}\0{block}\0{size}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % size


@dataclass(slots=True)
class _Stream:
    """Where a stream stands. `chosen` is a position in the present block."""

    size: int
    chosen: int
    block: int = 0
    done: int = 0
    """Answers of the present block that were given."""


class Sampler:
    """Decides for the answers of one worker. Pure, but for what it has counted."""

    def __init__(self, seed: int, worker: str, *, engine_version: str = "", first_answers: int = FIRST_ANSWERS) -> None:
        self._seed = seed
        self._worker = worker
        self._engine_version = engine_version
        self._first_answers = first_answers
        self._streams: OrderedDict[str, _Stream] = OrderedDict()
        self._answers: OrderedDict[str, int] = OrderedDict()

    def due(self, fingerprint: str, rate: float, paths: tuple[str, ...]) -> bool:
        """Whether the next answer of this tokenizer is sampled if it takes one of `paths`. Changes nothing."""
        size = block_size(rate)
        if not size:
            return False
        if self._answers.get(fingerprint, 0) < self._first_answers:
            return True
        return any(self._is_next(self._name(fingerprint, path), size) for path in paths)

    def take(self, fingerprint: str, rate: float, path: str) -> bool:
        """Count one answer; True when it is the one to sample. `rate` may differ from call to call: another block size
        begins a block."""
        size = block_size(rate)
        if not size:
            return False
        answers = self._answers.get(fingerprint, 0)
        _put(self._answers, fingerprint, min(answers + 1, self._first_answers))
        name = self._name(fingerprint, path)
        stream = self._streams.get(name)
        if stream is None:
            stream = _Stream(size, position(self._seed, name, 0, size))
        elif stream.size != size:
            self._begin(stream, name, size)
        _put(self._streams, name, stream)
        chosen = stream.done == stream.chosen
        stream.done += 1
        if stream.done == stream.size:
            self._begin(stream, name, size)
        return chosen or answers < self._first_answers

    def _name(self, fingerprint: str, path: str) -> str:
        return f"{fingerprint}\0{self._engine_version}\0{path}\0{self._worker}"

    def _is_next(self, name: str, size: int) -> bool:
        stream = self._streams.get(name)
        if stream is None:
            return position(self._seed, name, 0, size) == 0
        if stream.size != size:
            return position(self._seed, name, stream.block + 1, size) == 0
        return stream.done == stream.chosen

    def _begin(self, stream: _Stream, name: str, size: int) -> None:
        stream.block += 1
        stream.size = size
        stream.done = 0
        stream.chosen = position(self._seed, name, stream.block, size)


def _put(kept: OrderedDict[str, T], name: str, value: T) -> None:
    """Note `value` as the one used last, and forget what was used longest ago."""
    kept[name] = value
    kept.move_to_end(name)
    while len(kept) > STREAMS_MAX:
        kept.popitem(last=False)
