"""The switch of drills on running workers: two settings that must agree, and no broker but one on this machine.

Nothing here can be on by accident: one setting alone, two that differ, a name that is not in the catalogue, a broker
elsewhere, or a worker that samples nothing stop the process with one line.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.errors import SettingsError
from pipeline.settings import setting
from shadow.faults.catalogue import CATALOGUE, Injection

FAULT_VARIABLE: Final = "TOKSPLICE_DRILL_FAULT"
CONFIRM_VARIABLE: Final = "TOKSPLICE_DRILL_CONFIRM"

_LOCAL_NAMES: Final = frozenset({"localhost", "ip6-localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillSettings:
    """A fault on purpose, for drills."""

    fault: str = setting(
        "",
        env=FAULT_VARIABLE,
        unit="name",
        doc="Makes answers wrong on purpose: an injection by its name. Never set it where answers are used.",
    )
    confirm: str = setting(
        "",
        env=CONFIRM_VARIABLE,
        unit="name",
        doc="The same name once more; a fault is planted only when both agree and the broker is on this machine.",
    )

    def injection(self) -> Injection | None:
        """The fault to plant, None without one. Raises SettingsError for half a switch or an unknown name."""
        if not self.fault and not self.confirm:
            return None
        if self.fault != self.confirm:
            raise SettingsError(f"bad settings: {FAULT_VARIABLE} and {CONFIRM_VARIABLE} must name the same fault")
        if self.fault not in CATALOGUE:
            raise SettingsError(f"bad settings: {FAULT_VARIABLE}: {self.fault!r} is not in the catalogue of faults")
        return CATALOGUE[self.fault]


def check_place(servers: Sequence[str], sampling: float) -> None:
    """Raise SettingsError unless a drill may run here: on a broker in memory, which has no `servers`, or on a Kafka
    whose addresses (`host:port`) are all loopback; and with answers sampled, or nothing would find the fault."""
    if sampling <= 0:
        raise SettingsError(f"bad settings: {FAULT_VARIABLE}: no answer is sampled, so nothing would find the fault")
    if not all(map(_is_loopback, servers)):
        raise SettingsError(f"bad settings: {FAULT_VARIABLE}: drills are refused unless the broker is on this machine")


def _is_loopback(address: str) -> bool:
    # Split as the client does: what stands before a `#` or `?` is a part of the name.
    host = address.strip().rpartition(":")[0].removeprefix("[").removesuffix("]")
    if host.lower() in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
