"""`python -m shadow.judge_process reference|engine idle|low`: judges samples one by one, from stdin to stdout.

It gets the record as the worker that answered wrote it, and decodes it itself: what is done here keeps nobody waiting.
Whoever answers requests comes first: it runs on one core's worth of threads, at the priority that it is told. It ends
with its stdin, so that it never outlives its worker. What it says about a failure is a code; nothing of a text leaves
it but ids.
"""

from __future__ import annotations

import os
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

import toksplice
from schemas.errors import ProtocolError
from schemas.limits import DEFAULT_LIMITS
from schemas.sample import Sample, Tier
from shadow import frames
from shadow.judge import Question, judge
from shadow.settings import Priority
from toksplice import Tokenizer, TokSpliceError

LOADED_MAX: Final = 4
"""Tokenizers held in memory at once."""
NICENESS: Final = 10
"""How much this process steps back, whatever its priority."""

FAILED: Final = "failed"
NO_SAMPLE: Final = "no_sample"
"""The record breaks the protocol."""
NO_ENGINE: Final = "no_engine"
"""Only the reference serves this tokenizer."""


class Tokenizers:
    """Loaded tokenizers by fingerprint; the one used longest ago goes first. Where the reference judges they are
    loaded without their engine, so that nothing of it can play a part."""

    def __init__(self, *, engine: bool) -> None:
        self.engine = engine
        self._loaded: OrderedDict[str, Tokenizer] = OrderedDict()

    def get(self, fingerprint: str, path: str) -> Tokenizer:
        """The tokenizer. Raises `toksplice.TokSpliceError` for a file that is gone, or another one by now."""
        tokenizer = self._loaded.get(fingerprint)
        if tokenizer is None:
            tokenizer = toksplice.load(Path(path), engine=self.engine)
            if tokenizer.fingerprint != fingerprint:
                raise toksplice.TokenizerError("the file holds another tokenizer")
            self._loaded[fingerprint] = tokenizer
            while len(self._loaded) > LOADED_MAX:
                self._loaded.popitem(last=False)
        self._loaded.move_to_end(fingerprint)
        return tokenizer


def answer(tokenizers: Tokenizers, question: dict[str, Any], value: bytes) -> dict[str, Any]:
    """The verdict on the sample in the record `value`, with the processor seconds that it took.

    `question` says which tokenizer it is about, where its file is, and how long a record may be.
    """
    started_s = time.process_time()
    try:
        tokenizer = tokenizers.get(question["fingerprint"], question["path"])
        if tokenizers.engine and tokenizer.native is None:
            verdict: dict[str, Any] = {"error": NO_ENGINE}
        else:
            sample = Sample.decode(value, DEFAULT_LIMITS.of_records(question["record_bytes"]))
            found = judge(tokenizer, Question.of(sample), engine=tokenizers.engine)
            verdict = {"difference": frames.difference_to_map(found)}
    except ProtocolError:
        verdict = {"error": NO_SAMPLE}
    except (TokSpliceError, UnicodeDecodeError, ValueError) as error:
        verdict = {"error": getattr(error, "code", FAILED)}
    return verdict | {"cpu_s": time.process_time() - started_s}


def step_back(priority: Priority) -> None:
    """Have this process run behind the others."""
    os.nice(NICENESS)
    if priority is Priority.IDLE and hasattr(os, "SCHED_IDLE"):
        # A nice process alone still keeps its core for a time slice, some 3 ms, when an answer wants it.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        # Where it waits beside an answer that is being made, even an idle process gets a timer tick now and then,
        # some 4 ms: half of the processors never see it.
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, processors[len(processors) // 2 :])


def main() -> int:
    """Answer until stdin ends."""
    tier, priority = Tier(sys.argv[1]), Priority(sys.argv[2])
    step_back(priority)
    tokenizers = Tokenizers(engine=tier is Tier.ENGINE)
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    while (question := frames.read_map(stdin)) is not None and (value := frames.read(stdin)) is not None:
        frames.write_map(stdout, answer(tokenizers, question, value))
        stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
