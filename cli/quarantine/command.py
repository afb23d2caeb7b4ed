"""The command line of `toksplice shadow report | replay | clear`."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from cli.options import add_epilog, positive
from cli.quarantine.clear import run_clear
from cli.quarantine.replay import DEFAULT_SECONDS, DEFAULT_TRIES, Bounds, run_replay
from cli.quarantine.report import run_report
from cli.quarantine.source import Source, TopicSource, file_source
from cli.topics import remote
from cli.wiring import add_broker_argument, connected, open_registry, quarantine_path, worker_settings
from pipeline.ports import Broker
from pipeline.settings import from_env
from shadow.settings import ShadowSettings

DEFAULT_LIMIT: Final = 50

_REPORT: Final = """
Without --broker the findings are those in the file of the shadow worker on this machine. With it they are those on
tokenize.quarantine, and the report says too what was checked and which breakers are open.
"""
_REPLAY: Final = """
The text is encoded afresh, then built by edits as its session was: by the requests that are on the broker, or without
them by edits that are made up. What comes out wrong is made smaller and printed as a test. The exit code is 1 when the
fault came again. The output holds the user's text.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    report = actions.add_parser("report", help="what was checked and what was found wrong, the latest first")
    report.add_argument("--limit", type=positive, default=DEFAULT_LIMIT, metavar="N", help="findings a page")
    report.add_argument("--page", type=positive, default=1, metavar="N", help="which page (default 1)")
    _add_source_arguments(report)
    add_epilog(report, _REPORT)
    report.set_defaults(run=_report)
    replay = actions.add_parser("replay", help="make a wrong answer come again, and make it small")
    replay.add_argument("sample_id", metavar="ID", help="as `shadow report` shows")
    replay.add_argument("--registry", type=Path, metavar="DIR", help="the registry's folder")
    replay.add_argument(
        "--tries", type=positive, default=DEFAULT_TRIES, metavar="N", help=f"to make it small (default {DEFAULT_TRIES})"
    )
    replay.add_argument(
        "--seconds", type=positive, default=DEFAULT_SECONDS, metavar="N", help=f"likewise (default {DEFAULT_SECONDS})"
    )
    _add_source_arguments(replay)
    add_epilog(replay, _REPLAY)
    replay.set_defaults(run=_replay)
    clear = actions.add_parser(
        "clear",
        help="close the breaker of a tokenizer",
        description="Closes breakers: the fast paths answer again, and sessions begin anew.",
    )
    clear.add_argument("tokenizer", nargs="?", metavar="TOKENIZER", help="a name or fingerprint")
    clear.add_argument("--all", action="store_true", help="every breaker that is open")
    clear.add_argument("--yes", action="store_true", help="do not ask")
    clear.add_argument("--registry", type=Path, metavar="DIR", help="the registry's folder")
    add_broker_argument(clear, default=None)
    clear.add_argument("--json", action="store_true", help="write JSON to stdout")
    clear.set_defaults(run=run_clear)


def _add_source_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--broker", metavar="URL", help="kafka://host:port: findings of every shadow worker there")
    source.add_argument("--store", type=Path, metavar="FILE", help="file of findings (default TOKSPLICE_SHADOW_STORE)")
    parser.add_argument("--json", action="store_true", help="write JSON to stdout")


@asynccontextmanager
async def _opened(options: argparse.Namespace) -> AsyncIterator[tuple[Source, Broker | None]]:
    """The findings that the command line names, and the broker if it names one."""
    if options.broker is None:
        path: Path = options.store or quarantine_path(from_env(ShadowSettings).store_path)
        async with file_source(path) as source:
            yield source, None
        return
    settings = worker_settings()
    async with connected(remote(options.broker), settings) as broker:
        yield TopicSource(broker, settings.partitions), broker


def _report(options: argparse.Namespace) -> int:
    return run_report(_opened(options), options.limit, options.page, as_json=options.json)


def _replay(options: argparse.Namespace) -> int:
    bounds = Bounds(options.tries, options.seconds)
    registry = open_registry(options.registry)
    return run_replay(_opened(options), options.sample_id, registry, bounds, as_json=options.json)
