"""The wire protocol as JSON lines, for `toksplice up`: the same field names, ids and offsets as plain lists.

A request line needs only what differs from the defaults: {"text": "Hello"} is a one-off with the default
tokenizer, {"session_id": "s", "op": "append", "text": "...", "base": {...}} a delta. A reply line carries every
field that the reply has.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Mapping
from typing import Any

from schemas.codes import Code
from schemas.errors import ProtocolError
from schemas.limits import DEFAULT_LIMITS
from schemas.reply import Reply
from schemas.request import Op, Request

VERSION = 1


def request_from_line(line: bytes, *, number: int, tokenizer: str) -> Request:
    """Parse one line. Missing are filled in: `request_id` "line-NUMBER", `tokenizer`, and `op` "text".

    Raises `ProtocolError` for whatever the protocol refuses.
    """
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            raise TypeError("a line must be one JSON object")
    except UnicodeError as error:
        raise ProtocolError(Code.INVALID_UTF8, "the line is not valid UTF-8") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(Code.MALFORMED, f"not a request: {error}") from error
    fields = {"v": VERSION, "request_id": default_id(number), "tokenizer": tokenizer, "op": Op.TEXT.value}
    return Request.from_record(fields | {"session_id": ""} | document, DEFAULT_LIMITS)


def default_id(number: int) -> str:
    """The request id of a line that names none; lines count from 1."""
    return f"line-{number}"


def id_of_line(line: bytes, number: int) -> str:
    """The request id to answer a refused line with: its own when it can be read, else its default."""
    try:
        return str(json.loads(line)["request_id"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return default_id(number)


def line_from_reply(reply: Reply) -> str:
    """One JSON object, without the newline. Empty and absent fields are left out."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(reply):
        name, value = field.name, getattr(reply, field.name)
        if name in ("ids", "offsets"):
            continue
        if isinstance(value, bytes):
            value = value.hex()
        if value not in (None, "", {}, False) or name == "status":
            fields[name] = dict(value) if isinstance(value, Mapping) else value
    if reply.code is None:
        fields["ids"] = [value for (value,) in struct.iter_unpack("<I", reply.ids)]
    if reply.offsets is not None:
        fields["offsets"] = [list(pair) for pair in struct.iter_unpack("<II", reply.offsets)]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
