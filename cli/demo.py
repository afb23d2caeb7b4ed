"""`toksplice demo`: synthetic sessions through the embedded pipeline, every answer checked."""

from __future__ import annotations

import argparse
from pathlib import Path

from cli.errors import ExitCode
from cli.home import reference_cache_path
from cli.options import at_least, positive
from cli.output import note, progress_bar
from cli.replay import add_replay_arguments, show
from cli.replay_job import Job, run_job
from cli.report import write_report
from cli.sample_sessions import LEAST_SESSION_CHARS, MAX_SESSION_CHARS, MIN_SESSION_CHARS, sample_sessions
from cli.sessions import write_sessions
from cli.wiring import MEMORY_URL, choose_tokenizer, fetch_tokenizer, open_registry
from toksplice.errors import SourceError, UnknownTokenizerError
from toksplice.registry import Entry, Registry
from toksplice.sources import BUILT_IN, SOURCES

PREFERRED = "qwen3"
WHAT = "synthetic agent-shaped sessions made from the Python standard library"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tokenizer", default=PREFERRED, metavar="NAME", help=f"default {PREFERRED}, fetched if needed"
    )
    parser.add_argument("--registry", type=Path, metavar="DIR", help="the registry's folder")
    parser.add_argument("--sessions", type=positive, default=10, metavar="N", help="how many (default 10)")
    parser.add_argument(
        "--max-chars",
        type=at_least(LEAST_SESSION_CHARS),
        default=MAX_SESSION_CHARS,
        metavar="N",
        help=f"characters of the longest session, at least {LEAST_SESSION_CHARS:,} (default {MAX_SESSION_CHARS:,}); "
        f"the shortest has {MIN_SESSION_CHARS:,}, or N if that is less",
    )
    parser.add_argument("--seed", type=int, default=7, metavar="S", help="the same seed makes the same sessions")
    parser.add_argument(
        "--write-sessions", type=Path, metavar="PATH", help="also write the sessions, as `replay` reads them"
    )
    # One at a time: the latency is then the pipeline's own, not that of waiting for a processor.
    add_replay_arguments(parser, concurrency=1)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    registry = open_registry(options.registry)
    entry = _tokenizer(registry, options.tokenizer)
    with progress_bar("making sessions"):
        sessions = sample_sessions(options.sessions, seed=options.seed, max_chars=options.max_chars)
    if options.write_sessions:
        write_sessions(options.write_sessions, sessions)
        note(f"sessions: {options.write_sessions}")
    result = run_job(
        Job(
            registry=registry,
            entry=entry,
            broker_url=MEMORY_URL,
            conversations=lambda: iter(sessions),
            concurrency=options.concurrency,
            verify=True,
            cache_path=options.reference_cache or reference_cache_path(),
        )
    )
    note(f"The sessions of this demo: {WHAT}.")
    show(result, json_target=options.json)
    if options.report:
        write_report(options.report, result, title=f"TokSplice demo: {WHAT}")
        note(f"report: {options.report}")
    return ExitCode.OK if result.summary.ok else ExitCode.CHECK_FAILED


def _tokenizer(registry: Registry, name: str) -> Entry:
    """The tokenizer, fetched if it is not registered; the built-in one, saying so, when it cannot be fetched."""
    try:
        return choose_tokenizer(registry, name)
    except UnknownTokenizerError:
        if name not in SOURCES:
            raise
    try:
        with progress_bar(f"fetching {name} ({SOURCES[name].size_bytes / 1e6:.0f} MB unpacked)"):
            return fetch_tokenizer(registry, name)
    except SourceError as error:
        note(f"{error}\nUsing {BUILT_IN} instead, which is part of this package.")
        return choose_tokenizer(registry, BUILT_IN)
