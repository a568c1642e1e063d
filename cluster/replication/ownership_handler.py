"""Handles the leadership of queues: consume, cancel and release-queue events, and members that leave (D42).

The following invariants hold at every position in the order of events, and are equal on all members (D48):

* A queue has at most one owner, which is one of the interested members.
* A queue has no owner exactly if no member is interested.
* When the owner releases the queue, or cancels, the next interested member in the ring of nodes follows (D73: the owner
  itself follows only if no other member is interested).
* When the owner leaves, the next member follows the same way, without a further event: the configuration is delivered
  to all members (rule 13).

A member that owns a queue dispatches its messages only when a majority is known to have received the event that made it
the owner (rule 15). A member whose events no other member receives any more still receives its own, and would claim
queues that others own.

*The decider* determines which messages have expired or exceed the limits: the owner, or, without an owner, the member
of the lowest node (rule 16). Core only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

from ...broker.contents.ports import FilteringConsumer, QueueConsumer
from ...broker.messages.entry import ARRIVAL_MASK, Entry
from ..group.member_id import MemberId
from ..kernel.context import MemberContext
from ..kernel.control_messages import About, ControlMessage
from ..kernel.local_messages import LocalEvent
from .queue_ownership import QueueOwnership
from .replica import Replica


class QueueOwnerHandler:
    """The leadership of all replicated queues."""

    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self._held = False
        self.replicas: dict[str, Replica] = {}
        self.ownership: dict[str, QueueOwnership] = {}
        self._consumers: dict[str, int] = {}
        """The number of consumers of this member by queue, as multicast to the others."""
        self._cancelled: Counter[str] = Counter()
        """The number of cancels by queue that this member multicast and has not received back."""
        self.past = 0
        """No deleted queue had a position above this one."""
        self.moves = 0
        """The number of changes of owners."""

    def made(self, replica: Replica) -> None:
        replica.queue.is_paused = True
        replica.begin_at(self.past + 1)
        self.replicas[replica.name] = replica
        self.ownership[replica.name] = QueueOwnership(replica, self._context.timers, self._release, held=self._held)
        self.decide(replica)

    def removed(self, name: str) -> None:
        """Removes all state of a queue that was deleted (D49)."""
        replica = self.replicas.pop(name, None)
        if replica is not None and not self._context.state.is_alone:
            self.past = max(self.past, replica.last + 1)  # one more, as there may have been none
        self.ownership.pop(name, None)
        self._consumers.pop(name, None)
        self._cancelled.pop(name, None)

    def consuming(self, name: str) -> None:
        """Counts a consumer of this member; the first consumer of a queue is announced to all members (D47)."""
        count = self._consumers[name] = self._consumers.get(name, 0) + 1
        if count == 1:
            self._context.broadcaster.send_control("consume", queue=name, first=self.replicas[name].first)

    def not_consuming(self, name: str) -> None:
        """Multicasts that the last consumer of a queue was closed, which also releases the queue."""
        count = self._consumers.get(name, 0) - 1
        if count < 0:
            return
        self._consumers[name] = count
        if count == 0:
            self.ownership[name].stop()
            self._cancel(name, self._acquired(self.replicas[name]))

    def forget_consumers(self) -> None:
        """Cancels the interest of this member in all queues, because its clients are being disconnected."""
        names = [name for name, count in self._consumers.items() if count]
        self._consumers.clear()
        for name in names:
            self.ownership[name].stop()
            self._cancel(name, [])

    def _cancel(self, name: str, acquired: list[tuple[int, int]]) -> None:
        """Multicasts a cancel with all messages that consumers here have; dispatch pauses until it is delivered."""
        if self._context.state.me is not None:
            self._cancelled[name] += 1
        self._context.broadcaster.send_control("cancel", queue=name, first=self.replicas[name].first, acquired=acquired)

    def _release(self, replica: Replica) -> None:
        self._context.broadcaster.send_control(
            "release-queue", queue=replica.name, first=replica.first, acquired=self._acquired(replica)
        )

    def _acquired(self, replica: Replica) -> list[tuple[int, int]]:
        """Returns the messages that consumers of this member have: positions, and failed deliveries."""
        self._context.release_all()
        held = [entry for entry in replica.queue.with_consumers() if not entry.is_dequeued]
        return [(entry.position & ARRIVAL_MASK, entry.failures) for entry in held]

    def look(self, replica: Replica) -> None:
        if len(replica.interested) > 1:
            self.ownership[replica.name].look()

    def hold(self, held: bool) -> None:
        """Pauses or resumes the dispatch of all queues that this member owns or will own."""
        self._held = held
        for ownership in self.ownership.values():
            ownership.hold(held=held)

    def _meant(self, about: About) -> Replica | None:
        """Returns the queue that *about* names, unless it was deleted since; a new queue of that name is not meant."""
        replica = self.replicas.get(about["queue"])
        return None if replica is None or replica.first != about["first"] else replica

    def consume(self, message: ControlMessage) -> None:
        sender, position, about = message
        replica = self._meant(about)
        if replica is None:
            return
        me, others = self._context.state.me, replica.interested - {sender}
        replica.interested.add(sender)
        if sender == me and others and replica.queue.policy.exclusive:  # the first one in the order wins
            reason = f"queue {replica.name!r} allows one consumer, and has one on another member"
            consumers: list[QueueConsumer | FilteringConsumer] = [*replica.queue.consumers, *replica.queue.selecting]
            for consumer in consumers:
                consumer.terminal.failure("amqp:resource-locked", reason)
        if replica.owner is None:
            self._pass_on(replica, sender, position)  # D72
        elif replica.owner == me:
            self.ownership[replica.name].contest()

    def release_queue(self, message: ControlMessage) -> None:
        sender, position, about = message
        replica = self._meant(about)
        if replica is None or replica.owner != sender:  # sent before *sender* had to pass the queue on
            return
        self._acquire(replica, sender, about["acquired"])
        self._pass_on(replica, self._next(replica, sender), position)

    def cancel(self, message: ControlMessage) -> None:
        sender, position, about = message
        replica = self._meant(about)
        if replica is None:
            return
        if sender == self._context.state.me:
            self._cancelled[replica.name] -= 1
        replica.interested.discard(sender)
        if replica.owner == sender:
            self._acquire(replica, sender, about["acquired"])
            self._pass_on(replica, self._next(replica, sender), position)

    def _acquire(self, replica: Replica, sender: MemberId, acquired: Iterable[tuple[int, int]]) -> None:
        """Records the messages that consumers of *sender* have, until it settles them or leaves."""
        for position, failures in acquired:
            if position in replica.acquired:
                continue
            replica.acquired[position] = sender
            if sender == self._context.state.me:
                continue
            entry = replica.find(position)
            if entry is not None:
                entry.previously_delivered, entry.failures = True, failures
                replica.held[position] = entry
            elif replica.is_to_come(position):
                replica.note(position)

    def _next(self, replica: Replica, after: MemberId) -> MemberId | None:
        """Returns the next interested member in the ring of nodes that is synced; *after* itself comes last."""
        able = sorted(replica.interested & self._context.state.synced)
        return next((member for member in able if member > after), able[0] if able else None)

    def _pass_on(self, replica: Replica, to: MemberId | None, position: int | None) -> None:
        """Makes *to* the owner. *position*: of the event that causes it; None without an event."""
        if to is not None and to not in self._context.state.synced:
            to = self._next(replica, to)
        replica.owner = to
        self.moves += 1
        replica.term += 1
        ownership = self.ownership[replica.name]
        if to == self._context.state.me and to is not None:
            take = partial(self._take, replica, replica.term)
            if position is not None:
                self._context.commits.when_safe(position, take)
            else:
                self._context.broadcaster.send_control("taken", LocalEvent(take), queue=replica.name)
        elif ownership.owned:
            ownership.stop()
        self.decide(replica)

    def _take(self, replica: Replica, term: int) -> None:
        """Starts to dispatch: a majority received the change of the owner, and no cancel of ours is in flight."""
        if term != replica.term or replica.owner != self._context.state.me or self._cancelled[replica.name]:
            return
        if self.replicas.get(replica.name) is replica:
            self.ownership[replica.name].take(contested=len(replica.interested) > 1)

    def decider(self, replica: Replica) -> MemberId | None:
        if replica.owner is not None:
            return replica.owner
        return min(self._context.state.synced, default=None)

    def decide(self, replica: Replica) -> None:
        """Recomputes whether this member decides about expiry and limits of a queue."""
        queue, me = replica.queue, self._context.state.me
        before, queue.is_owner = queue.is_owner, me is not None and self.decider(replica) == me
        if queue.is_owner and not before:
            queue.now_decides()

    def members_are(self, members: tuple[MemberId, ...]) -> None:
        """Removes all members but *members* (D74)."""
        there = set(members)
        self._context.state.synced &= there
        for replica in self.replicas.values():
            replica.interested &= there
            for position, member in [*replica.acquired.items()]:
                if member not in there:
                    del replica.acquired[position]
                    self._come_back(replica, position)
            owner = replica.owner
            if owner is not None and owner not in there:
                replica.were_delivered()
                self._pass_on(replica, self._next(replica, owner), None)
            else:
                self.decide(replica)

    def now_synced(self, member: MemberId) -> None:
        """Records that *member* has all messages from here on."""
        self._context.state.synced.add(member)
        for replica in self.replicas.values():
            if replica.owner is None and replica.interested & self._context.state.synced:
                self._pass_on(replica, self._next(replica, member), None)
            else:
                self.decide(replica)

    def _come_back(self, replica: Replica, position: int) -> None:
        """Requeues a message whose member left."""
        entry = replica.held.pop(position, None)
        if entry is not None:
            entry.previously_delivered = True
            entry.failures += 1
            self.give_back(replica, entry)
        elif position <= replica.base:
            replica.note(position, 1)

    def give_back(self, replica: Replica, entry: Entry) -> None:
        arrival = entry.position & ARRIVAL_MASK
        if arrival <= replica.base:
            replica.queue.memory.release(entry.held_bytes)
            replica.front[arrival] = entry
        elif not replica.is_pending_again(entry):
            replica.queue.contents.give_back(entry)
            self._context.touch(replica.queue)

    def lost(self) -> None:
        """Resets all leadership, because this member left the group, and requeues the messages that consumers had."""
        self._cancelled.clear()
        for replica in self.replicas.values():
            self.ownership[replica.name].stop()
            replica.term += 1
            replica.owner = None
            replica.interested.clear()
            replica.acquired.clear()
            replica.queue.is_owner = False
            held, replica.held = replica.held, {}
            for entry in held.values():
                entry.previously_delivered = True
                self.give_back(replica, entry)
