"""Benchmark of the settlement of one message at a time, from put and kick until the durability notice.

A settlement includes two thread switches, to the flusher and back. The yardstick is the unavoidable cost: one fdatasync
of one sector in a zero-filled file, in the same round. Rates are the inverse of the median time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median, quantiles

from cairnmq.base.disk.seam import SECTOR_BYTES
from cairnmq.store.contract.options import StoreOptions

from .running import Running, now_us
from .table import Row, row

_FILE_BYTES = 1 << 20
GOAL = 1 / 1.3
"""Goal: the store takes at most 1.3 times as long as the yardstick."""
SECTION = "store, settlement with one in flight, 1 / median"


def measure(path: str, rounds: int, round_s: float) -> list[Row]:
    os.mkdir(path)
    running = Running(os.path.join(path, "store"), StoreOptions(initial_containers=8))
    fd = os.open(os.path.join(path, "bare"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.pwrite(fd, bytes(_FILE_BYTES), 0)
    os.fsync(fd)
    content = os.urandom(256)
    offset = 0

    def settle() -> float:
        begun_s = time.perf_counter()
        message_id, lsn = running.store.put(running.queue_id, content, now_us())
        running.store.kick()
        running.settle(lsn)
        took_s = time.perf_counter() - begun_s
        removed_lsn = running.store.dequeue(message_id, running.queue_id, now_us())
        running.store.kick()
        running.settle(removed_lsn)
        return took_s

    def sync() -> float:
        nonlocal offset
        begun_s = time.perf_counter()
        os.pwrite(fd, content.ljust(SECTOR_BYTES), offset)
        os.fdatasync(fd)
        offset = (offset + SECTOR_BYTES) % _FILE_BYTES
        return time.perf_counter() - begun_s

    settled: list[list[float]] = []
    synced: list[list[float]] = []
    try:
        settle()
        for _ in range(rounds):
            settled.append(_times(settle, round_s))
            synced.append(_times(sync, round_s))
    finally:
        running.close()
        os.close(fd)
    every = sorted(took_s * 1e6 for took in settled for took_s in took)
    return [
        row(
            SECTION, "256 B", [1 / median(took) for took in settled], 6_000, "fdatasync",
            [1 / median(took) for took in synced], goal_ratio=GOAL, p50_us=median(every),
            p99_us=quantiles([*every, every[-1]], n=100)[-1],
        )
    ]  # fmt: skip


def _times(action: Callable[[], float], round_s: float) -> list[float]:
    until_s = time.perf_counter() + round_s
    took = [action()]
    while time.perf_counter() < until_s:
        took.append(action())
    return took
