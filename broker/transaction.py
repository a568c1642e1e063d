"""A client's transaction: what it puts and takes is done together, or not at all. Core only.

What is durable of it is a transaction of the store; what is not (transient messages, queues that are not durable) is
held here, and shown and taken off in the same go. Nothing that was put is on a queue before the commit is durable;
what was taken is locked until then, and still its receiver's.

A transaction that fails is rolled back at once, and says why from then on: to whatever else is tried in it, and to its
discharge. A message that its receiver had settled then goes back to the queue as a delivery that failed, unless it is
the broker that stops; one that it had not settled is the receiver's as before, which may say something else of it
(part 4, 4.4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ..amqp.proton import ACCEPTED, MODIFIED, REJECTED
from ..amqp.sections import envelope
from ..base.errors import CairnError, StoreError
from ..channel.words import Outcome
from ..store.transaction import Dequeue, Enqueue, TxState
from ..store.transaction import Transaction as StoreTransaction
from ..store.why import Why
from .acquiring import Acquiring
from .entry import Entry
from .memory import ENTRY_BYTES
from .policy import REJECTION, TOO_OFTEN
from .posting import CAN_FAIL as CAN_FAIL
from .posting import ROLLBACK as ROLLBACK
from .posting import TIMEOUT as TIMEOUT
from .posting import UNKNOWN_ID as UNKNOWN_ID
from .posting import Post, stored_on
from .queue import Queue
from .returns import WHY, Found
from .times import times_of

if TYPE_CHECKING:
    from .consumer import Consumer
    from .transactions import Controller, Transactions


class Taken:
    """A message whose outcome depends on a transaction."""

    __slots__ = (
        "consumer", "delivery", "entry", "failed", "is_acquired", "is_final", "is_off", "queue", "state",
        "undeliverable",
    )  # fmt: skip

    def __init__(self, consumer: Consumer, queue: Queue, outcome: Outcome, *, is_acquired: bool = False) -> None:
        self.consumer = consumer
        self.queue = queue
        self.delivery, self.entry, self.state, self.failed, self.undeliverable, *_ = outcome
        self.is_final = self.delivery is None
        """Its receiver can say nothing else of it: it has settled it, or its link is gone."""
        self.is_acquired = is_acquired
        """It was handed out in the same transaction, and is not its receiver's without it."""
        self.is_off = _is_off(queue, self.state)
        """It is off its queue with the commit."""

    def why_moved(self) -> str:
        """Why it is moved away with the commit; empty if it is not."""
        if self.is_off or self.entry.gone:
            return ""
        if self.state == REJECTED:
            return REJECTION
        most = self.queue.policy.max_deliveries
        return TOO_OFTEN if self._fails and 0 < most <= self.failures else ""

    @property
    def failures(self) -> int:
        """How often its delivery has failed, with this time."""
        return int(self.entry.failures + self._fails)

    @property
    def _fails(self) -> bool:
        return self.state == MODIFIED and self.failed


