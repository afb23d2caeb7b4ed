"""Waiting with limits that a `Clock` keeps, so that tests own every timeout."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable, Iterator
from typing import Any, TypeVar

from pipeline.clock import Clock

T = TypeVar("T")


async def within(awaitable: Awaitable[T], limit_s: float, clock: Clock) -> T:
    """The result of `awaitable`. Raises TimeoutError after `limit_s`, having cancelled it without waiting for
    it."""
    task = asyncio.ensure_future(awaitable)
    try:
        await settle([task], limit_s, clock)
    except BaseException:
        task.cancel()
        task.add_done_callback(_consume)
        raise
    if not task.done():
        task.cancel()
        task.add_done_callback(_consume)
        raise TimeoutError(f"not done within {limit_s:g} s")
    return task.result()


async def settle(tasks: Iterable[asyncio.Future[Any]], limit_s: float, clock: Clock) -> bool:
    """Wait until all `tasks` are done or `limit_s` has passed; True when all are done. Cancels none of
    them."""
    pending = {task for task in tasks if not task.done()}
    if not pending:
        return True
    alarm = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        while pending and not alarm.done():
            await asyncio.wait({*pending, alarm}, return_when=asyncio.FIRST_COMPLETED)
            pending = {task for task in pending if not task.done()}
    finally:
        alarm.cancel()
    return not pending


def backoff(first_s: float, most_s: float) -> Iterator[float]:
    """Pauses that start at `first_s` and double up to `most_s`, without end."""
    pause_s = first_s
    while True:
        yield min(pause_s, most_s)
        pause_s = min(pause_s * 2, most_s)


async def cancel(tasks: Iterable[asyncio.Future[Any]], limit_s: float, clock: Clock) -> bool:
    """Cancel `tasks` and wait for them, at most `limit_s`; True when all have ended. Their errors are
    dropped."""
    started = list(tasks)
    for task in started:
        task.cancel()
    ended = await settle(started, limit_s, clock)
    for task in started:
        if task.done():
            _consume(task)
        else:
            task.add_done_callback(_consume)
    return ended


def _consume(task: asyncio.Future[Any]) -> None:
    """Take the error of cancelled work that nobody waits for any more, so that the loop does not report
    it."""
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()
