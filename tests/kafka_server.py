"""A real Apache Kafka broker for tests: one KRaft node on loopback, in a process of its own.

The jars come from Maven Central, once, into `.cache/kafka-4.2.1/lib`; `tests/kafka-pom.xml` pins them. The
variable TOKSPLICE_KAFKA_LIB names a folder of jars to use instead.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import uuid
from pathlib import Path
from typing import Final

from fetching import alone_in
from server_process import takes_connections, wait_until

KAFKA_VERSION: Final = "4.2.1"
LIB_VARIABLE: Final = "TOKSPLICE_KAFKA_LIB"

#: Times within which each step has to be done.
FETCH_S: Final = 240
FORMAT_S: Final = 60
START_S: Final = 90
STOP_S: Final = 20

_TESTS: Final = Path(__file__).parent
_CACHE: Final = _TESTS.parent / ".cache" / f"kafka-{KAFKA_VERSION}"
#: Between two attempts to connect to a broker that is starting.

# Small buffers and few internal partitions: there is one node, and it lives for one test session. Short
# session timeouts are allowed so that tests need not wait long for the group to notice a killed member.
_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
message.max.bytes=33554432
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
log.cleaner.dedupe.buffer.size=4194304
log.index.size.max.bytes=262144
log.segment.delete.delay.ms=1000
"""


class KafkaMissingError(Exception):
    """There is no Kafka to run, for a reason that the message names; tests are skipped with it."""


class KafkaServer:
    """One broker process. `folder` receives its data and its log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self._port}"

    @property
    def log_path(self) -> Path:
        """What the broker writes to its output."""
        return self._folder / "broker.log"

    def start(self) -> None:
        """Format the storage, start the broker and wait until it takes connections.

        Raises KafkaMissingError when Java, Maven or the jars are missing, RuntimeError when the broker does
        not start.
        """
        java = _program("java", "Java 17")
        lib = _jars()
        self._port, controller = free_ports(2)
        properties = self._folder / "server.properties"
        properties.write_text(_PROPERTIES.format(broker=self._port, controller=controller, data=self._folder / "data"))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        run = [java, "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        classes = ["-cp", f"{lib}/*"]
        storage = ["format", "--standalone", "-t", cluster, "-c", str(properties)]
        with self.log_path.open("wb") as log:
            subprocess.run(
                [*run, "-Xmx128m", *classes, "kafka.tools.StorageTool", *storage],
                stdout=log,
                stderr=subprocess.STDOUT,
                check=True,
                timeout=FORMAT_S,
            )
            self._process = subprocess.Popen(
                [*run, "-Xmx512m", *classes, "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(
            lambda: takes_connections(self._port),
            self._process,
            name="Kafka",
            limit_s=START_S,
            stop=self.stop,
            log_tail=self.log_tail,
        )

    def freeze(self) -> None:
        """Stop the process without ending it: connections stay, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo `freeze`."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the process, and its group with it."""
        if self._process is None:
            return
        self.thaw()
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._process = None

    def log_tail(self, lines: int = 40) -> str:
        """The end of the broker's log, to be shown when something failed."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)


def _program(name: str, what: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise KafkaMissingError(f"{what} is missing: there is no `{name}` on the PATH")
    return path


def _jars() -> Path:
    """The folder of jars, fetched if need be."""
    given = os.environ.get(LIB_VARIABLE)
    if given:
        if _holds_kafka(Path(given)):
            return Path(given)
        raise KafkaMissingError(f"{LIB_VARIABLE}={given} holds no Kafka {KAFKA_VERSION}")
    lib = _CACHE / "lib"
    with alone_in(_CACHE):
        if not _holds_kafka(lib):
            _fetch(lib)
    return lib


def _holds_kafka(lib: Path) -> bool:
    return any(lib.glob(f"kafka_*-{KAFKA_VERSION}.jar"))


def _fetch(lib: Path) -> None:
    maven = _program("mvn", "Maven")
    # Into a folder of its own first: a run that is cut off must not leave half a Kafka behind.
    fetched = _CACHE / f"fetching-{os.getpid()}"
    command = [maven, "-q", "-B", "-f", str(_TESTS / "kafka-pom.xml"), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={fetched}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
        if done.returncode != 0:
            reason = (done.stdout.strip().splitlines() or ["no output"])[0]
            raise KafkaMissingError(f"Maven could not fetch Kafka {KAFKA_VERSION}: {reason}")
        shutil.rmtree(lib, ignore_errors=True)
        fetched.rename(lib)
    except subprocess.TimeoutExpired:
        raise KafkaMissingError(f"Maven did not fetch Kafka {KAFKA_VERSION} within {FETCH_S} s") from None
    finally:
        shutil.rmtree(fetched, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
