"""`python -m shadow.judge_process reference|engine`: judges samples, one after the other, from stdin to stdout.

It runs at a low priority and on one core's worth of threads: whoever answers requests comes first. It ends with its
stdin, so that it never outlives its worker. What it says about a failure is a code; nothing of a text leaves it but
ids.
"""

from __future__ import annotations

import os
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final

import toksplice
from schemas.sample import Tier
from shadow import frames
from shadow.judge import judge
from toksplice import Tokenizer, TokSpliceError

LOADED_MAX: Final = 4
"""Tokenizers held in memory at once."""
NICENESS: Final = 10
"""How much this process steps back."""

FAILED: Final = "failed"
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


def answer(tokenizers: Tokenizers, message: dict[str, Any]) -> dict[str, Any]:
    """The verdict on one question, with the processor seconds that it took."""
    started_s = time.process_time()
    try:
        tokenizer = tokenizers.get(message["fingerprint"], message["path"])
        if tokenizers.engine and tokenizer.native is None:
            verdict: dict[str, Any] = {"error": NO_ENGINE}
        else:
            found = judge(tokenizer, frames.question_from_map(message), engine=tokenizers.engine)
            verdict = {"difference": frames.difference_to_map(found)}
    except (TokSpliceError, UnicodeDecodeError, ValueError) as error:
        verdict = {"error": getattr(error, "code", FAILED)}
    return verdict | {"cpu_s": time.process_time() - started_s}


def main() -> int:
    """Answer until stdin ends."""
    os.nice(NICENESS)
    tokenizers = Tokenizers(engine=Tier(sys.argv[1]) is Tier.ENGINE)
    while (message := frames.read(sys.stdin.buffer)) is not None:
        sys.stdout.buffer.write(frames.pack(answer(tokenizers, message)))
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
