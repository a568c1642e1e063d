"""Tracks when an event is safe: ordered, durable here, and acknowledged by a majority of the configured members.

To have heard one's own event proves nothing: it may have been heard by nobody else, ever (rule 1). So each member says
now and then up to where all events are done and on its disk, and everybody listens. What a client is told waits here,
in the order of events.

An acknowledgement names senders and the numbers of their batches: whoever has missed something and does not know it yet
counts places in the order wrongly, but never these.

A member that joins acknowledges what it did since it joined. What was said before that it has only when all is updated:
until then its acknowledgements count from its cut on (`floors`). Core only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..group.member_id import MemberId


class PendingAction(NamedTuple):
    """Something to be done when the event at *position* is safe."""

    position: int
    sender: MemberId | None
    number: int
    """The event is in that batch of that sender; without one it is known to all who are here."""
    action: Callable[[], None]
    always: bool
    """Also when the group is left: it is for this member only, and no client is told."""


class CommitTracker:
    """Acknowledgements, and what waits for them."""

    def __init__(self) -> None:
        self.majority = 1
        """Of the configured members."""
        self.me: MemberId | None = None
        self.acks: dict[MemberId, dict[MemberId, int]] = {}
        """By member: of each sender the batches up to that number are done there, and on the disk."""
        self.now: tuple[MemberId | None, int] = (None, 0)
        """Sender and number of what is being done,"""
        self.at = 0
        """and its place."""
        self.numbers: dict[MemberId, int] = {}
        """Of each sender the last batch that is done here, and on the disk."""
        self.floors: dict[MemberId, int] = {}
        """Of members that are being updated: their cut."""
        self.done = 0
        """Here."""
        self._waiting: deque[PendingAction] = deque()
        self._undone: deque[tuple[int, int, dict[MemberId, int]]] = deque()
        """LSNs, and the position below which all is on the disk when that LSN is durable, with numbers of senders."""
        self._heard: dict[MemberId, int] = {}
        """Numbers of batches that were done since the last step."""
        self._last: dict[MemberId, int] = {}
        """By member: the number of its last batch that was received here completely."""
        self._cuts: dict[MemberId, dict[MemberId, int]] = {}
        """What these were at the cut of a member that is being updated,"""
        self._updated: dict[MemberId, dict[MemberId, int]] = {}
        """or was, and has not acknowledged anything since: that acknowledges all that was brought to it, too."""
        self._begun: set[MemberId] = set()
        """Senders of batches of which a part was done,"""
        self._cut: set[MemberId] = set()
        """and those that the end of a step came in between."""
        self._left: set[MemberId] = set()
        """Senders that are no members any more,"""
        self._over: set[MemberId] = set()
        """and those of them of which all was heard before a batch of this member itself."""
        self._inherited: dict[MemberId, int] = {}
        """Numbers of batches that were done before this member came, by the one who brought it their effect."""
        self.ended_one = False
        """Such a batch has been done since."""
        self.has_news = False
        """There is something to acknowledge."""

    @property
    def backlog(self) -> int:
        return len(self._waiting)

    @property
    def oldest(self) -> object:
        """The oldest waiting action; None if there is none."""
        return self._waiting[0] if self._waiting else None

    @property
    def finished(self) -> int:
        """The position below which all is applied and durable here, and no action waits."""
        return min(self.done, self._waiting[0].position) if self._waiting else self.done

    def begin(self, me: MemberId | None, position: int, members: tuple[MemberId, ...]) -> None:
        """A new membership: nothing of an earlier one counts."""
        self.me = me
        self.done = position
        self.acks = {member: {} for member in members}
        self.numbers.clear()
        self._heard = {}
        self._last.clear()
        self._inherited.clear()
        self._left.clear()
        self._over.clear()
        self._cuts.clear()
        self._updated.clear()
        self._begun.clear()
        self._cut.clear()
        self.ended_one = self.has_news = False
        self.now = (None, 0)
        self.floors.clear()
        self._undone.clear()

    def members(self, members: tuple[MemberId, ...]) -> None:
        self.acks = {member: self.acks.get(member, {}) for member in members}
        self.floors = {member: floor for member, floor in self.floors.items() if member in self.acks}
        self._left.update(sender for sender in self._last if sender not in self.acks and sender not in self._over)

    def hears(self, sender: MemberId, number: int, is_last: bool) -> None:
        """An event of that batch is being done; with the last one the batch is."""
        self.now = (sender, number)
        self._heard[sender] = self._last[sender] = number if is_last else number - 1
        if self._left and sender == self.me and is_last:
            self._over |= self._left
            self._left.clear()
        if not is_last:
            self._begun.add(sender)
        elif sender in self._begun:
            self._begun.discard(sender)
            self.ended_one = self.ended_one or sender in self._cut

    def when_safe(
        self,
        position: int,
        action: Callable[[], None],
        *,
        always: bool = False,
        of: tuple[MemberId | None, int] | None = None,
    ) -> None:
        """*of*: sender and number, if it is not what is being done."""
        sender, number = self.now if of is None else of
        self._waiting.append(PendingAction(position, sender, number, action, always))

    def applied(self, lsn: int, position: int) -> None:
        """All events below *position* are done; what they wrote is durable when *lsn* is."""
        self._undone.append((lsn, position, self._heard))
        self._heard = {}
        self._cut = {*self._begun}
        self.ended_one = False

    def durable(self, lsn: int) -> None:
        """Everything below *lsn* is on the disk."""
        while self._undone and self._undone[0][0] <= lsn:
            _, self.done, numbers = self._undone.popleft()
            self.numbers.update(numbers)
            self.has_news = True

    def heard(self, sender: MemberId, numbers: Mapping[MemberId, int]) -> None:
        if sender in self.acks:
            acked = self.acks[sender]
            for member, number in (*self._updated.pop(sender, {}).items(), *numbers.items()):
                acked[member] = max(number, acked.get(member, 0))

    def follows(self, member: MemberId, position: int, *, anew: bool) -> None:
        """Notes the cut of *member*.

        If it asks only for what the last donor did not bring, its first cut counts, since it has applied what came
        after that. *anew*: it asks for all, and has nothing from before.
        """
        if anew or member not in self.floors:
            self.floors[member] = position
            self._cuts[member] = dict(self._last)

    def is_whole(self, member: MemberId) -> None:
        """Notes that *member* has all messages from before its cut, too."""
        self.floors.pop(member, None)
        self._updated[member] = self._cuts.pop(member, {})

    def safe(self) -> list[Callable[[], None]]:
        """Removes and returns the actions of events that are safe."""
        found: list[Callable[[], None]] = []
        while self._waiting and self._is_safe(self._waiting[0]):
            found.append(self._waiting.popleft().action)
        return found

    def _is_safe(self, waiting: PendingAction) -> bool:
        position, sender, number = waiting[:3]
        if self.done <= position:
            return False
        known = 1
        for member, acked in self.acks.items():
            if member != self.me and (sender is None or acked.get(sender, 0) >= number):
                known += self.floors.get(member, 0) <= position
        return known >= self.majority

    def begun(self) -> dict[MemberId, int]:
        """Returns, by sender, the last batch of which at least a part was received here in this membership.

        Without those that left before a batch of this member: who has done that one, has done all before it.
        """
        last, over = self._last, self._over
        return {sender: number + (sender in self._begun) for sender, number in last.items() if sender not in over}

    def known(self) -> dict[MemberId, int]:
        """Returns, by sender, the last batch that was applied here, or where all messages came from."""
        found = dict(self._inherited)
        for sender, number in self._last.items():
            found[sender] = max(number, found.get(sender, 0))
        return found

    def knows(self, heard: Mapping[MemberId, int]) -> bool:
        """Returns whether all those batches are applied here: a member that applied only them has nothing more."""
        known = self.known()
        return bool(heard) and all(known.get(sender, 0) >= number for sender, number in heard.items())

    def inherit(self, known: Mapping[MemberId, int]) -> None:
        self._inherited = dict(known)

    def has_missed(self) -> bool:
        """Return whether other members have applied batches that were not received here.

        If so, the positions that were assigned here since are wrong.
        """
        last = self._last
        return any(
            number > last.get(sender, number) for acked in self.acks.values() for sender, number in acked.items()
        )

    def lost(self) -> list[Callable[[], None]]:
        """The group was left: what is to be done all the same; nobody is told anything else."""
        always = [waiting.action for waiting in self._waiting if waiting.always]
        self._waiting.clear()
        return always
