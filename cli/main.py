"""The `toksplice` command: parses the command line, runs one command, turns a failure into one line.

Each command is a module with `add_parser(subparsers)`, which describes it and sets its `run(options)`.
Modules are imported when their command is asked for, so that `toksplice --help` stays quick.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence

from cli.errors import ExitCode, debugging, explain
from cli.output import note

COMMANDS = {
    "up": ("cli.up", "run every worker in this process; JSON lines in, JSON lines out"),
    "worker": ("cli.worker", "run one worker against a broker"),
    "tokenize": ("cli.tokenize_file", "tokenize a file"),
    "replay": ("cli.replay", "send recorded sessions through the pipeline"),
    "demo": ("cli.demo", "replay synthetic agent-shaped sessions, check every answer"),
    "tokenizers": ("cli.tokenizers", "list, fetch, add or show tokenizers"),
    "verify": ("cli.verify", "attack the library with random edits, against the reference"),
    "bench": ("cli.bench.command", "measure the library beside its peers"),
    "top": ("cli.top", "watch the workers of a broker"),
    "shadow": ("cli.quarantine.command", "report, replay and clear what the shadow check found wrong"),
    "dlq": ("cli.dlq", "list or replay dead letters"),
}
"""Command -> (module, one line for `toksplice --help`)."""

Run = Callable[[argparse.Namespace], int]


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The whole command line, or the part of it that the command `only` needs."""
    parser = argparse.ArgumentParser(
        prog="toksplice",
        description="Exact stateful tokenization: the reference's ids, at the cost of what is new.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and end")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if only in (None, name):
            importlib.import_module(module).add_arguments(command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; see `cli.errors` for the table."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    first = next((word for word in words if not word.startswith("-")), None)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        parser = build_parser(first if first in COMMANDS else "")
        options = parser.parse_args(words)
        if options.version:
            return _version()
        if options.command is None:
            parser.print_help()
            return ExitCode.USAGE
        run: Run = options.run
        code = run(options)
        sys.stdout.flush()
    except SystemExit as exit_:  # argparse ends this way, after it has said why
        return exit_.code if isinstance(exit_.code, int) else ExitCode.USAGE
    except BrokenPipeError:
        # The reader of our output has gone (`toksplice ... | head`): nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except BaseException as error:
        if debugging() and not isinstance(error, KeyboardInterrupt):
            raise
        code, message = explain(error)
        note(f"toksplice: {' '.join(message.split())}")
    return code


def _version() -> int:
    from importlib import metadata

    try:
        own = metadata.version("toksplice")
    except metadata.PackageNotFoundError:
        own = "(not installed)"
    sys.stdout.write(f"toksplice {own}, tokenizers {metadata.version('tokenizers')}\n")
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
