"""A real OpenTelemetry Collector for tests, on loopback, with the compose stack's own configuration.

No registry has it as a package, so it is used where it is: `otelcol-contrib` or `otelcol` on the PATH, or the program
that the variable TOKSPLICE_OTELCOL names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml
from kafka_server import free_ports
from server_process import end, takes_connections, wait_until

VARIABLE: Final = "TOKSPLICE_OTELCOL"
NAMES: Final = ("otelcol-contrib", "otelcol")
START_S: Final = 60
STOP_S: Final = 20

_CONFIG: Final = Path(__file__).parents[1] / "ops" / "otel-collector.yaml"


class CollectorMissingError(Exception):
    """There is no collector to run; tests are skipped with the message."""


def _program() -> str:
    given = os.environ.get(VARIABLE)
    found = given or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise CollectorMissingError(f"no {' or '.join(NAMES)} on the PATH, and {VARIABLE} names none")
    return found


class Collector:
    """One collector. `otlp` takes OTLP/HTTP; `metrics` and `own_metrics` are HOST:PORT for Prometheus."""

    def __init__(self, folder: Path) -> None:
        http, grpc, metrics, own, health, nobody = free_ports(6)
        config: dict[str, Any] = yaml.safe_load(_CONFIG.read_text())
        config["receivers"]["otlp"]["protocols"]["http"]["endpoint"] = f"127.0.0.1:{http}"
        config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] = f"127.0.0.1:{grpc}"
        config["exporters"]["prometheus"]["endpoint"] = f"127.0.0.1:{metrics}"
        config["exporters"]["otlp_grpc/jaeger"]["endpoint"] = f"127.0.0.1:{nobody}"
        config["extensions"]["health_check"]["endpoint"] = f"127.0.0.1:{health}"
        reader = config["service"]["telemetry"]["metrics"]["readers"][0]["pull"]["exporter"]["prometheus"]
        reader.update(host="127.0.0.1", port=own)
        self._config = folder / "collector.yaml"
        self._config.write_text(yaml.safe_dump(config))
        self._log = folder / "collector.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._port = http
        self.otlp = f"http://127.0.0.1:{http}"
        self.metrics = f"127.0.0.1:{metrics}"
        self.own_metrics = f"127.0.0.1:{own}"

    def start(self) -> None:
        """Return once it takes connections. Raises CollectorMissingError."""
        command = [_program(), "--config", str(self._config)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(
            lambda: takes_connections(self._port),
            self._process,
            name="the collector",
            limit_s=START_S,
            stop=self.stop,
            log_tail=self._log_tail,
        )

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        """End the process."""
        if self._process is None:
            return
        end(self._process, STOP_S)
        self._process = None
