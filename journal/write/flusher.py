"""The writer's thread: it flushes as soon as the last flush is done, and takes whatever has gathered meanwhile.

Natural batching, without a timer: under load a block holds what arrived during one sync. When nothing has come for a
while it writes the mark, so that rot in the last blocks is noticed too. Ten times a second it checks that the files are
still in place, because what goes to a removed file is confirmed and lost, and how much space the disk has. A second
thread makes containers ahead of need; the archiver, if there is one, has a third.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from ...base.errors import DiskError, JournalError, JournalFailed
from .journal import Journal

IDLE_MARK_S = 0.2
"""The mark is written when the log has been idle this long."""
CHECK_S = 0.1
"""The interval of checks of the files and of the free space, which would cost a flush 10 us each time."""
FULL_RETRY_S = 0.5
"""The interval between two attempts to write to a full disk."""


class Flusher:
    """Runs a journal's writer in a thread of its own. `kick` is the appender's; the callbacks run on the flusher."""

    def __init__(
        self, journal: Journal, on_durable: Callable[[int], None], on_failure: Callable[[JournalError], None]
    ) -> None:
        """*on_durable* gets the durable LSN after each flush; *on_failure* the error that ended the journal, once."""
        self._journal = journal
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._at_rest = True
        self._stopping = False
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._room = threading.Event()
        self._spare_bell = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="cairnmq-flusher", daemon=True),
            threading.Thread(target=self._keep_spares, name="cairnmq-containers", daemon=True),
        ]
        self._check_due_s = 0.0
        self._sealed = journal.writer.sealed
        journal.wait_for_writer = self._wait_for_room
        if journal.pool.archiver is not None:
            journal.pool.archiver.start()
        journal.pool.ring = self._spare_bell.set
        self._spare_bell.set()  # the reserve is not there yet
        for thread in self._threads:
            thread.start()

    def kick(self) -> None:
        """Request durability of all appended records: now if the flusher is idle, otherwise with its next flush."""
        if not self._at_rest:
            return
        self._at_rest = False  # before the block can be seen: the flusher may be up already, on an old bell
        if self._journal.seal():
            self._bell.put(None)
        else:
            self._at_rest = True

    def stop(self) -> None:
        """Let the running flush end, and the threads with it."""
        self._stopping = True
        self._bell.put(None)
        self._spare_bell.set()
        for thread in self._threads:
            thread.join()
        if self._journal.pool.archiver is not None:
            self._journal.pool.archiver.stop()
        self._journal.wait_for_writer = None
        self._journal.pool.ring = None

    def _wait_for_room(self, full: Callable[[], bool]) -> None:
        self._bell.put(None)
        while full():
            self._room.clear()
            if full():  # not written between the two looks
                self._room.wait()

    def _run(self) -> None:
        journal = self._journal
        while not self._stopping:
            try:
                durable = self._turn()
            except Exception as error:  # also a defect: a broker that confirms nothing more must not look alive
                failure = error if isinstance(error, JournalFailed) else journal.writer.fail(error)
                self._room.set()
                self._on_failure(failure)
                return
            if durable:
                self._room.set()
                self._at_rest = True  # before the call: what it makes the appender append may be sealed at once
                self._on_durable(durable)

    def _turn(self) -> int:
        """Wait for the bell and write the sealed blocks; return the durable LSN, 0 if nothing was written."""
        journal = self._journal
        try:
            self._bell.get(timeout=IDLE_MARK_S)
        except Empty:
            self._check()
            with suppress(DiskError):  # a stale mark costs detection only; a really broken disk fails the next flush
                journal.writer.write_mark()
            self._look_at_spares()  # containers released by the mark or the archiver may be held
            return 0
        if not self._sealed:  # a bell for room had it written before the bell of the kick
            self._at_rest = True
            return 0
        durable = journal.writer.write_out()
        if time.monotonic() >= self._check_due_s:
            self._check()
        return durable

    def _check(self) -> None:
        """Check what changes without the journal: its files, the free space, and the spare containers."""
        self._journal.writer.look_in_place()
        self._look_at_room()
        self._look_at_spares()
        self._check_due_s = time.monotonic() + CHECK_S

    def _look_at_spares(self) -> None:
        """Have the other thread look after containers; while the disk is full or some are held it does so by itself."""
        pool = self._journal.pool
        if not self._spare_bell.is_set() and (pool.lacks_spare() or pool.is_full or pool.limbo_count):
            self._spare_bell.set()

    def _look_at_room(self) -> None:
        with suppress(DiskError):  # the next write reports the error
            self._journal.pool.look_at_room()

    def _keep_spares(self) -> None:
        pool = self._journal.pool
        while not self._stopping:
            self._spare_bell.wait(FULL_RETRY_S if pool.is_full or pool.limbo_count else None)
            self._spare_bell.clear()
            pool.settle()
            self._look_at_room()
            with suppress(DiskError):  # a caller that needs the container gets and reports the error
                while not self._stopping and pool.prepare():
                    pass
