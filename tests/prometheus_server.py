"""A real Prometheus for tests, on loopback, in a process of its own; and promtool, which comes with it.

Both come from Debian's package `prometheus`: installed, or fetched once with apt-get and unpacked into
`.cache/prometheus`, which needs no root.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from fetching import alone_in
from kafka_server import free_ports
from server_process import end, wait_until

#: Times within which each step has to be done.
FETCH_S: Final = 240
START_S: Final = 60
STOP_S: Final = 20
QUERY_S: Final = 30

_CACHE: Final = Path(__file__).parents[1] / ".cache" / "prometheus"
#: Between two attempts to reach a server that is starting.


class PrometheusMissingError(Exception):
    """There is no Prometheus to run, for a reason that the message names; tests are skipped with it."""


def program(name: str) -> str:
    """The path of `prometheus` or `promtool`. Raises PrometheusMissingError."""
    found = shutil.which(name)
    if found is not None:
        return found
    with alone_in(_CACHE):
        unpacked = _CACHE / "usr" / "bin" / name
        if not unpacked.exists():
            _fetch(name)
        return str(unpacked)


def _fetch(name: str) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise PrometheusMissingError(f"{name} is missing, and this is no Debian to fetch it from (package: prometheus)")
    commands = [["apt-get", "download", "-qq", "prometheus"], ["sh", "-c", "dpkg-deb -x prometheus_*.deb ."]]
    for command in commands:
        try:
            done = subprocess.run(command, cwd=_CACHE, capture_output=True, text=True, timeout=FETCH_S, check=False)
        except subprocess.TimeoutExpired:
            raise PrometheusMissingError(f"{name} is missing: `{command[0]}` took over {FETCH_S} s") from None
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise PrometheusMissingError(f"{name} is missing, and `{command[0]}` cannot get it: {reason}")


class PrometheusServer:
    """One server that evaluates `config`. `folder` receives its configuration, its data and its log."""

    def __init__(self, folder: Path, config: str) -> None:
        self._folder = folder
        self._config = folder / "prometheus.yml"
        self._config.write_text(config)
        self._process: subprocess.Popen[bytes] | None = None
        (self._port,) = free_ports(1)

    def start(self) -> None:
        """Return once it answers. Raises PrometheusMissingError."""
        command = [
            program("prometheus"),
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--enable-feature=exemplar-storage",
        ]
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(
            self._is_ready, self._process, name="Prometheus", limit_s=START_S, stop=self.stop, log_tail=self.log_tail
        )

    def _is_ready(self) -> bool:
        try:
            return self._get("/-/ready")[0] == HTTPStatus.OK
        except OSError:
            return False

    def stop(self) -> None:
        """End the process."""
        if self._process is None:
            return
        end(self._process, STOP_S)
        self._process = None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression gives now."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def get(self, what: str, **parameters: str) -> Any:
        """`data` of one answer of the HTTP API. Raises AssertionError with Prometheus's own words."""
        status, body = self._get(f"/api/v1/{what}?{urllib.parse.urlencode(parameters)}")
        assert status == HTTPStatus.OK, f"{parameters}: {body.decode()}"
        return json.loads(body)["data"]

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=QUERY_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def log_tail(self, lines: int = 20) -> str:
        """The end of the log, to be shown when something failed."""
        return "\n".join((self._folder / "prometheus.log").read_text(errors="replace").splitlines()[-lines:])


__all__ = ["PrometheusMissingError", "PrometheusServer", "free_ports", "program"]
