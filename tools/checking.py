"""Reading a store as recovery would, without changing it: does it open, and what is in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..base.errors import CorruptJournal
from ..disk.seam import Directory
from ..journal.reader import Damage, LogReader
from ..recovery.replay import Replay
from ..store.state import State

Progress = Callable[[str, int, int], None]
"""Called now and then with what is being done, the bytes that are done, and the bytes there are."""


class Checked(NamedTuple):
    """What a journal holds."""

    base_lsn: int
    end_lsn: int
    messages: int


def check_journal(directory: Directory, what: str, progress: Progress) -> Checked:
    """Read the whole log in *directory*. Raises `CairnError` where recovery would refuse it, or would cut it."""
    reader = LogReader(directory)
    state = State(reader.container_bytes)
    replay = Replay(state, directory.path, reader.container_bytes)
    total, done = len(reader.slots) * reader.container_bytes, 0
    for found in reader.scan():
        if isinstance(found, Damage):
            raise reader.read_error or CorruptJournal(
                directory.path, f"LSN {found.first_lsn} to {found.end_lsn} can't be read ({found.why})",
                "`cairnmq dump` shows what is whole", found.first_lsn, found.end_lsn,
            )  # fmt: skip
        replay.take(found)
        done += found.end_lsn - found.lsn
        progress(what, done, total)
    if reader.read_error is not None:
        raise reader.read_error
    replay.apply()
    state.finish({slot: reader.heads[slot].prev_lsn for slot in reader.slots})
    progress(what, total, total)
    return Checked(reader.base_lsn, reader.end_lsn, len(state) - len(state.unfinished()))
