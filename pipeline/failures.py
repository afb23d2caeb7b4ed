"""What may be said of an unexpected exception: its type and where it came from, never its words.

An exception's text can quote what it was raised about, and so a user's text or a session's name. Hence no log is
written with `Logger.exception` or `exc_info`.
"""

from __future__ import annotations

import traceback
from typing import Final

FRAMES_MAX: Final = 20
"""Of the innermost calls that are named."""
CAUSES_MAX: Final = 5


def without_words(error: BaseException) -> str:
    """One line: the exception's type and calls, innermost first, then those of its causes."""
    told: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(told) < CAUSES_MAX:
        told.append(_one(cause))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return ", caused by ".join(told)


def _one(error: BaseException) -> str:
    calls = traceback.extract_tb(error.__traceback__)[-FRAMES_MAX:]
    places = [f"{call.filename.rpartition('/')[2]}:{call.lineno} in {call.name}" for call in reversed(calls)]
    return f"{type(error).__qualname__} at {' < '.join(places) or 'an unknown place'}"
