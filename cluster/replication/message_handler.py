"""Applies the events about messages to the store and the queues of this member, as all members do (D41).

It is called only in the order of events. The effect of an event depends only on state that all members share at its
position:

* enqueue: positions are assigned on each of its queues; the message is stored at once, and dispatched when it is safe;
* dequeue, release, move name messages by position. They are valid if the sender has the message: because it acquired
  it, or, if no member did, as the queue's decider. Others were sent before the sender had to pass the queue on, and are
  ignored: entries that the sender removed from its own queue for them are requeued there.

For a message that a state transfer has not brought yet, a tombstone or a note is recorded (rule 10). Core only.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Sequence
from functools import partial
from itertools import count

from ...base.errors import CairnError
from ...broker.kernel.loader import BEGINNING_BYTES
from ...broker.links.partial_message import PIECE_BYTES
from ...broker.messages.entry import ARRIVAL_MASK, Entry
from ...broker.messages.message_times import TimedEntry
from ...broker.transactions.dead_letters import Returns
from ...store.contract.dequeue_reason import NOT_RECORDED, DequeueReason
from ..group.member_id import MemberId
from ..kernel.context import MemberContext
from ..kernel.events import DequeueEvent, Message, ReleaseEvent
from ..kernel.local_messages import LocalEvent
from .ownership_handler import QueueOwnerHandler
from .replica import Replica

log = logging.getLogger(__name__)

DROP_MESSAGES = 4096
"""The maximum number of messages dropped in one step, of those that the others do not have."""


class MessageHandler:
    def __init__(self, context: MemberContext, owners: QueueOwnerHandler, returns: Returns) -> None:
        self._context = context
        self._returns = returns
        self._owners = owners

    # ---- enqueue --------------------------------------------------------------------------------------------------

    def enqueue(self, position: int, names: Sequence[str], messages: Sequence[Message], timed: bool) -> bool:
        """Enqueues messages; returns whether any of the queues exists."""
        replicas = [replica for name in names if (replica := self._owners.replicas.get(name)) is not None]
        if any(replica.queue.policy.duplicate_window for replica in replicas):
            for message in messages:  # all members remember the same IDs at this position
                new = [replica for replica in replicas if not replica.knows(message[0])]
                if new:
                    self._put_on(position, new, [message], timed)
        elif replicas:
            self._put_on(position, replicas, messages, timed)
        return bool(replicas)

    def _put_on(self, position: int, replicas: Sequence[Replica], messages: Sequence[Message], timed: bool) -> None:
        ids = self._store_all(replicas, [content for content, lasts in messages if lasts])
        for replica in replicas:
            self.add(replica, position, replica.queue.new_entries(messages, ids, timed))

    def add(self, replica: Replica, place: int, entries: Sequence[Entry]) -> None:
        """Adds *entries* to a queue; consumers get them when the event at *place* is safe."""
        looks_inside = replica.queue.policy.looks_inside
        for entry in entries:
            if entry.message_id and entry.held_bytes > PIECE_BYTES:  # read back piece by piece
                _forget(entry, PIECE_BYTES, looks_inside)
        replica.add(entries)
        self._context.commits.when_safe(place, partial(self._show, replica), always=True)

    def _show(self, replica: Replica) -> None:
        replica.show()
        if replica.queue.limits is not None:
            replica.queue.limits.shown()
        self._context.touch(replica.queue)
        self._owners.look(replica)

    def _store_all(self, replicas: Sequence[Replica], contents: Sequence[bytes]) -> Sequence[int]:
        """Stores each message on the store's queues of all *replicas*; returns the IDs."""
        if not contents:
            return ()
        store, now_us = self._context.store, self._context.clock.wall_us()
        first = replicas[0].queue.queue_id
        if max(map(len, contents)) <= PIECE_BYTES:
            ids, _ = store.put_all(first, contents, now_us)
        else:
            ids = [self._put(first, content, now_us) for content in contents]
        for replica in replicas[1:]:
            for message_id in ids:
                store.enqueue(message_id, replica.queue.queue_id, now_us)
        return ids

    def _put(self, queue_id: int, content: bytes, now_us: int) -> int:
        store = self._context.store
        if len(content) <= PIECE_BYTES:
            return store.put(queue_id, content, now_us)[0]
        message_id = self.stage(content, now_us)
        store.enqueue(message_id, queue_id, now_us)
        return message_id

    def stage(self, content: bytes, now_us: int) -> int:
        """Stores a long message that is on no queue; returns its ID."""
        store = self._context.store
        message_id = store.stage(content[:PIECE_BYTES], now_us)
        for at in range(PIECE_BYTES, len(content), PIECE_BYTES):
            is_last = at + PIECE_BYTES >= len(content)
            store.append_content(message_id, content[at : at + PIECE_BYTES], now_us, last=is_last)
        return message_id

    def put_front(self, replica: Replica, position: int, failures: int, message: Message) -> None:
        """Adds a message from before the cut of this member (`receiver`)."""
        if not self.is_awaited(replica, position):
            return
        content, lasts = message
        queue = replica.queue
        message_id = self._put(queue.queue_id, content, self._context.clock.wall_us()) if lasts else 0
        positions, queue.positions = queue.positions, count(position)
        (entry,) = queue.new_entries([message], [message_id] if lasts else (), True)
        queue.positions = positions
        if lasts and not queue.memory.has_room():
            _forget(entry, 0, queue.policy.is_sorted)  # its ID is among those that arrived apart from the messages
        self._came(replica, entry, position, failures)

    def is_awaited(self, replica: Replica, position: int) -> bool:
        """Return whether a message from before the cut is expected at *position*, and remove its tombstone.

        Call it once per position.
        """
        if position <= replica.base and position not in replica.front and position not in replica.tombstones:
            return True
        replica.tombstones.discard(position)
        return False

    def keep_front(self, replica: Replica, position: int, failures: int, entry: Entry) -> None:
        """Adds a message from before the cut of this member that is already in its store."""
        if isinstance(entry, TimedEntry):
            replica.queue.begin_timing()
        self._came(replica, entry, position, failures)

    def _came(self, replica: Replica, entry: Entry, position: int, failures: int) -> None:
        queue = replica.queue
        replica.count(entry, position, failures)
        queue.messages += 1
        if queue.limits is not None:
            queue.limits.count([entry])
        if position in replica.acquired:
            queue.memory.hold(entry.held_bytes)
            replica.held[position] = entry
        else:
            replica.front[position] = entry

    # ---- off the queue --------------------------------------------------------------------------------------------

    def dequeue(self, sender: MemberId, event: DequeueEvent, local: LocalEvent | None) -> None:
        replica = self._owners.replicas.get(event.name)
        if replica is not None:
            self.drop(replica, self.valid(replica, sender, event.positions, local), event.reason)

    def drop(self, replica: Replica, entries: Sequence[Entry], reason: DequeueReason = NOT_RECORDED) -> None:
        """Removes *entries* from a queue."""
        if not entries:
            return
        queue = replica.queue
        stored = [entry.message_id for entry in entries if entry.message_id]
        if stored:
            self._context.store.dequeue_all(stored, queue.queue_id, self._context.clock.wall_us(), reason)
        for entry in entries:
            queue.contents.delayed.pop(entry, None)
        replica.count_dequeued(entries, reason)
        self._context.touch(queue)

    def begin_again(self, replica: Replica) -> list[Entry]:
        """Removes all messages that a transfer brought, since it restarts; returns them. The store keeps them."""
        entries = replica.begin_again()
        replica.count_dequeued(entries, NOT_RECORDED)
        self._context.touch(replica.queue)
        return entries

    def drop_stored(self, replica: Replica, ids: list[int]) -> list[int]:
        """Drops some messages from the store that are not on the queue here; returns the remaining IDs."""
        now_us = self._context.clock.wall_us()
        self._context.store.dequeue_all(ids[:DROP_MESSAGES], replica.queue.queue_id, now_us)
        replica.queue.note_change()
        return ids[DROP_MESSAGES:]

    def release(
        self, sender: MemberId, event: ReleaseEvent, local: LocalEvent | None, content: bytes | None = None
    ) -> None:
        """Returns messages to their queue; *content* replaces that of the only one."""
        replica = self._owners.replicas.get(event.name)
        if replica is None:
            return
        failed = dict(zip(event.positions, event.failed, strict=True))
        for position in event.positions:
            if replica.is_to_come(position) and position not in replica.held and self.has(replica, sender, position):
                replica.note(position, failed[position])
        for entry in self.valid(replica, sender, event.positions, local, dead_letter=False):
            arrival = entry.position & ARRIVAL_MASK
            if content is not None:
                self._rewrite(replica, entry, content)
            entry.previously_delivered = True
            entry.failures += failed[arrival]
            if failed[arrival] and arrival > replica.base:  # each member delays it, in case the owner changes
                self._returns.give_back(
                    replica.queue, entry, failed=True, back=partial(self._owners.give_back, replica)
                )
                self._context.touch(replica.queue)
            else:
                self._owners.give_back(replica, entry)

    def _rewrite(self, replica: Replica, entry: Entry, content: bytes) -> None:
        try:
            self._returns.rewrite(replica.queue, entry, content)
        except CairnError as error:  # the disk is full: the message stays as it was here
            text = "queue %s: message %d is requeued without the annotations of its receiver: %s"
            about = {"event": "message.not-annotated", "queue": replica.queue.name}
            log.warning(text, replica.queue.name, entry.message_id, error, extra=about)

    def purge(self, replica: Replica, keep: Sequence[int], unheard: Iterable[Entry] = ()) -> int:
        """Removes all messages except those at *keep* and those of consumers elsewhere; returns their number (rule 16).

        Messages that were dispatched here after the purge was sent are also removed: all members must agree. *unheard*:
        messages that consumers here have settled, in events that have not come back. Those at kept positions remain
        until the settlement is delivered; the others were dispatched after the purge was sent, and their settlement has
        no effect.
        """
        queue, kept = replica.queue, frozenset((*keep, *replica.acquired))
        replica.purge_below(replica.last + 1, kept)
        wanted = [position for position in keep if position not in replica.held]  # consumers elsewhere have those
        stays = [entry for entry in map(replica.find, wanted) if entry is not None]
        settled, late = _split([entry for entry in unheard if not entry.is_dequeued], kept)
        held = {*stays, *replica.held.values(), *settled}
        _, removed = _split([entry for entry in queue.with_consumers() if not entry.is_dequeued], kept)
        queue.forget(removed)
        mine = dict.fromkeys(queue.with_consumers())
        front = replica.purge_front(kept)
        stored = [*held, *mine, *replica.front.values()]
        self._context.store.purge(
            queue.queue_id, self._context.clock.wall_us(), keep=[one.message_id for one in stored if one.message_id]
        )
        replica.drop_pending()
        before = queue.messages
        queue.count_dequeued(removed)
        queue.clear()
        elsewhere = held - mine.keys()
        others = len(elsewhere) + len(replica.front)
        queue.messages += others
        queue.taken -= others
        queue.memory.hold(sum([entry.held_bytes for entry in elsewhere]))
        for entry in (*front, *late):
            entry.is_dequeued = True
        for entry in stays:
            if entry not in mine:
                self._owners.give_back(replica, entry)
        self._context.touch(queue)
        return before - queue.messages

    # ---- validity -------------------------------------------------------------------------------------------------

    def has(self, replica: Replica, sender: MemberId, position: int) -> bool:
        """Returns whether *sender* decides about that message: all members agree, even those without the message."""
        if position < replica.first or (position < replica.purged_below and position not in replica.kept):
            return False
        acquirer = replica.acquired.get(position)
        return sender == (self._owners.decider(replica) if acquirer is None else acquirer)

    def valid(
        self,
        replica: Replica,
        sender: MemberId,
        positions: Sequence[int],
        local: LocalEvent | None,
        *,
        dead_letter: bool = True,
    ) -> list[Entry]:
        """Return the messages at *positions* that *sender* has; *dead_letter* leaves tombstones for later ones.

        Events of this member about a deleted queue do not apply to a new queue of that name.
        """
        if local is not None and local.queue is not replica.queue:
            local = None
        delayed = replica.queue.contents.delayed
        if local is not None and not replica.acquired and sender == replica.owner and not delayed:
            return [entry for entry in local.entries if not entry.is_dequeued]  # an owner's, as in almost all cases
        entries: list[Entry] = []
        own = {} if local is None else {entry.position & ARRIVAL_MASK: entry for entry in local.entries}
        for position in positions:
            if not self.has(replica, sender, position):
                self._restore(replica, own.get(position))
                continue
            replica.acquired.pop(position, None)
            found = own.get(position) or replica.find(position)
            if found is not None and not found.is_dequeued:
                replica.queue.contents.delayed.pop(found, None)
                entries.append(found)
            elif found is None and position <= replica.base and dead_letter:
                replica.tombstones.add(position)
        return entries

    def _restore(self, replica: Replica, entry: Entry | None) -> None:
        """Requeues an entry of this member, which does not decide about it any more."""
        if entry is not None and not entry.is_dequeued:
            replica.queue.contents.delayed.pop(entry, None)
            self._owners.give_back(replica, entry)


def _split(entries: Iterable[Entry], kept: Container[int]) -> tuple[list[Entry], list[Entry]]:
    """Returns the entries at *kept* positions, and the others."""
    inside: list[Entry] = []
    outside: list[Entry] = []
    for entry in entries:
        (inside if entry.position & ARRIVAL_MASK in kept else outside).append(entry)
    return inside, outside


def _forget(entry: Entry, held_bytes: int, looks_inside: bool) -> None:
    """Drops the content of a message that can be read back; a queue that reads properties keeps the first bytes."""
    if looks_inside:
        entry.first_bytes = entry.complete()[:BEGINNING_BYTES]
    entry.content, entry.held_bytes = None, held_bytes
