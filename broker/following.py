"""What is on a queue that all members of a cluster have: it changes by what they hear. Core only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify

from .backlog import Backlog
from .contents import Contents
from .entry import Entry
from .memory import ENTRY_BYTES
from .reading import BATCH_MESSAGES


class Following(Contents):
    """Of one queue, replicated or not."""

    def pick(self, position: int) -> Entry | None:
        """Take the message at *position* from wherever it is, unless a consumer of ours has it."""
        ready = self.ready
        self._forget_away(position)
        if ready and ready[0].position <= position <= ready[-1].position:
            place = 0 if ready[0].position == position else self.ready_after(position) - 1
            entry = ready[place]
            if entry.position == position:
                del ready[place]
                return entry
        if self.backlog.count and position >= self.backlog.first:
            found = self._pick_backlog(position)
            if found is not None:
                return found
        entries = [entry for entry in self.returned if entry.position == position]
        if entries:
            self.returned.remove(entries[0])
            heapify(self.returned)
            return entries[0]
        away, self._was_away = self._was_away, None
        return away

    def _forget_away(self, position: int) -> None:
        self._was_away = None
        if self.away:
            self._was_away = next((entry for entry in self.away if entry.position == position), None)
            if self._was_away is not None:
                del self.away[self._was_away]

    def _pick_backlog(self, position: int) -> Entry | None:
        ids = self.backlog.page(position - 1, 1).ids
        found, held = self.backlog.take_out(position)
        if not found:
            return None
        if position < self.reading_end:  # what is being read is not what was there any more
            self._reading, self.reading_end = None, 0
        if held is not None:
            return held
        entry = Entry(ids[0], position, None, ENTRY_BYTES)
        if entry.message_id < self.delivered_below:
            self.mark(entry)
        self.hold(ENTRY_BYTES)
        return entry

    def were_delivered(self, below: int) -> None:
        """Whoever handed out its messages is gone, and can't tell which: all of them may have been.

        *below*: higher than any id of a message on it, and not than ids of messages that are still to come.
        """
        for entry in (*self.ready, *self.returned, *self.away, *self.backlog.held()):
            entry.acquired = True
            entry.failures = max(1, entry.failures)
        self.delivered_below = max(self.delivered_below, below)

    def parked(self) -> Iterable[Entry]:
        """Messages that wait for one consumer, apart from the others."""
        return ()

    def leave_hole(self, position: int) -> None:
        """The message there went before it was shown."""
        self.backlog.leave_hole(position)

    def now_decides(self) -> None:
        """From now on it is decided here which messages are over."""
        if self.timing is not None:
            self.timing.wake()
        if self.gate is not None:
            self.gate.shown()

    def put_before(self, front: Sequence[Entry], end: int) -> None:
        """Messages before all that are here, in order; *end*: the position of the next one that is added."""
        if not front:
            return
        first = front[0].position
        ids = [0] * (front[-1].position + 1 - first)
        held: dict[int, Entry] = {}
        for entry in front:
            if entry.content is None and not entry.acquired:
                ids[entry.position - first] = entry.message_id
            else:
                held[entry.position] = entry
        backlog = Backlog()
        backlog.restore(first, ids, held)
        for entry in sorted((*self.ready, *self.returned)):
            backlog.restore(entry.position, (0,), {entry.position: entry})
        while self.backlog.count:
            page = self.backlog.page(0, BATCH_MESSAGES)
            self.backlog.drop(page)
            backlog.restore(page.first, page.ids, page.held)
        backlog.restore(end, (), {})
        self.ready.clear()
        self.returned.clear()
        self.hold(sum([entry.held_bytes for entry in held.values()]))
        self.backlog = backlog
        self._reading, self.reading_end = None, 0
