"""The process that makes sidecars beside a broker: it reads the log like a tool, and the broker does not wait.

    python -m cairnmq.analytics.sidecars.keeper STORE

The broker starts it (`--sidecars`), and it ends with the broker, see `side_process`. A container that was used again
before it could be read has no sidecar, which is logged; an archive gives it more time.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing

from ...base.disk.file_lock import lock_file
from ...base.errors import StoreInUse
from ..scan.files import Log, LogPiece
from ..scan.scanner import Reclaimed
from ..views.journal import Journal, open_journal
from . import folder
from .folder import NAME, Folder
from .side_process import is_asked_to_end, look_again_and_again, run_in_side_process
from .sidecar import make

log = logging.getLogger(__name__)
_SKIPPED = {"event": "sidecar.skipped"}

LOOK_S = 2.0
"""The interval between checks of the log, in seconds."""
LOOK_SHARE = 0.02
"""The largest share of a core that looking may take; with thousands of containers the interval grows to keep it."""
LOCK_NAME = "lock"


class SidecarKeeper:
    """Keeps the sidecars of one log. One thread, and one process at a time."""

    def __init__(self, store: str, directory: str, archive: str | None, most_bytes: int) -> None:
        """Raise `StoreInUse` if another process keeps the sidecars, and the errors of `open_journal` and `Folder`."""
        self._store = store
        self._archive = archive
        self._most_bytes = most_bytes
        journal = open_journal(store, archive=archive)
        self.folder = Folder(directory, journal.log.uuid, create=True)
        path = os.path.join(directory, LOCK_NAME)
        lock = lock_file(path)
        if lock is None:
            raise StoreInUse(path, "another process makes these sidecars", "stop it, or name another directory")
        self._lock = lock
        self.folder.tidy()
        self.wait_s = LOOK_S
        """The waiting time before the next step."""
        self._done = self.folder.containers
        self._end_lsn = max(self._done, default=-1)
        """The newest container that there is a sidecar of."""

    def step(self, may_go_on: Callable[[], bool] = lambda: True) -> int:
        """Make missing sidecars while *may_go_on* returns True; return their number. Raises `DiskError`."""
        begun_s = time.thread_time()
        journal = open_journal(self._store, archive=self._archive, history=True)
        self.wait_s = max(LOOK_S, (time.thread_time() - begun_s) / LOOK_SHARE)
        made = 0
        missing = [piece for piece in _sealed(journal.log) if piece.slot_lsn not in self._done]
        for pieces in _together(missing, journal.log.container_bytes):
            if not may_go_on():
                return made
            made += self._make(journal, pieces)
        self._say_what_is_missing(journal.log)
        while may_go_on() and self.folder.compact():
            pass
        for removed in self.folder.limit(self._most_bytes):
            log.info("%s removed: sidecars have reached their limit", removed.path)
        self.folder.let_go()
        return made

    def close(self) -> None:
        self._lock.close()

    def _make(self, journal: Journal, pieces: list[LogPiece]) -> int:
        """One sidecar of all of them, or of each that is still there one; how many containers have one now."""
        try:
            sidecar = make(journal, pieces, self.folder.path)
        except Reclaimed as error:
            if len(pieces) > 1:
                return sum(self._make(journal, [piece]) for piece in pieces)
            self._done.add(pieces[0].slot_lsn)  # it won't be there again
            log.warning("no sidecar from LSN %d: %s", pieces[0].slot_lsn, error, extra=_SKIPPED)
            return 0
        self._done.update(piece.slot_lsn for piece in pieces)
        self.folder.add(sidecar)
        return len(pieces)

    def _say_what_is_missing(self, seen: Log) -> None:
        for gap in seen.missing(self._end_lsn + 1, seen.durable_lsn):
            if gap.first_lsn > self._end_lsn >= 0 and not self._done & set(
                range(gap.first_lsn, gap.end_lsn, seen.container_bytes)
            ):
                text = "no sidecars of LSN %d to %d: reclaimed before they were read"
                log.warning(text, gap.first_lsn, gap.end_lsn, extra=_SKIPPED)
        self._end_lsn = max(self._end_lsn, max((piece.slot_lsn for piece in _sealed(seen)), default=-1))


def _sealed(seen: Log) -> list[LogPiece]:
    """Return the containers after which the log continues."""
    return [piece for piece in seen.pieces if piece.last_lsn]


def _together(pieces: list[LogPiece], container_bytes: int) -> Iterator[list[LogPiece]]:
    """Runs of as many as are made one anyhow; what is left over one by one."""
    at = 0
    while at < len(pieces):
        run = pieces[at : at + folder.TOGETHER]
        is_run = run[-1].slot_lsn - run[0].slot_lsn == (len(run) - 1) * container_bytes and len(run) == folder.TOGETHER
        yield run if is_run else run[:1]
        at += len(run) if is_run else 1


def run(store: str, directory: str, archive: str | None, most_bytes: int) -> None:
    """Until standard input is closed."""
    with closing(SidecarKeeper(store, directory, archive, most_bytes)) as keeper:
        look_again_and_again(lambda: keeper.step(lambda: not is_asked_to_end()), "sidecars", lambda: keeper.wait_s)


def main() -> None:
    """Run with the arguments STORE DIRECTORY ARCHIVE MOST_BYTES of the broker; an empty ARCHIVE means none."""
    store, directory, archive, most_bytes = sys.argv[1:]
    place = directory or os.path.join(store, NAME)
    run_in_side_process("sidecars", lambda: run(store, place, archive or None, int(most_bytes)))


if __name__ == "__main__":
    main()
