"""How commands fail: one clear line on stderr and an exit code from the table below; never a traceback.

| code | name | meaning |
|---|---|---|
| 0 | OK | done |
| 1 | CHECK_FAILED | a check found a difference, such as an answer that is not the reference's |
| 2 | USAGE | the command line is wrong |
| 3 | INPUT | a file cannot be read or is not what it should be |
| 4 | TOKENIZER | a tokenizer is unknown, cannot be fetched or cannot be loaded |
| 5 | BROKER | the broker cannot be reached or its topics do not fit |
| 6 | STORAGE | something cannot be written |
| 7 | SERVICE | a request was answered with a failure |
| 8 | DEVICE | there is no GPU to run on |
| 70 | INTERNAL | a fault in TokSplice; set TOKSPLICE_DEBUG=1 to see the traceback, and please report it |
| 130 | INTERRUPTED | Ctrl-C |
"""

from __future__ import annotations

import os
from enum import IntEnum

from pipeline.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    PipelineError,
    SettingsError,
    TopologyError,
)
from schemas.errors import ProtocolError
from toksplice.errors import SourceError, TextError, TokenizerError, TokSpliceError

DEBUG_VARIABLE = "TOKSPLICE_DEBUG"
"""Environment variable: "1" lets an internal fault end in its traceback."""


class ExitCode(IntEnum):
    """Exit codes of every command; see the table above."""

    OK = 0
    CHECK_FAILED = 1
    USAGE = 2
    INPUT = 3
    TOKENIZER = 4
    BROKER = 5
    STORAGE = 6
    SERVICE = 7
    DEVICE = 8
    INTERNAL = 70
    INTERRUPTED = 130


class CliError(Exception):
    """A failure that a command foresaw: the message is the line that the user sees."""

    def __init__(self, exit_code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


_BY_CLASS: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (TextError, ExitCode.INPUT),
    (TokenizerError, ExitCode.TOKENIZER),
    (SourceError, ExitCode.TOKENIZER),
    (TokSpliceError, ExitCode.SERVICE),
    (SettingsError, ExitCode.USAGE),
    (BrokerUnavailableError, ExitCode.BROKER),
    (BrokerRefusedError, ExitCode.BROKER),
    (TopologyError, ExitCode.BROKER),
    (PipelineError, ExitCode.SERVICE),
    (ProtocolError, ExitCode.SERVICE),
    (OSError, ExitCode.STORAGE),
)
"""The first class that fits decides."""


def explain(error: BaseException) -> tuple[ExitCode, str]:
    """The exit code and the line for an exception that reached the top. Writes nothing."""
    if isinstance(error, CliError):
        return error.exit_code, str(error)
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED, "interrupted"
    if isinstance(error, BaseExceptionGroup):
        # Tasks that fail together nearly always fail for one reason.
        return explain(error.exceptions[0])
    if isinstance(error, FileNotFoundError | IsADirectoryError | PermissionError | NotADirectoryError):
        return ExitCode.INPUT, f"{error.filename}: {error.strerror}" if error.filename else str(error)
    for kind, exit_code in _BY_CLASS:
        if isinstance(error, kind):
            return exit_code, str(error)
    name = type(error).__name__
    return ExitCode.INTERNAL, f"internal fault ({name}: {error}); set {DEBUG_VARIABLE}=1 to see where"


def debugging() -> bool:
    """True when an internal fault should end in its traceback."""
    return os.environ.get(DEBUG_VARIABLE) == "1"
