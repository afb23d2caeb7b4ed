"""Errors of the library.

    TokSpliceError                      code        retriable
    ├── TokenizerError                  malformed           no     a tokenizer.json that cannot be loaded
    │   └── UnknownTokenizerError       unknown_tokenizer   no     a name or fingerprint nobody registered
    ├── TextError                       invalid_utf8        no     text that is not valid Unicode
    ├── PositionError                   bad_position        no     a position outside the text or inside a character
    ├── SnapshotError                   malformed           no     session bytes that are damaged or foreign
    ├── ReferenceFailedError            reference_failed    no     the reference itself failed on this text
    └── SourceError                     internal            yes    a tokenizer file that cannot be fetched

`code` is stable and equals a code of the wire protocol, so that a worker answers with it unchanged.
"""

from __future__ import annotations

from typing import ClassVar


class TokSpliceError(Exception):
    """Root of every error that this library raises on purpose."""

    code: ClassVar[str] = "internal"
    retriable: ClassVar[bool] = False


class TokenizerError(TokSpliceError):
    """A tokenizer file that cannot be read or that the reference refuses."""

    code = "malformed"


class UnknownTokenizerError(TokenizerError):
    """No registered tokenizer has this name or fingerprint."""

    code = "unknown_tokenizer"


class TextError(TokSpliceError):
    """Text that has no UTF-8 form, such as one with a lone surrogate."""

    code = "invalid_utf8"


class PositionError(TokSpliceError):
    """A byte position that is outside the text, out of order, or inside a character."""

    code = "bad_position"


class SnapshotError(TokSpliceError):
    """Session bytes of another version, another tokenizer, or with a wrong checksum."""

    code = "malformed"


class ReferenceFailedError(TokSpliceError):
    """The reference tokenizer panicked or refused a text. The tokenizer stays usable."""

    code = "reference_failed"


class SourceError(TokSpliceError):
    """A tokenizer file that could not be fetched, or whose SHA-256 is not the pinned one."""

    code = "internal"
    retriable = True
