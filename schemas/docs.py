"""Keeps the tables of docs/protocol.md equal to the field tables in this package.

`python -m schemas.docs --write` rewrites what stands between `<!-- generated: NAME -->` and
`<!-- end generated -->`; `--check` exits with 1 when that would change anything. Run it from the repository
root, or name the page.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from enum import StrEnum
from pathlib import Path
from typing import Final

from schemas.codes import Code
from schemas.deadletter import DeadLetter
from schemas.health import Control, Cost, Health, PathStats
from schemas.kinds import show_size
from schemas.limits import DEFAULT_LIMITS
from schemas.message import VERSION, Field, Message, Record
from schemas.reply import Reply
from schemas.request import NEEDED_BY_OP, Base, Request
from schemas.sample import Finding, Sample
from schemas.state import SessionRecord
from schemas.work import Adopt, Drop, Served, Work

DEFAULT_PAGE: Final = Path("docs/protocol.md")

#: The messages with a table in the page, by the name in its marker.
MESSAGES: Final[dict[str, type[Message]]] = {
    "request": Request,
    "base": Base,
    "reply": Reply,
    "work": Work,
    "adopt": Adopt,
    "served": Served,
    "drop": Drop,
    "session": SessionRecord,
    "health": Health,
    "path-stats": PathStats,
    "cost": Cost,
    "control": Control,
    "sample": Sample,
    "finding": Finding,
    "dead-letter": DeadLetter,
}

_BLOCK: Final = re.compile(
    r"(?P<open><!-- generated: (?P<name>[a-z-]+) -->\n)(?P<body>.*?)(?P<close><!-- end generated -->)",
    re.DOTALL,
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _needed(message: type[Message], row: Field) -> str:
    if row.needed:
        return row.needed
    for field in fields(message):  # type: ignore[arg-type]
        if field.name == row.name and field.default is not MISSING:
            return _default(field.default)
    return "default empty"


def _default(value: object) -> str:
    if value is None:
        return "optional"
    if isinstance(value, bool):
        return f"default `{str(value).lower()}`"
    if isinstance(value, StrEnum):
        return f"default `{value.value}`"
    return f"default `{value}`" if isinstance(value, int) else "default empty"


def field_table(message: type[Message]) -> str:
    """The field table of `message`, with the default limits as bounds."""
    rows: list[Sequence[str]] = []
    if issubclass(message, Record):
        rows.append(("`v`", "int", str(VERSION), "yes", "Version of the protocol."))
        if message.KIND:
            rows.append(("`kind`", "str", f"`{message.KIND}`", "yes", "What this record is."))
    rows.extend(
        (f"`{row.name}`", row.kind.label, row.kind.bound(DEFAULT_LIMITS), _needed(message, row), row.doc)
        for row in message.FIELDS
    )
    return table(("Field", "Type", "Bound", "Needed", "Meaning"), rows)


def code_table() -> str:
    """Every code with its status, whether it is retriable, what it means and what to do."""
    rows = ((f"`{c.value}`", f"`{c.status.value}`", "yes" if c.retriable else "no", c.meaning, c.advice) for c in Code)
    return table(("Code", "Status", "Retriable", "What happened", "What to do"), rows)


def op_table() -> str:
    """What each op needs beside the fields that every request needs."""
    rows = (
        (f"`{op.value}`", ", ".join(f"`{name}`" for name in names) or "nothing more")
        for op, names in NEEDED_BY_OP.items()
    )
    return table(("Op", "Needs"), rows)


def limit_table() -> str:
    """Every limit of the decoder with its default."""
    limits = ((field.name, getattr(DEFAULT_LIMITS, field.name)) for field in fields(DEFAULT_LIMITS))
    rows = ((f"`{name}`", show_size(v) if name.endswith("_bytes") else str(v)) for name, v in limits)
    return table(("Limit", "Default"), rows)


def generated() -> dict[str, str]:
    """Every generated block by the name in its marker."""
    blocks = {name: field_table(message) for name, message in MESSAGES.items()}
    return blocks | {"codes": code_table(), "ops": op_table(), "limits": limit_table()}


def rewrite(page: str) -> str:
    """`page` with every generated block renewed; ValueError when one is unknown, missing or there twice."""
    blocks = generated()
    names = [match["name"] for match in _BLOCK.finditer(page)]
    if sorted(names) != sorted(blocks):
        wrong = sorted(set(names) ^ set(blocks)) or sorted(name for name in names if names.count(name) > 1)
        raise ValueError(f"each generated block must be in the page exactly once; wrong: {', '.join(wrong)}")
    return _BLOCK.sub(lambda match: match["open"] + blocks[match["name"]] + match["close"], page)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: 0 when the page is, or was made, up to date; 1 when it is not; 2 when it cannot be."""
    parser = argparse.ArgumentParser(prog="python -m schemas.docs", description=__doc__.split("\n", 1)[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="exit with 1 when the page is out of date")
    action.add_argument("--write", action="store_true", help="bring the page up to date")
    parser.add_argument("page", nargs="?", type=Path, default=DEFAULT_PAGE)
    options = parser.parse_args(arguments)
    try:
        old = options.page.read_text(encoding="utf-8")
        new = rewrite(old)
        if options.write and new != old:
            options.page.write_text(new, encoding="utf-8")
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{options.page}: {error}\n")
        return 2
    if options.check and new != old:
        sys.stderr.write(f"{options.page} is out of date: run python -m schemas.docs --write\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
