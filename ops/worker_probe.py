"""The image's health probe: does this worker hold a connection to its broker?

It reads the kernel's table of connections and opens none itself, so it is cheap enough to run every few
seconds. A worker that has lost its broker, or has not reached it yet, is unhealthy; one that died is seen by
the engine. The broker is the one on the container's command line, which is that of process 1, with or without
an init before the worker. Exit code 0 is healthy, 1 is not. Needs the standard library only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

COMMAND = Path("/proc/1/cmdline")
ESTABLISHED = "01"
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def broker_ports(command: Iterable[str]) -> set[int]:
    """Ports of kafka://HOST:PORT[,HOST:PORT...] in a command line; 9092 where a host names none."""
    hosts = [host for word in command for host in word.partition("kafka://")[2].split(",") if host]
    ports = (re.search(r":(\d+)$", host) for host in hosts)
    return {int(port[1]) if port else 9092 for port in ports}


def connected_ports(lines: Iterable[str]) -> set[int]:
    """Remote ports of the established connections in a table of /proc/net."""
    rows = (line.split() for line in lines)
    return {int(row[2].rpartition(":")[2], 16) for row in rows if len(row) > 3 and row[3] == ESTABLISHED}


def main() -> int:
    lines = [line for table in TABLES if table.exists() for line in table.read_text().splitlines()[1:]]
    wanted = broker_ports(COMMAND.read_text().split("\0"))
    return 0 if wanted & connected_ports(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
