"""`toksplice worker NAME`: one worker of a distributed installation, until SIGTERM."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from cli.errors import CliError, ExitCode
from cli.wiring import (
    GPU_WORKER,
    SERVICES,
    add_broker_argument,
    is_memory,
    make_broker,
    make_standbys,
    make_worker,
    open_registry,
    why_no_gpu,
    worker_settings,
)
from pipeline.runtime import give_way, serve
from pipeline.runtime import run as run_loop


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", choices=sorted(SERVICES), metavar="NAME", help=" | ".join(sorted(SERVICES)))
    add_broker_argument(parser, default=None)
    parser.add_argument("--registry", type=Path, metavar="DIR", help="the registry's folder")
    parser.add_argument("--json", action="store_true", help="write the log as one JSON object a line")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if is_memory(options.broker):
        raise CliError(
            ExitCode.USAGE, "a worker alone on memory:// would reach nobody: use `toksplice up`, or a Kafka broker"
        )
    if options.name == GPU_WORKER and (reason := why_no_gpu()) is not None:
        raise CliError(ExitCode.DEVICE, reason)
    log_from_here_on(as_json=options.json)
    run_loop(_serve(options))
    return ExitCode.OK


async def _serve(options: argparse.Namespace) -> None:
    settings = worker_settings()
    broker = make_broker(options.broker)
    worker = make_worker(options.name, broker, open_registry(options.registry), settings)
    give_way(worker.service)
    await serve(broker, [worker, *make_standbys(options.name, broker, settings)], settings)


def log_from_here_on(*, as_json: bool) -> None:
    """What a service's operator reads: INFO and above on stderr, one line an event."""
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    for handler in root.handlers:
        handler.setFormatter(_JsonFormatter() if as_json else logging.Formatter(_FORMAT))


_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import json

        event = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=False)
