"""Futures for results that are not durable yet; a thread, a coroutine or a callback can wait for them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from ...base.errors import StoreError

log = logging.getLogger(__name__)
T = TypeVar("T")
_here = threading.local()


def is_telling() -> bool:
    """Return whether this thread is calling callbacks."""
    return getattr(_here, "is_telling", False)


def check_waiting() -> None:
    """Raise `StoreError` within a callback, whose thread would have to do the work that it waits for."""
    if is_telling():
        raise StoreError("callback", "it can't wait for a store", "leave that to another thread, or to a callback")


class Durable(Future[T], Generic[T]):
    """A future of a change: done with its result when it is on the disk, or with the error that ended the store.

    `result()` waits in a thread, and `await` waits in a coroutine. `add_done_callback` has a function called on a
    thread of the store or, if the future is done already, at once. The function may call the store, but must not wait
    for it or close it: that raises `StoreError`. The future can't be cancelled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> T:
        if not self.done():
            check_waiting()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.done():
            check_waiting()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        def call(future: Future[T]) -> None:
            try:
                fn(future)
            except BaseException as error:
                if isinstance(error, Exception) or not is_telling():
                    raise
                event = {"event": "broker.internal-error"}
                log.exception("a callback asked the thread that called it to end", extra=event)  # which others need

        super().add_done_callback(call)

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self).__await__()


class Waiting:
    """The commit queue: futures that wait for an LSN, in the order of LSNs. For the thread of the store's calls."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Durable[Any], Any, Callable[[], None] | None]] = deque()

    def add(self, lsn: int, result: T, then: Callable[[], None] | None = None) -> Durable[T]:
        """Return a future of *result*, done when *lsn* is durable; *then* is called before any waiter is notified."""
        future: Durable[T] = Durable()
        self._waiting.append((lsn, future, result, then))
        return future

    def became_durable(self, lsn: int) -> list[tuple[Durable[Any], Any]]:
        """Remove the futures below *lsn*, which is durable; return them with their results for `tell`."""
        waiting, done = self._waiting, []
        while waiting and waiting[0][0] < lsn:
            _, future, result, then = waiting.popleft()
            if then is not None:
                then()
            done.append((future, result))
        return done

    def failed(self) -> list[Durable[Any]]:
        """Remove and return all futures, which will never be done."""
        left = [future for _, future, _, _ in self._waiting]
        self._waiting.clear()
        return left

    def __bool__(self) -> bool:
        return bool(self._waiting)


def tell(done: list[tuple[Durable[Any], Any]]) -> None:
    """Complete the futures with results or errors; without any lock, because their callbacks may call the store."""
    before, _here.is_telling = is_telling(), True
    try:
        for future, result in done:
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
    finally:
        _here.is_telling = before
