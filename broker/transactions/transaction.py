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

from ...amqp.codec.sections import envelope
from ...amqp.native.proton_ffi import ACCEPTED, MODIFIED, REJECTED
from ...base.errors import CairnError, StoreError
from ...channel.ports import Outcome
from ...store.contract.dequeue_reason import Why
from ...store.contract.transaction import Dequeue, Enqueue, StoreTransaction, TxState
from ..kernel.memory_budget import ENTRY_BYTES
from ..messages.death_history import REJECTION, TOO_OFTEN
from ..messages.entry import Entry
from ..messages.message_times import times_of
from ..queues.queue import Queue
from .context import AcquiringLink, Controller, TransactionContext
from .dead_letters import Found
from .moves import WHY
from .staging import CAN_FAIL as CAN_FAIL
from .staging import ROLLBACK as ROLLBACK
from .staging import TIMEOUT as TIMEOUT
from .staging import UNKNOWN_ID as UNKNOWN_ID
from .staging import Post, stored_on
from .transactional_acquisition import Acquiring


class Taken:
    """A message whose outcome depends on a transaction."""

    __slots__ = (
        "consumer", "delivery", "entry", "failed", "is_acquired", "is_final", "is_off", "queue", "state",
        "undeliverable",
    )  # fmt: skip

    def __init__(self, consumer: AcquiringLink, queue: Queue, outcome: Outcome, *, is_acquired: bool = False) -> None:
        self.consumer = consumer
        self.queue = queue
        self.delivery, self.entry, self.state, self.failed, self.undeliverable, *_ = outcome
        self.is_final = self.delivery is None
        """True if the receiver can send no other outcome: it has settled the delivery, or its link is closed."""
        self.is_acquired = is_acquired
        """True if the delivery was acquired in the same transaction, and is requeued without it."""
        self.is_off = _is_off(queue, self.state)
        """True if the commit dequeues the message."""

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
        """Return the number of failed deliveries of the message, including this one."""
        return int(self.entry.failures + self._fails)

    @property
    def _fails(self) -> bool:
        return self.state == MODIFIED and self.failed


