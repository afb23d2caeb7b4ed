"""The lanes of one tokenizer: their processes, and what they answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.bench.environments import PeerUnavailableError, bench_folder, python_of
from cli.bench.peers import PEERS, REFERENCE, Lane
from cli.bench.process import PROGRAM, PeerProcess

ROOT = Path(__file__).resolve().parents[2]
"""Where our own packages lie; only our own lanes get to know it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A tokenizer to measure with: its name, its tokenizer.json, and one of its special tokens ("" when none)."""

    name: str
    path: Path
    added_token: str


class Runner:
    """A lane with its process, or with the reason why it has none."""

    def __init__(self, lane: Lane, process: PeerProcess | None, reason: str = "") -> None:
        self.lane = lane
        self.reason = reason
        self._process = process

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """A request; raises `PeerUnavailableError`."""
        if self._process is None:
            raise PeerUnavailableError(self.reason)
        return self._process.ask(op, **fields)

    def know(self, key: str, text: str) -> None:
        """Let the process keep a text; raises `PeerUnavailableError`."""
        if self._process is None:
            raise PeerUnavailableError(self.reason)
        self._process.know(key, text)


@dataclass(slots=True)
class Outcome:
    """What a lane did in one scenario. `samples`: round -> nanoseconds. `reason`: why it stopped."""

    samples: dict[int, list[int]] = field(default_factory=dict)
    exact: bool | None = None
    reason: str = ""

    def take(self, action: Callable[[], None]) -> None:
        """Run an action unless an earlier one has failed; a failure is kept as the reason."""
        if self.reason:
            return
        try:
            action()
        except PeerUnavailableError as error:
            self.reason = str(error)

    def compare(self, digest: str, expected: str) -> None:
        """One wrong answer is enough."""
        self.exact = self.exact is not False and digest == expected


@contextmanager
def runners(
    lanes: Sequence[Lane], subject: Subject, versions: dict[str, str], say: Callable[[str], None]
) -> Iterator[list[Runner]]:
    """Start every lane's process with the tokenizer loaded. `versions` gets what each peer says of itself."""
    with ExitStack() as stack:
        found = []
        for lane in lanes:
            say(f"{subject.name}: starting {lane.name}")
            found.append(_start(stack, lane, subject, versions))
            if found[-1].reason:
                say(f"{subject.name}: {lane.name} takes no part: {found[-1].reason}")
        yield found


def reference_of(found: Sequence[Runner]) -> Runner:
    """The runner that all answers are compared with; raises `PeerUnavailableError` when it could not start."""
    (reference,) = (one for one in found if one.lane.name == REFERENCE)
    if reference.reason:
        raise PeerUnavailableError(reference.reason)
    return reference


def _start(stack: ExitStack, lane: Lane, subject: Subject, versions: dict[str, str]) -> Runner:
    folder = bench_folder()
    peer = PEERS[lane.peer]
    try:
        python = python_of(peer, folder)
        process = PeerProcess([str(python), "-P", str(PROGRAM)], _environment(folder, own=not peer.requirements))
        stack.enter_context(process)
        versions[peer.package] = process.ask(
            "load", adapter=lane.adapter, path=str(subject.path.resolve()), name=subject.name
        )["version"]
    except (PeerUnavailableError, OSError) as error:
        return Runner(lane, None, str(error))
    return Runner(lane, process)


def _environment(folder: Path, *, own: bool) -> Mapping[str, str]:
    """Variables of a peer's process. What peers write to disk goes beside their environments."""
    paths = [str(ROOT), *sys.path] if own else []
    return {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "QUICKTOK_DATA": str(folder / "quicktok"),
        "TOKTIER_HOME": str(folder / "toktier"),
    }
