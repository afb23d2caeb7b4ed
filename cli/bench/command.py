"""`toksplice bench`: parses the options, runs what is asked for, shows and writes the results."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from cli.bench import full, memory, repair
from cli.bench.corpus import Corpus, load_corpus
from cli.bench.environments import PeerUnavailableError
from cli.bench.machine import processor
from cli.bench.peers import LANES, OURS, REFERENCE, Lane
from cli.bench.report import sheets, table, write_markdown
from cli.bench.rounds import Runner, Subject, reference_of, runners
from cli.bench.rows import Results
from cli.errors import CliError, ExitCode
from cli.options import add_epilog, positive
from cli.output import note, stdout, write_json
from cli.sessions import FORMAT
from cli.wiring import choose_tokenizer, fetch_tokenizer, open_registry
from toksplice.errors import SourceError, TokenizerError, UnknownTokenizerError
from toksplice.registry import Registry
from toksplice.sources import SOURCES

TOKENIZERS = ("qwen3", "llama3", "o200k", "deepseek_v3", "llama2")
KINDS = ("repair", "full", "memory")
ROUNDS = 20

_HELP = f"""
text files:
  a name in .jsonl or .jsonl.gz   a line each: {FORMAT}
  any other name                  UTF-8 text, which counts as one conversation

Peers are installed from PyPI into environments of their own, in the cache, when they are first needed. One that
cannot be installed, or that refuses a tokenizer, is in the table with its reason.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    peers = list(dict.fromkeys(lane.peer for lane in LANES))
    parser.add_argument("what", choices=(*KINDS, "all"), help="edits of sessions, whole texts, memory, or everything")
    parser.add_argument(
        "--tokenizer",
        action="append",
        metavar="T",
        help=f"a name, fetched when it is not registered, or a tokenizer.json; again for more (default {TOKENIZERS})",
    )
    parser.add_argument("--registry", type=Path, metavar="DIR", help="the registry's folder")
    parser.add_argument("--text", type=Path, metavar="FILE", help="what to measure on (default: synthetic sessions)")
    parser.add_argument("--rounds", type=positive, default=ROUNDS, metavar="N", help=f"of each case (default {ROUNDS})")
    parser.add_argument(
        "--peer", action="append", choices=peers, metavar="P", help=f"only these, of {', '.join(peers)}; again for more"
    )
    parser.add_argument("--json", metavar="OUT", help="write all figures as JSON to a file")
    parser.add_argument("--markdown", type=Path, metavar="OUT", help="write the tables into a page, as Markdown")
    add_epilog(parser, _HELP)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    kinds = KINDS if options.what == "all" else (options.what,)
    if options.text is not None and not options.text.is_file():
        raise CliError(ExitCode.INPUT, f"{options.text}: no such file")
    subjects = [one for name in options.tokenizer or TOKENIZERS if (one := _subject(options.registry, name))]
    if not subjects:
        raise CliError(ExitCode.TOKENIZER, "none of the tokenizers can be had")
    corpus = load_corpus(options.text, _chars_needed(kinds, options.rounds))
    versions: dict[str, str] = {}
    results = Results({"processor": processor(), "python": platform.python_version()})
    for subject in subjects:
        try:
            _measure(results, kinds, subject, corpus, _lanes(options.peer), options.rounds, versions)
        except PeerUnavailableError as error:
            # Without the reference nothing can be compared, so nothing is measured.
            raise CliError(ExitCode.TOKENIZER, f"{subject.name}: the reference: {error}") from error
    results.made |= {
        "text": corpus.description,
        "rounds": options.rounds,
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    _write(results, options)
    return ExitCode.CHECK_FAILED if _ours_is_wrong(results) else ExitCode.OK


def _chars_needed(kinds: tuple[str, ...], rounds: int) -> int:
    needs = {"repair": repair.CHARS_NEEDED, "full": full.chars_needed(rounds), "memory": memory.HELD_CHARS}
    return max(needs[kind] for kind in kinds)


def _lanes(peers: list[str] | None) -> list[Lane]:
    """The lanes of these peers; ours and the reference are always among them."""
    return [lane for lane in LANES if peers is None or lane.peer in (*peers, OURS, REFERENCE)]


def _measure(
    results: Results,
    kinds: tuple[str, ...],
    subject: Subject,
    corpus: Corpus,
    lanes: list[Lane],
    rounds: int,
    versions: dict[str, str],
) -> None:
    """Each measurement has processes of its own, so that none inherits another's caches."""
    wanted: dict[str, Callable[[Lane], bool]] = {
        "repair": lambda lane: True,
        "full": lambda lane: lane.encodes,
        "memory": memory.takes_part,
    }
    for kind in kinds:
        with runners([lane for lane in lanes if wanted[kind](lane)], subject, versions, note) as found:
            _one(results, kind, subject, corpus, found, rounds)


def _one(results: Results, kind: str, subject: Subject, corpus: Corpus, found: list[Runner], rounds: int) -> None:
    if kind == "memory":
        results.memory += memory.measure(subject, corpus, found, note)
        return
    reference_of(found)
    if kind == "repair":
        results.repair += repair.measure(subject, corpus, found, rounds, note)
    else:
        results.full += full.measure(subject, corpus, found, rounds, note)
        results.threads += full.measure_threads(subject, corpus, found, rounds, note)


def _subject(folder: Path | None, name: str) -> Subject | None:
    """The tokenizer of a name or a path; one that cannot be fetched is left out, and says so."""
    path = Path(name)
    if path.is_file():
        return Subject(path.stem, path, _special_token(path))
    registry = open_registry(folder)
    try:
        path = _registered(registry, name)
    except SourceError as error:
        note(f"{name} is left out: {error}")
        return None
    return Subject(name, path, _special_token(path))


def _registered(registry: Registry, name: str) -> Path:
    try:
        entry = choose_tokenizer(registry, name)
    except UnknownTokenizerError:
        if name not in SOURCES:
            raise
        note(f"fetching {name}")
        entry = fetch_tokenizer(registry, name)
    return registry.path(entry.fingerprint)


def _special_token(path: Path) -> str:
    """The first added token that is special; "" when there is none. Raises `TokenizerError`."""
    try:
        added = json.loads(path.read_bytes()).get("added_tokens") or ()
        return next((str(token["content"]) for token in added if token.get("special")), "")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise TokenizerError(f"{path}: not a tokenizer.json") from error


def _write(results: Results, options: argparse.Namespace) -> None:
    console = stdout()
    for sheet in sheets(results):
        console.print(table(sheet))
    if options.json:
        write_json(asdict(results), options.json)
    if options.markdown:
        write_markdown(results, options.markdown)


def _ours_is_wrong(results: Results) -> bool:
    verdicts = [(row.lane, row.exact) for row in results.repair] + [(row.lane, row.exact) for row in results.full]
    return (OURS, False) in verdicts
