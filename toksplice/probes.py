"""Answers of the installed reference, kept on disk by library version: a probe of all characters takes a second."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers

Array = npt.NDArray[Any]


def cache_folder() -> Path:
    """Where probes are kept: `TOKSPLICE_HOME`, or toksplice/ under the user's cache folder."""
    home = os.environ.get("TOKSPLICE_HOME")
    base = Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toksplice"
    return base / "probes"


def remembered(what: str, probe: Callable[[], Array], is_sound: Callable[[Array], bool]) -> Array:
    """The answer of a probe, from disk when this library version has given it before.

    `what` must name the probe and all that its answer depends on but the library. `is_sound`: whether a stored array
    can be such an answer; one that is not, or is damaged, is probed for again.
    """
    key = hashlib.sha256(f"{tokenizers.__version__}\n{what}".encode()).hexdigest()
    path = cache_folder() / f"{key}.npy"
    try:
        stored: Array = np.load(path, allow_pickle=False)
        if is_sound(stored):
            return stored
    except (OSError, ValueError, EOFError):
        pass
    answer = probe()
    _store(path, answer)
    return answer


def _store(path: Path, answer: Array) -> None:
    """Write atomically; a full or read-only disk only costs the next process a probe."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            np.save(file, answer, allow_pickle=False)
        Path(file.name).replace(path)
    except OSError:
        return
