"""The operations and results of the clients of a simulated cluster, and the properties that they must have.

A message is checked separately for each queue that it was sent to, by its number and its *family*: that queue and the
queues to which its messages may be moved. A message that an exchange routes to two queues counts as two; in each
family exactly one exists, on any queue of the family.

Only messages that a purge or a deletion may have removed may be missing: those sent before its end to a queue from
which they could have reached the purged or deleted one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from cairnmq.cluster.group.member_id import MemberId
from tests.harness.cluster.cluster_harness import Sender, SimulatedMember
from tests.harness.cluster.simulated_transactions import Attempt, halves

Key = tuple[str, int]
"""Family and number."""
FAMILIES = {"q": ("q", "r", "dead")}
"""The families of more than one queue; every other queue is its own family."""
_FAMILY_OF = {queue: family for family, queues in FAMILIES.items() for queue in queues}
DEAD_LETTERS = {"q": "dead", "r": "dead"}


class Broken(AssertionError):
    """A violated property."""


def keys(queue: str, numbers: Iterable[int]) -> set[Key]:
    family = _FAMILY_OF.get(queue, queue)
    return {(family, number) for number in numbers}


class Standing(NamedTuple):
    """The contents of a queue of one member, as `SimulatedMember.contents` returns them."""

    queue: str
    contents: list[tuple[int, int]]


class Histories:
    """The histories of all clients of a scenario."""

    def __init__(self) -> None:
        self.is_strict = False
        """True to check also members that the group has continued without, and that have not detected it."""
        self.confirmed: set[Key] = set()
        self.sent_by: dict[int, Sender] = {}
        self.sizes: dict[int, int] = {}
        self.where: dict[Key, set[str]] = {}
        """The queues on which a message may be, or may have been."""
        self._moves: Counter[tuple[str, str]] = Counter()
        """The number of moves in progress, by source and target queue."""
        self.excused: set[Key] = set()
        """Messages that a purge or a deletion may have removed."""
        self.accepted: set[Key] = set()
        """Messages that clients accepted, settled or not."""
        self.final: set[Key] = set()
        """Messages whose accept was settled, or whose purge or deletion was confirmed."""
        self.final_in: dict[Key, tuple[int, tuple[MemberId, ...]]] = {}
        """The configuration (view and members) of the member that confirmed it, for each final message."""
        self.once: set[Key] = set()
        self.gone_out: set[Key] = set()
        self.rejected: set[Key] = set()
        self.unmarked: Counter[Key] = Counter()
        self.attempts: list[Attempt] = []
        self.seen: set[Key] = set()
        """Messages delivered to a client, or in flight to one that left."""
        self.claims: Counter[Key] = Counter()
        """The number of accepts of each message, without those of transactions that rolled back."""
        self.epoch = 0
        """The number of bootstraps of the cluster."""
        self.epochs: dict[int, int] = {}
        """The epoch in which each message was sent."""
        self.shuffled = 0
        """The epoch before which messages may be out of order: it began from a store with transferred state."""

    # ---- client operations ----------------------------------------------------------------------------------------

    def sends(self, queue: str, numbers: Iterable[int], size_bytes: int, sender: Sender | None = None) -> None:
        for key in keys(queue, numbers):
            self._may_be_on(key, queue)
            self.sizes[key[1]] = size_bytes
            self.epochs[key[1]] = self.epoch
            if sender is not None:
                self.sent_by[key[1]] = sender
            if queue == "once":
                self.once.add(key)

    def accepts(self, some: Collection[Key]) -> None:
        self.accepted.update(some)
        self.claims.update(some)

    def rejects(self, queue: str, some: Collection[Key]) -> None:
        if queue not in DEAD_LETTERS:
            self.accepted.update(some)
            return
        self.rejected.update(some)
        self.may_be_rejected(queue, some)

    def may_be_rejected(self, queue: str, some: Collection[Key]) -> None:
        """Record that messages may be dead letters already, before a client receives an outcome."""
        for key in some if queue in DEAD_LETTERS else ():
            self._may_be_on(key, DEAD_LETTERS[queue])

    def is_final(self, some: Collection[Key], member: SimulatedMember) -> None:
        """Record that *member* confirmed to a client that messages are removed from their queue."""
        self.final.update(some)
        for key in some:
            self.final_in.setdefault(key, (member.core.state.view, member.core.state.members))

    def may_move(self, queue: str, to: str) -> None:
        """Record that a move was requested: until `moved`, messages that are or arrive on *queue* may move to *to*."""
        self._moves[queue, to] += 1
        for key, queues in self.where.items():
            if queue in queues:
                self._may_be_on(key, to)

    def moved(self, queue: str, to: str) -> None:
        """Record the end of such a move."""
        self._moves[queue, to] -= 1

    def _may_be_on(self, key: Key, queue: str) -> None:
        """Record that a message may be on *queue*, and on the queues to which it may be moved from there."""
        queues = self.where.setdefault(key, set())
        if queue not in queues:
            queues.add(queue)
            for (source, to), count in self._moves.items():
                if source == queue and count:
                    self._may_be_on(key, to)

    def may_be_gone(self, queue: str) -> None:
        """Excuse all messages that may be, or may have been, on *queue*: they may be missing."""
        self.excused.update(key for key, queues in self.where.items() if queue in queues)

    def stands_on(self, queue: str, *, unseen: bool) -> set[Key]:
        """Return confirmed messages that can be on no other queue; *unseen*: only those never sent to a consumer."""
        return {
            key for key, queues in self.where.items()
            if len(queues) == 1 and queue in queues and key in self.confirmed and not (unseen and key in self.seen)
        }  # fmt: skip

    def over(self, attempt: Attempt, member: SimulatedMember) -> None:
        """Record the end of a transaction of a client of *member*."""
        self.attempts.append(attempt)
        if attempt.done is False:
            return
        self.accepts(keys("q", attempt.of_accepted))
        self.rejects("q", keys("q", attempt.of_rejected))
        if attempt.done:
            self.confirmed.update(keys("q", attempt.puts))
            self.is_final(keys("q", attempt.of_accepted), member)

    # ---- client deliveries ----------------------------------------------------------------------------------------

    def forwarded(self, member: SimulatedMember, queue: str, number: int, *, marked: bool, presettled: bool) -> None:
        (key,) = keys(queue, [number])
        self.seen.add(key)
        if queue not in self.where.get(key, ()):
            raise Broken(f"{number} came from a queue on which it can't be: {queue}")
        if key in self.final and not self._was_left_behind(member, key):
            raise Broken(f"{number} was accepted for good, and handed out again by node {member.node}: {queue}")
        if not marked and len(self.where[key]) < 2:  # dead letters start unmarked
            self.unmarked[key] += 1
            if self.unmarked[key] > 1:
                raise Broken(f"{number} was handed out twice, and none of the two says so: {queue}")
        if presettled:
            if key in self.gone_out:
                raise Broken(f"{number} was taken for good twice: {queue}")
            self.gone_out.add(key)

    def _was_left_behind(self, member: SimulatedMember, key: Key) -> bool:
        """Return whether *member* was no longer in the group when the removal of *key* was confirmed."""
        view, members = self.final_in[key]
        return not self.is_strict and member.core.state.view < view and member.core.state.me not in members

    def check_order(self, queue: str, order: Iterable[tuple[int, bool]]) -> None:
        """Check that the unmarked deliveries to one receiver are in the order of each sender."""
        last: dict[Sender, int] = {}
        for number, marked in order:
            sender = self.sent_by.get(number)
            (key,) = keys(queue, [number])
            if marked or sender is None or len(self.where[key]) > 1:
                continue
            if number < last.get(sender, -1):
                raise Broken(f"{number} came behind {last[sender]} of the same sender: {queue}")
            last[sender] = number

    # ---- the end --------------------------------------------------------------------------------------------------

    def check(self, standing: Iterable[Standing]) -> None:
        """Check all properties at the end. *standing*: the contents of all queues, with no operation in progress."""
        there: Counter[Key] = Counter()
        for queue, contents in standing:
            numbers = [number for _, number in contents]
            there.update(keys(queue, numbers))
            if len(set(numbers)) < len(numbers):
                twice = [number for number, count in Counter(numbers).items() if count > 1]
                raise Broken(f"{queue} has some messages twice: {twice[:9]}")
            self._check_order_of(queue, numbers)
        if twice_there := sorted(key for key, count in there.items() if count > 1):
            raise Broken(f"on two queues: {twice_there[:9]}")
        self._check_transactions(there)
        lost = self.confirmed - there.keys() - self.accepted - self.once - self.final - self.excused
        if lost - self.rejected:
            raise Broken(f"confirmed, and lost: {sorted(lost - self.rejected)[:20]}")
        if self.rejected & lost:
            raise Broken(f"rejected, and not among the dead letters: {sorted(self.rejected & lost)[:20]}")
        if there.keys() & self.final:
            raise Broken(f"off its queue for good, and still there: {sorted(there.keys() & self.final)[:20]}")

    def _check_transactions(self, there: Mapping[Key, int]) -> None:
        of_all = (self.seen | there.keys(), there, self.excused)
        seen, present, excused = ({number for family, number in some if family == "q"} for some in of_all)
        claims = Counter({number: count for (family, number), count in self.claims.items() if family == "q"})
        for wrong in halves(self.attempts, seen, present, claims, excused):
            raise Broken(wrong)

    def _check_order_of(self, queue: str, numbers: Iterable[int]) -> None:
        """Check that each sender's messages are in the order of its enqueues; see docs/explanation/cluster.md."""
        last: dict[Sender, int] = {}
        for number in numbers:
            sender = self.sent_by.get(number)
            (key,) = keys(queue, [number])
            if sender is None or len(self.where[key]) > 1 or self.epochs[number] < self.shuffled:
                continue
            if number < last.get(sender, -1):
                raise Broken(f"{queue}: {number} stands behind {last[sender]} of the same sender")
            last[sender] = number
