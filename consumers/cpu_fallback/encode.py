"""The work of the CPU fallback as one blocking function: encode a text.

Everything here runs in a thread. Nothing here knows a broker.
"""

from __future__ import annotations

import time

from pipeline.faults import Faults
from pipeline.first_text import Encoded
from pipeline.tokenizers import TokenizerSource
from schemas.reply import Route
from schemas.work import Work
from toksplice import Session
from toksplice.gather import little_endian


def encode(source: TokenizerSource, work: Work, by_reference: bool, faults: Faults) -> Encoded:
    """Encode the text of `work` with the native engine if it serves the tokenizer, or else, and with `by_reference`,
    with the reference.

    Raises `toksplice.TokSpliceError`: an unknown tokenizer, text without a UTF-8 form, or a failed reference.
    """
    request = work.request
    text = request.text or ""
    tokenizer = source.get(work.fingerprint)
    started_ns = time.perf_counter_ns()
    session: Session | None = None
    route = Route.D if by_reference else Route(tokenizer.whole_text_route)
    if request.session_id or request.offsets or by_reference:
        session = tokenizer.session(text, add_special_tokens=request.add_special_tokens, engine=not by_reference)
        session = faults.state(work, session)
        ids = session.ids
    else:
        ids = tokenizer.encode(text, add_special_tokens=request.add_special_tokens)
    offsets = little_endian(session.offsets()) if session is not None and request.offsets else None
    tokenize_us = (time.perf_counter_ns() - started_ns) // 1_000
    keep = session is not None and bool(request.session_id)
    return Encoded(
        ids=little_endian(ids),
        offsets=offsets,
        total=len(ids),
        length=len(text.encode()),
        characters=len(text),
        route=route,
        state=session.to_bytes() if session is not None and keep else None,
        tokenize_us=tokenize_us,
    )
