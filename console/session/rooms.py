"""Places for requests that run at a time, and a bounded queue of requests that wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from .errors import ApiError


class Room:
    """*places* requests at a time, and at most *most_waiting* that wait. Event loop only."""

    def __init__(self, places: int, most_waiting: int, refusal: Callable[[], ApiError]) -> None:
        """*refusal* returns the error for a request that may not wait."""
        self._places = asyncio.Semaphore(places)
        self._most_waiting = most_waiting
        self._refusal = refusal
        self._waiting = 0
        self._used = 0

    @property
    def is_empty(self) -> bool:
        """Return whether no request runs or waits."""
        return not self._used and not self._waiting

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a place, and keep it. Raises `ApiError` if too many wait."""
        if self._places.locked() and self._waiting >= self._most_waiting:
            raise self._refusal()
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        self._used += 1
        try:
            yield
        finally:
            self._used -= 1
            self._places.release()
