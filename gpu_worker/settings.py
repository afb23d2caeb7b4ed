"""Settings of the GPU worker, parsed once from the environment by `pipeline.settings.from_env`."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.settings import setting
from schemas.limits import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSettings:
    """Settings of the GPU worker."""

    text_bytes_min: int = setting(
        2048,
        env="TOKSPLICE_GPU_WORKER_TEXT_BYTES_MIN",
        unit="bytes",
        doc="A GPU worker passes shorter texts on to the CPU, whoever sent them.",
        minimum=0,
    )
    batch_texts_max: int = setting(
        64,
        env="TOKSPLICE_GPU_BATCH_TEXTS_MAX",
        unit="texts",
        doc="Most texts in one launch.",
        minimum=1,
    )
    batch_bytes_max: int = setting(
        16 * MIB,
        env="TOKSPLICE_GPU_BATCH_BYTES_MAX",
        unit="bytes",
        doc="Most bytes of text in one launch, unless one text alone has more.",
        minimum=1,
    )
    batch_wait_s: float = setting(
        0.0005,
        env="TOKSPLICE_GPU_BATCH_WAIT_S",
        unit="seconds",
        doc="Longest time that a text waits for others to fill a launch; after a launch of one text, none waits.",
        minimum=0,
    )
    waiting_texts_max: int = setting(
        256,
        env="TOKSPLICE_GPU_WAITING_TEXTS_MAX",
        unit="texts",
        doc="Texts that wait for a launch; over it the shortest one is passed on to the CPU.",
        minimum=1,
    )
    waiting_bytes_max: int = setting(
        64 * MIB,
        env="TOKSPLICE_GPU_WAITING_BYTES_MAX",
        unit="bytes",
        doc="Bytes of these texts; over it the shortest one is passed on to the CPU.",
        minimum=1,
    )
    tokenizers_max: int = setting(
        16,
        env="TOKSPLICE_GPU_TOKENIZERS_MAX",
        unit="tokenizers",
        doc="Tokenizers that are kept on the device, the first ones registered; texts of others are the CPU's.",
        minimum=1,
    )
    rescan_s: float = setting(
        30.0,
        env="TOKSPLICE_GPU_RESCAN_S",
        unit="seconds",
        doc="How often new tokenizers are looked for, and a device that failed is tried again.",
        minimum=0.1,
    )
