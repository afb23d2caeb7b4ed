"""Exact stateful tokenization: always the ids of the reference, at the cost of what is new.

tokenizer = toksplice.load("tokenizer.json")      # any Hugging Face tokenizer.json
session = tokenizer.session(text)                 # encoded in full, once
patch = session.append(more)                      # encoded around the edit, with a proof that it is exact
session.ids, session.offsets()                    # all ids; UTF-8 byte spans
tokenizer.explain()                               # which routes serve it, and why
"""

from toksplice.certificate import Certificate, Resumption
from toksplice.errors import (
    PositionError,
    ReferenceFailedError,
    SnapshotError,
    SourceError,
    TextError,
    TokenizerError,
    TokSpliceError,
    UnknownTokenizerError,
)
from toksplice.patch import Patch
from toksplice.plan import Explanation
from toksplice.session import Session
from toksplice.tokenizer import Tokenizer, load

__all__ = [
    "Certificate",
    "Explanation",
    "Patch",
    "PositionError",
    "ReferenceFailedError",
    "Resumption",
    "Session",
    "SnapshotError",
    "SourceError",
    "TextError",
    "TokSpliceError",
    "Tokenizer",
    "TokenizerError",
    "UnknownTokenizerError",
    "load",
]