class Transaction(Acquiring):
    """A client's transaction, created by `Transactions`."""

    def __init__(self, context: TransactionContext, controller: Controller, id: bytes) -> None:
        super().__init__(context, controller, id)
        self.since_us = self._core.clock.wall_us()
        self.is_discharged = False
        self.partial = 0
        """Messages of it that have not arrived as a whole."""
        self.asking = 0
        """Messages of it whose queues are being made or looked for."""
        self.when_asked: Callable[[], None] | None = None
        """The callback to run once `asking` is 0."""
        self._taken: dict[Entry, Taken] = {}
        self._locked: dict[Entry, Queue] = {}
        """Messages that it takes off queues, of one that was prepared before the broker started."""

    @property
    def is_open(self) -> bool:
        return self.failure is None and not self.is_prepared

    @property
    def operations(self) -> int:
        return len(self._posts) + len(self._taken) + len(self._locked)

    # ---- taking ---------------------------------------------------------------------------------------------------

    def take(self, consumer: AcquiringLink, queue: Queue, outcomes: Sequence[Outcome]) -> None:
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
                self._context.taken[entry] = self
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
        """Note that the receiver of a message that was settled in the transaction can send no other outcome of it."""
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
            self.recall(taken.consumer, queue.locked, (entry,), failed=not self._context.returns.spares(queue))
            return
        if not taken.is_final:
            taken.consumer.unsettled[entry] = None
            return
        taken.consumer.unsettled.pop(entry, None)
        taken.consumer.over(entry)
        entry.previously_delivered = True
        if self._context.returns.spares(queue):
            queue.give_back(entry)
        elif queue.failed(entry):
            self._context.returns.bury(queue, entry, TOO_OFTEN, _nobody_waits)
        else:
            queue.order.requeue(entry, True, _nothing)
        self._core.schedule_dispatch(queue)

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
            self._context.returns.look_up(taken.queue, taken.entry, taken.why_moved(), taken.failures, found)

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
        """Raise `StoreError` if the transaction can't be committed for a reason outside of the store."""
        for queue in {*[post.queue for post in self._posts], *[taken.queue for taken in self._taken.values()]}:
            if queue.is_deleting:
                raise StoreError(f"queue {queue.name!r}", "it is gone")

    def commit(self, then: Callable[[], None], refused: Callable[[], None] | None = None) -> None:
        """Do all of it; *then* is called when it is durable. Raises one of `CAN_FAIL`, and has done nothing then.

        *refused*: it can turn out later that it can't be, and has been rolled back.
        """
        self.check()
        lsn = self.inner.commit(self._core.clock.wall_us()) if self.inner is not None else 0
        self.committed(lsn, then)

    def committed(self, lsn: int, then: Callable[[], None]) -> None:
        """The store has its part of the commit, recorded at *lsn*: do the rest."""
        self.is_committed = True
        self.keep_acquired()
        self.failure = (UNKNOWN_ID, "the transaction was committed")
        self._over()
        shown = self._shown()
        self._drop()
        for taken in self._taken.values():
            if taken.is_off:
                taken.queue.locked.pop(taken.entry, None)
                if not taken.entry.gone:
                    taken.queue.dead_lettered += taken.state != ACCEPTED
                    taken.queue.count_dequeued([taken.entry])
        for entry, queue in self._locked.items():
            queue.locked.pop(entry, None)
            if not entry.gone:
                queue.count_dequeued([entry])
        self._core.commits.show(lsn, shown, self._durable, then)

    def _over(self) -> None:
        """Drop it from the lists, unless its client has not discharged it, and may still ask for it."""
        if self.inner is not None:
            self._context.ended(self.inner.xid, self)
        if self.is_discharged:
            self.controller.forget(self.id)

    def roll_back(self, condition: str, why: str) -> int:
        """Roll back the transaction with that error; return the LSN to wait for. A repeated call has no effect."""
        if self.failure is not None:
            return 0
        lsn = 0
        if self.inner is not None and self.inner.state in (TxState.OPEN, TxState.PREPARED):
            lsn = self.inner.rollback(self._core.clock.wall_us())
        self.rolled_back(condition, why)
        return lsn

    def rolled_back(self, condition: str, why: str) -> None:
        """The store's part of it was rolled back: do the rest."""
        self.failure = (condition, why)
        self._over()
        self._drop()
        held, self._taken = self._taken, {}
        self._context.settled(held)
        for taken in held.values():
            self._untake(taken)
        self._recall_acquired()
        for entry, queue in self._locked.items():
            queue.locked.pop(entry, None)
            if not entry.gone:
                queue.give_back(entry)
                self._core.schedule_dispatch(queue)

    def restored(self, inner: StoreTransaction, queues: dict[int, Queue]) -> None:
        """Restore a transaction that was prepared before the broker started."""
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
        """Stage a message that is stored already, counting its size, ID and times like those of others."""
        store, beginning = self._core.store, b""
        with suppress(CairnError):  # whoever receives it is told
            beginning = envelope(store.load_piece(message_id, 0))
        if queue.limits is not None:
            self.stage(queue.limits, beginning, store.size_of(message_id))
        times = times_of(beginning, queue.policy.message_ttl_ms)
        return Post(queue, None, 0, times, beginning if queue.policy.looks_inside else b"")

    def _durable(self, then: Callable[[], None]) -> None:
        """It is settled where the client has not; what goes back does so when nothing more is heard of it."""
        waiting: dict[AcquiringLink, list[Taken]] = {}
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
        self._context.settled([taken.entry for taken in those])
        for taken in those:
            if not taken.is_off:
                taken.queue.locked.pop(taken.entry, None)
                if not taken.entry.gone:
                    outcome = Outcome(None, taken.entry, taken.state, taken.failed, taken.undeliverable)
                    taken.consumer.take_back([outcome])
            taken.consumer.over(taken.entry)


def _is_off(queue: Queue, state: int) -> bool:
    """Return whether a message with the outcome *state* leaves its queue without being moved to another."""
    return state == ACCEPTED or (state == REJECTED and not queue.policy.dead_letter_address)


def _take_off(ids: list[int], queue_id: int, why: Why, inner: StoreTransaction, now_us: int) -> None:
    inner.dequeue_all(ids, queue_id, now_us, why)


def _nobody_waits(lsn: int) -> None:
    """Ignore the result for messages that the broker moves on its own account."""


def _nothing() -> None:
    """Ignore the result for deliveries that no caller awaits."""
