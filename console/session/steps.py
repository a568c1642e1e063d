"""The share of each user in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any


class Steps:
    """The steps of the requests of one user: at most one in each turn of the event loop, however many requests run.

    A step is the work between two waits, such as the conversion of a page of messages. Event loop only.
    """

    def __init__(self) -> None:
        self._is_free = asyncio.Event()
        self._is_free.set()

    @coroutine
    def run(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> Generator[Any, Any, Any]:
        """Return the result of the coroutine of *begin*. Each of its steps waits while the user has one in the turn."""
        work = begin()
        error: BaseException | None = None
        try:
            while True:
                try:
                    while not self._is_free.is_set():
                        yield from self._is_free.wait().__await__()
                except asyncio.CancelledError as cancelled:
                    error = cancelled
                self._is_free.clear()
                asyncio.get_running_loop().call_soon(self._is_free.set)
                awaited = work.send(None) if error is None else work.throw(error)
                error = None
                try:
                    yield awaited
                except (Exception, asyncio.CancelledError) as raised:
                    error = raised
        except StopIteration as end:
            return end.value
        finally:
            work.close()
