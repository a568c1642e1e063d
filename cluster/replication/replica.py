"""One replicated queue, as this member has it, and what all members know of it besides its messages.

A message is named by the queue's name and its position (D15): positions are given when an enqueue is heard, so they are
the same everywhere. Who owns the queue, who wants it, and which messages a member has that does not own it any more:
all of that changes by events only, so all members say the same of it at the same place in the order.

Where a message can be here: *pending*, heard and not safe yet; on the broker's queue; with consumers of ours; *held*
apart, because another member's consumers have it; *front*, while this member is being updated. What comes back while it
is pending goes to the queue behind the rest of those that came with it: there it finds its place, and keeps its mark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from itertools import count
from typing import NamedTuple

from ...broker.messages.entry import ARRIVAL_MASK, Entry
from ...broker.queues.queue import Queue
from ...store.contract.dequeue_reason import Why
from ..group.member_id import MemberId
from .change_watch import ChangeWatch

Touch = Callable[[Queue], None]
"""Schedules the dispatch of a queue."""


class Note(NamedTuple):
    """The deliveries of a message that a transfer is still to bring: it was delivered, and some deliveries failed."""

    at_least: int = 0
    more: int = 0
    """Than it comes with."""


class Replica:
    """Core only."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.name = queue.name
        self.first = 1
        """The first position that is given here. A queue that is made anew begins above all that one of its name had:
        so it tells which of them is meant by a member that has not heard of that yet (D49)."""
        self.owner: MemberId | None = None
        """Only its consumers get messages."""
        self.term = 0
        """Rises with each change of the owner."""
        self.interested: set[MemberId] = set()
        """Who has consumers."""
        self.acquired: dict[int, MemberId] = {}
        """Messages that consumers of a former owner still have."""
        self.held: dict[int, Entry] = {}
        """Those of them that others have."""
        self.base = 0
        """While this member is updated: messages up to here come by the update; 0 when the queue is whole."""
        self.front: dict[int, Entry] = {}
        self.tombstones: set[int] = set()
        """Positions up to `base` that were dequeued before they came (rule 10)."""
        self._notes: dict[int, Note] = {}
        """Of such as were handed out before they came,"""
        self._note: Note | None = None
        """and of all others that are still to come."""
        self.purged_below = 0
        """All messages at positions below it went with a purge,"""
        self.kept: frozenset[int] = frozenset()
        """but these."""
        self.line = ""
        """What its history is called at other sites where it is followed; empty before it ever was."""
        self.watches: list[ChangeWatch] = []
        """Of followers that this member feeds."""
        self._pending: deque[Sequence[Entry]] = deque()
        self._absent: set[int] = set()
        """Positions that went while they were pending."""
        self._back: dict[int, Entry] = {}
        """Those of them that came back since."""

    @property
    def last(self) -> int:
        """The position given last."""
        return next(copy(self.queue.positions)) - 1

    def begin_at(self, first: int) -> None:
        """Begins a new, empty queue."""
        self.first = first
        self.queue.positions = count(first)

    def begin_update(self, first: int, last: int) -> None:
        """The messages from *first* up to *last* are still to come."""
        self.first, self.base = first, last
        self.queue.positions = count(last + 1)

    # ---- what comes -----------------------------------------------------------------------------------------------

    def add(self, entries: Sequence[Entry]) -> None:
        """Adds *entries*; consumers get them after `show`."""
        queue = self.queue
        queue.messages += len(entries)
        queue.note_change()
        if queue.limits is not None:
            queue.limits.count_enqueued(entries)
        self._pending.append(entries)
        for watch in self.watches:
            watch.note_enqueued(entries)

    def count_dequeued(self, entries: Sequence[Entry], why: Why) -> None:
        """Counts *entries* that left the queue for good."""
        self.queue.count_dequeued(entries)
        for watch in self.watches:
            watch.note_dequeued(entries, why)

    def knows(self, content: bytes) -> bool:
        """Returns whether a message of the same message-id has been on the queue."""
        limits = self.queue.limits
        return limits is not None and limits.duplicates is not None and limits.duplicates.knows(content)

    def show(self) -> Sequence[Entry]:
        """The oldest of those that were added can be handed out; what is left of them."""
        entries = self._pending.popleft()
        if self._absent:
            return self._show_rest(entries)
        if not self.queue.is_deleted:
            self.queue.add(entries)
        return entries

    def _show_rest(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Shows the entries that remain, with holes in the backlog for the others, then those that came back."""
        absent, queue = self._absent, self.queue
        self._absent = absent - {entry.position for entry in entries}
        rest: list[Entry] = []
        for entry in entries:
            if entry.position in absent:
                queue.leave_hole(entry.position)
            elif not queue.is_deleted:
                queue.add([entry])
                rest.append(entry)
        for entry in entries:
            if self._back.pop(entry.position, None) is not None and not queue.is_deleted:
                queue.give_back(entry)
                rest.append(entry)
        return rest

    def is_to_come(self, position: int) -> bool:
        """Return whether a state transfer may still bring the message at *position*."""
        return position <= self.base and position not in self.front

    def note(self, position: int, failures: int = 0) -> None:
        """A message that is still to come was delivered; *failures* more of its deliveries failed."""
        before = self._notes.get(position) or self._note or Note()
        self._notes[position] = Note(before.at_least + failures, before.more + failures)

    def count(self, entry: Entry, position: int, failures: int) -> None:
        """Sets the marks of an entry that a transfer brought; *failures*: at the cut, as in update_front."""
        note = self._notes.pop(position, self._note)
        if failures or note is not None:
            at_least, more = note or Note()
            entry.previously_delivered, entry.failures = True, max(at_least, max(0, failures - 1) + more)

    def begin_again(self) -> list[Entry]:
        """All that is to come by the update comes anew, and counted as it is by then: what has come so far."""
        for entry in self.front.values():
            self.queue.hold(entry.held_bytes)
        held = [position for position in self.held if position <= self.base]
        come = [*self.front.values(), *map(self.held.pop, held)]
        self.front.clear()
        self._notes.clear()
        self._note = None
        return come

    # ---- what goes ------------------------------------------------------------------------------------------------

    def find(self, position: int) -> Entry | None:
        """Take the message at *position* from wherever it is; None if it is not here (any more, or yet)."""
        entry = self.held.pop(position, None)
        if entry is None and (entry := self.front.pop(position, None)) is not None:
            self.queue.hold(entry.held_bytes)
        if entry is None:
            entry = self._find_pending(position) or self.queue.pick(position)
        if entry is None:
            held = self.queue.with_consumers()
            entry = next((one for one in held if one.position & ARRIVAL_MASK == position), None)
        return None if entry is None or entry.gone else entry

    def _find_pending(self, position: int) -> Entry | None:
        if position in self._back:
            return self._back.pop(position)
        for entries in self._pending:
            if entries[0].position <= position <= entries[-1].position and position not in self._absent:
                entry = entries[position - entries[0].position]
                self._absent.add(position)
                self.queue.hold(entry.held_bytes)
                return entry
        return None

    def is_pending_again(self, entry: Entry) -> bool:
        """Keeps an entry that left while it was pending and is back early; returns False if it did not."""
        if entry.position not in self._absent:
            return False
        self._back[entry.position] = entry
        return True

    def drop_pending(self) -> int:
        """All that is pending goes: how many these are."""
        gone = 0
        for entries in self._pending:
            for entry in entries:
                if entry.position not in self._absent and not entry.gone:
                    self._absent.add(entry.position)
                    entry.gone = True
                    gone += 1
        for entry in self._back.values():
            entry.gone = True
        gone += len(self._back)
        self._back.clear()
        return gone

    def purge_below(self, end: int, kept: frozenset[int]) -> None:
        """Notes that all messages at positions below *end* went with a purge, except those that are *kept*."""
        self.purged_below, self.kept = end, kept
        for watch in self.watches:
            watch.purged(end - 1, kept)
        self.tombstones |= {one for one in range(self.first, self.base + 1) if one not in kept}

    def purge_front(self, kept: frozenset[int]) -> list[Entry]:
        """Removes the messages that a transfer brought, except those that are *kept*; returns the removed ones."""
        gone = [entry for position, entry in self.front.items() if position not in kept]
        self.front = {position: entry for position, entry in self.front.items() if position in kept}
        return gone

    def take_back(self) -> None:
        """Requeues the messages that consumers of this member have."""
        queue = self.queue
        for holder in {*queue.consumers, *queue.selecting, *queue.detached_consumers}:
            cut_off = getattr(holder, "cut_off", None)
            if cut_off is None:
                continue
            for entry in cut_off():
                entry.previously_delivered = True
                queue.give_back(entry)

    # ---- all of it ------------------------------------------------------------------------------------------------

    def entries(self) -> Iterable[Entry]:
        """All that are held in memory here."""
        queue = self.queue
        for batch in self._pending:
            yield from (entry for entry in batch if entry.position not in self._absent)
        yield from self._back.values()
        yield from queue.ready
        yield from queue.returned
        yield from queue.parked()
        yield from (entry for entry in queue.delayed if not queue.stands(entry))
        yield from queue.backlog.held()
        yield from queue.with_consumers()
        yield from self.held.values()

    def stored(self) -> list[tuple[int, int]]:
        """Positions and ids of all that are on the disk only."""
        page = self.queue.backlog.page(0, self.queue.backlog.count)
        return [(position, message_id) for position, message_id in enumerate(page.ids, page.first) if message_id]

    def were_delivered(self) -> None:
        """The owner is gone, and can't tell what it had handed out (rule 13): all but what others' consumers have."""
        pending = (entry for batch in self._pending for entry in batch if entry.position not in self._absent)
        here = (*pending, *self._back.values(), *self.front.values())
        # not below the end of the journal: a block that is not written yet gives lower ids to what comes next
        highest = max([entry.message_id for entry in here], default=0)
        self.queue.were_delivered(max(highest, self.queue.backlog.highest_id()) + 1)
        for entry in here:
            entry.previously_delivered = True
            entry.failures = max(1, entry.failures)
        if self.base:
            for position in self.acquired:
                self.note(position)
            for position, note in self._notes.items():
                if position not in self.acquired:
                    self._notes[position] = note._replace(at_least=max(1, note.at_least))
            self._note = Note(at_least=1)

    def integrate(self) -> None:
        """All that is to come by the update has come: put it before the rest."""
        front = [entry for _, entry in sorted(self.front.items())]
        self.front.clear()
        self.tombstones.clear()
        self._notes.clear()
        self._note = None
        self.base = 0
        next_one = self._pending[0][0].position if self._pending else self.last + 1
        self.queue.put_before(front, next_one)
