"""The judge processes of a shadow worker: a few, started when first needed, and replaced when one dies or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipeline.clock import Clock
from pipeline.waiting import within
from schemas.sample import Tier
from shadow import frames
from shadow.compare import Difference
from shadow.judge import Question


def command(tier: Tier) -> tuple[str, ...]:
    """What starts a process that judges by the reference, or by the engine."""
    return (sys.executable, "-m", "shadow.judge_process", tier.value)


REFERENCE: Final = command(Tier.REFERENCE)

_log = logging.getLogger(__name__)


class JudgeFailedError(Exception):
    """A judge gave no verdict; `code` says why: `died`, `timed_out`, or the code of what the reference refused."""

    def __init__(self, code: str) -> None:
        super().__init__(f"the judge gave no verdict: {code}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge found, and the processor seconds that it took."""

    difference: Difference | None
    cpu_s: float


class Judge:
    """One process. One question at a time."""

    def __init__(self, clock: Clock, limit_s: float, command: Sequence[str] = REFERENCE) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._command = command
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process, None while there is none."""
        return None if self._process is None else self._process.pid

    async def ask(self, fingerprint: str, path: Path, question: Question) -> Verdict:
        """Have one question judged. Raises JudgeFailedError; a process that died or hung is replaced with the next
        one."""
        message = {"fingerprint": fingerprint, "path": str(path), **frames.question_to_map(question)}
        try:
            if self._process is None:
                self._process = await self._start()
            answer = await within(_exchange(self._process, message), self._limit_s, self._clock)
        except TimeoutError:
            await self.stop()
            raise JudgeFailedError("timed_out") from None
        except (OSError, EOFError, ValueError):
            await self.stop()
            raise JudgeFailedError("died") from None
        except BaseException:
            # Cancelled between question and answer: the next one would get this one's verdict.
            await asyncio.shield(self.stop())
            raise
        if "error" in answer:
            raise JudgeFailedError(str(answer["error"]))
        return Verdict(frames.difference_from_map(answer["difference"]), float(answer["cpu_s"]))

    async def stop(self) -> None:
        """Kill the process if there is one: it holds nothing that would be lost."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()

    async def _start(self) -> asyncio.subprocess.Process:
        # A panic of the reference prints what it was at, which may be text: nobody reads it.
        return await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TOKENIZERS_PARALLELISM": "false"},
        )


async def _exchange(process: asyncio.subprocess.Process, message: dict[str, Any]) -> dict[str, Any]:
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise OSError("the judge has no pipes")
    stdin.write(frames.pack(message))
    await stdin.drain()
    length = frames.length_of(await stdout.readexactly(frames.HEADER.size))
    return frames.unpack(await stdout.readexactly(length))


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
