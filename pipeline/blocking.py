"""A small pool of daemon threads for work that takes more than a millisecond.

`concurrent.futures` joins its threads when the interpreter exits, so one stuck call would keep a worker from
ever ending. These threads are daemons: a shutdown leaves a stuck call behind.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from pipeline.errors import ClosedError

T = TypeVar("T")

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class BlockingPool:
    """At most `threads` calls run at a time. Callers wait their turn; they are bounded by `max_parked` a
    partition."""

    def __init__(self, threads: int, *, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._limit = threads
        self._name = name
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._closed = False

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        """`fn(*args)` on a thread, with the caller's context variables. Raises what `fn` raises.

        Cancelling the caller frees the caller; a call that has begun goes on to its end, unobserved. Raises
        ClosedError after `close`.
        """
        if self._closed:
            raise ClosedError("the pool of threads is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        self._unfinished += 1
        if self._unfinished > len(self._threads) < self._limit:
            self._start_thread()
        self._jobs.put((loop, future, lambda: context.run(fn, *args)))
        try:
            return await future
        finally:
            self._unfinished -= 1

    def close(self) -> None:
        """Let idle threads end; busy ones end after their call. Does not wait."""
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, future, call = job
            outcome = None if future.cancelled() else _outcome(call)
            # Whoever waits finds nothing of what the call worked on still held, and an idle thread keeps none of it.
            del job, call
            if outcome is not None:
                _deliver(loop, future, *outcome)
            del loop, future, outcome


def _outcome(call: Callable[[], Any]) -> tuple[object, BaseException | None]:
    """What the call returned, or raised."""
    try:
        return call(), None
    except BaseException as error:
        return None, error


def _deliver(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    result: object,
    error: BaseException | None,
) -> None:
    def resolve() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    try:
        loop.call_soon_threadsafe(resolve)
    except RuntimeError:
        # The loop is closed: the worker has ended without waiting for this call.
        return
