"""The registry: tokenizer files on disk by content hash, and the names that point at them.

    <folder>/files/<sha256 of the file>.json    the files, never changed once written
    <folder>/names.json                         name -> file, fingerprint, size
    <folder>/.lock                              held while names.json is being replaced

A name is what requests carry; the fingerprint (canonical file plus library version) is what sessions are
keyed by, so pointing a name at another file can never mix two vocabularies in one session. Several
processes may share a folder: files appear by rename, and a registry notices when names.json was replaced.

Fingerprints are kept with the library version they were computed for and computed again after an upgrade.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from toksplice.errors import TokenizerError, UnknownTokenizerError
from toksplice.fingerprint import fingerprint

if TYPE_CHECKING:
    from toksplice.tokenizer import Tokenizer

MAX_LOADED = 12
"""Tokenizers held in memory at once by default; one of 200,000 entries takes 100-300 MB."""
MAX_FILE_BYTES = 128 * 1024 * 1024
"""The largest tokenizer file that is accepted; the largest known is 34 MB."""
MAX_NAMES = 256
FILE_MODE = 0o644
"""Tokenizer files are public; workers that run as another user must be able to read them."""
NAMES_FORMAT = 1

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One registered name. `sha256` is of the file as it lies on disk; `library` is tokenizers' version."""

    name: str
    sha256: str
    fingerprint: str
    library: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Names:
    """One reading of names.json. `stamp` tells whether the file has been replaced since."""

    stamp: tuple[int, int, int] | None
    entries: dict[str, Entry]
    by_fingerprint: dict[str, Entry]


