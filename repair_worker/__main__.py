"""`python -m repair_worker`: a repair worker of a distributed installation, until SIGTERM.

The same as `toksplice worker repair-worker`, for processes that hold nothing else. Settings come from the environment.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import SettingsError
from pipeline.kafka import KafkaBroker, KafkaSettings
from pipeline.runtime import run, serve
from pipeline.settings import TelemetrySettings, WorkerSettings, from_env
from pipeline.telemetry import Telemetry
from pipeline.worker import Worker
from repair_worker.service import RepairService
from repair_worker.settings import RepairSettings
from toksplice.registry import Registry

EXIT_SETTINGS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worker and return the exit code: 0 after a signal, 2 for settings that make no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m repair_worker", description="Hold sessions and answer their changes."
    )
    parser.add_argument("--broker", metavar="URL", help="kafka://host:port; by default from the environment")
    parser.add_argument("--registry", type=Path, metavar="DIR", required=True, help="the tokenizer registry's folder")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = from_env(WorkerSettings)
        kafka = from_env(KafkaSettings) if options.broker is None else KafkaSettings.from_url(options.broker)
        service = RepairService(Registry(options.registry), from_env(RepairSettings))
        telemetry = Telemetry.create(from_env(TelemetrySettings), kind=service.kind)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_SETTINGS
    broker = KafkaBroker(kafka)
    run(serve(broker, [Worker(broker, service, settings, telemetry)], settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
