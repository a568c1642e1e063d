"""Handles the leadership of queues: consume, cancel and release-queue events, and members that leave (D42).

These hold at every place in the order of events, and all members see the same (D48):

* a queue has at most one owner, and that is one of those who are interested;
* it has none exactly if nobody is interested;
* an owner that releases the queue, or cancels, is followed by the next one in the order of nodes, as in a ring (D73: by
  itself only if nobody else is interested);
* an owner that leaves is followed the same way, without any event: everyone has heard that it left (rule 13).

Who owns a queue by what it has heard hands out messages only when a majority is known to have heard it, too (rule 15):
a member whose words nobody hears any more still hears itself, and would own what others own already.

*The decider* says which messages have expired, or are too many: the owner, or without one the member of the lowest
node (rule 16). Core only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from ...broker.messages.entry import ARRIVAL_MASK, Entry
from ...broker.queues.ports import FilteringConsumer, QueueConsumer
from ..group.member_id import MemberId
from ..kernel import events
from ..kernel.context import MemberContext
from ..kernel.control_messages import About, ControlMessage
from ..kernel.local_messages import LocalEvent
from .queue_ownership import QueueOwnership
from .replica import Replica, Touch


class QueueOwnerHandler:
    """The leadership of all replicated queues."""

    def __init__(self, context: MemberContext, release_all: Callable[[], None], touch: Touch) -> None:
        """*release_all*: multicasts the releases of this step; *touch*: schedules the dispatch of a queue."""
        self._state = context.state
        self._broadcaster = context.broadcaster
        self._commits = context.commits
        self._timers = context.timers
        self._release_all = release_all
        self._touch = touch
        self._held = False
        self.replicas: dict[str, Replica] = {}
        self._ownership: dict[str, QueueOwnership] = {}
        self._consumers: dict[str, int] = {}
        """Of ours, as told to the others: how many."""
        self._cancelled: Counter[str] = Counter()
        """Of what we said ourselves: cancels that are still to be heard."""
        self.past = 0
        """No queue that is gone had a position above it."""
        self.moves = 0
        """How often a queue has changed hands."""

    def ownership(self, name: str) -> QueueOwnership:
        return self._ownership[name]

    def made(self, replica: Replica) -> None:
        replica.queue.is_paused = True
        replica.begin_at(self.past + 1)
        self.replicas[replica.name] = replica
        self._ownership[replica.name] = QueueOwnership(replica, self._timers, self._release, held=self._held)
        self.decide(replica)

    def gone(self, name: str) -> None:
        """The queue was deleted, and all that was known of it goes (D49)."""
        replica = self.replicas.pop(name, None)
        if replica is not None and not self._state.is_alone:
            self.past = max(self.past, replica.last + 1)  # one more, as there may have been none
        self._ownership.pop(name, None)
        self._consumers.pop(name, None)
        self._cancelled.pop(name, None)

    # ---- our consumers --------------------------------------------------------------------------------------------

    def consuming(self, name: str) -> None:
        """The first consumer of a queue is told to all (D47)."""
        count = self._consumers[name] = self._consumers.get(name, 0) + 1
        if count == 1:
            self._broadcaster.send(events.control("consume", queue=name, first=self.replicas[name].first))

    def not_consuming(self, name: str) -> None:
        """Multicasts that the last consumer of a queue was closed; with it this member releases the queue."""
        count = self._consumers.get(name, 0) - 1
        if count < 0:
            return
        self._consumers[name] = count
        if count == 0:
            self._ownership[name].stop()
            self._cancel(name, self._acquired(self.replicas[name]))

    def forget_consumers(self) -> None:
        """All clients are being sent away: this member wants nothing any more."""
        names = [name for name, count in self._consumers.items() if count]
        self._consumers.clear()
        for name in names:
            self._ownership[name].stop()
            self._cancel(name, [])

    def _cancel(self, name: str, acquired: list[tuple[int, int]]) -> None:
        """Multicasts a cancel with all that consumers have here: no more is dispatched before it is delivered."""
        if self._state.me is not None:
            self._cancelled[name] += 1
        self._broadcaster.send(events.control("cancel", queue=name, first=self.replicas[name].first, acquired=acquired))

    def _release(self, replica: Replica) -> None:
        acquired = self._acquired(replica)
        self._broadcaster.send(
            events.control("release-queue", queue=replica.name, first=replica.first, acquired=acquired)
        )

    def _acquired(self, replica: Replica) -> list[tuple[int, int]]:
        """Returns the messages that consumers of this member have: positions, and failed deliveries."""
        self._release_all()
        held = [entry for entry in replica.queue.with_consumers() if not entry.gone]
        return [(entry.position & ARRIVAL_MASK, entry.failures) for entry in held]

    def look(self, replica: Replica) -> None:
        if len(replica.interested) > 1:
            self._ownership[replica.name].look()

    def hold(self, held: bool) -> None:
        """Dispatch nothing of what is ours or becomes ours; or go on."""
        self._held = held
        for ownership in self._ownership.values():
            ownership.hold(held=held)

    # ---- what is heard --------------------------------------------------------------------------------------------

    def _meant(self, about: About) -> Replica | None:
        """The queue, unless it was deleted since; one that was made by its name is another one."""
        replica = self.replicas.get(about["queue"])
        return None if replica is None or replica.first != about["first"] else replica

    def consume(self, message: ControlMessage) -> None:
        sender, position, about = message
        replica = self._meant(about)
        if replica is None:
            return
        others = replica.interested - {sender}
        replica.interested.add(sender)
        if sender == self._state.me and others and replica.queue.policy.exclusive:  # the first one in the order has it
            why = f"queue {replica.name!r} allows one consumer, and has one on another member"
            consumers: list[QueueConsumer | FilteringConsumer] = [*replica.queue.consumers, *replica.queue.selecting]
            for consumer in consumers:
                consumer.terminal.failure("amqp:resource-locked", why)
        if replica.owner is None:
            self._pass_on(replica, sender, position)  # D72
        elif replica.owner == self._state.me:
            self._ownership[replica.name].contest()

    def release_queue(self, message: ControlMessage) -> None:
        sender, position, about = message
        replica = self._meant(about)
        if replica is None or replica.owner != sender:  # from before it had to pass it on
            return
        self._acquire(replica, sender, about["acquired"])
        self._pass_on(replica, self._next(replica, sender), position)

    def cancel(self, message: ControlMessage) -> None:
        sender, position, about = message
        replica = self._meant(about)
        if replica is None:
            return
        if sender == self._state.me:
            self._cancelled[replica.name] -= 1
        replica.interested.discard(sender)
        if replica.owner == sender:
            self._acquire(replica, sender, about["acquired"])
            self._pass_on(replica, self._next(replica, sender), position)

    def _acquire(self, replica: Replica, sender: MemberId, acquired: Iterable[tuple[int, int]]) -> None:
        """Notes the messages that consumers of *sender* have, until it settles them or leaves."""
        for position, failures in acquired:
            if position in replica.acquired:
                continue
            replica.acquired[position] = sender
            if sender == self._state.me:
                continue
            entry = replica.find(position)
            if entry is not None:
                entry.previously_delivered, entry.failures = True, failures
                replica.held[position] = entry
            elif replica.is_to_come(position):
                replica.note(position)

    def _next(self, replica: Replica, after: MemberId) -> MemberId | None:
        """The next one in the ring of nodes that is interested and has all messages; *after* itself comes last."""
        able = sorted(replica.interested & self._state.synced)
        return next((member for member in able if member > after), able[0] if able else None)

    def _pass_on(self, replica: Replica, to: MemberId | None, position: int | None) -> None:
        """*position*: of the event that says so; None if it was no event."""
        if to is not None and to not in self._state.synced:
            to = self._next(replica, to)
        replica.owner = to
        self.moves += 1
        replica.term += 1
        ownership = self._ownership[replica.name]
        if to == self._state.me and to is not None:
            take = partial(self._take, replica, replica.term)
            if position is not None:
                self._commits.when_safe(position, take)
            else:
                self._broadcaster.send(events.control("taken", queue=replica.name), LocalEvent(take))
        elif ownership.owned:
            ownership.stop()
        self.decide(replica)

    def _take(self, replica: Replica, term: int) -> None:
        """A majority has heard that it is ours; with a cancel of ours under way it is so until that is heard only."""
        if term != replica.term or replica.owner != self._state.me or self._cancelled[replica.name]:
            return
        if self.replicas.get(replica.name) is replica:
            self._ownership[replica.name].take(contested=len(replica.interested) > 1)

    def decider(self, replica: Replica) -> MemberId | None:
        if replica.owner is not None:
            return replica.owner
        return min(self._state.synced, default=None)

    def decide(self, replica: Replica) -> None:
        """Determines anew whether this member decides about expiry and limits of a queue."""
        queue = replica.queue
        before, queue.is_owner = queue.is_owner, self._state.me is not None and self.decider(replica) == self._state.me
        if queue.is_owner and not before:
            queue.now_decides()

    # ---- members --------------------------------------------------------------------------------------------------

    def members_are(self, members: tuple[MemberId, ...]) -> None:
        """Removes all members but *members* (D74)."""
        there = set(members)
        self._state.synced &= there
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
        """Notes that *member* has all messages from here on."""
        self._state.synced.add(member)
        for replica in self.replicas.values():
            if replica.owner is None and replica.interested & self._state.synced:
                self._pass_on(replica, self._next(replica, member), None)
            else:
                self.decide(replica)

    def _come_back(self, replica: Replica, position: int) -> None:
        """Whoever had it has left."""
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
            replica.queue.let_go(entry.held_bytes)
            replica.front[arrival] = entry
        elif not replica.is_pending_again(entry):
            replica.queue.give_back(entry)
            self._touch(replica.queue)

    def lost(self) -> None:
        """The group was left: nobody owns anything, and what consumers had is on the queue again."""
        self._cancelled.clear()
        for replica in self.replicas.values():
            self._ownership[replica.name].stop()
            replica.term += 1
            replica.owner = None
            replica.interested.clear()
            replica.acquired.clear()
            replica.queue.is_owner = False
            held, replica.held = replica.held, {}
            for entry in held.values():
                entry.previously_delivered = True
                self.give_back(replica, entry)
