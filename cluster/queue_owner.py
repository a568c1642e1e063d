"""Who owns which queue: what is heard of consume, cancel and release-queue, and of members that leave (D42).

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
from collections.abc import Iterable
from functools import partial
from typing import Any

from ..broker.entry import ARRIVAL_MASK, Entry
from ..broker.takers import Selecting, Taker
from ..broker.timers import Timers
from . import events
from .group import MemberId
from .local_messages import Local
from .ownership import QueueOwnership
from .replica import Replica
from .speaking import Speaking


class QueueOwnerHandler:
    """Of all replicated queues."""

    def __init__(self, speaking: Speaking) -> None:
        self._speaking = speaking
        self._timers: Timers | None = None
        self.replicas: dict[str, Replica] = {}
        self._ownership: dict[str, QueueOwnership] = {}
        self.me: MemberId | None = None
        self.members: tuple[MemberId, ...] = ()
        self.synced: set[MemberId] = set()
        """Those who have all messages: only they can own a queue."""
        self._consumers: dict[str, int] = {}
        """Of ours, as told to the others: how many."""
        self._cancelled: Counter[str] = Counter()
        """Of what we said ourselves: cancels that are still to be heard."""
        self.past = 0
        """No queue that is gone had a position above it."""
        self.moves = 0
        """How often a queue has changed hands."""

    def start(self, timers: Timers) -> None:
        self._timers = timers

    def made(self, replica: Replica) -> None:
        assert self._timers is not None
        replica.queue.stopped = True
        replica.begin_at(self.past + 1)
        self.replicas[replica.name] = replica
        self._ownership[replica.name] = QueueOwnership(replica, self._timers, self._release)
        self.decide(replica)

    def gone(self, name: str) -> None:
        """The queue was deleted, and all that was known of it goes (D49)."""
        replica = self.replicas.pop(name, None)
        if replica is not None and not self._speaking.alone:
            self.past = max(self.past, replica.last + 1)  # one more, as there may have been none
        self._ownership.pop(name, None)
        self._consumers.pop(name, None)
        self._cancelled.pop(name, None)

    # ---- our consumers --------------------------------------------------------------------------------------------

    def consuming(self, name: str) -> None:
        """The first consumer of a queue is told to all (D47)."""
        count = self._consumers[name] = self._consumers.get(name, 0) + 1
        if count == 1:
            self._speaking.say(events.told("consume", queue=name, first=self.replicas[name].first))

    def not_consuming(self, name: str) -> None:
        """And that the last one has gone; with it the queue is released, if it was ours."""
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
        """From here on nothing of it is handed out before that is heard: *acquired* is all that we have of it."""
        if self.me is not None:
            self._cancelled[name] += 1
        self._speaking.say(events.told("cancel", queue=name, first=self.replicas[name].first, acquired=acquired))

    def _release(self, replica: Replica) -> None:
        acquired = self._acquired(replica)
        self._speaking.say(events.told("release-queue", queue=replica.name, first=replica.first, acquired=acquired))

    def _acquired(self, replica: Replica) -> list[tuple[int, int]]:
        """What our consumers have: positions, and deliveries that failed before."""
        self._speaking.broker.order_all_back()
        held = [entry for entry in replica.queue.with_consumers() if not entry.gone]
        return [(entry.position & ARRIVAL_MASK, entry.failures) for entry in held]

    def look(self, replica: Replica) -> None:
        if len(replica.interested) > 1:
            self._ownership[replica.name].look()

    def hold(self, *, held: bool) -> None:
        """Hand out nothing of what is ours; or go on."""
        for ownership in self._ownership.values():
            ownership.hold(held=held)

    # ---- what is heard --------------------------------------------------------------------------------------------

    def _meant(self, about: dict[str, Any]) -> Replica | None:
        """The queue, unless it was deleted since; one that was made by its name is another one."""
        replica = self.replicas.get(about["queue"])
        return None if replica is None or replica.first != about["first"] else replica

    def consume(self, sender: MemberId, position: int, about: dict[str, Any]) -> None:
        replica = self._meant(about)
        if replica is None:
            return
        others = replica.interested - {sender}
        replica.interested.add(sender)
        if sender == self.me and others and replica.queue.policy.exclusive:  # the first one in the order has it
            why = f"the queue {replica.name!r} has a consumer on another member, and may have only one"
            consumers: list[Taker | Selecting] = [*replica.queue.consumers, *replica.queue.selecting]
            for consumer in consumers:
                consumer.terminal.failure("amqp:resource-locked", why)
        if replica.owner is None:
            self._pass_on(replica, sender, position)  # D72
        elif replica.owner == self.me:
            self._ownership[replica.name].contest()

    def release_queue(self, sender: MemberId, position: int, about: dict[str, Any]) -> None:
        replica = self._meant(about)
        if replica is None or replica.owner != sender:  # from before it had to pass it on
            return
        self._acquire(replica, sender, about["acquired"])
        self._pass_on(replica, self._next(replica, sender), position)

    def cancel(self, sender: MemberId, position: int, about: dict[str, Any]) -> None:
        replica = self._meant(about)
        if replica is None:
            return
        if sender == self.me:
            self._cancelled[replica.name] -= 1
        replica.interested.discard(sender)
        if replica.owner == sender:
            self._acquire(replica, sender, about["acquired"])
            self._pass_on(replica, self._next(replica, sender), position)

    def _acquire(self, replica: Replica, sender: MemberId, acquired: Iterable[tuple[int, int]]) -> None:
        """What its consumers have is theirs until it says otherwise, or leaves."""
        for position, failures in acquired:
            if position in replica.acquired:
                continue
            replica.acquired[position] = sender
            if sender == self.me:
                continue
            entry = replica.find(position)
            if entry is not None:
                entry.acquired, entry.failures = True, failures
                replica.held[position] = entry
            elif replica.is_to_come(position):
                replica.note(position)

    def _next(self, replica: Replica, after: MemberId) -> MemberId | None:
        """The next one in the ring of nodes that is interested and has all messages; *after* itself comes last."""
        able = sorted(replica.interested & self.synced)
        return next((member for member in able if member > after), able[0] if able else None)

    def _pass_on(self, replica: Replica, to: MemberId | None, position: int | None) -> None:
        """*position*: of the event that says so; None if it was no event."""
        if to is not None and to not in self.synced:
            to = self._next(replica, to)
        replica.owner = to
        self.moves += 1
        replica.term += 1
        ownership = self._ownership[replica.name]
        if to == self.me and to is not None:
            take = partial(self._take, replica, replica.term)
            if position is not None:
                self._speaking.when_safe(position, take)
            else:
                self._speaking.say(events.told("taken", queue=replica.name), Local(take))
        elif ownership.owned:
            ownership.stop()
        self.decide(replica)

    def _take(self, replica: Replica, term: int) -> None:
        """A majority has heard that it is ours; with a cancel of ours under way it is so until that is heard only."""
        if term != replica.term or replica.owner != self.me or self._cancelled[replica.name]:
            return
        if self.replicas.get(replica.name) is replica:
            self._ownership[replica.name].take(contested=len(replica.interested) > 1)

    def decider(self, replica: Replica) -> MemberId | None:
        if replica.owner is not None:
            return replica.owner
        return min(self.synced, default=None)

    def decide(self, replica: Replica) -> None:
        """Whether it is decided here what is over has changed, perhaps."""
        queue = replica.queue
        before, queue.decides = queue.decides, self.me is not None and self.decider(replica) == self.me
        if queue.decides and not before:
            queue.now_decides()

    # ---- members --------------------------------------------------------------------------------------------------

    def members_are(self, members: tuple[MemberId, ...]) -> None:
        """Those who are not among them have left (D74)."""
        there = set(members)
        self.members = members
        self.synced &= there
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
        """It has all messages from here on."""
        self.synced.add(member)
        for replica in self.replicas.values():
            if replica.owner is None and replica.interested & self.synced:
                self._pass_on(replica, self._next(replica, member), None)
            else:
                self.decide(replica)

    def _come_back(self, replica: Replica, position: int) -> None:
        """Whoever had it has left."""
        entry = replica.held.pop(position, None)
        if entry is not None:
            entry.acquired = True
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
            self._speaking.broker.touch(replica.queue)

    def lost(self) -> None:
        """The group was left: nobody owns anything, and what consumers had is on the queue again."""
        self.me = None
        self.members = ()
        self.synced.clear()
        self._cancelled.clear()
        for replica in self.replicas.values():
            self._ownership[replica.name].stop()
            replica.term += 1
            replica.owner = None
            replica.interested.clear()
            replica.acquired.clear()
            replica.queue.decides = False
            held, replica.held = replica.held, {}
            for entry in held.values():
                entry.acquired = True
                self.give_back(replica, entry)
