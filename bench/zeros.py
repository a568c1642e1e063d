"""Benchmark of syncs into previously written and into reserved blocks: the reason to zero-fill containers.

A group of records is repeatedly written and synced through a file. The file of the yardstick is only reserved with
fallocate, so each sync also has to record that its blocks now contain data. (A separate thread zero-fills a container
once, and the container is reused many times; see `journal/files/container_pool.py`.)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from .table import Row, row

_FILE_BYTES = 8 << 20
_GROUP_BYTES = 20 << 10
SECTION = "syncs of 20 KiB, written before / only reserved"


def measure(path: str, rounds: int, round_s: float) -> list[Row]:
    os.mkdir(path)
    ways = {"zero-filled": _zero_fill, "reserved": _reserve}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds):
        for name in sorted(ways, reverse=bool(turn % 2)):
            rates[name].append(_rate(os.path.join(path, name), ways[name], round_s))
    return [row(SECTION, "zero-filled", rates["zero-filled"], 8_000, "reserved", rates["reserved"])]


def _rate(path: str, prepare: Callable[[int], None], round_s: float) -> float:
    """Return syncs per second, measured for about *round_s* or once through the file."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        prepare(fd)
        os.fsync(fd)
        data = os.urandom(_GROUP_BYTES)
        begun_s = time.perf_counter()
        done = 0
        while not done or (time.perf_counter() < begun_s + round_s and (done + 1) * _GROUP_BYTES <= _FILE_BYTES):
            os.pwrite(fd, data, done * _GROUP_BYTES)
            os.fdatasync(fd)
            done += 1
        return done / (time.perf_counter() - begun_s)
    finally:
        os.close(fd)
        os.unlink(path)


def _zero_fill(fd: int) -> None:
    os.pwrite(fd, bytes(_FILE_BYTES), 0)


def _reserve(fd: int) -> None:
    os.posix_fallocate(fd, 0, _FILE_BYTES)
