"""A reader of logs with `struct`, written from docs/reference/format.md and independent of the code under test.

It applies to logs that were closed, or copied when all records were durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import iter_unpack, unpack_from
from typing import NamedTuple

from crc32c import crc32c

HEAD_BYTES, SECTOR = 64, 512
START, CHUNK, DELETE, ENQUEUE, DEQUEUE = 1, 2, 3, 4, 5
DTX_START, TX_START, TX_END, TX_PREPARE, TX_COMMIT, TX_ROLLBACK, TX_DELETE = range(16, 23)
LOG_OPEN, QUEUE_DELETE, LOG_HOLES = 32, 33, 34
WITH_ENQUEUE, WITH_DELETE, MORE, MOVED, PREPARED = 1, 2, 4, 8, 16


class Record(NamedTuple):
    lsn: int
    block: int
    type: int
    flags: int
    size: int
    message_id: int
    queue_id: int
    txn_id: int
    time_us: int
    extra: int
    payload: bytes

    @property
    def moved(self) -> bool:
        return bool(self.flags & MOVED)

    @property
    def bytes(self) -> int:
        return HEAD_BYTES + self.size


class Container(NamedTuple):
    """A container in the log or the archive, with its records."""

    slot_lsn: int
    path: Path
    size: int
    begun_us: int
    is_archived: bool
    records: tuple[Record, ...]


class Walked(NamedTuple):
    """The containers of a log, those in the archive included, in the order of their LSNs."""

    containers: tuple[Container, ...]

    def records(self) -> Iterator[Record]:
        for container in self.containers:
            yield from container.records


def walk(store: Path, archive: Path | None = None) -> Walked:
    """Read the containers that are not reclaimed; with *archive*, also archived ones and those that wait for it."""
    own = dict(sorted(_read(path, archived=False) for path in (store / "journal").glob("*.cairn") if _is_one(path)))
    base, holes = _given_back(own)
    left = {lsn for lsn, (one, _) in own.items() if lsn + one.size <= base or lsn in holes}
    there = {lsn: one for lsn, (one, _) in own.items() if lsn not in left}
    if archive is not None:
        archived = dict(_read(path, archived=True) for path in archive.glob("*.cairn"))
        waiting = {lsn: own[lsn][0]._replace(is_archived=True) for lsn in left}
        there |= {lsn: one for lsn, (one, _) in archived.items()} | waiting
    return Walked(tuple(there[lsn] for lsn in sorted(there)))


def files_of(slot_lsn: int, *folders: Path) -> list[Path]:
    """Return the files of a container: two if it is being archived, or was when the broker was killed."""
    found = [path for folder in folders for path in folder.glob("*.cairn") if _is_one(path)]
    return [path for path in found if unpack_from("<Q", path.read_bytes(), 48)[0] == slot_lsn]


def _is_one(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8)[4:] == b"CNCT"


def _read(path: Path, *, archived: bool) -> tuple[int, tuple[Container, dict[int, bytes]]]:
    """Read a container; return its LSN, the container, and the newest reclaimed ranges by base LSN of its blocks."""
    data = path.read_bytes()
    size, _, slot_lsn, _, _, begun_us = unpack_from("<6Q", data, 32)
    records: list[Record] = []
    told: dict[int, bytes] = {}
    at = SECTOR
    while at + HEAD_BYTES <= size:
        crc, magic, _, _, count, length, _, lsn, _, _, base = unpack_from("<I4sHHIIIQQQQ", data, at)
        if magic != b"CNBK" or lsn != slot_lsn + at or crc32c(data[at + 4 : at + length]) != crc:
            break
        told.setdefault(base, b"")
        payloads = at + HEAD_BYTES * (count + 1)
        heads = iter_unpack("<BBHIIIQQQQQQ", data[at + HEAD_BYTES : payloads])
        for number, (kind, flags, _, place, many, _, _, message, queue, txn, time_us, extra) in enumerate(heads, 1):
            own, payload = lsn + HEAD_BYTES * number, data[payloads + place : payloads + place + many]
            records.append(Record(own, lsn, kind, flags, many, message, queue, txn, time_us, extra, payload))
            if kind == LOG_HOLES:
                told[base] = payload
        at += -(-length // SECTOR) * SECTOR
    return slot_lsn, (Container(slot_lsn, path, size, begun_us, archived, tuple(records)), told)


def _given_back(own: dict[int, tuple[Container, dict[int, bytes]]]) -> tuple[int, set[int]]:
    """Return the base LSN and the LSNs of reclaimed containers, from the newest container that holds a block."""
    newest, told = own[max(lsn for lsn, (one, _) in own.items() if one.records)]
    holes = next((payload for payload in reversed(told.values()) if payload), b"")
    slots = (slot for first, many, _ in iter_unpack("<3Q", holes) for slot in range(first, first + many))
    return max(told), {slot * newest.size for slot in slots}
