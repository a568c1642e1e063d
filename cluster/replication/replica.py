"""A replicated queue on this member, with the state of the queue that all members share.

A message is identified by the name of its queue and its position (D15). Positions are assigned when an enqueue is
delivered, so they are equal on all members. The owner, the interested members, and the messages that consumers of
former owners still have, change only by events. All members therefore agree on them at each position in the order.

On this member a message is in one of these states:

* *pending*: received, and not safe yet;
* on the queue of the broker;
* with consumers of this member;
* *held*: kept separately, because consumers of another member have it;
* *front*: received by a state transfer to this member that is not complete.

A message that is requeued while it is pending is added to the queue behind the rest of its batch; the queue then sorts
it into its position, and it keeps its delivery mark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from copy import copy
from itertools import count
from typing import NamedTuple

from ...broker.messages.entry import ARRIVAL_MASK, Entry
from ...broker.queues.queue import Queue
from ...store.contract.dequeue_reason import DequeueReason
from ..group.member_id import MemberId
from .change_watch import ChangeWatch


class Note(NamedTuple):
    """Changes to the delivery counts of a message that a state transfer has not brought yet."""

    at_least: int = 0
    more: int = 0
    """Failures to add to the count that the message arrives with."""


class Replica:
    """The state of one replicated queue on this member. Core only."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.name = queue.name
        self.first = 1
        """The first position that is assigned by this queue.

        A queue that is created again begins above all positions of its predecessor of that name. So the first position
        identifies the queue that was meant by a member that has not received the deletion yet (D49).
        """
        self.owner: MemberId | None = None
        """The member whose consumers receive messages."""
        self.term = 0
        """The number of the term; rises with each change of the owner."""
        self.interested: set[MemberId] = set()
        """The members that have consumers."""
        self.acquired: dict[int, MemberId] = {}
        """Messages that consumers of a former owner still have."""
        self.held: dict[int, Entry] = {}
        """The entries of `acquired` that consumers of other members have."""
        self.base = 0
        """The last position that a state transfer to this member brings; 0 when the queue is complete."""
        self.front: dict[int, Entry] = {}
        self.tombstones: set[int] = set()
        """Positions up to `base` that were dequeued before the transfer brought their messages (rule 10)."""
        self._notes: dict[int, Note] = {}
        """Notes for messages that were dispatched before the transfer brought them."""
        self._note: Note | None = None
        """The note for all other messages that the transfer has not brought."""
        self.purged_below = 0
        """A purge removed all messages below this position,"""
        self.kept: frozenset[int] = frozenset()
        """except these positions."""
        self.line = ""
        """The ID of the queue's history at sites that federate it; empty until the first one did."""
        self.watches: list[ChangeWatch] = []
        """The watches of downstreams that this member feeds."""
        self._pending: deque[Sequence[Entry]] = deque()
        self._absent: set[int] = set()
        """Positions of messages that left the queue while they were pending."""
        self._back: dict[int, Entry] = {}
        """The entries of `_absent` that were requeued since."""

    @property
    def last(self) -> int:
        """Returns the position that was assigned last."""
        return next(copy(self.queue.positions)) - 1

    def begin_at(self, first: int) -> None:
        """Begins a new, empty queue."""
        self.first = first
        self.queue.positions = count(first)

    def begin_update(self, first: int, last: int) -> None:
        """Prepares for a transfer that brings the messages from *first* to *last*."""
        self.first, self.base = first, last
        self.queue.positions = count(last + 1)

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

    def count_dequeued(self, entries: Sequence[Entry], reason: DequeueReason) -> None:
        """Counts dequeued *entries*."""
        self.queue.count_dequeued(entries)
        for watch in self.watches:
            watch.note_dequeued(entries, reason)

    def knows(self, content: bytes) -> bool:
        """Returns whether a message with that message-id has been on the queue."""
        limits = self.queue.limits
        return limits is not None and limits.duplicates is not None and limits.duplicates.knows(content)

    def show(self) -> None:
        """Makes the oldest added batch available to consumers."""
        entries = self._pending.popleft()
        if self._absent:
            self._show_rest(entries)
        elif not self.queue.is_deleted:
            self.queue.add(entries)

    def _show_rest(self, entries: Sequence[Entry]) -> None:
        """Shows the entries that remain, with gaps in the backlog for the others, then the requeued ones."""
        absent, queue = self._absent, self.queue
        self._absent = absent - {entry.position for entry in entries}
        for entry in entries:
            if entry.position in absent:
                queue.contents.order.leave_hole(entry.position)
            elif not queue.is_deleted:
                queue.add([entry])
        for entry in entries:
            if self._back.pop(entry.position, None) is not None and not queue.is_deleted:
                queue.contents.give_back(entry)

    def is_to_come(self, position: int) -> bool:
        """Return whether a state transfer may still bring the message at *position*."""
        return position <= self.base and position not in self.front

    def note(self, position: int, failures: int = 0) -> None:
        """Records a delivery of a message that a transfer has not brought yet, with *failures* failed deliveries."""
        before = self._notes.get(position) or self._note or Note()
        self._notes[position] = Note(before.at_least + failures, before.more + failures)

    def count(self, entry: Entry, position: int, failures: int) -> None:
        """Sets the delivery marks of an entry that a transfer brought; *failures*: at the cut, as in update_front."""
        note = self._notes.pop(position, self._note)
        if failures or note is not None:
            at_least, more = note or Note()
            entry.previously_delivered, entry.failures = True, max(at_least, max(0, failures - 1) + more)

    def begin_again(self) -> list[Entry]:
        """Resets the transfer, which restarts with the counts of a new cut; returns the entries that it had brought."""
        for entry in self.front.values():
            self.queue.memory.hold(entry.held_bytes)
        held = [position for position in self.held if position <= self.base]
        come = [*self.front.values(), *map(self.held.pop, held)]
        self.front.clear()
        self._notes.clear()
        self._note = None
        return come

    def find(self, position: int) -> Entry | None:
        """Removes the message at *position* from its place and returns it; None if it is not here."""
        entry = self.held.pop(position, None)
        if entry is None and (entry := self.front.pop(position, None)) is not None:
            self.queue.memory.hold(entry.held_bytes)
        if entry is None:
            entry = self._find_pending(position) or self.queue.contents.order.pick(position)
        if entry is None:
            held = self.queue.with_consumers()
            entry = next((one for one in held if one.position & ARRIVAL_MASK == position), None)
        return None if entry is None or entry.is_dequeued else entry

    def _find_pending(self, position: int) -> Entry | None:
        if position in self._back:
            return self._back.pop(position)
        for entries in self._pending:
            if entries[0].position <= position <= entries[-1].position and position not in self._absent:
                entry = entries[position - entries[0].position]
                self._absent.add(position)
                self.queue.memory.hold(entry.held_bytes)
                return entry
        return None

    def is_pending_again(self, entry: Entry) -> bool:
        """Keeps an entry that left while it was pending and was requeued early; returns False if it did not leave."""
        if entry.position not in self._absent:
            return False
        self._back[entry.position] = entry
        return True

    def drop_pending(self) -> None:
        """Removes all pending messages."""
        for entries in self._pending:
            for entry in entries:
                if entry.position not in self._absent and not entry.is_dequeued:
                    self._absent.add(entry.position)
                    entry.is_dequeued = True
        for entry in self._back.values():
            entry.is_dequeued = True
        self._back.clear()

    def purge_below(self, end: int, kept: frozenset[int]) -> None:
        """Records a purge of all messages at positions below *end*, except those that are *kept*."""
        self.purged_below, self.kept = end, kept
        for watch in self.watches:
            watch.purged(end - 1, kept)
        self.tombstones |= {one for one in range(self.first, self.base + 1) if one not in kept}

    def purge_front(self, kept: frozenset[int]) -> list[Entry]:
        """Removes the messages that a transfer brought, except those that are *kept*; returns the removed ones."""
        removed = [entry for position, entry in self.front.items() if position not in kept]
        self.front = {position: entry for position, entry in self.front.items() if position in kept}
        return removed

    def take_back(self) -> None:
        """Requeues the messages that consumers of this member have."""
        queue = self.queue
        for holder in {*queue.consumers, *queue.selecting, *queue.detached_consumers}:
            cut_off = getattr(holder, "cut_off", None)
            if cut_off is None:
                continue
            for entry in cut_off():
                entry.previously_delivered = True
                queue.contents.give_back(entry)

    def entries(self) -> Iterable[Entry]:
        """Yields all entries in memory."""
        queue = self.queue
        contents = queue.contents
        for batch in self._pending:
            yield from (entry for entry in batch if entry.position not in self._absent)
        yield from self._back.values()
        yield from contents.ready
        yield from contents.returned
        yield from contents.order.parked()
        yield from (entry for entry in contents.delayed if not contents.stands(entry))
        yield from [*contents.backlog.held.values()]
        yield from queue.with_consumers()
        yield from self.held.values()

    def unavailable(self) -> list[int]:
        """Returns the arrivals of messages that consumers have, or whose requeue is delayed."""
        queue = self.queue
        held = [entry for entry in (*queue.with_consumers(), *queue.contents.delayed) if not entry.is_dequeued]
        return [entry.position & ARRIVAL_MASK for entry in held]

    def stored(self) -> list[tuple[int, int]]:
        """Returns the positions and IDs of all messages that are only on disk."""
        page = self.queue.contents.backlog.page(0, self.queue.contents.backlog.count)
        return [(position, message_id) for position, message_id in enumerate(page.ids, page.first) if message_id]

    def were_delivered(self) -> None:
        """Marks all messages as delivered, except those that consumers of other members have.

        The owner left, and cannot report which messages it had dispatched (rule 13).
        """
        pending = (entry for batch in self._pending for entry in batch if entry.position not in self._absent)
        here = (*pending, *self._back.values(), *self.front.values())
        # not below the end of the journal: a block that is not written yet assigns lower IDs to what follows
        highest = max([entry.message_id for entry in here], default=0)
        self.queue.contents.were_delivered(max(highest, self.queue.contents.backlog.highest_id()) + 1)
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
        """Adds the messages of the completed transfer to the queue, before all others."""
        front = [entry for _, entry in sorted(self.front.items())]
        self.front.clear()
        self.tombstones.clear()
        self._notes.clear()
        self._note = None
        self.base = 0
        next_one = self._pending[0][0].position if self._pending else self.last + 1
        self.queue.contents.order.put_before(front, next_one)
