"""Work in shards on all cores. What a shard gives must depend on its arguments alone, not on who works beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from os import cpu_count
from typing import TypeVar

T = TypeVar("T")


def on_all_cores(work: Callable[..., T], arguments: Iterable[tuple[object, ...]]) -> Iterator[T]:
    """What *work* makes of each of the *arguments*, as they come."""
    with ProcessPoolExecutor(cpu_count(), get_context("spawn")) as pool:
        running = [pool.submit(work, *some) for some in arguments]
        try:
            for done in as_completed(running):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)
