"""Reading a store as recovery would, without changing it: does it open, and what is in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...base.disk.seam import ReadableDirectory
from ...base.errors import CorruptJournal
from ...journal.read.scanner import Damage, LogReader
from ...recovery.replay import Replay
from ...store.message_map.state import State

Progress = Callable[[str, int, int], None]
"""Called now and then with what is being done, the bytes that are done, and the bytes there are."""


def byte_counter(what: str, total_bytes: int, progress: Progress) -> Callable[[int], None]:
    """Return a function that adds to the bytes that are done, and reports them."""
    done_bytes = 0

    def add(more_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += more_bytes
        progress(what, min(done_bytes, total_bytes), total_bytes)

    return add


class JournalCheck(NamedTuple):
    """The extent of a journal, and its messages."""

    base_lsn: int
    end_lsn: int
    messages: int


def check_journal(directory: ReadableDirectory, what: str, progress: Progress) -> JournalCheck:
    """Read the complete log in *directory*. Raises `CairnError` if recovery would refuse it, or would cut it."""
    reader = LogReader(directory)
    replay = Replay(State(reader.container_bytes), directory.path, reader.container_bytes)
    total = len(reader.slots) * reader.container_bytes
    add = byte_counter(what, total, progress)
    for found in reader.scan():
        if isinstance(found, Damage):
            raise reader.heads.read_error or CorruptJournal(
                directory.path, f"LSN {found.first_lsn} to {found.end_lsn} can't be read ({found.reason})",
                "`cairnmq dump` shows the readable part", found.first_lsn, found.end_lsn,
            )  # fmt: skip
        replay.take(found)
        add(found.end_lsn - found.lsn)
    if reader.heads.read_error is not None:
        raise reader.heads.read_error
    replay.apply()
    replay.reconcile({slot: reader.heads.by_slot[slot].prev_lsn for slot in reader.slots})
    progress(what, total, total)
    return JournalCheck(reader.heads.base_lsn, reader.end_lsn, replay.state.on_queues)
