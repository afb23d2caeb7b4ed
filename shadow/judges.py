"""The judge processes of a shadow worker: a few, started when first needed, and replaced when one dies or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipeline.blocking import BlockingPool
from pipeline.clock import Clock
from pipeline.waiting import within
from schemas.sample import Tier
from shadow import frames
from shadow.compare import Difference
from shadow.settings import Priority


def command(tier: Tier, priority: Priority = Priority.IDLE) -> tuple[str, ...]:
    """What starts a process that judges by the reference, or by the engine."""
    return (sys.executable, "-m", "shadow.judge_process", tier.value, priority.value)


REFERENCE: Final = command(Tier.REFERENCE)

_log = logging.getLogger(__name__)


class JudgeFailedError(Exception):
    """A judge gave no verdict; `code` says why: `died`, `timed_out`, or that of what refused the sample. `cpu_s` is the
    processor time that it took all the same, in seconds."""

    def __init__(self, code: str, cpu_s: float = 0.0) -> None:
        super().__init__(f"the judge gave no verdict: {code}")
        self.code = code
        self.cpu_s = cpu_s


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge found, and the processor seconds that it took."""

    difference: Difference | None
    cpu_s: float


class Judge:
    """One process. One question at a time.

    A thread speaks with it: a sample goes through the pipe in one call that holds no lock of the interpreter, where
    the event loop would turn some ten times, each time between two answers.
    """

    def __init__(self, clock: Clock, limit_s: float, command: Sequence[str] = REFERENCE) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = BlockingPool(1, name="judge")

    @property
    def pid(self) -> int | None:
        """The process, None while there is none."""
        return None if self._process is None else self._process.pid

    async def ask(self, fingerprint: str, path: Path, value: bytes, record_bytes: int) -> Verdict:
        """Have the sample in the record `value`, of at most `record_bytes`, judged by the tokenizer in `path`. Raises
        JudgeFailedError; a process that died or hung is replaced with the next one."""
        question = {"fingerprint": fingerprint, "path": str(path), "record_bytes": record_bytes}
        try:
            if self._process is None:
                self._process = await self._thread.run(_start, self._command)
            exchange = self._thread.run(_exchange, self._process, question, value)
            answer = await within(exchange, self._limit_s, self._clock)
        except TimeoutError:
            await self.stop()
            raise JudgeFailedError("timed_out", self._limit_s) from None
        except (OSError, EOFError, ValueError):
            await self.stop()
            raise JudgeFailedError("died") from None
        except BaseException:
            # Cancelled between question and answer: the next one would get this one's verdict.
            await asyncio.shield(self.stop())
            raise
        cpu_s = float(answer["cpu_s"])
        if "error" in answer:
            raise JudgeFailedError(str(answer["error"]), cpu_s)
        return Verdict(frames.difference_from_map(answer["difference"]), cpu_s)

    async def stop(self) -> None:
        """Kill the process if there is one: it holds nothing that would be lost."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        # Whatever the thread is waiting for from the process has ended with it.
        await self._thread.run(_bury, process)


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    # A panic of the reference prints what it was at, which may be text: nobody reads it.
    return subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TOKENIZERS_PARALLELISM": "false"},
    )


def _exchange(process: subprocess.Popen[bytes], question: dict[str, Any], value: bytes) -> dict[str, Any]:
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise OSError("the judge has no pipes")
    frames.write_map(stdin, question)
    frames.write(stdin, value)
    stdin.flush()
    answer = frames.read_map(stdout)
    if answer is None:
        raise EOFError("the judge ended")
    return answer


def _bury(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
    process.wait()


class Judges:
    """A bounded number of judges; whoever finds none free waits."""

    def __init__(self, clock: Clock, *, processes: int, limit_s: float, command: Sequence[str] = REFERENCE) -> None:
        self.all = tuple(Judge(clock, limit_s, command) for _ in range(processes))
        self._free: asyncio.Queue[Judge] = asyncio.Queue()
        for judge in self.all:
            self._free.put_nowait(judge)

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[Judge]:
        """A free judge for the time of the block."""
        judge = await self._free.get()
        try:
            yield judge
        finally:
            self._free.put_nowait(judge)

    async def stop(self) -> None:
        """Kill all processes."""
        await asyncio.gather(*(judge.stop() for judge in self.all))
