"""A log with an archive on disks in memory, and all records that were ever appended."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from cairnmq.base.disk.seam import Directory
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.files.archive import archived_lsn
from cairnmq.journal.files.archiver import Archiver
from cairnmq.journal.format import block
from cairnmq.journal.format.block import BadBlock, Block
from cairnmq.journal.format.container import DATA_OFFSET, file_name
from cairnmq.journal.read.scanner import LogReader
from tests.harness.journal.logs import BIG, LOG_ID, SIZE, START, content, new_log, records_of, reopen


class ArchivedLog:
    """A journal, its archive, and the appended records."""

    def __init__(self, archive: Directory, directory: MemoryDirectory, **options: Any) -> None:
        self.archive = archive
        self.directory = directory
        self.options = options
        self.appended: list[tuple[int, bytes]] = []
        self.journal = new_log(directory, archive=archive, **options)[1]

    @property
    def archiver(self) -> Archiver:
        assert self.journal.pool.archiver is not None
        return self.journal.pool.archiver

    def put(self, size: int = len(BIG)) -> None:
        number = len(self.appended)
        payload = (number.to_bytes(4, "big") + bytes([number % 255 + 1]) * size)[: len(BIG)]
        clock = self.options.get("clock")
        lsn = self.journal.append(START, payload, time_us=clock.wall_us() if clock else 1)
        self.appended.append((lsn, payload))

    def fill(self, slots: int) -> None:
        """Append records until *slots* more containers have been begun."""
        last = next(reversed(self.journal.extent.slots)) + slots
        while next(reversed(self.journal.extent.slots)) < last:
            self.put()
            self.journal.flush()

    def retire(self, *slots: int) -> None:
        """Retire *slots*, by default all but the last, and flush."""
        self.journal.retire(slots or list(self.journal.extent.slots)[:-1])
        self.put(10)
        self.journal.flush()

    def reopen(self, *, close: bool) -> None:
        if close:
            self.journal.close()
        else:
            self.journal.abandon()
        self.journal = reopen(self.directory, archive=self.archive, **self.options)[0]


def on_one_disk(**options: Any) -> ArchivedLog:
    """Create a log whose archive is on the same disk, so that containers are moved into it."""
    directory = MemoryDirectory()
    return ArchivedLog(directory.beside("/archive"), directory, **options)


def on_two_disks(**options: Any) -> ArchivedLog:
    """Create a log whose archive is on another disk, so that containers are copied into it."""
    return ArchivedLog(MemoryDirectory("/archive"), MemoryDirectory(), **options)


def archived_slots(archive: Directory) -> list[int]:
    return [lsn // SIZE for name in archive.names() if (lsn := archived_lsn(name)) is not None]


def history(archive: Directory, directory: Directory) -> list[tuple[int, bytes]]:
    """Return the records of the archive and the log in order; check that no container is in both."""
    reader = LogReader(directory)
    complete = {lsn // SIZE: data for name, data in content(archive).items() if (lsn := archived_lsn(name)) is not None}
    for slot in reader.slots:
        assert slot not in complete, "a container of the log was archived"
        file = directory.open(file_name(reader.heads.by_slot[slot].number))
        complete[slot] = file.read_at(0, SIZE)
    return [
        (read.lsn, read.payload)
        for slot in sorted(complete)
        for found in blocks_of(slot, complete[slot])
        for read in records_of(found)
        if read.head.type == START
    ]


def blocks_of(slot: int, data: bytes) -> Iterator[Block]:
    at = DATA_OFFSET
    while at < SIZE:
        try:
            found = block.decode(memoryview(data)[at:], slot * SIZE + at, LOG_ID)
        except BadBlock:
            return
        yield found
        at = found.end_lsn - slot * SIZE or SIZE


def work(log: ArchivedLog, rng: random.Random, steps: int) -> None:
    """Run *steps* random operations, which leave reclaimed ranges and reopen the log now and then."""
    for _ in range(steps):
        action = rng.choice(["put", "put", "put", "fill", "fill", "retire", "retire", "open"])
        if action == "put":
            log.put(rng.choice([0, 100, 5000, 60_000]))
            log.journal.flush()
        elif action == "fill":
            log.fill(rng.randint(1, 3))
        elif action == "retire":
            slots = list(log.journal.extent.slots)[:-1]
            if slots:
                log.retire(*rng.sample(slots, rng.randint(1, len(slots))))
        else:
            log.reopen(close=rng.random() < 0.5)
