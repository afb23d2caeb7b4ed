"""How to reach a Kafka cluster, and every time limit and bound of the adapter."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiokafka.helpers import create_ssl_context

from pipeline.errors import SettingsError
from pipeline.settings import from_env, setting

URL_SCHEME: Final = "kafka://"

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Settings of `KafkaBroker`. Raises SettingsError when they contradict each other.

    The client library allows `PLAIN` and `SCRAM-SHA-256/512` with name and password; certificates are PEM
    files.
    """

    bootstrap: str = setting(
        "localhost:9092",
        env="TOKSPLICE_KAFKA_BOOTSTRAP",
        unit="",
        doc="Comma-separated `host:port` list; a `kafka://` URL given on the command line replaces it.",
    )
    namespace: str = setting(
        "",
        env="TOKSPLICE_KAFKA_NAMESPACE",
        unit="",
        doc="Put before every topic and group name, so that several installations can share one cluster.",
    )
    client_id: str = setting(
        "toksplice",
        env="TOKSPLICE_KAFKA_CLIENT_ID",
        unit="",
        doc="Name of this client in the broker's logs and quotas.",
    )
    replication: int = setting(
        1,
        env="TOKSPLICE_KAFKA_REPLICATION",
        unit="copies",
        doc="Replication factor of topics that are created. Use 3 where a broker may fail.",
        minimum=1,
        maximum=32_767,
    )
    security_protocol: str = setting(
        "PLAINTEXT",
        env="TOKSPLICE_KAFKA_SECURITY_PROTOCOL",
        unit="",
        doc="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    sasl_mechanism: str = setting(
        "PLAIN",
        env="TOKSPLICE_KAFKA_SASL_MECHANISM",
        unit="",
        doc="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
    )
    sasl_username: str = setting("", env="TOKSPLICE_KAFKA_SASL_USERNAME", unit="", doc="Name to log in with.")
    sasl_password: str = setting(
        "", env="TOKSPLICE_KAFKA_SASL_PASSWORD", unit="", doc="Password to log in with.", secret=True
    )
    ssl_cafile: str = setting(
        "",
        env="TOKSPLICE_KAFKA_SSL_CAFILE",
        unit="",
        doc="PEM file of the authorities to trust; empty trusts the system's.",
    )
    ssl_certfile: str = setting(
        "", env="TOKSPLICE_KAFKA_SSL_CERTFILE", unit="", doc="PEM file of the client's certificate, if any."
    )
    ssl_keyfile: str = setting(
        "", env="TOKSPLICE_KAFKA_SSL_KEYFILE", unit="", doc="PEM file of the client's private key, if any."
    )
    send_timeout_s: float = setting(
        15.0,
        env="TOKSPLICE_KAFKA_SEND_TIMEOUT_S",
        unit="seconds",
        doc="Longest wait for the acknowledgement of one record.",
        minimum=0.1,
    )
    request_timeout_s: float = setting(
        10.0,
        env="TOKSPLICE_KAFKA_REQUEST_TIMEOUT_S",
        unit="seconds",
        doc="Longest wait for the answer to one request to the broker.",
        minimum=0.1,
    )
    start_timeout_s: float = setting(
        60.0,
        env="TOKSPLICE_KAFKA_START_TIMEOUT_S",
        unit="seconds",
        doc="Longest wait for a connection, for topics to appear, and for the first assignment of a group.",
        minimum=0.1,
    )
    stop_timeout_s: float = setting(
        10.0,
        env="TOKSPLICE_KAFKA_STOP_TIMEOUT_S",
        unit="seconds",
        doc="Longest wait for an orderly close of one producer or consumer before it is torn down.",
        minimum=0.1,
    )
    session_timeout_s: float = setting(
        10.0,
        env="TOKSPLICE_KAFKA_SESSION_TIMEOUT_S",
        unit="seconds",
        doc="A group member not heard of for this long is taken for dead, and others get its partitions.",
        minimum=0.5,
    )
    rebalance_timeout_s: float = setting(
        30.0,
        env="TOKSPLICE_KAFKA_REBALANCE_TIMEOUT_S",
        unit="seconds",
        doc="Longest time that a group member may take to hand back its partitions in a rebalance.",
        minimum=0.5,
    )
    watchdog_interval_s: float = setting(
        10.0,
        env="TOKSPLICE_KAFKA_WATCHDOG_INTERVAL_S",
        unit="seconds",
        doc="How often a consumer's position is held against the end of its partitions.",
        minimum=0.1,
    )
    fetch_wait_s: float = setting(
        0.1,
        env="TOKSPLICE_KAFKA_FETCH_WAIT_S",
        unit="seconds",
        doc="Longest time that the broker holds back the answer to a fetch when nothing has arrived.",
        minimum=0.001,
    )
    fetch_bytes: int = setting(
        50 * _MIB,
        env="TOKSPLICE_KAFKA_FETCH_BYTES",
        unit="bytes",
        doc="Most bytes in one answer to a fetch; one larger record still comes through.",
        minimum=1024,
    )
    fetch_partition_bytes: int = setting(
        4 * _MIB,
        env="TOKSPLICE_KAFKA_FETCH_PARTITION_BYTES",
        unit="bytes",
        doc="Most bytes of one partition in one answer to a fetch; one larger record still comes through.",
        minimum=1024,
    )
    in_flight_bytes: int = setting(
        64 * _MIB,
        env="TOKSPLICE_KAFKA_IN_FLIGHT_BYTES",
        unit="bytes",
        doc="Most bytes of unacknowledged records of one producer. Keep it under the broker's "
        "`socket.request.max.bytes` (100 MiB): all of it can end up in one request.",
        minimum=_MIB,
    )
    linger_ms: int = setting(
        5,
        env="TOKSPLICE_KAFKA_LINGER_MS",
        unit="milliseconds",
        doc="How long a batching producer collects records; others send at once.",
        minimum=0,
    )
    batch_bytes: int = setting(
        256 * 1024,
        env="TOKSPLICE_KAFKA_BATCH_BYTES",
        unit="bytes",
        doc="Most bytes of one batch of records; one larger record goes alone.",
        minimum=1024,
    )

    def __post_init__(self) -> None:
        if not all(":" in server for server in self.servers):
            raise SettingsError(f"TOKSPLICE_KAFKA_BOOTSTRAP: {self.bootstrap!r} is not a list of host:port")
        if self.security_protocol not in _PROTOCOLS:
            raise SettingsError(
                f"TOKSPLICE_KAFKA_SECURITY_PROTOCOL: {self.security_protocol!r} is not one of " + ", ".join(_PROTOCOLS)
            )
        if self.security_protocol.startswith("SASL") and not (self.sasl_username and self.sasl_password):
            raise SettingsError(
                f"{self.security_protocol} needs TOKSPLICE_KAFKA_SASL_USERNAME and TOKSPLICE_KAFKA_SASL_PASSWORD"
            )

    def __repr__(self) -> str:
        # The password must not reach a log.
        return f"KafkaSettings(bootstrap={self.bootstrap!r}, namespace={self.namespace!r})"

    @classmethod
    def from_url(cls, url: str, environ: Mapping[str, str] | None = None) -> KafkaSettings:
        """The settings for `kafka://host:port[,host:port...]`; everything else from `environ`.

        Raises SettingsError when the URL is another kind of URL or a setting is wrong.
        """
        if not url.startswith(URL_SCHEME):
            raise SettingsError(f"{url!r} is not a Kafka address; write kafka://host:port")
        bootstrap = url.removeprefix(URL_SCHEME).rstrip("/")
        return dataclasses.replace(from_env(cls, environ), bootstrap=bootstrap)

    @property
    def servers(self) -> list[str]:
        """The bootstrap list, taken apart."""
        return [server.strip() for server in self.bootstrap.split(",")]

    def connection_options(self) -> dict[str, Any]:
        """Options that every client of the library takes: where and how to connect."""
        options: dict[str, Any] = {
            "bootstrap_servers": self.servers,
            "client_id": self.client_id,
            "security_protocol": self.security_protocol,
        }
        if self.security_protocol.endswith("SSL"):
            options["ssl_context"] = create_ssl_context(
                cafile=self.ssl_cafile or None,
                certfile=self.ssl_certfile or None,
                keyfile=self.ssl_keyfile or None,
            )
        if self.security_protocol.startswith("SASL"):
            options["sasl_mechanism"] = self.sasl_mechanism
            options["sasl_plain_username"] = self.sasl_username
            options["sasl_plain_password"] = self.sasl_password
        return options
