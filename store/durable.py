"""What is not durable yet, and who waits for it: futures that a thread, a coroutine or a callback can wait for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Durable(Future[T], Generic[T]):
    """Done when what was asked for is on the disk, with its result; or with the error that ended the store.

    `result()` waits in a thread, `await` in a coroutine, and `add_done_callback` has a function called, on a thread of
    the store or, if it is done already, at once. What it calls may call the store. It can't be cancelled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self).__await__()


class Waiting:
    """Those that wait for an LSN, in the order of LSNs. The thread that makes the store's calls."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Durable[Any], Any, Callable[[], None] | None]] = deque()

    def add(self, lsn: int, result: T, then: Callable[[], None] | None = None) -> Durable[T]:
        """Done with *result* when *lsn* is durable; *then* is called before anybody is told."""
        future: Durable[T] = Durable()
        self._waiting.append((lsn, future, result, then))
        return future

    def became_durable(self, lsn: int) -> list[tuple[Durable[Any], Any]]:
        """What is to be told of, now that everything below *lsn* is durable; by `tell`."""
        waiting, done = self._waiting, []
        while waiting and waiting[0][0] < lsn:
            _, future, result, then = waiting.popleft()
            if then is not None:
                then()
            done.append((future, result))
        return done

    def failed(self) -> list[Durable[Any]]:
        """Those that wait in vain."""
        left = [future for _, future, _, _ in self._waiting]
        self._waiting.clear()
        return left

    def __bool__(self) -> bool:
        return bool(self._waiting)


def tell(done: list[tuple[Durable[Any], Any]]) -> None:
    """Tell who waits; without any lock, for they may call whatever they like."""
    for future, result in done:
        future.set_result(result)
