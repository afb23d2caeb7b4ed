"""Results as tables: in a terminal, and as Markdown between two marks of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from cli.bench.rows import FullRow, MemoryRow, RepairRow, Results, ThreadsRow
from cli.errors import CliError, ExitCode

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
"""What is between these lines of a page is written by the command."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table of text. The first `words` columns are words, the others figures."""

    title: str
    columns: tuple[str, ...]
    words: int
    rows: tuple[tuple[str, ...], ...]


def sheets(results: Results) -> Iterator[Sheet]:
    """The tables of what was measured."""
    for tokenizer in dict.fromkeys(row.tokenizer for row in results.repair):
        rows = [row for row in results.repair if row.tokenizer == tokenizer]
        yield _repair(f"repair, {tokenizer}", rows)
    if results.full:
        yield _full(results.full)
    if results.threads:
        yield _threads(results.threads)
    if results.memory:
        yield _memory(results.memory)


def _repair(title: str, rows: Sequence[RepairRow]) -> Sheet:
    columns = ("case", "lane", "context", "edit", "p50 ms", "p99 ms", "× toksplice", "× append at 1M")
    return Sheet(
        title,
        (*columns, "× append at 100K", "samples", "ids"),
        2,
        tuple(
            (
                row.case,
                row.lane,
                f"{row.context_chars:,}",
                f"{row.edit_chars:,}",
                _ms(row.p50_us),
                _ms(row.p99_us),
                _times(row.times_ours),
                _times(row.times_plain),
                _times(row.times_small),
                f"{row.samples:,}",
                row.note or _exact(row.exact),
            )
            for row in rows
        ),
    )


def _full(rows: Sequence[FullRow]) -> Sheet:
    columns = ("tokenizer", "lane", "fresh MB/s", "again MB/s", "fresh × reference", "again × reference")
    return Sheet(
        "full encode, pieces of 1 MB, one core",
        (*columns, "pieces", "ids"),
        2,
        tuple(
            (
                row.tokenizer,
                row.lane,
                _number(row.fresh_mb_s),
                _number(row.again_mb_s),
                _times(row.fresh_times_reference),
                _times(row.again_times_reference),
                f"{row.pieces:,}",
                row.note or _exact(row.exact),
            )
            for row in rows
        ),
    )


def _threads(rows: Sequence[ThreadsRow]) -> Sheet:
    return Sheet(
        "appends of 100,000 characters to two sessions",
        ("tokenizer", "lane", "throughput, two threads over one", "rounds", "note"),
        2,
        tuple((row.tokenizer, row.lane, _times(row.throughput_ratio), f"{row.rounds:,}", row.note) for row in rows),
    )


def _memory(rows: Sequence[MemoryRow]) -> Sheet:
    columns = ("tokenizer", "lane", "sessions", "tokens", "bytes a token", "without the text")
    return Sheet(
        "sessions held",
        (*columns, "growth of the process", "note"),
        2,
        tuple(
            (
                row.tokenizer,
                row.lane,
                f"{row.sessions:,}",
                f"{row.tokens:,}",
                _number(row.with_text),
                _number(row.without_text),
                _number(row.resident),
                row.note,
            )
            for row in rows
        ),
    )


def table(sheet: Sheet) -> Table:
    """A sheet for a terminal."""
    found = Table(title=escape(sheet.title))
    for number, column in enumerate(sheet.columns):
        found.add_column(column, justify="left" if number < sheet.words else "right")
    for row in sheet.rows:
        found.add_row(*map(escape, row))
    return found


def markdown(results: Results) -> str:
    """All sheets, under what they were made on."""
    lines = [f"- {name}: {_cell(str(value))}" for name, value in results.made.items()]
    for sheet in sheets(results):
        lines += ["", f"### {sheet.title[0].upper()}{sheet.title[1:]}", "", _line(sheet.columns)]
        lines.append("|" + "---|" * sheet.words + "---:|" * (len(sheet.columns) - sheet.words))
        lines += [_line(tuple(map(_cell, row))) for row in sheet.rows]
    return "\n".join(lines) + "\n"


def write_markdown(results: Results, page: Path) -> None:
    """Put the tables between the marks of a page, or write a page of them alone when it is new.

    Raises `CliError`: INPUT for a page without the marks, STORAGE when it cannot be written.
    """
    block = f"{BEGIN}\n\n{markdown(results)}\n{END}"
    try:
        old = page.read_text(encoding="utf-8") if page.exists() else f"{BEGIN}{END}\n"
        before, begin, rest = old.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise CliError(ExitCode.INPUT, f"{page}: the lines {BEGIN} and {END} are missing; name a new file")
        page.write_text(before + block + after, encoding="utf-8")
    except OSError as error:
        raise CliError(ExitCode.STORAGE, f"{page}: cannot be written ({error.strerror})") from error


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _ms(microseconds: float | None) -> str:
    return "" if microseconds is None else _number(microseconds / 1e3)


def _times(value: float | None) -> str:
    return "" if value is None else _number(value)


def _number(value: float | None) -> str:
    """Three significant digits, and no more than the number has."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}".rstrip(".")


def _exact(exact: bool | None) -> str:
    return {None: "", True: "the reference's", False: "WRONG"}[exact]
