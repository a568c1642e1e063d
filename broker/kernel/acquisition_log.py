"""The log of acquisitions, which records the consumers that acquired each message. Core only.

No operation waits for its records, so they are written with other syncs, or a second later.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...amqp.ports import Open, TerminalEnd
from ...base.clock import Clock
from ...store.journaled.acquire_records import taker
from ...store.journaled.store import JournalStore
from ..messages.entry import Entry
from ..scheduling.scheduler import Scheduler

WRITE_AFTER_S = 1.0
_NOBODY = taker("", "")


class AcquisitionLog:
    """The log of acquisitions of one broker."""

    def __init__(self, notes: JournalStore, clock: Clock, scheduler: Scheduler) -> None:
        self._notes = notes
        self._clock = clock
        self._scheduler = scheduler
        self._takers: dict[TerminalEnd, bytes] = {}
        self._is_due = False

    def link_came(self, attach: Open, terminal: TerminalEnd) -> None:
        if attach.to_client:
            self._takers[terminal] = taker(attach.container, attach.link_name)

    def link_went(self, terminal: TerminalEnd) -> None:
        self._takers.pop(terminal, None)

    def record(self, queue_id: int, terminal: TerminalEnd, entries: Sequence[Entry]) -> None:
        """Record that the link of *terminal* acquired *entries*, except those that are not stored."""
        ids = [entry.message_id for entry in entries if entry.message_id]
        if not ids:
            return
        self._notes.note_acquired(queue_id, self._takers.get(terminal, _NOBODY), ids, self._clock.wall_us())
        self._write_soon()

    def record_returned(self, queue_id: int, reason: str, entries: Sequence[Entry]) -> None:
        """Record why *entries*, which were acquired, are on their queue again."""
        if ids := [entry.message_id for entry in entries if entry.message_id]:
            self._notes.note_acquired(queue_id, taker("", reason), ids, self._clock.wall_us(), returned=True)
            self._write_soon()

    def _write_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._scheduler.after(WRITE_AFTER_S, self._write)

    def _write(self) -> None:
        self._is_due = False
        self._notes.write_notes()