class Registry:
    """Tokenizers by name or fingerprint. Safe to use from several threads; every method may block on disk.

    At most `max_loaded` tokenizers stay loaded; the least recently used one is let go first (sessions that
    hold it keep it alive). Two threads that ask for the same tokenizer load it once.
    """

    def __init__(self, folder: str | os.PathLike[str], max_loaded: int = MAX_LOADED) -> None:
        if max_loaded < 1:
            raise ValueError(f"max_loaded must be at least 1, not {max_loaded}")
        self.folder = Path(folder)
        self._max_loaded = max_loaded
        self._lock = threading.Lock()
        self._names = _Names(None, {}, {})
        self._loaded: OrderedDict[str, Tokenizer] = OrderedDict()
        self._loading: dict[str, threading.Lock] = {}

    def names(self) -> tuple[str, ...]:
        """All registered names, sorted."""
        return tuple(sorted(self._current().entries))

    def entry(self, name_or_fingerprint: str) -> Entry:
        """What is known of a name or fingerprint, without loading it. Raises `UnknownTokenizerError`."""
        names = self._current()
        found = names.entries.get(name_or_fingerprint) or names.by_fingerprint.get(name_or_fingerprint)
        if found is None:
            known = ", ".join(sorted(names.entries)) or "none"
            raise UnknownTokenizerError(
                f"no tokenizer {name_or_fingerprint[:80]!r} is registered (registered: {known}); "
                "`toksplice tokenizers fetch` or `add` registers one"
            )
        return found

    def resolve(self, name_or_fingerprint: str) -> str:
        """The fingerprint (64 hex digits) of a name or fingerprint. Raises `UnknownTokenizerError`."""
        return self.entry(name_or_fingerprint).fingerprint

    def name_of(self, fingerprint_hex: str) -> str:
        """The registered name of a fingerprint, "" when it has none: a bounded label for metrics."""
        found = self._current().by_fingerprint.get(fingerprint_hex)
        return "" if found is None else found.name

    def path(self, name_or_fingerprint: str) -> Path:
        """Where the tokenizer's file lies. Raises `UnknownTokenizerError`."""
        return self._file(self.entry(name_or_fingerprint).sha256)

    def get(self, fingerprint_hex: str) -> Tokenizer:
        """The loaded tokenizer. Blocks for up to seconds the first time.

        Raises `UnknownTokenizerError`, or `TokenizerError` when the file is gone or was altered.
        """
        with self._lock:
            tokenizer = self._touch(fingerprint_hex)
            if tokenizer is not None:
                return tokenizer
            loading = self._loading.setdefault(fingerprint_hex, threading.Lock())
        with loading:
            with self._lock:
                tokenizer = self._touch(fingerprint_hex)
            if tokenizer is not None:
                return tokenizer
            try:
                tokenizer = self._load(self.entry(fingerprint_hex))
                with self._lock:
                    self._loaded[tokenizer.fingerprint] = tokenizer
                    while len(self._loaded) > self._max_loaded:
                        self._loaded.popitem(last=False)
            finally:
                with self._lock:
                    self._loading.pop(fingerprint_hex, None)
        return tokenizer

    def add(self, name: str, path: str | os.PathLike[str]) -> Entry:
        """Register the tokenizer file at `path` under `name`; a name that exists moves to the new file.

        Raises `TokenizerError` when the name is not usable or the file is not a tokenizer of ours.
        """
        if _NAME.fullmatch(name) is None or _FINGERPRINT.fullmatch(name) is not None:
            raise TokenizerError(
                f"{name[:80]!r} cannot be a tokenizer's name: use 1-63 letters, digits, '.', '_' or '-'"
            )
        data = _read_bounded(Path(path))
        entry = Entry(
            name=name,
            sha256=hashlib.sha256(data).hexdigest(),
            fingerprint=fingerprint(data),
            library=_library(),
            size_bytes=len(data),
        )
        with self._exclusive():
            entries = dict(self._read_names().entries)
            if name not in entries and len(entries) >= MAX_NAMES:
                raise TokenizerError(f"the registry holds {MAX_NAMES} names already: remove one first")
            if not self._file(entry.sha256).exists():
                _write_atomically(self._file(entry.sha256), data)
            entries[name] = entry
            self._write_names(entries)
        return entry

    def _touch(self, fingerprint_hex: str) -> Tokenizer | None:
        """The loaded tokenizer, now the most recently used one. The lock is held by the caller."""
        if fingerprint_hex not in self._loaded:
            return None
        self._loaded.move_to_end(fingerprint_hex)
        return self._loaded[fingerprint_hex]

    def _load(self, entry: Entry) -> Tokenizer:
        # Late, so that listing names needs neither numpy nor the native library.
        from toksplice.tokenizer import load

        data = _read_bounded(self._file(entry.sha256))
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise TokenizerError(
                f"{self._file(entry.sha256)} was altered since {entry.name!r} was registered: add it again"
            )
        return load(data, name=entry.name)

    def _file(self, sha256: str) -> Path:
        return self.folder / "files" / f"{sha256}.json"

    def _current(self) -> _Names:
        """The names, read again if the file was replaced since."""
        with self._lock:
            names = self._names
        if names.stamp is None or names.stamp != _stamp(self._names_path):
            names = self._refreshed()
            with self._lock:
                self._names = names
        return names

    def _refreshed(self) -> _Names:
        names = self._read_names()
        if all(entry.library == _library() for entry in names.entries.values()):
            return names
        with self._exclusive():
            entries = dict(self._read_names().entries)
            for name, entry in entries.items():
                if entry.library != _library():
                    value = fingerprint(_read_bounded(self._file(entry.sha256)))
                    entries[name] = Entry(
                        name=name,
                        sha256=entry.sha256,
                        fingerprint=value,
                        library=_library(),
                        size_bytes=entry.size_bytes,
                    )
            self._write_names(entries)
            return self._read_names()

    @property
    def _names_path(self) -> Path:
        return self.folder / "names.json"

    def _read_names(self) -> _Names:
        stamp = _stamp(self._names_path)
        if stamp is None:
            return _Names(None, {}, {})
        try:
            document = json.loads(self._names_path.read_bytes())
            if document["format"] != NAMES_FORMAT:
                raise TokenizerError(
                    f"{self._names_path} has format {document['format']!r}; this version reads {NAMES_FORMAT}"
                )
            entries = {name: Entry(name=name, **fields) for name, fields in document["names"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TokenizerError(f"{self._names_path} cannot be read ({error}): remove it") from error
        return _Names(stamp, entries, {entry.fingerprint: entry for entry in entries.values()})

    def _write_names(self, entries: dict[str, Entry]) -> None:
        names = {}
        for name in sorted(entries):
            fields = asdict(entries[name])
            del fields["name"]
            names[name] = fields
        document = {"format": NAMES_FORMAT, "names": names}
        _write_atomically(self._names_path, json.dumps(document, indent=1).encode() + b"\n")

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """One writer at a time, over threads and processes; the lock goes with the process that held it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = (self.folder / ".lock").open("wb")
        except OSError as error:
            raise TokenizerError(f"the registry at {self.folder} cannot be written ({error})") from error
        with handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def _library() -> str:
    return metadata.version("tokenizers")


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read_bounded(path: Path) -> bytes:
    try:
        with path.open("rb") as handle:
            data = handle.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read ({error.strerror or error})") from error
    if len(data) > MAX_FILE_BYTES:
        raise TokenizerError(f"{path} is larger than {MAX_FILE_BYTES} bytes: this is no tokenizer.json")
    return data


def _write_atomically(path: Path, data: bytes) -> None:
    """Write through a temporary file and a rename, so that a reader or a crash never sees half a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as handle:
            temporary = Path(handle.name)
            try:
                handle.write(data)
                handle.flush()
                os.fchmod(handle.fileno(), FILE_MODE)
                os.fsync(handle.fileno())
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise TokenizerError(f"{path} cannot be written ({error.strerror or error})") from error
