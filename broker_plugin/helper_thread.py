"""A thread that works for the core: it reads messages, or compiles selectors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class HelperThread:
    """A thread that runs submitted jobs in order until it is stopped. Any thread may submit."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)
        self._is_stopped = False

    def submit(self, work: Callable[..., None], /, *args: Any) -> None:
        """Have *work* done on the thread; it is dropped once `stop` was called."""
        try:
            self._executor.submit(work, *args)
        except RuntimeError:  # it was shut down: the last steps of the core still submit
            if not self._is_stopped:
                raise

    def stop(self) -> None:
        """Wait for the work that has begun, and drop all other."""
        self._is_stopped = True
        self._executor.shutdown(cancel_futures=True)
