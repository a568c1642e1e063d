"""Places for requests that run at a time, with a bounded number of requests that wait, and a budget of time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from .errors import ApiError


class Room:
    """*places* requests at a time, and at most *most_waiting* that wait. Event loop only.

    Preferred requests are next, and as many of them may wait besides.
    """

    def __init__(self, places: int, most_waiting: int, refusal: Callable[[], ApiError]) -> None:
        """*refusal* returns the error for a request that may not wait."""
        self._free = places
        self._used = 0
        self._most_waiting = most_waiting
        self._refusal = refusal
        self._waiting: dict[bool, deque[asyncio.Future[None]]] = {True: deque(), False: deque()}
        """The requests that wait, preferred ones first."""

    @property
    def is_empty(self) -> bool:
        """Return whether no request runs or waits."""
        return not self._used and not any(self._waiting.values())

    @asynccontextmanager
    async def turn(self, *, is_preferred: bool = False) -> AsyncIterator[None]:
        """Wait for a place, and keep it. Raises `ApiError` if too many wait."""
        if not self._free:
            await self._wait(self._waiting[is_preferred])
        else:
            self._free -= 1
        self._used += 1
        try:
            yield
        finally:
            self._used -= 1
            self._leave()

    async def _wait(self, waiting: deque[asyncio.Future[None]]) -> None:
        if len(waiting) >= self._most_waiting:
            raise self._refusal()
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(entered)
        try:
            await entered
        except asyncio.CancelledError:
            if entered.cancelled():
                waiting.remove(entered)
            else:
                self._leave()
            raise

    def _leave(self) -> None:
        """Give the place to the next request."""
        waiting = self._waiting[True] or self._waiting[False]
        if waiting:
            waiting.popleft().set_result(None)
        else:
            self._free += 1


class TimeBudget:
    """Work, one at a time, that uses about *share* of the time, after a burst of *burst_s*. Event loop only."""

    def __init__(self, share: float, burst_s: float) -> None:
        self._share = share
        self._burst_s = burst_s
        self._turn = asyncio.Lock()
        self._used_s = 0.0
        self._at_s = 0.0
        """The time at which `_used_s` was computed."""

    @property
    def is_used_up(self) -> bool:
        self._refill(asyncio.get_running_loop().time())
        return self._used_s > self._burst_s

    @asynccontextmanager
    async def turn(self, most_wait_s: float) -> AsyncIterator[None]:
        """Wait until there is time for work, at most *most_wait_s*, and count the time that the work takes."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            self._refill(loop.time())
            if self._used_s > self._burst_s:
                await asyncio.sleep(min(most_wait_s, (self._used_s - self._burst_s) / self._share))
            begin_s = loop.time()
            try:
                yield
            finally:
                self._refill(loop.time())
                self._used_s += loop.time() - begin_s

    def _refill(self, now_s: float) -> None:
        self._used_s = max(0.0, self._used_s - (now_s - self._at_s) * self._share)
        self._at_s = now_s
