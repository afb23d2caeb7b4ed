"""Settings of the classifier, parsed once from the environment by `pipeline.settings.from_env`."""

from __future__ import annotations

from dataclasses import dataclass

from consumers.classifier.router import RouterSettings
from pipeline.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierSettings:
    """Settings of the classifier."""

    gpu_text_bytes_min: int = setting(
        2048,
        env="TOKSPLICE_GPU_TEXT_BYTES_MIN",
        unit="bytes",
        doc="Shortest first text that can go to a GPU worker; from here on, what was measured decides.",
        minimum=0,
    )
    heartbeat_age_s_max: float = setting(
        15.0,
        env="TOKSPLICE_HEARTBEAT_AGE_S_MAX",
        unit="seconds",
        doc="Age of the last heartbeat at which the classifier takes a worker for gone.",
        minimum=0.1,
    )
    gpu_queue_depth_max: int = setting(
        256,
        env="TOKSPLICE_GPU_QUEUE_DEPTH_MAX",
        unit="records",
        doc="A GPU worker with more waiting records gets no new ones.",
        minimum=0,
    )
    directory_sessions_max: int = setting(
        200_000,
        env="TOKSPLICE_DIRECTORY_SESSIONS_MAX",
        unit="sessions",
        doc="Live sessions that the classifier remembers; a forgotten one costs one full encode, not exactness.",
        minimum=1,
    )
    workers_max: int = setting(
        256,
        env="TOKSPLICE_WORKERS_MAX",
        unit="workers",
        doc="GPU workers, and CPU fallbacks, whose heartbeats the classifier remembers, so many of each.",
        minimum=1,
    )

    def router(self) -> RouterSettings:
        """The thresholds, in the router's units."""
        return RouterSettings(
            gpu_text_bytes_min=self.gpu_text_bytes_min,
            heartbeat_age_ms_max=round(self.heartbeat_age_s_max * 1_000),
            gpu_queue_depth_max=self.gpu_queue_depth_max,
        )
