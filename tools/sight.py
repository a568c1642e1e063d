"""What lives in a store, found with little reading: from its checkpoint and the heads behind it, or from all heads.

Nothing is written and nobody is asked, so it is the same whether a broker runs or not; while one does, it is true of
the moment at which the reading ended. Damage is passed by and told: then the figures are of what is left.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from ..base.errors import CairnError, JournalError
from ..journal import mark
from ..journal.block import Block
from ..journal.reader import Damage, LogReader
from ..recovery.identity import identify
from ..recovery.mending import MendedDirectory
from ..recovery.replay import Replay
from ..recovery.restore import Restored
from ..store.checkpoint_file import LmdbFile
from ..store.names import CHECKPOINT_NAME
from ..store.sql import parse_address
from ..store.state import State
from ..store.wiring import FILE_NAME as WIRING_NAME
from ..store.wiring import Wiring
from ..store.wiring_copy import read_queue_names
from ..store.wiring_place import told_place
from .checking import Progress
from .counted import CountedDirectory
from .heads_only import HeadsReader
from .verify_store import journal_of

_STEP_BYTES = 16 << 20
Visit = Callable[[int, Block], None]
"""Gets the slot, and a block in it."""


@dataclass
class Sight:
    """A store as it was seen."""

    path: str
    reader: LogReader
    """As of the end."""
    state: State
    queue_names: dict[int, str]
    directory: CountedDirectory
    end_lsn: int = 0
    checkpoint_lsn: int = 0
    """0 if there was none to begin with."""
    checkpoint_time_s: float = 0.0
    """When it was written."""
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    """Whether nothing was in the way."""

    @property
    def read_bytes(self) -> int:
        """Of containers and mark, until now."""
        return self.directory.read_bytes

    @property
    def container_bytes(self) -> int:
        return self.reader.container_bytes

    def name_of(self, queue_id: int) -> str:
        return self.queue_names.get(queue_id, f"id {queue_id}")


def look(
    path: str, progress: Progress, connect: str | None = None, catalog: str | None = None, visit: Visit | None = None
) -> Sight:
    """The store at *path*. With *visit* all heads are read, and it gets every block; their payloads are left out.

    Raises `CairnError` if it is none, or of a newer version.
    """
    journal = journal_of(path)
    directory = CountedDirectory(journal)
    identity = identify(directory)
    shown = b"" if identity.finding is None else mark.encode(identity.mark)
    mended = MendedDirectory(directory, identity.mark, shown_mark=shown)
    reader = HeadsReader(mended)
    state = State(reader.container_bytes)
    sight = Sight(path, reader, state, _queue_names(path, connect, catalog), directory)
    if journal != path:
        _restore(sight, reader, os.path.join(path, CHECKPOINT_NAME))
    if reader.resumed_lsn and visit is not None:
        _scan(sight, HeadsReader(mended, known=reader), None, visit, "reading heads", progress)
    _scan(sight, reader, state, None if reader.resumed_lsn else visit, "reading what lives", progress)
    now = LogReader(mended)
    sight.reader = now
    try:
        state.finish(dict.fromkeys(now.slots, 0))
    except JournalError as error:
        sight.notes.append(str(error))
        sight.complete = False
    told = [identity.finding, *mended.findings.values()]
    sight.notes += [f"{finding.place}: {finding.why}" for finding in told if finding is not None]
    sight.notes += list(dict.fromkeys([*mended.remarks, *now.remarks]))
    return sight


def _queue_names(path: str, connect: str | None, catalog: str | None) -> dict[int, str]:
    if connect is not None:
        wiring = Wiring.connect(parse_address(connect, catalog), alone=False)
        try:
            return wiring.queue_names()
        finally:
            wiring.close()
    with suppress(CairnError):  # queues are told by their ids then
        return read_queue_names(os.path.join(path, WIRING_NAME))
    return {}


def _restore(sight: Sight, reader: HeadsReader, path: str) -> None:
    restored = Restored(sight.state, LmdbFile(path))
    with suppress(OSError):
        sight.checkpoint_time_s = os.stat(os.path.join(path, "data.mdb")).st_mtime
    restored.resume(reader)
    sight.checkpoint_lsn = reader.resumed_lsn
    if restored.why_not:
        sight.notes.append(f"the checkpoint is not used: {restored.why_not}")
    where = told_place(sight.path)
    if where and not sight.queue_names:
        sight.notes.append(f"the wiring is in {where}: without --connect queues are shown by number")


def _scan(
    sight: Sight, reader: HeadsReader, state: State | None, visit: Visit | None, what: str, progress: Progress
) -> None:
    replay = None if state is None else Replay(state, reader.directory.path, reader.container_bytes)
    total = sum((slot + 1) * reader.container_bytes > reader.resumed_lsn for slot in reader.slots)
    total *= reader.container_bytes
    done, step = 0, 0
    for found in reader.scan():
        if isinstance(found, Damage):
            kind = "torn" if found.torn else "can't be read"
            sight.notes.append(f"LSN {found.first_lsn} to {found.end_lsn}: {kind} ({found.why})")
            if found.torn:
                break
            sight.complete = False
            continue
        if replay is not None:
            replay.take(found)
        if visit is not None:
            visit(found.lsn // reader.container_bytes, found)
        done += found.end_lsn - found.lsn
        if done > step:
            step = done + _STEP_BYTES
            progress(what, min(done, total), total)
    progress(what, total, total)
    if replay is not None:
        replay.apply()
    sight.end_lsn = reader.end_lsn