class Transaction(Acquiring):
    """One transaction. Made by `Transactions`."""

    def __init__(self, owner: Transactions, controller: Controller, id: bytes) -> None:
        super().__init__(owner, controller, id)
        self.since_us = self._broker.clock.wall_us()
        self.is_discharged = False
        self.is_committed = False
        self.partial = 0
        """Messages of it that have not arrived as a whole."""
        self.asking = 0
        """Messages of it whose queues are being made or looked for."""
        self.when_asked: Callable[[], None] | None = None
        """What waits for these."""
        self._taken: dict[Entry, Taken] = {}
        self._locked: dict[Entry, Queue] = {}
        """Messages that it takes off queues, of one that was prepared before the broker started."""

    @property
    def is_open(self) -> bool:
        return self.failure is None and not self.is_prepared

    @property
    def is_prepared(self) -> bool:
        return self.inner is not None and self.inner.state is TxState.PREPARED

    @property
    def operations(self) -> int:
        return len(self._posts) + len(self._taken) + len(self._locked)

    # ---- taking ---------------------------------------------------------------------------------------------------

    def take(self, consumer: Consumer, queue: Queue, outcomes: Sequence[Outcome]) -> None:
        """*consumer* was told what is to become of messages that it has; no other open transaction has them."""
        known, fresh = self._taken, list[Outcome]()
        for outcome in outcomes:
            if outcome.tag in known:
                self._take_again(known[outcome.tag], outcome)
            elif outcome.delivery is None or outcome.state:
                fresh.append(outcome)
        if not fresh:
            return
        if self._has_room(ENTRY_BYTES * len(fresh)):
            self._take_off(queue, fresh)
        if self.failure is None:
            for outcome in fresh:
                entry = outcome.tag
                known[entry] = Taken(consumer, queue, outcome, is_acquired=entry in self._acquired)
                self._acquired.pop(entry, None)
                self._owner.taken[entry] = self
                queue.locked[entry] = None
                consumer.unsettled.pop(entry, None)
        else:
            for outcome in fresh:
                if not self.recalls(outcome.tag):
                    self._untake(Taken(consumer, queue, outcome))

    def _take_off(self, queue: Queue, taken: Sequence[Outcome]) -> None:
        """Have the store take these off *queue* with the commit, as far as they go for good."""
        off = [one for one in taken if one.tag.message_id and _is_off(queue, one.state)]
        for state, why in ((ACCEPTED, Why.ACCEPTED), (REJECTED, Why.REJECTED)):
            ids = [one.tag.message_id for one in off if one.state == state]
            if ids and self.failure is None:
                self._do(partial(_take_off, ids, queue.queue_id, why))

    def _take_again(self, taken: Taken, outcome: Outcome) -> None:
        if outcome.delivery is None:
            taken.is_final = True
        if outcome.state and outcome.state != taken.state:
            self.fail("the outcome of a message was changed, which is final once it is told")

    def left(self, entry: Entry) -> None:
        """The receiver of a message that was taken in it says nothing more of it."""
        taken = self._taken.get(entry)
        if taken is not None:
            taken.is_final = True

    def _untake(self, taken: Taken) -> None:
        """Nothing becomes of it: it is its receiver's again, or a delivery that failed."""
        entry, queue = taken.entry, taken.queue
        queue.locked.pop(entry, None)
        if entry.gone:
            return
        if taken.is_acquired and not taken.is_final:
            self.recall(taken.consumer, queue, (entry,), failed=not self._broker.spares(queue))
            return
        if not taken.is_final:
            taken.consumer.unsettled[entry] = None
            return
        taken.consumer.unsettled.pop(entry, None)
        taken.consumer.over(entry)
        entry.acquired = True
        if self._broker.spares(queue):
            queue.give_back(entry)
        elif queue.failed(entry):
            self._broker.returns.bury(queue, entry, TOO_OFTEN, _nobody_waits)
        else:
            self._give_back(queue, entry)
        self._broker.touch(queue)

    def _give_back(self, queue: Queue, entry: Entry) -> None:
        """A delivery that failed."""
        self._broker.returns.give_back(queue, entry, failed=True)

    # ---- moving ---------------------------------------------------------------------------------------------------

    def find_moves(self) -> None:
        """Its client has discharged it: what it rejected, or has failed too often, is moved away with the commit.

        Where to may have to be looked up: `asking` counts that, and `when_asked` is called when it is done.
        """
        if self.failure is not None:
            return
        moves = [taken for taken in self._taken.values() if taken.why_moved()]
        self.asking += len(moves)
        for taken in moves:
            found = partial(self._move, taken)
            self._broker.returns.look_up(taken.queue, taken.entry, taken.why_moved(), taken.failures, found)

    def _move(self, taken: Taken, found: Found | CairnError) -> None:
        if self.failure is None:
            if isinstance(found, CairnError):
                self.fail(f"a message can't be moved away: {found}")
            elif not taken.entry.gone:
                self._move_to(taken, *found)
        self.asked()

    def _move_to(self, taken: Taken, targets: Sequence[Queue], content: bytes) -> None:
        message_id = taken.entry.message_id
        if message_id:
            self._do(partial(_take_off, [message_id], taken.queue.queue_id, WHY[taken.why_moved()]))
        lasting = [target for target in targets if target.queue_id and message_id]
        if lasting and self._has_room(len(content)):
            ids = [target.queue_id for target in lasting]
            self._do(lambda inner, now_us: inner.put_on(ids, content, now_us))
        for target in targets:
            if self.failure is not None:
                return
            if target in lasting:
                self._posts.append(stored_on(target, content, timed=True))
            else:
                self.hold(target, content, len(content), times_of(content, target.policy.message_ttl_ms))
        taken.is_off = True
        self._count()

    def asked(self) -> None:
        """It is known where one message goes."""
        self.asking -= 1
        if not self.asking and self.when_asked is not None:
            self.when_asked()

    # ---- the end --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises `StoreError` if it can't be committed for what the store does not know of."""
        for queue in {*[post.queue for post in self._posts], *[taken.queue for taken in self._taken.values()]}:
            if queue.going:
                raise StoreError(f"queue {queue.name!r}", "it is gone")

    def commit(self, then: Callable[[], None], refused: Callable[[], None] | None = None) -> None:
        """Do all of it; *then* is called when it is durable. Raises one of `CAN_FAIL`, and has done nothing then.

        *refused*: it can turn out later that it can't be, and has been rolled back.
        """
        self.check()
        lsn = self.inner.commit(self._broker.clock.wall_us()) if self.inner is not None else 0
        self.committed(lsn, then)

    def committed(self, lsn: int, then: Callable[[], None]) -> None:
        """The store has its part of the commit, recorded at *lsn*: do the rest."""
        self.is_committed = True
        self.keep_acquired()
        self.failure = (UNKNOWN_ID, "the transaction was committed")
        self._owner.over(self)
        shown = self._shown()
        self._drop()
        for taken in self._taken.values():
            if taken.is_off:
                taken.queue.locked.pop(taken.entry, None)
                if not taken.entry.gone:
                    taken.queue.dead_lettered += taken.state != ACCEPTED
                    taken.queue.took([taken.entry])
        for entry, queue in self._locked.items():
            queue.locked.pop(entry, None)
            if not entry.gone:
                queue.took([entry])
        self._broker.line.show(lsn, shown, self._durable, then)

    def roll_back(self, condition: str, why: str) -> int:
        """Nothing of it is to be, for that reason; the LSN to wait for. Again has no effect."""
        if self.failure is not None:
            return 0
        lsn = 0
        if self.inner is not None and self.inner.state in (TxState.OPEN, TxState.PREPARED):
            lsn = self.inner.rollback(self._broker.clock.wall_us())
        self.rolled_back(condition, why)
        return lsn

    def rolled_back(self, condition: str, why: str) -> None:
        """The store's part of it was rolled back: do the rest."""
        self.failure = (condition, why)
        self._owner.over(self)
        self._drop()
        held, self._taken = self._taken, {}
        self._owner.settled(held)
        for taken in held.values():
            self._untake(taken)
        self._recall_acquired()
        for entry, queue in self._locked.items():
            queue.locked.pop(entry, None)
            if not entry.gone:
                queue.give_back(entry)
                self._broker.touch(queue)

    def restored(self, inner: StoreTransaction, queues: dict[int, Queue]) -> None:
        """It is one that was prepared before the broker started."""
        self.inner = inner
        for operation in inner.operations:
            queue = queues.get(operation.queue_id)
            if queue is None:
                continue
            if isinstance(operation, Enqueue):
                self._posts.append(self._stored_before(queue, operation.message_id))
            elif isinstance(operation, Dequeue):
                for entry in queue.take_stored((operation.message_id,)):
                    queue.locked[entry] = None
                    self._locked[entry] = queue

    def _stored_before(self, queue: Queue, message_id: int) -> Post:
        """What it puts there: its size, its id and its times count as those of others."""
        store, beginning = self._broker.store, b""
        with suppress(CairnError):  # whoever receives it is told
            beginning = envelope(store.load_piece(message_id, 0))
        if queue.gate is not None:
            self.stage(queue.gate, beginning, store.size_of(message_id))
        times = times_of(beginning, queue.policy.message_ttl_ms)
        return Post(queue, None, 0, times, beginning if queue.policy.looks_inside else b"")

    def _durable(self, then: Callable[[], None]) -> None:
        """It is settled where the client has not; what goes back does so when nothing more is heard of it."""
        waiting: dict[Consumer, list[Taken]] = {}
        done: list[Taken] = []
        for taken in self._taken.values():
            if taken.is_final:
                done.append(taken)
            else:
                waiting.setdefault(taken.consumer, []).append(taken)
        self._taken = {}
        self._settled(done)
        for consumer, those in waiting.items():
            deliveries = [(taken.delivery, taken.state, taken.entry) for taken in those]
            consumer.terminal.settle_in(deliveries, partial(self._settled, those))
        then()

    def _settled(self, those: Sequence[Taken]) -> None:
        self._owner.settled([taken.entry for taken in those])
        for taken in those:
            if not taken.is_off:
                taken.queue.locked.pop(taken.entry, None)
                if not taken.entry.gone:
                    outcome = Outcome(None, taken.entry, taken.state, taken.failed, taken.undeliverable)
                    taken.consumer.take_back([outcome])
            taken.consumer.over(taken.entry)


def _is_off(queue: Queue, state: int) -> bool:
    """Whether a message with that outcome is taken off its queue, and put nowhere."""
    return state == ACCEPTED or (state == REJECTED and not queue.policy.dead_letter_address)


def _take_off(ids: list[int], queue_id: int, why: Why, inner: StoreTransaction, now_us: int) -> None:
    inner.dequeue_all(ids, queue_id, now_us, why)


def _nobody_waits(lsn: int) -> None:
    """For messages that are moved on the broker's own account."""
