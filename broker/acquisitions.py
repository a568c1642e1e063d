"""Acquisitions, written down for whoever asks later who was handed a message. Core only.

Nobody waits for that, so it costs no sync while others are made; else it is on the disk a second later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..base.clock import Clock
from ..channel.words import Open, TerminalEnd
from ..store.acquisitions import taker
from .entry import Entry
from .timers import Timers

WRITE_AFTER_S = 1.0
_NOBODY = taker("", "")


class Notes(Protocol):
    """A store that keeps history."""

    def note_acquired(self, queue_id: int, taker: bytes, message_ids: Sequence[int], time_us: int) -> None:
        """Write down who was handed which messages; it need not be durable soon."""
        ...

    def write_notes(self) -> None:
        """It need be now."""
        ...


class Acquisitions:
    """What a broker writes down of them."""

    def __init__(self, notes: Notes, clock: Clock, timers: Timers) -> None:
        self._notes = notes
        self._clock = clock
        self._timers = timers
        self._takers: dict[TerminalEnd, bytes] = {}
        self._is_due = False

    def link_came(self, wish: Open, terminal: TerminalEnd) -> None:
        if wish.to_client:
            self._takers[terminal] = taker(wish.container, wish.link_name)

    def link_went(self, terminal: TerminalEnd) -> None:
        self._takers.pop(terminal, None)

    def took(self, queue_id: int, terminal: TerminalEnd, entries: Sequence[Entry]) -> None:
        """The link of *terminal* is handed these; those that are not stored are not written down."""
        ids = [entry.message_id for entry in entries if entry.message_id]
        if not ids:
            return
        self._notes.note_acquired(queue_id, self._takers.get(terminal, _NOBODY), ids, self._clock.wall_us())
        if not self._is_due:
            self._is_due = True
            self._timers.after(WRITE_AFTER_S, self._write)

    def _write(self) -> None:
        self._is_due = False
        self._notes.write_notes()
