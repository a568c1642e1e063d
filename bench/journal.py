"""Benchmarks of synced journal appends in one thread, against the bare disk.

The records of a group are appended and then flushed as one block, with one pwrite and one fdatasync. A record is a
complete message with its only enqueue, as the store writes it. Durable records are dead at once, so containers are
reused, as in a broker whose receivers keep up. Three yardsticks write the same number of bytes per group with one sync
into a zero-filled file twice as large as the initial containers together. (The journal syncs once more if a block is
split at the end of a container.)

Embedded stores (`embedded.py`) commit the same number of values in one synced transaction; the goal is that the journal
is faster than each of them.

bare  prepared bytes: the cost of the disk and the system calls
join  prepared record headers and payloads, joined: also the cost of writing in one piece
loop  record headers packed separately with a checksum of the payload, then joined: also the cost of plain Python
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from tempfile import TemporaryDirectory
from typing import NamedTuple
from uuid import uuid4

from crc32c import crc32c

from cairnmq.base.clock import SystemClock
from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.disk.seam import SECTOR_BYTES
from cairnmq.journal.format.block import BLOCK_HEAD_BYTES
from cairnmq.journal.format.record import HEAD, HEAD_BYTES, Flag, RecordType
from cairnmq.journal.write.journal import OWN_LSN, Journal
from cairnmq.journal.write.open import DEFAULT_CONTAINER_BYTES, format_log, open_log
from cairnmq.recovery.recover import SYNCERS

from . import embedded
from .table import Row, row, show_size

CONTAINERS = 8
_FILE_BYTES = 2 * CONTAINERS * DEFAULT_CONTAINER_BYTES
_START, _ENQUEUE = int(RecordType.START), int(Flag.ENQUEUE)


class Case(NamedTuple):
    """A number of records of one payload size per sync."""

    payload_bytes: int
    group: int
    goals: dict[str, float] = {}
    """Goals as fractions of the rate of a yardstick."""

    @property
    def guess_per_s(self) -> float:
        """Return a guess from 110 us per sync, 700 ns to append and encode a record, and 2 GB/s into the page cache."""
        return self.group / (110e-6 + self.group * (700e-9 + self.payload_bytes / 2e9))

    @property
    def used_bytes(self) -> int:
        """Return the size of the journal's block for one group."""
        return BLOCK_HEAD_BYTES + self.group * (HEAD_BYTES + self.payload_bytes)

    @property
    def block_bytes(self) -> int:
        """Return the size of a written block with its padding."""
        return -(-self.used_bytes // SECTOR_BYTES) * SECTOR_BYTES


CASES = (
    Case(256, 1, {"bare": 0.85}),
    Case(256, 64, {"join": 0.60, "loop": 0.60}),
    Case(256, 512, {"join": 0.40, "loop": 0.40}),
    Case(1024, 1),
    Case(1024, 64),
    Case(1024, 512),
    Case(16 << 10, 1),
    Case(16 << 10, 64),
    Case(16 << 10, 512),
)


class Disk:
    """A zero-filled file that is repeatedly written from beginning to end."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        zeros = bytes(1 << 20)
        for offset in range(0, _FILE_BYTES, len(zeros)):
            os.pwrite(self._fd, zeros, offset)
        os.fsync(self._fd)
        self._offset = 0

    def bare(self, case: Case, payloads: list[bytes], until_s: float) -> int:
        data = bytes(case.block_bytes)
        return self._repeat(until_s, lambda: data)

    def join(self, case: Case, payloads: list[bytes], until_s: float) -> int:
        head = bytes(HEAD_BYTES)
        parts = [bytes(BLOCK_HEAD_BYTES)]
        for payload in payloads:
            parts += (head, payload)
        parts.append(bytes(case.block_bytes - case.used_bytes))
        return self._repeat(until_s, lambda: b"".join(parts))

    def loop(self, case: Case, payloads: list[bytes], until_s: float) -> int:
        pack, begin, end = HEAD.pack, bytes(BLOCK_HEAD_BYTES), bytes(case.block_bytes - case.used_bytes)

        def make() -> bytes:
            time_us = time.time_ns() // 1000
            parts = [begin]
            for number, payload in enumerate(payloads):
                lsn = self._offset + HEAD_BYTES * number
                parts += (
                    pack(_START, _ENQUEUE, number, 0, len(payload), crc32c(payload), 0, lsn, 1, 0, time_us, 0),
                    payload,
                )
            parts.append(end)
            return b"".join(parts)

        return self._repeat(until_s, make)

    def close(self) -> None:
        os.close(self._fd)

    def _repeat(self, until_s: float, make: Callable[[], bytes]) -> int:
        """Write and sync the result of *make* until the time *until_s* and return the number of writes."""
        groups = 0
        while not groups or time.perf_counter() < until_s:
            data = make()
            if self._offset + len(data) > _FILE_BYTES:
                self._offset = 0
            os.pwrite(self._fd, data, self._offset)
            os.fdatasync(self._fd)
            self._offset += len(data)
            groups += 1
        return groups


def open_journal(directory: RealDirectory) -> Journal:
    """Create and open a journal with all its containers."""
    clock = SystemClock()
    format_log(directory, DEFAULT_CONTAINER_BYTES, uuid4(), clock.wall_us())
    return open_log(directory, clock, visit=lambda block: None, initial_containers=CONTAINERS, syncers=SYNCERS)[0]


def append_groups(journal: Journal, payloads: list[bytes], until_s: float) -> int:
    """Append and flush groups, the measured operation, until the time *until_s*; return the number of groups."""
    append, append_all = journal.append, journal.append_all
    groups = 0
    while not groups or time.perf_counter() < until_s:
        time_us = time.time_ns() // 1000
        if len(payloads) > 1:  # as the store appends messages that arrive together
            append_all(_START, payloads, time_us=time_us, flags=_ENQUEUE, queue_id=1)
        else:
            append(_START, payloads[0], time_us=time_us, flags=_ENQUEUE, message_id=OWN_LSN, queue_id=1)
        journal.flush()
        journal.retire([slot for slot in journal.extent.slots if slot < journal.extent.current_slot])
        groups += 1
    return groups


def _commit_groups(store: embedded.Embedded, payloads: list[bytes], firsts: Iterator[int], until_s: float) -> int:
    groups = 0
    while not groups or time.perf_counter() < until_s:
        store.put(next(firsts), payloads)
        groups += 1
    return groups


def measure(path: str, rounds: int, round_s: float) -> list[Row]:
    """Measure all cases in *path*; each round of a case runs journal and yardsticks for about *round_s* each."""
    os.mkdir(path)
    disk = Disk(os.path.join(path, "bare"))
    journal = open_journal(RealDirectory(os.path.join(path, "journal"), create=True))
    with closing(journal), closing(disk):
        return [row for case in CASES for row in _measure_case(case, journal, disk, path, rounds, round_s)]


def _measure_case(case: Case, journal: Journal, disk: Disk, path: str, rounds: int, round_s: float) -> list[Row]:
    payloads = [os.urandom(case.payload_bytes) for _ in range(case.group)]
    ways: dict[str, Callable[[float], int]] = {
        "journal": lambda until_s: append_groups(journal, payloads, until_s),
        "bare": lambda until_s: disk.bare(case, payloads, until_s),
        "join": lambda until_s: disk.join(case, payloads, until_s),
        "loop": lambda until_s: disk.loop(case, payloads, until_s),
    }
    rates: dict[str, list[float]] = {name: [] for name in (*ways, *embedded.installed())}
    with TemporaryDirectory(dir=path) as place, ExitStack() as stores:
        for name, kind in embedded.installed().items():
            os.mkdir(os.path.join(place, name))
            store = stores.enter_context(closing(kind(os.path.join(place, name))))
            ways[name] = partial(_commit_groups, store, payloads, count(1, case.group))
        for turn in range(rounds):
            first = turn % len(ways)
            for name, way in [*ways.items()][first:] + [*ways.items()][:first]:
                begun_s = time.perf_counter()
                groups = way(begun_s + round_s)
                rates[name].append(groups * case.group / (time.perf_counter() - begun_s))
    what = f"{show_size(case.payload_bytes)}, groups of {case.group}"
    return [
        row(
            "journal append, one thread, fsynced", what, rates["journal"], case.guess_per_s, name, rates[name],
            goal_ratio=case.goals.get(name, 1.0 if name in embedded.installed() else None),
        )
        for name in ("bare", "join", "loop", *embedded.installed())
    ]  # fmt: skip
