"""Benchmarks of a restart from the journal alone, from a checkpoint and the later log, and after a clean shutdown.

A store of many live messages on ten queues is built once. Each opening runs in a separate process, which then exits
without cleanup, as if killed, so that the next process finds the same files. The files are in the page cache. The
yardstick reads the same files with pread and checksums every byte with crc32c, in the same round. Rates are messages
per second of the wall clock; a note contains the other figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain, repeat
from statistics import median
from typing import NamedTuple

from crc32c import crc32c

from cairnmq.base.clock import SystemClock
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.wiring_rows import QueueRow

from .table import BenchError, Row, row

DEFAULT_MESSAGES = 1_000_000
_QUEUES = 10
_BATCH = 50
_TAIL = 20
"""Divisor of the number of messages, which gives the number of messages after the checkpoint."""
_CHUNK_BYTES = 1 << 20
SECTION = "recovery, 256 B messages on 10 queues"


class Opening(NamedTuple):
    """The measurements of a process that opened the store."""

    seconds: float
    cpu_s: float
    messages: float
    memory_bytes: float


def measure(path: str, rounds: int, messages: int = DEFAULT_MESSAGES) -> list[Row]:
    os.mkdir(path)
    store = os.path.join(path, "store")
    _process("build", store, messages)
    journal_bytes = _journal_bytes(store)
    alone = _compare(store, rounds, journal_bytes, messages, "journal alone", 1_500_000)
    _process("close", store)
    clean = _compare(store, rounds, journal_bytes, messages, "clean shutdown", 3_000_000, "close")
    _process("add", store, messages // _TAIL)
    more = messages + messages // _TAIL
    known = _compare(store, rounds, _journal_bytes(store), more, "checkpoint and 5 % of the log", 3_000_000)
    return [alone, known, clean]


def _compare(
    store: str, rounds: int, journal_bytes: int, messages: int, what: str, guess_per_s: float, how: str = "open"
) -> Row:
    """Open the store *rounds* times with the action *how* and measure the yardstick before each opening."""
    openings: list[Opening] = []
    read_s: list[float] = []
    for _ in range(rounds):
        read_s.append(_timed(lambda: _read_all(store)))
        openings.append(Opening(*_process(how, store)))
        if openings[-1].messages != messages:
            raise BenchError(f"{openings[-1].messages} messages were recovered, {messages} were there")
    seconds = median(found.seconds for found in openings)
    return row(
        SECTION, what, [messages / found.seconds for found in openings], guess_per_s, "read + crc32c",
        [messages / took_s for took_s in read_s],
        note=f"{seconds:.2f} s, {median(found.cpu_s for found in openings):.2f} s of CPU, "
        f"{journal_bytes / 1e6:.0f} MB of journal ({journal_bytes / seconds / 1e9:.2f} GB/s), "
        f"{median(found.memory_bytes for found in openings) / messages:.0f} bytes of memory per message",
    )  # fmt: skip


def _timed(action: Callable[[], object]) -> float:
    begun_s = time.perf_counter()
    action()
    return time.perf_counter() - begun_s


def _containers(store: str) -> list[str]:
    journal = os.path.join(store, "journal")
    return [os.path.join(journal, name) for name in sorted(os.listdir(journal)) if name.endswith(".cairn")]


def _journal_bytes(store: str) -> int:
    return sum(map(os.path.getsize, _containers(store)))


def _read_all(store: str) -> int:
    found = 0
    for path in _containers(store):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        offset = 0
        while data := os.pread(fd, _CHUNK_BYTES, offset):
            found ^= crc32c(data)
            offset += len(data)
        os.close(fd)
    return found


def _process(action: str, store: str, messages: int = 0) -> list[float]:
    command = [sys.executable, "-m", f"{__package__}.recovery", action, store, str(messages)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{action} failed: {done.stderr[-2000:]}")
    found: list[float] = json.loads(done.stdout)
    return found


def _put(path: str, messages: int) -> None:
    store, _ = open_store(path, SystemClock(), StoreOptions(max_write_buffers=100, checkpoint_bytes=0))
    rows: list[QueueRow | Exception] = []
    for number in range(_QUEUES):
        store.create_queue(f"queue-{number}", rows.append)
    content = os.urandom(256)
    left = messages
    for found in chain.from_iterable(repeat(rows)):
        if not left:
            break
        assert isinstance(found, QueueRow)
        store.put_all(found.id, [content] * min(left, _BATCH), time.time_ns() // 1000)
        left -= min(left, _BATCH)
    store.kick()


def _open(path: str, *, close: bool) -> Opening:
    before_bytes, begun_s, cpu_s = _memory_bytes(), time.perf_counter(), time.process_time()
    store, report = open_store(path, SystemClock(), StoreOptions(checkpoint_bytes=0))
    opening = Opening(
        time.perf_counter() - begun_s, time.process_time() - cpu_s, report.messages, _memory_bytes() - before_bytes
    )
    if close:
        store.close()
    return opening


def _memory_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Run one action and exit without cleanup, as if killed."""
    action, path, messages = sys.argv[1], sys.argv[2], int(sys.argv[3])
    opening: Opening | list[float] = []
    if action in ("build", "add"):
        _put(path, messages)
    else:
        opening = _open(path, close=action == "close")
    print(json.dumps(opening), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
