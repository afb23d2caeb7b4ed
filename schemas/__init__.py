"""Wire messages of TokSplice: MessagePack maps, strictly and boundedly decoded.

Start with `request.Request` and `reply.Reply`; docs/protocol.md describes the whole protocol, with tables
generated from the field tables here. Imports nothing else of the project. Every failure is a `ProtocolError`.
"""

from schemas.codes import Code, Status
from schemas.deadletter import DeadLetter
from schemas.errors import ProtocolError
from schemas.health import Control, Cost, Health, PathStats
from schemas.limits import DEFAULT_LIMITS, Limits
from schemas.reply import Path, Reply, Route
from schemas.request import Base, Identity, Op, Request, Want, peek_identity
from schemas.sample import DifferenceKind, Finding, Sample, Tier
from schemas.state import SessionRecord, directory_key
from schemas.work import Adopt, Drop, Served, Work, decode_work_record

__all__ = [
    "DEFAULT_LIMITS",
    "Adopt",
    "Base",
    "Code",
    "Control",
    "Cost",
    "DeadLetter",
    "DifferenceKind",
    "Drop",
    "Finding",
    "Health",
    "Identity",
    "Limits",
    "Op",
    "Path",
    "PathStats",
    "ProtocolError",
    "Reply",
    "Request",
    "Route",
    "Sample",
    "Served",
    "SessionRecord",
    "Status",
    "Tier",
    "Want",
    "Work",
    "decode_work_record",
    "directory_key",
    "peek_identity",
]
