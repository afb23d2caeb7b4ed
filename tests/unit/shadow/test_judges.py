"""The judge processes: verdicts, deaths, hangs and nonsense."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from families import family, tokenizer_json
from shadow_kit import GUARD_S, WRONG, sample, with_wrong_id

from pipeline.clock import ManualClock
from schemas.sample import DifferenceKind, Sample, Tier
from shadow import judges as judges_module
from shadow.judge_process import LOADED_MAX, NICENESS, NO_ENGINE, NO_SAMPLE, Tokenizers
from shadow.judges import Judge, JudgeFailedError, Judges, Verdict, command
from shadow.settings import Priority
from toksplice import TokenizerError

RIGHT, WRONG_ONE = sample(), with_wrong_id()
RECORD_BYTES = 1024 * 1024
UNSERVED = "bert"
"""A family that no engine serves."""
HANGS = (sys.executable, "-c", "import sys; sys.stdin.buffer.read()")
SPEAKS_NONSENSE = (sys.executable, "-c", "print('nonsense that is longer than a header', flush=True); input()")
_SAYS = """
import sys
from shadow import frames
frames.read_map(sys.stdin.buffer), frames.read(sys.stdin.buffer)
frames.write_map(sys.stdout.buffer, {})
sys.stdout.buffer.flush()
sys.stdin.buffer.read()
"""
WORKED_S = 0.1
_WORKS_AND_DIES = f"""
import os, time
while time.process_time() < {WORKED_S}:
    pass
os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("judges") / "tokenizer.json"
    file.write_bytes(tokenizer_json("qwen"))
    return file


@pytest.fixture
async def judge() -> AsyncIterator[Judge]:
    one = Judge(ManualClock(), limit_s=60)
    yield one
    await one.stop()


async def ask(judge: Judge, path: Path, asked: Sample = RIGHT, *, name: str = "qwen") -> Verdict:
    async with asyncio.timeout(GUARD_S):
        return await judge.ask(family(name).fingerprint, path, asked.encode(), RECORD_BYTES)


async def test_the_engine_judges_in_a_process_of_its_own_what_it_serves(path: Path, tmp_path: Path) -> None:
    one = Judge(ManualClock(), limit_s=60, command=command(Tier.ENGINE))
    assert (await ask(one, path)).difference is None
    wrong = await ask(one, path, WRONG_ONE)
    assert wrong.difference is not None
    unserved = tmp_path / "tokenizer.json"
    unserved.write_bytes(tokenizer_json(UNSERVED))
    with pytest.raises(JudgeFailedError) as caught:
        await ask(one, unserved, name=UNSERVED)
    assert caught.value.code == NO_ENGINE
    assert (await ask(one, path)).difference is None, "the process goes on"
    await one.stop()


async def test_it_judges_and_says_what_it_cost(judge: Judge, path: Path) -> None:
    assert judge.pid is None, "no process before the first question"
    right = await ask(judge, path)
    assert right.difference is None
    assert right.cpu_s > 0
    first = judge.pid
    wrong = await ask(judge, path, WRONG_ONE)
    assert wrong.difference is not None
    assert (wrong.difference.kind, wrong.difference.index) == (DifferenceKind.SUBSTITUTED, 3)
    assert wrong.difference.answer_id == WRONG
    assert judge.pid == first


