"""The live messages of a store, found with little reading: from its checkpoint and later heads, or from all heads.

Nothing is written, no broker is asked, so it is the same whether a broker runs or not; while one does, it is true of
the moment at which the reading ended. Damage is skipped and reported: then the figures are of what is left.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from ...analytics.scan.journal_directory import journal_of
from ...base.disk.real import RealDirectory, RealFile
from ...base.errors import CairnError, JournalError
from ...journal.format.block import Block
from ...journal.read.scanner import Damage, LogReader
from ...recovery.lenient_directory import LenientDirectory
from ...recovery.log_identity import identify
from ...recovery.replay import Replay
from ...recovery.restore import resume
from ...store.checkpoint.checkpoint_file import LmdbFile
from ...store.contract.layout import CHECKPOINT_NAME, unnamed_queue
from ...store.message_map.state import State
from ...store.wiring.copy import read_queue_names
from ..history.heads_only import HeadsReader
from ..inspect.journal_check import Progress, byte_counter
from ..inspect.store_wiring import connected_wiring, file_of, missing_names_remark

Visit = Callable[[int, Block], None]
"""Gets the slot, and a block in it."""


class CountingDirectory(RealDirectory):
    """A directory that counts the bytes that were read. One thread at a time."""

    read_bytes = 0
    """Bytes that files opened here have given, a byte that was read twice counted twice."""

    def open(self, name: str, *, writable: bool = False) -> RealFile:
        return _CountedFile(self, os.path.join(self.path, name), os.O_RDWR if writable else os.O_RDONLY)


class _CountedFile(RealFile):
    def __init__(self, directory: CountingDirectory, path: str, flags: int) -> None:
        super().__init__(path, flags)
        self._directory = directory

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        found = super().read_at(offset, size_bytes)
        self._directory.read_bytes += len(found)
        return found

    def read_into(self, offset: int, view: memoryview) -> int:
        done = super().read_into(offset, view)
        self._directory.read_bytes += done
        return done


@dataclass
class StoreOverview:
    """An overview of a store."""

    path: str
    reader: LogReader
    """The reader of the log, positioned at its end."""
    state: State
    """The messages that live."""
    queue_names: dict[int, str]
    directory: CountingDirectory
    """The journal's: it counts the bytes of containers and mark that were read so far."""
    end_lsn: int = 0
    flags: int = 0
    """Those of the newest block."""
    checkpoint_lsn: int = 0
    """0 if there was none to begin with."""
    checkpoint_time_s: float = 0.0
    """The time at which it was written."""
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    """True if the complete log was readable and agrees with the state derived from it."""

    def name_of(self, queue_id: int) -> str:
        return self.queue_names.get(queue_id, unnamed_queue(queue_id))


def overview_of(
    path: str, progress: Progress, connect: str | None = None, catalog: str | None = None, visit: Visit | None = None
) -> StoreOverview:
    """The store at *path*. With *visit* all heads are read, and it gets every block; their payloads are left out.

    Raises `CairnError` if it is none, or of a newer version.
    """
    journal = journal_of(path)
    directory = CountingDirectory(journal)
    mended = LenientDirectory(directory, identify(directory))
    reader = HeadsReader(mended)
    replay = Replay(State(reader.container_bytes), mended.path, reader.container_bytes)
    overview = StoreOverview(path, reader, replay.state, _queue_names(path, connect, catalog), directory)
    if journal != path:
        _restore(overview, reader, os.path.join(path, CHECKPOINT_NAME))
    if reader.resumed_lsn and visit is not None:
        _scan(overview, HeadsReader(mended, known=reader.heads), None, visit, "reading heads", progress)
    _scan(overview, reader, replay, None if reader.resumed_lsn else visit, "reading live records", progress)
    now = LogReader(mended)
    overview.reader = now
    try:
        replay.reconcile(dict.fromkeys(now.slots, 0))
    except JournalError as error:
        overview.notes.append(str(error))
        overview.complete = False
    reported = [mended.identity.finding, *mended.findings.values()]
    overview.notes += [f"{finding.place}: {finding.reason}" for finding in reported if finding is not None]
    overview.notes += list(dict.fromkeys([*mended.remarks, *now.heads.remarks]))
    return overview


def _queue_names(path: str, connect: str | None, catalog: str | None) -> dict[int, str]:
    if connect is not None:
        with connected_wiring(connect, catalog) as wiring:
            return wiring.queue_names()
    with suppress(CairnError):  # queues are then shown by their IDs
        return read_queue_names(file_of(path))
    return {}


def _restore(overview: StoreOverview, reader: HeadsReader, path: str) -> None:
    with suppress(OSError):
        overview.checkpoint_time_s = os.stat(os.path.join(path, "data.mdb")).st_mtime
    if unusable := resume(overview.state, LmdbFile(path), reader):
        overview.notes.append(f"the checkpoint is not used: {unusable}")
    overview.checkpoint_lsn = reader.resumed_lsn
    remark = missing_names_remark(overview.path)
    if remark and not overview.queue_names:
        overview.notes.append(remark)


def _scan(
    overview: StoreOverview, reader: HeadsReader, replay: Replay | None, visit: Visit | None, what: str,
    progress: Progress,
) -> None:
    total = sum((slot + 1) * reader.container_bytes > reader.resumed_lsn for slot in reader.slots)
    total *= reader.container_bytes
    add = byte_counter(what, total, progress)
    for found in reader.scan():
        if isinstance(found, Damage):
            kind = "torn" if found.torn else "can't be read"
            overview.notes.append(f"LSN {found.first_lsn} to {found.end_lsn}: {kind} ({found.reason})")
            if found.torn:
                break
            overview.complete = False
            continue
        if replay is not None:
            replay.take(found)
        if visit is not None:
            visit(found.lsn // reader.container_bytes, found)
        overview.flags = found.head.flags
        add(found.end_lsn - found.lsn)
    progress(what, total, total)
    if replay is not None:
        replay.apply()
    overview.end_lsn = reader.end_lsn
    if reader.last is not None:
        overview.flags = reader.last.head.flags
