"""Settings of the shadow worker, parsed once from the environment by `pipeline.settings.from_env`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pipeline.errors import SettingsError
from pipeline.settings import setting
from shadow.store import StoreLimits

_MIB = 1024 * 1024


class TextPolicy(StrEnum):
    """What becomes of the text of a wrong answer."""

    KEEP = "keep"
    """It is kept, so that the fault can be reproduced: in a file of mode 0600, and on tokenize.quarantine."""
    REDACT = "redact"
    """Text, ids and offsets are taken out before anything is written; place and kind of the fault stay."""


class Priority(StrEnum):
    """Which processor time the checks take."""

    IDLE = "idle"
    """What nobody else on the machine wants: no answer waits for a check, and on a busy machine checks wait."""
    LOW = "low"
    """A small share in any case, at niceness 10; an answer may wait for the end of a time slice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowSettings:
    """Settings of the shadow worker."""

    cpu_share: float = setting(
        0.5,
        env="TOKSPLICE_SHADOW_CPU_SHARE",
        unit="cores",
        doc="Processor time that checking may take; when it is spent, samples are dropped and counted.",
        minimum=0,
    )
    cpu_burst_s: float = setting(
        5.0,
        env="TOKSPLICE_SHADOW_CPU_BURST_S",
        unit="seconds",
        doc="Unused processor time that is saved up for a burst.",
        minimum=0.001,
    )
    processes: int = setting(
        1,
        env="TOKSPLICE_SHADOW_PROCESSES",
        unit="processes",
        doc="Processes in which the reference encodes; each holds the tokenizers that it has met.",
        minimum=1,
        maximum=64,
    )
    priority: str = setting(
        Priority.IDLE.value,
        env="TOKSPLICE_SHADOW_PRIORITY",
        unit="idle or low",
        doc="Whether checks take only processor time that nobody else wants (`idle`), or a small share always (`low`).",
    )
    check_limit_s: float = setting(
        120.0,
        env="TOKSPLICE_SHADOW_CHECK_LIMIT_S",
        unit="seconds",
        doc="Longest time for one check; then its process is replaced and the sample counted as failed.",
        minimum=0.001,
    )
    text_policy: str = setting(
        TextPolicy.KEEP.value,
        env="TOKSPLICE_SHADOW_TEXT",
        unit="keep or redact",
        doc="Whether the texts of wrong answers are kept to reproduce them (`keep`) or taken out (`redact`).",
    )
    store_path: str = setting(
        "",
        env="TOKSPLICE_SHADOW_STORE",
        unit="path",
        doc="SQLite file for wrong answers; by default `quarantine.sqlite` in the folder for state.",
    )
    store_findings_max: int = setting(
        1000,
        env="TOKSPLICE_SHADOW_STORE_FINDINGS_MAX",
        unit="findings",
        doc="Findings in that file; the oldest ones make room.",
        minimum=1,
    )
    store_bytes_max: int = setting(
        256 * _MIB,
        env="TOKSPLICE_SHADOW_STORE_BYTES_MAX",
        unit="bytes",
        doc="Size of these findings; the oldest ones make room.",
        minimum=1,
    )

    def __post_init__(self) -> None:
        if self.text_policy not in tuple(TextPolicy):
            raise SettingsError(f"bad settings: TOKSPLICE_SHADOW_TEXT: {self.text_policy!r} is neither keep nor redact")
        if self.priority not in tuple(Priority):
            raise SettingsError(f"bad settings: TOKSPLICE_SHADOW_PRIORITY: {self.priority!r} is neither idle nor low")

    def store(self) -> StoreLimits:
        """The bounds of the store."""
        return StoreLimits(findings_max=self.store_findings_max, bytes_max=self.store_bytes_max)
