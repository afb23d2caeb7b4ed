"""The host's part of an answer as one blocking function: what the device gave, in the form of replies and sessions.

Everything here runs in a thread. Nothing here knows a broker.
"""

from __future__ import annotations

import time

import numpy as np

from gpu_worker.encoder import U32, Encoding
from pipeline.faults import NO_FAULTS, Faults
from pipeline.first_text import Encoded
from pipeline.tokenizers import TokenizerSource
from schemas.reply import Route
from schemas.work import Work
from toksplice import Tokenizer
from toksplice.gather import little_endian


def finish(
    source: TokenizerSource, work: Work, text: bytes, encoding: Encoding, launch_us: int, faults: Faults
) -> tuple[Encoded, int]:
    """The answer to `work`, whose text in UTF-8 is `text`, and the microseconds that making it of `encoding` took.

    `launch_us` is what the launch took; an answer's `tokenize_us` is both together. Raises `toksplice.TokSpliceError`.
    """
    request = work.request
    special = request.add_special_tokens
    tokenizer = source.get(work.fingerprint)
    started_ns = time.perf_counter_ns()
    if faults is not NO_FAULTS:
        encoding = _drilled(tokenizer, work, faults)
    around = tokenizer.specials_around(add_special_tokens=special)
    ids = around.around(encoding.ids)
    offsets = None
    if request.offsets:
        spans = tokenizer.spans(text, encoding.ids, encoding.starts)
        offsets = little_endian(_padded(spans, len(around.prefix), len(around.suffix)))
    state = None
    if request.session_id:
        state = tokenizer.state_of(text, encoding.ids, add_special_tokens=special)
    took_us = (time.perf_counter_ns() - started_ns) // 1_000
    encoded = Encoded(
        ids=little_endian(ids),
        offsets=offsets,
        total=len(ids),
        length=len(text),
        characters=len(request.text or ""),
        route=Route.G,
        state=state,
        tokenize_us=launch_us + took_us,
    )
    return encoded, took_us


def _padded(spans: U32, before: int, after: int) -> U32:
    """`spans` with those of special tokens around them, which are empty and at 0, as everywhere."""
    if not before and not after:
        return spans
    return np.concatenate([np.zeros((before, 2), np.uint32), spans, np.zeros((after, 2), np.uint32)])


def _drilled(tokenizer: Tokenizer, work: Work, faults: Faults) -> Encoding:
    """What a drill makes of the answer: faults are planted in sessions, of which there is none here otherwise."""
    session = faults.state(work, tokenizer.session(work.request.text or ""))
    starts = session.offsets()[:, 0]
    return Encoding(session.ids, np.ascontiguousarray(starts), starts[:0])
