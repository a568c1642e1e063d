"""Tracks when an event is safe: ordered, durable here, and acknowledged by a majority of the configured members.

The self-delivery of an event proves nothing: it is possible that no other member ever received it (rule 1). So each
member periodically multicasts the position up to which all events are applied and durable there. Confirmations to
clients wait here, in the order of events.

An acknowledgement names senders and the numbers of their batches: a member that missed a batch and has not detected it
yet counts positions wrongly, but never these numbers.

A joining member acknowledges the events that it applied since it joined. It has earlier events only when its state
transfer is complete: until then its acknowledgements count from its cut on (`floors`). Core only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..group.member_id import MemberId


class PendingAction(NamedTuple):
    """An action to run when the event at *position* is safe."""

    position: int
    sender: MemberId | None
    number: int
    """The batch of *sender* that contains the event; without a sender, all present members know the event."""
    action: Callable[[], None]
    always: bool
    """True if the action also runs when the group is left: it concerns only this member, and no client."""


class CommitTracker:
    """The acknowledgements of all members, and the actions that wait for them."""

    def __init__(self) -> None:
        self.majority = 1
        """The majority of the configured members."""
        self.at = 0
        """The position of the event that is being applied."""
        self._waiting: deque[PendingAction] = deque()
        self.begin(None, 0, ())

    def begin(self, me: MemberId | None, position: int, members: tuple[MemberId, ...]) -> None:
        """Begins a new membership; acknowledgements of earlier ones are dropped."""
        self.me = me
        self.acks: dict[MemberId, dict[MemberId, int]] = {member: {} for member in members}
        """By member: for each sender, the number of the last batch that is applied and durable at the member."""
        self.now: tuple[MemberId | None, int] = (None, 0)
        """The sender and the number of the batch that is being applied."""
        self.numbers: dict[MemberId, int] = {}
        """For each sender, the last batch that is applied and durable here."""
        self.floors: dict[MemberId, int] = {}
        """The cuts of members that a state transfer is completing."""
        self.done = position
        """The position below which all is applied and durable here."""
        self._undone: deque[tuple[int, int, dict[MemberId, int]]] = deque()
        """LSNs, each with the position below which all is durable when that LSN is, and with the numbers of senders."""
        self._received: dict[MemberId, int] = {}
        """The numbers of batches that were applied since the last step."""
        self._last: dict[MemberId, int] = {}
        """The last batch that was received here completely, by member."""
        self._cuts: dict[MemberId, dict[MemberId, int]] = {}
        """The value of `_last` at the cut of each member that is not complete."""
        self._updated: dict[MemberId, dict[MemberId, int]] = {}
        """The cuts of members that completed since, until their next acknowledgement, which covers all events."""
        self._begun: set[MemberId] = set()
        """The senders of batches that are partly applied."""
        self._cut: set[MemberId] = set()
        """The senders whose batch was partly applied at the end of a step."""
        self._left: set[MemberId] = set()
        """The senders that have left the group."""
        self._over: set[MemberId] = set()
        """The senders of `_left` whose events all precede a batch of this member."""
        self._inherited: dict[MemberId, int] = {}
        """The numbers of batches that were applied before this member joined, whose effects the donor transferred."""
        self.ended_one = False
        """True if a batch of `_cut` was completed since."""
        self.has_news = False
        """True if there is something to acknowledge."""

    @property
    def backlog(self) -> int:
        return len(self._waiting)

    @property
    def oldest(self) -> object:
        """The oldest waiting action, or None."""
        return self._waiting[0] if self._waiting else None

    @property
    def finished(self) -> int:
        """The position below which all is applied and durable here, and no action waits."""
        return min(self.done, self._waiting[0].position) if self._waiting else self.done

    def members(self, members: tuple[MemberId, ...]) -> None:
        self.acks = {member: self.acks.get(member, {}) for member in members}
        self.floors = {member: floor for member, floor in self.floors.items() if member in self.acks}
        self._left.update(sender for sender in self._last if sender not in self.acks and sender not in self._over)

    def hears(self, sender: MemberId, number: int, is_last: bool) -> None:
        """Records that an event of that batch is being applied, which completes the batch if the event is its last."""
        self.now = (sender, number)
        self._received[sender] = self._last[sender] = number if is_last else number - 1
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
        """*of*: the sender and number of the batch, if it is not the one that is being applied."""
        sender, number = self.now if of is None else of
        self._waiting.append(PendingAction(position, sender, number, action, always))

    def applied(self, lsn: int, position: int) -> None:
        """Records that all events below *position* are applied, and that their effects are durable when *lsn* is."""
        self._undone.append((lsn, position, self._received))
        self._received = {}
        self._cut = {*self._begun}
        self.ended_one = False

    def durable(self, lsn: int) -> None:
        """Records that everything below *lsn* is durable."""
        while self._undone and self._undone[0][0] <= lsn:
            _, self.done, numbers = self._undone.popleft()
            self.numbers.update(numbers)
            self.has_news = True

    def received(self, sender: MemberId, numbers: Mapping[MemberId, int]) -> None:
        if sender in self.acks:
            acked = self.acks[sender]
            for member, number in (*self._updated.pop(sender, {}).items(), *numbers.items()):
                acked[member] = max(number, acked.get(member, 0))

    def follows(self, member: MemberId, position: int, *, anew: bool) -> None:
        """Records the cut of *member*.

        If it requests only what the last donor did not bring, its first cut counts, since it has applied the events
        after that one. *anew*: it requests everything, and has nothing from before.
        """
        if anew or member not in self.floors:
            self.floors[member] = position
            self._cuts[member] = dict(self._last)

    def is_complete(self, member: MemberId) -> None:
        """Records that *member* has all messages from before its cut, too."""
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

        Senders that left before a batch of this member are omitted: a member that applied that batch has applied all
        before it.
        """
        last, over = self._last, self._over
        return {sender: number + (sender in self._begun) for sender, number in last.items() if sender not in over}

    def known(self) -> dict[MemberId, int]:
        """Returns, by sender, the last batch that was applied here, or where all messages came from."""
        found = dict(self._inherited)
        for sender, number in self._last.items():
            found[sender] = max(number, found.get(sender, 0))
        return found

    def knows(self, received: Mapping[MemberId, int]) -> bool:
        """Returns whether all those batches are applied here: a member that applied only them has nothing more."""
        known = self.known()
        return bool(received) and all(known.get(sender, 0) >= number for sender, number in received.items())

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
        """Removes all waiting actions, since the group was left; returns those that run in any case."""
        always = [waiting.action for waiting in self._waiting if waiting.always]
        self._waiting.clear()
        return always
