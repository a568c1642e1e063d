"""When a checkpoint is taken, and how: a few pages at each step of the store, written by a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future

from ...base.clock import Clock
from ...journal.write.journal import Journal
from ..message_map.purges import PurgeMark
from ..message_map.state import State
from . import checkpoint
from .checkpoint import META, Changes, Meta
from .checkpoint_file import BadCheckpoint, CheckpointFile, sealed

log = logging.getLogger(__name__)

_STEP_MESSAGES = 4096
"""A step processes so many messages, or one page;"""
_NEVER = 1 << 64
"""More bytes than a log grows by."""
_STEP_DETAILED = 1024
"""or at so many messages with particulars, 4 us each."""


class Checkpointer:
    """Takes checkpoints of a state. For the thread that makes the calls of the store, except `commit_in`."""

    def __init__(
        self, file: CheckpointFile, state: State, journal: Journal, clock: Clock, interval_bytes: int, *, is_good: bool
    ) -> None:
        """*is_good*: the file holds the checkpoint from which *state* was restored; if not, the next one is complete.

        """
        self.taken = 0
        """Checkpoints committed since the start."""
        self.written_bytes = 0
        """The number of bytes written by the last checkpoint."""
        self.end_lsn = journal.writer.durable_lsn if is_good else 0
        """The LSN from which the log would be replayed after the last checkpoint."""
        self.taken_us = 0
        """Wall clock of the last one; 0 if there was none since the start."""
        self.due_lsn = 0
        """The durable LSN from which `step` has something to do."""
        self.failure = ""
        """The reason why the last checkpoint failed; the next attempt is made when the log has grown again."""
        self._file = file
        self._state = state
        self._journal = journal
        self._clock = clock
        self._interval_bytes = interval_bytes
        self._is_good = is_good
        self._meta: Meta | None = None
        self._failed_lsn = 0
        self._portions: Iterator[Changes] | None = None
        self._changes: Changes = {}
        self._swept: list[PurgeMark] = []  # before it began: none of its pages needs them
        self._durable_from = 0
        self._executor: Executor | None = None
        self._wake: Callable[[], None] = lambda: None
        self._commit: Future[int] | None = None
        self._rest()

    def commit_in(self, executor: Executor, wake: Callable[[], None]) -> None:
        """Commit on *executor*, and call *wake* there when `step` can continue. Without it `step` commits itself."""
        self._executor, self._wake = executor, wake

    def step(self) -> None:
        """Go on with the checkpoint that is being taken, or begin one if it is time."""
        if self._commit is not None:
            if self._commit.done():
                self._committed(self._commit.result)
            return
        if self._meta is None:
            if self._journal.writer.durable_lsn >= self.due_lsn:
                self._begin()
            return
        if self._portions is not None:
            self._take_some()
        elif self._journal.writer.durable_lsn >= self._durable_from:
            self._write()

    def close(self) -> None:
        """Take a last checkpoint, of everything: the journal is flushed. The next start then replays nothing."""
        if self._commit is not None:
            self._committed(self._commit.result)
        if self._meta is not None:  # half taken: what it looked at is looked at again
            self._is_good = False
            self._meta = self._portions = None
        self._begin()
        while self._portions is not None:
            self._take_some()
        self._executor = None
        self._write()

    @property
    def is_at_work(self) -> bool:
        return self._meta is not None

    @property
    def age_s(self) -> float | None:
        """Return the age of the last checkpoint in seconds; None if none was taken since the start. Any thread."""
        return (self._clock.wall_us() - self.taken_us) / 1e6 if self.taken_us else None

    def _rest(self) -> None:
        """Set when the next checkpoint begins."""
        grown_bytes = max(self._interval_bytes, 2 * self.written_bytes) if self._interval_bytes else _NEVER
        self.due_lsn = max(self.end_lsn, self._failed_lsn) + grown_bytes

    def _begin(self) -> None:
        self.due_lsn = 0
        journal, state = self._journal, self._state
        if not self._is_good:
            state.change_all()
        self._meta = Meta(journal.pool.log_uuid, journal.container_bytes, *journal.writer.durable_block)
        slots, state.changed_pages = sorted(state.changed_pages), set()
        self._changes = {}
        self._swept = state.cuts.all_swept()
        self._portions = self._all_portions(slots)

    def _all_portions(self, slots: list[int]) -> Iterator[Changes]:
        state = self._state
        yield from checkpoint.pages(state, slots, _STEP_MESSAGES)
        # after the pages: a message that was taken as plain, or missed, when it got particulars since, is among them
        yield from checkpoint.particulars(state, _STEP_DETAILED)
        state.cuts.forget(self._swept)
        yield checkpoint.rest(state)
        yield from checkpoint.ends(state, _STEP_DETAILED)

    def _take_some(self) -> None:
        assert self._portions is not None
        portion = next(self._portions, None)
        if portion is not None:
            self._changes |= portion
            return
        self._portions = None
        self._durable_from = self._journal.next_lsn

    def _write(self) -> None:
        assert self._meta is not None
        file, meta, clear = self._file, self._meta, not self._is_good
        changes: Changes = {META: None, **self._changes}
        self._changes = {}

        def work() -> int:
            file.commit(changes, lambda entries: (META, sealed(META, meta.encode(entries))), clear=clear)
            return sum(map(len, filter(None, changes.values())))

        if self._executor is not None:
            self._commit = self._executor.submit(work)
            self._commit.add_done_callback(lambda _: self._wake())
        else:
            self._committed(work)

    def _committed(self, result: Callable[[], int]) -> None:
        """Take in the outcome of a commit: *result* returns the bytes that were written, or raises `BadCheckpoint`."""
        meta, self._meta, self._commit = self._meta, None, None
        assert meta is not None
        try:
            self.written_bytes = result()
        except BadCheckpoint as error:
            if not self.failure:
                text = "no checkpoint could be taken: %s; a start now would read the whole log"
                log.warning(text, error, extra={"event": "checkpoint.failed"})
            self.failure = str(error)
            self._failed_lsn = self._journal.writer.durable_lsn
            self._is_good = False
            self.end_lsn = 0
            self._file.discard()
            self._rest()
            return
        self.failure = ""
        self._is_good = True
        self.taken += 1
        self.end_lsn = meta.end_lsn
        self._rest()
        self.taken_us = self._clock.wall_us()
