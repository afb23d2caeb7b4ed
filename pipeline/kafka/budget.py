"""A bound on bytes in flight, handed out first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Budget:
    """`limit` bytes, shared by whoever is in `hold`. More than the whole budget counts as all of it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._free = limit
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Take `size` bytes for the length of the block; wait for them if need be."""
        size = min(size, self._limit)
        if self._waiting or size > self._free:
            granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, granted))
            try:
                await granted
            except BaseException:
                if granted.done() and not granted.cancelled():
                    self._give_back(size)
                else:
                    with suppress(ValueError):  # taken out already, if others gave back in the same turn
                        self._waiting.remove((size, granted))
                    self._give_back(0)  # those behind it may fit
                raise
        else:
            self._free -= size
        try:
            yield
        finally:
            self._give_back(size)

    def _give_back(self, size: int) -> None:
        self._free += size
        while self._waiting and self._waiting[0][0] <= self._free:
            wanted, granted = self._waiting.popleft()
            if not granted.done():
                self._free -= wanted
                granted.set_result(None)
