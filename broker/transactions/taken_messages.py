"""The messages whose outcomes depend on a client's transaction. Core only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from ...amqp.native.proton_ffi import ACCEPTED, MODIFIED, REJECTED
from ...amqp.ports import Outcome
from ...base.callbacks import ignore
from ...base.errors import CairnError
from ..messages.death_history import REJECTION, TOO_OFTEN
from ..messages.entry import Entry
from ..queues.ends import SourceQueue
from .context import Claimant, TransactionContext
from .transactional_acquisition import AcquiringLink, Acquisition


class Taken:
    """A message whose outcome depends on a transaction."""

    __slots__ = (
        "annotations", "consumer", "delivery", "entry", "error", "failed", "is_acquired", "is_final", "is_off", "queue",
        "state", "undeliverable",
    )  # fmt: skip

    def __init__(
        self, consumer: AcquiringLink, queue: SourceQueue, outcome: Outcome, *, is_acquired: bool = False
    ) -> None:
        self.consumer = consumer
        self.queue = queue
        (
            self.delivery, self.entry, self.state, self.failed, self.undeliverable, self.error, self.annotations,
        ) = outcome  # fmt: skip
        self.is_final = self.delivery is None
        """True if the receiver can send no other outcome: it has settled the delivery, or its link is closed."""
        self.is_acquired = is_acquired
        """True if the delivery was acquired in the same transaction, and is requeued without it."""
        self.is_off = is_off(queue, self.state)
        """True if the commit dequeues the message."""

    @property
    def outcome(self) -> Outcome:
        """Return the outcome, of a delivery that is settled."""
        return Outcome(None, self.entry, self.state, self.failed, self.undeliverable, self.error, self.annotations)

    def move_reason(self) -> str:
        """Return the reason why the commit moves the message away; empty if it does not."""
        if self.is_off or self.entry.is_dequeued:
            return ""
        if self.state == REJECTED:
            return REJECTION
        most = self.queue.policy.max_deliveries
        return TOO_OFTEN if self._fails and 0 < most <= self.failures else ""

    def note(self) -> None:
        """Let the message have the annotations and the error of the outcome when it is moved."""
        if self.annotations:
            self.entry.annotations = self.annotations
        if self.error is not None:
            self.entry.error = self.error[:2]

    @property
    def failures(self) -> int:
        """Return the number of failed deliveries of the message, including this one."""
        return int(self.entry.failures + self._fails)

    @property
    def _fails(self) -> bool:
        return self.state == MODIFIED and self.failed


class TakenMessages:
    """The messages that one transaction takes off queues, requeues or moves."""

    def __init__(self, context: TransactionContext, acquisition: Acquisition, owner: Claimant) -> None:
        self.by_entry: dict[Entry, Taken] = {}
        self.locked: dict[Entry, SourceQueue] = {}
        """Messages that a transaction takes off queues which was prepared before the broker started."""
        self._context = context
        self._core = context.core
        self._acquisition = acquisition
        self._owner = owner

    def fresh(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Apply those of *outcomes* that are about known messages; return the others."""
        known_before, fresh = self.by_entry, list[Outcome]()
        for outcome in outcomes:
            known = known_before.get(outcome.tag)
            if known is None:
                if outcome.delivery is None or outcome.state:
                    fresh.append(outcome)
                continue
            if outcome.delivery is None:
                known.is_final = True
            if outcome.state and outcome.state != known.state:
                self._owner.fail("the outcome of a message was changed after it was sent")
        return fresh

    def add(self, consumer: AcquiringLink, queue: SourceQueue, outcomes: Iterable[Outcome]) -> None:
        """Take messages that *consumer* has."""
        for outcome in outcomes:
            entry = outcome.tag
            is_acquired = self._acquisition.settle(entry)
            self.by_entry[entry] = Taken(consumer, queue, outcome, is_acquired=is_acquired)
            self._context.taken[entry] = self._owner
            queue.locked[entry] = None
            consumer.unsettled.pop(entry, None)

    def left(self, entry: Entry) -> None:
        """Note that the receiver of *entry* can send no other outcome of it."""
        taken = self.by_entry.get(entry)
        if taken is not None:
            taken.is_final = True

    def dequeue(self) -> None:
        """Dequeue the messages that are off their queues with the commit, whose store part is recorded."""
        for taken in self.by_entry.values():
            if taken.is_off:
                taken.queue.locked.pop(taken.entry, None)
                if not taken.entry.is_dequeued:
                    taken.queue.dead_lettered += taken.state != ACCEPTED
                    taken.queue.count_dequeued([taken.entry])
        for entry, queue in self.locked.items():
            queue.locked.pop(entry, None)
            if not entry.is_dequeued:
                queue.count_dequeued([entry])

    def settle(self) -> None:
        """Settle where the client has not; a message is requeued when no other outcome of it can arrive."""
        waiting: dict[AcquiringLink, list[Taken]] = {}
        done: list[Taken] = []
        for taken in self.by_entry.values():
            if taken.is_final:
                done.append(taken)
            else:
                waiting.setdefault(taken.consumer, []).append(taken)
        self.by_entry = {}
        self._settled(done)
        for consumer, those in waiting.items():
            deliveries = [(taken.delivery, taken.state, taken.entry) for taken in those]
            consumer.terminal.settle_in(deliveries, partial(self._settled, those))

    def _settled(self, those: Sequence[Taken]) -> None:
        self._context.settled([taken.entry for taken in those])
        for taken in those:
            if not taken.is_off:
                taken.queue.locked.pop(taken.entry, None)
                if not taken.entry.is_dequeued:
                    taken.consumer.take_back([taken.outcome])
            taken.consumer.over(taken.entry)

    def undo(self) -> None:
        """Give the messages back after a rollback: to their receivers, or as failed deliveries to their queues."""
        for taken in self._release():
            self.untake(taken)

    def unlock(self) -> None:
        """Requeue the messages of a transaction that was prepared before the broker started."""
        for entry, queue in self.locked.items():
            queue.locked.pop(entry, None)
            if not entry.is_dequeued:  # it was not read since the start
                queue.contents.delayed[entry] = None
                self._core.loader.load_beginnings([entry.message_id], partial(self._unlocked, queue, entry))

    def _unlocked(self, queue: SourceQueue, entry: Entry, found: Sequence[bytes | CairnError]) -> None:
        if entry not in queue.contents.delayed:
            return  # it was purged meanwhile
        del queue.contents.delayed[entry]
        if isinstance(found[0], CairnError):
            queue.contents.put_aside(entry, found[0])
        else:
            queue.contents.give_back(entry)
            self._core.schedule_dispatch(queue)

    def give_back(self) -> None:
        """Requeue the messages that still exist, if only other members know the outcome."""
        for taken in self._release():
            taken.queue.locked.pop(taken.entry, None)
            if not taken.entry.is_dequeued:
                taken.entry.previously_delivered = True
                taken.queue.contents.give_back(taken.entry)

    def _release(self) -> Iterable[Taken]:
        held, self.by_entry = self.by_entry, {}
        self._context.settled(held)
        return held.values()

    def untake(self, taken: Taken) -> None:
        """Return a message to its receiver, or, if that has settled it, to its queue as a failed delivery."""
        entry, queue, returns = taken.entry, taken.queue, self._context.returns
        queue.locked.pop(entry, None)
        if entry.is_dequeued:
            return
        if taken.is_acquired and not taken.is_final:
            self._acquisition.recall(taken.consumer, queue.locked, (entry,), failed=not returns.spares(queue))
            return
        if not taken.is_final:
            taken.consumer.unsettled[entry] = None
            return
        taken.consumer.unsettled.pop(entry, None)
        taken.consumer.over(entry)
        entry.previously_delivered = True
        if returns.spares(queue):
            queue.contents.give_back(entry)
        elif queue.failed(entry):
            returns.dead_letter(queue, entry, TOO_OFTEN, ignore)
        else:
            queue.order.requeue(entry, True, ignore)
        self._core.schedule_dispatch(queue)


def is_off(queue: SourceQueue, state: int) -> bool:
    """Return whether a message with the outcome *state* leaves its queue without being moved to another."""
    return state == ACCEPTED or (state == REJECTED and not queue.policy.dead_letter_address)
