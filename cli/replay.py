"""`toksplice replay SESSIONS.jsonl[.gz]`: recorded sessions through the pipeline, compared with the reference."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from cli.errors import CliError, ExitCode
from cli.home import reference_cache_path
from cli.options import add_epilog, positive
from cli.output import note, stdout, write_json
from cli.replay_job import Job, Result, run_job
from cli.replay_stats import MAX_MISMATCHES, sentences, table
from cli.report import write_report
from cli.sessions import FORMAT, Conversation, read_sessions
from cli.wiring import add_broker_argument, add_tokenizer_arguments, choose_tokenizer, open_registry

DEFAULT_CONCURRENCY = 2
_EPILOG = f"""
SESSIONS holds one session a line, plain or packed with gzip (such as .jsonl.gz):

  {FORMAT}

NAME is any string. ROLE is "system", "user", "assistant", "tool" or any other word. Messages are rendered with
the ChatML template; a request goes out before each "assistant" message, with all messages before it.
`toksplice demo --write-sessions PATH` writes an example.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", type=Path, metavar="SESSIONS", help="a .jsonl or .jsonl.gz file")
    add_tokenizer_arguments(parser)
    add_broker_argument(parser)
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N sessions")
    add_replay_arguments(parser)
    parser.add_argument("--verify", action="store_true", help="compare every answer with the reference")
    add_epilog(parser, _EPILOG)
    parser.set_defaults(run=run)


def add_replay_arguments(parser: argparse.ArgumentParser, concurrency: int = DEFAULT_CONCURRENCY) -> None:
    """The options that `replay` and `demo` share."""
    parser.add_argument(
        "--concurrency",
        type=positive,
        default=concurrency,
        metavar="N",
        help=f"sessions in flight (default {concurrency})",
    )
    parser.add_argument("--reference-cache", type=Path, metavar="PATH", help="reference results from earlier runs")
    parser.add_argument("--json", metavar="OUT", help='write all numbers as JSON to a file; "-" is stdout')
    parser.add_argument("--report", type=Path, metavar="HTML", help="write a report with plots")


def run(options: argparse.Namespace) -> int:
    registry = open_registry(options.registry)

    def conversations() -> Iterator[Conversation]:
        return read_sessions(options.sessions, options.limit)

    # An unreadable or empty file is one clear error before anything starts.
    if next(conversations(), None) is None:
        raise CliError(ExitCode.INPUT, f"{options.sessions}: holds no session. A line each is needed: {FORMAT}")
    result = run_job(
        Job(
            registry=registry,
            entry=choose_tokenizer(registry, options.tokenizer),
            broker_url=options.broker,
            conversations=conversations,
            concurrency=options.concurrency,
            verify=options.verify,
            cache_path=options.reference_cache or reference_cache_path(),
        )
    )
    show(result, json_target=options.json)
    if options.report:
        write_report(options.report, result, title=f"Replay of {options.sessions.name}")
        note(f"report: {options.report}")
    return ExitCode.OK if result.summary.ok else ExitCode.CHECK_FAILED


def show(result: Result, *, json_target: str | None) -> None:
    """The table and its sentences, or JSON; failures and mismatches on stderr."""
    summary = result.summary
    if json_target is not None:
        write_json(summary.as_dict() | {"failures": result.recording.failures}, json_target)
    if json_target != "-":
        stdout().print(table(summary))
        for sentence in sentences(summary):
            stdout().print(sentence, markup=False)
    for failure in result.recording.failures:
        note(f"failed: {failure}")
    mismatches = result.verdict.mismatches if result.verdict else []
    for session, number in mismatches[:MAX_MISMATCHES]:
        note(f"MISMATCH: session {session + 1}, request {number + 1}")
