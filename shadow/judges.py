"""The judge processes of a shadow worker: a few, started when first needed, and replaced when one dies or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
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
        self._child: _Child | None = None
        self._thread = BlockingPool(1, name="judge")

    @property
    def pid(self) -> int | None:
        """The process, None while there is none."""
        return None if self._child is None or self._child.process is None else self._child.process.pid

    async def ask(self, fingerprint: str, path: Path, value: bytes, record_bytes: int) -> Verdict:
        """Have the sample in the record `value`, of at most `record_bytes`, judged by the tokenizer in `path`. Raises
        JudgeFailedError; a process that died, hung or spoke nonsense is replaced with the next one."""
        question = {"fingerprint": fingerprint, "path": str(path), "record_bytes": record_bytes}
        try:
            child = self._child
            if child is None:
                self._child = child = _Child()
                await self._thread.run(child.start, self._command)
            exchange = self._thread.run(child.exchange, question, value)
            answer = _understood(await within(exchange, self._limit_s, self._clock))
        except TimeoutError:
            raise JudgeFailedError("timed_out", await self.stop()) from None
        except (OSError, EOFError, ValueError):
            raise JudgeFailedError("died", await self.stop()) from None
        except BaseException:
            # Cancelled between question and answer: the next one would get this one's verdict.
            await asyncio.shield(self.stop())
            raise
        child.told_s += answer.cpu_s
        if isinstance(answer, JudgeFailedError):
            raise answer
        return answer

    async def stop(self) -> float:
        """Kill the process if there is one: it holds nothing that would be lost. Returns the processor seconds that it
        took and that none of its answers has told."""
        child, self._child = self._child, None
        if child is None:
            return 0.0
        child.kill()
        # Whatever the thread is waiting for from the process has ended with it; one that just starts is there by then.
        return await self._thread.run(child.bury)

    async def close(self) -> None:
        """Stop for good, and let the thread end."""
        await self.stop()
        self._thread.close()


class _Child:
    """A judge's process. The thread of the judge starts, speaks with and buries it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.told_s = 0.0
        """Processor seconds that its answers have told."""

    def start(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A panic of the reference prints what it was at, which may be text: nobody reads it.
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TOKENIZERS_PARALLELISM": "false"},
            # Ctrl-C is for the worker: a judge ends with it, and not in the middle of a check that is then missing. It
            # stays in the worker's session: the kernel schedules sessions as groups (autogroup), and in one of its own
            # it would have as much of a claim to the processors as all that answer, however far it steps back.
            process_group=0,
        )

    def exchange(self, question: dict[str, Any], value: bytes) -> dict[str, Any]:
        if self.process is None or self.process.stdin is None or self.process.stdout is None:
            raise OSError("the judge has no pipes")
        frames.write_map(self.process.stdin, question)
        frames.write(self.process.stdin, value)
        self.process.stdin.flush()
        answer = frames.read_map(self.process.stdout)
        if answer is None:
            raise EOFError("the judge ended")
        return answer

    def kill(self) -> None:
        """End the process, which `bury` then waits for; on any thread."""
        if self.process is None or self.process.returncode is not None:
            return
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            # Only a child can be waited for: what is none any more, by whoever reaps here, may be somebody else.
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.kill(self.process.pid, signal.SIGKILL)

    def bury(self) -> float:
        """Kill the process and wait for its end; returns the processor seconds that no answer has told."""
        if self.process is None:
            return 0.0
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        try:
            _, status, usage = os.wait4(self.process.pid, 0)
        except ChildProcessError:
            self.process.returncode = 0
            return 0.0
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return max(0.0, usage.ru_utime + usage.ru_stime - self.told_s)


def _understood(answer: dict[str, Any]) -> Verdict | JudgeFailedError:
    """What a judge said. Raises ValueError for what no judge says."""
    try:
        cpu_s = float(answer["cpu_s"])
        if not 0 <= cpu_s < math.inf:
            raise ValueError("this is no processor time")
        if "error" in answer:
            return JudgeFailedError(str(answer["error"]), cpu_s)
        return Verdict(frames.difference_from_map(answer["difference"]), cpu_s)
    except (KeyError, TypeError) as error:
        raise ValueError("this is no answer") from error


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
        """Kill all processes and end their threads."""
        await asyncio.gather(*(judge.close() for judge in self.all))