@pytest.mark.parametrize("priority", list(Priority))
async def test_it_steps_back_as_far_as_it_is_told(priority: Priority, path: Path) -> None:
    one = Judge(ManualClock(), limit_s=60, command=command(Tier.REFERENCE, priority))
    await ask(one, path)
    assert one.pid is not None
    assert os.getpriority(os.PRIO_PROCESS, one.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
    assert (os.sched_getscheduler(one.pid) == os.SCHED_IDLE) == (priority is Priority.IDLE)
    ours = sorted(os.sched_getaffinity(0))
    kept_to = ours[len(ours) // 2 :] if priority is Priority.IDLE else ours
    assert sorted(os.sched_getaffinity(one.pid)) == kept_to, "the first half of the processors is for the answers"
    assert os.getsid(one.pid) == os.getsid(0), "in a session of its own it would be scheduled as the workers' equal"
    await one.stop()


async def test_a_process_that_is_killed_is_replaced(judge: Judge, path: Path) -> None:
    await ask(judge, path)
    first = judge.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    with pytest.raises(JudgeFailedError) as caught:
        await ask(judge, path)
    assert caught.value.code == "died"
    assert (await ask(judge, path)).difference is None
    assert judge.pid not in (None, first)


async def test_a_process_that_hangs_is_killed_when_its_time_is_over() -> None:
    clock = ManualClock()
    judge = Judge(clock, limit_s=60, command=HANGS)
    asking = asyncio.create_task(ask(judge, Path("x")))
    await clock.sleeping(1)
    clock.advance(59)
    await asyncio.sleep(0)
    assert not asking.done()
    clock.advance(1)
    with pytest.raises(JudgeFailedError) as caught:
        await asking
    assert caught.value.code == "timed_out"
    assert 0 < caught.value.cpu_s < 60, "what it took, not the time that it was given"
    assert judge.pid is None


async def test_what_speaks_nonsense_or_cannot_be_started_has_died() -> None:
    for broken in (SPEAKS_NONSENSE, ("/no/such/program",)):
        judge = Judge(ManualClock(), limit_s=60, command=broken)
        with pytest.raises(JudgeFailedError) as caught:
            await ask(judge, Path("x"))
        assert caught.value.code == "died"
        assert judge.pid is None


@pytest.mark.parametrize(
    "said",
    [
        "{}",
        "{'cpu_s': 0.1}",
        "{'cpu_s': [], 'difference': None}",
        "{'cpu_s': float('nan'), 'difference': None}",
        "{'cpu_s': -1.0, 'error': 'failed'}",
        "{'cpu_s': 0.1, 'difference': 5}",
        "{'cpu_s': 0.1, 'difference': {'kind': 'odd'}}",
    ],
)
async def test_a_map_that_is_no_answer_is_a_death_too(said: str) -> None:
    judge = Judge(ManualClock(), limit_s=60, command=(sys.executable, "-c", _SAYS.format(said)))
    with pytest.raises(JudgeFailedError) as caught:
        await ask(judge, Path("x"))
    assert caught.value.code == "died"
    assert judge.pid is None


async def test_what_a_process_took_before_it_died_is_told() -> None:
    judge = Judge(ManualClock(), limit_s=60, command=(sys.executable, "-c", _WORKS_AND_DIES))
    with pytest.raises(JudgeFailedError) as caught:
        await ask(judge, Path("x"))
    assert caught.value.cpu_s > WORKED_S


async def test_what_a_process_has_told_is_not_told_again(judge: Judge, path: Path) -> None:
    told = sum([(await ask(judge, path)).cpu_s for _ in range(3)])
    child = judge._child
    assert child is not None
    assert child.told_s == told
    child.told_s += 1000
    assert await judge.stop() == 0


async def test_a_process_that_is_given_up_while_it_starts_is_nobodys_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, started = threading.Event(), threading.Event(), []
    popen = subprocess.Popen

    def slow(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        begun.set()
        go_on.wait(GUARD_S)
        started.append(popen(*arguments, **options))
        return started[0]

    monkeypatch.setattr(judges_module.subprocess, "Popen", slow)
    judge = Judge(ManualClock(), limit_s=60, command=HANGS)
    asking = asyncio.create_task(ask(judge, Path("x")))
    await asyncio.to_thread(begun.wait, GUARD_S)
    asking.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    (process,) = started
    assert process.returncode == -signal.SIGKILL
    assert judge.pid is None


async def test_nothing_is_left_of_processes_that_died(path: Path) -> None:
    def left() -> tuple[int, int]:
        children = [file.read_text().split() for file in Path("/proc/self/task").glob("*/children")]
        return len(list(Path("/proc/self/fd").iterdir())), sum(map(len, children))

    before, threads_before = left(), set(threading.enumerate())
    judges = Judges(ManualClock(), processes=2, limit_s=60, command=("/bin/false",))
    for _ in range(100):
        async with judges.one() as one:
            with pytest.raises(JudgeFailedError):
                await ask(one, path)
            assert one.pid is None
    await judges.stop()
    threads = set(threading.enumerate()) - threads_before
    for thread in threads:
        thread.join(GUARD_S)  # told to end, they need nothing of the loop
    assert not [thread.name for thread in threads if thread.is_alive()]
    assert left() == before


async def test_ctrl_c_at_the_terminal_does_not_reach_it(judge: Judge, path: Path) -> None:
    await ask(judge, path)
    assert judge.pid is not None
    assert os.getpgid(judge.pid) == judge.pid != os.getpgid(0)


async def test_a_question_that_is_given_up_takes_its_process_along(judge: Judge, path: Path) -> None:
    """Or the next question would get its verdict."""
    await ask(judge, path)
    first = judge.pid
    asking = asyncio.create_task(ask(judge, path, WRONG_ONE))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert judge.pid is None
    assert (await ask(judge, path)).difference is None
    assert judge.pid != first


async def test_a_file_that_is_gone_or_another_one_is_no_verdict(judge: Judge, path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    await asyncio.to_thread(other.write_bytes, tokenizer_json("gpt2"))
    for wrong in (other, tmp_path / "absent.json"):
        with pytest.raises(JudgeFailedError) as caught:
            await ask(judge, wrong)
        assert caught.value.code == TokenizerError.code
    assert (await ask(judge, path)).difference is None


async def test_text_that_is_no_text_is_no_verdict(judge: Judge, path: Path) -> None:
    with pytest.raises(JudgeFailedError) as caught:
        await ask(judge, path, replace(RIGHT, text=b"\xff"))
    assert caught.value.code == "failed"


async def test_what_is_no_sample_is_no_verdict_and_costs_all_the_same(judge: Judge, path: Path) -> None:
    for value, longest in ((b"\xc1", RECORD_BYTES), (RIGHT.encode(), 100)):
        with pytest.raises(JudgeFailedError) as caught:
            await judge.ask(family("qwen").fingerprint, path, value, longest)
        assert caught.value.code == NO_SAMPLE
        assert caught.value.cpu_s > 0
    assert (await ask(judge, path)).difference is None


async def test_whoever_finds_none_free_waits(path: Path) -> None:
    judges = Judges(ManualClock(), processes=2, limit_s=60)
    async with judges.one() as one, judges.one() as two:
        assert one is not two
        third = asyncio.create_task(judges.one().__aenter__())
        await asyncio.sleep(0)
        assert not third.done()
    assert await third in (one, two)
    await judges.stop()


def test_the_number_of_loaded_tokenizers_is_bounded(tmp_path: Path) -> None:
    tokenizers = Tokenizers(engine=False)
    for name in ("qwen", "gpt2", "llama3", "o200k", "deepseek")[: LOADED_MAX + 1]:
        file = tmp_path / f"{name}.json"
        file.write_bytes(tokenizer_json(name))
        assert tokenizers.get(family(name).fingerprint, str(file)).native is None
    assert len(tokenizers._loaded) == LOADED_MAX
    assert family("qwen").fingerprint not in tokenizers._loaded
