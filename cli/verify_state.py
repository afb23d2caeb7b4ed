"""How far `verify` has come: a JSON file that a later run of the same command goes on from.

It is replaced as a whole after every batch of chains, so a run that is killed loses what its processes were at. It
names the run that it belongs to; any other run refuses it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from cli.attack import EDITS_PER_CHAIN
from cli.errors import CliError, ExitCode
from cli.outcome import Outcome

CHAINS_PER_BATCH = 16
"""Chains that one process runs before it reports; what a kill costs each process at most."""
MAX_STATE_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class Done:
    """What is done of one tokenizer's batches. `outcome` covers exactly these; `seconds` is the time they took."""

    batches: set[int] = field(default_factory=set)
    outcome: Outcome = field(default_factory=Outcome)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {"batches": _ranges(self.batches), "seconds": self.seconds, "outcome": self.outcome.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Done:
        """Raises `KeyError`, `TypeError` or `ValueError` for what `to_json` did not give."""
        batches = {batch for first, last in data["batches"] for batch in range(first, last + 1)}
        return cls(batches, Outcome.from_json(data["outcome"]), float(data["seconds"]))


def versions() -> dict[str, str]:
    """What decides ids, besides the tokenizer: both libraries, and the engine's build by its SHA-256."""
    from toksplice import _native

    try:
        own = metadata.version("toksplice")
    except metadata.PackageNotFoundError:
        own = "not installed"
    build = hashlib.sha256(Path(str(_native.__file__)).read_bytes()).hexdigest()
    return {"toksplice": own, "tokenizers": metadata.version("tokenizers"), "engine": build[:16]}


def run_identity(
    seed: str, edits: int, reference_every: int, fingerprints: list[str], sessions: Path | None = None
) -> dict[str, Any]:
    """What must be the same for a run to go on where another one stopped. `sessions`: a readable file."""
    return {
        "seed": seed,
        "edits": edits,
        "sessions": None if sessions is None else hashlib.sha256(sessions.read_bytes()).hexdigest(),
        "reference_every": reference_every,
        "tokenizers": fingerprints,
        "versions": versions(),
        "plan": [EDITS_PER_CHAIN, CHAINS_PER_BATCH],
    }


class State:
    """The state of one run, in a file or in memory alone."""

    def __init__(self, path: Path | None, identity: dict[str, Any]) -> None:
        """Raises `CliError` for a file that cannot be read or that belongs to another run."""
        self._path = path
        self._identity = identity
        self._done: dict[str, Done] = {}
        if path is not None and path.exists():
            self._done = self._read(path)

    def done(self, fingerprint: str) -> Done:
        """What is done for a tokenizer; `record` writes what the caller adds to it."""
        return self._done.setdefault(fingerprint, Done())

    def record(self) -> None:
        """Write all of it. A reader finds the old state or the new one, never a part. Raises `CliError`."""
        if self._path is None:
            return
        done = {fingerprint: each.to_json() for fingerprint, each in self._done.items()}
        data = json.dumps({"run": self._identity, "done": done}).encode()
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
        except OSError as error:
            raise CliError(ExitCode.STORAGE, f"{self._path}: cannot be written ({error.strerror})") from error

    def _read(self, path: Path) -> dict[str, Done]:
        try:
            if path.stat().st_size > MAX_STATE_BYTES:
                raise ValueError("it is too large")
            data = json.loads(path.read_bytes())
            run, done = data["run"], data["done"]
            found = {fingerprint: Done.from_json(each) for fingerprint, each in done.items()}
            other = [key for key, value in self._identity.items() if run[key] != value]
        except OSError as error:
            raise CliError(ExitCode.INPUT, f"{path}: cannot be read ({error.strerror})") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CliError(ExitCode.INPUT, f"{path}: not a state file of verify ({error})") from error
        if other:
            what = ", ".join(f"{key} {_short(run[key])}, not {_short(self._identity[key])}" for key in other)
            raise CliError(
                ExitCode.INPUT, f"{path} is the state of another run: {what}; remove it or name another file"
            )
        return found


def _short(value: Any) -> str:
    """A value of the identity for a person, who needs no whole fingerprint."""
    if isinstance(value, list):
        return f"[{', '.join(_short(each) for each in value)}]"
    return value[:16] if isinstance(value, str) else str(value)


def _ranges(numbers: set[int]) -> list[list[int]]:
    """Numbers as ranges [first, last]."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found
