"""Where the command keeps things on disk.

TOKSPLICE_HOME names one folder for everything: the registry, state snapshots, the reference cache and
fetched files. Without it the data lies under $XDG_DATA_HOME/toksplice (~/.local/share/toksplice) and fetched
files in the user's cache folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from toksplice.sources import HOME_VARIABLE

DATA_VARIABLE = "XDG_DATA_HOME"
"""Environment variable: the folder under which TokSplice's data lies when TOKSPLICE_HOME is not set."""


def home() -> Path:
    """The data folder; it need not exist yet."""
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen:
        return Path(chosen)
    base = os.environ.get(DATA_VARIABLE)
    return (Path(base) if base else Path.home() / ".local" / "share") / "toksplice"


def registry_folder() -> Path:
    return home() / "tokenizers"


def state_folder() -> Path:
    """Where `toksplice up` keeps session snapshots by default."""
    return home() / "state"


def reference_cache_path() -> Path:
    """Where `replay --verify` keeps reference results by default."""
    return home() / "reference-cache.sqlite"
