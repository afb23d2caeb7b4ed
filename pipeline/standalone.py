"""`python -m PACKAGE`: one worker of a distributed installation, for processes that hold nothing else."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pipeline.errors import SettingsError
from pipeline.kafka import KafkaBroker, KafkaSettings
from pipeline.ports import Broker
from pipeline.runtime import Runnable, give_way, make_worker, run, serve
from pipeline.service import Service
from pipeline.settings import WorkerSettings, from_env
from pipeline.standby import Standby
from toksplice.registry import Registry

EXIT_SETTINGS: Final = 2


def main(
    package: str,
    description: str,
    make_service: Callable[[Registry], Service],
    arguments: Sequence[str] | None = None,
    make_standby: Callable[[Broker, WorkerSettings], Standby] | None = None,
) -> int:
    """Run the worker until SIGTERM. Returns the exit code: 0 after a signal, 2 for settings that make no sense.

    Settings come from the environment; `make_service` reads the service's own there, and may raise SettingsError.
    `make_standby` makes what stands by beside the worker, if anything does.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=description)
    parser.add_argument("--broker", metavar="URL", help="kafka://host:port; by default from the environment")
    parser.add_argument("--registry", type=Path, metavar="DIR", required=True, help="the tokenizer registry's folder")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = from_env(WorkerSettings)
        kafka = from_env(KafkaSettings) if options.broker is None else KafkaSettings.from_url(options.broker)
        broker = KafkaBroker(kafka)
        service = make_service(Registry(options.registry))
        workers: list[Runnable] = [make_worker(broker, service, settings)]
        if make_standby is not None:
            workers.append(make_standby(broker, settings))
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_SETTINGS
    give_way(service)
    run(serve(broker, workers, settings))
    return 0
