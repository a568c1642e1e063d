"""A client's transaction: its messages are enqueued and dequeued together, or not at all. Core only.

The durable part is a transaction of the store; the rest (transient messages, transient queues) is held in the broker,
and applied together with it. No enqueued message is on a queue before the commit is durable; dequeued messages are
locked until then, and still belong to their receivers.

A transaction that fails is rolled back at once, and reports the reason from then on: to all further operations in it,
and to its discharge. A message that its receiver had settled is then requeued as a failed delivery, unless the broker
stops. A message that was not settled stays with the receiver, which may send another outcome (part 4, 4.4.2).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from ...amqp.ports import Delivery, Outcome, TerminalEnd
from ...base.errors import CairnError, StoreError
from ...store.contract.transaction import Dequeue, Enqueue, StoreTransaction, TxState
from ..kernel.memory_budget import ENTRY_BYTES
from ..queues.ends import SourceQueue, TargetQueue
from .context import Controller, TransactionContext
from .dead_letters import Found
from .staging import ROLLBACK, UNKNOWN_ID, StagingArea
from .taken_messages import Taken, TakenMessages
from .transaction_state import DECIDED, OPEN, TABLE, WITH_CLIENT, TransactionAction, TransactionEvent, TransactionState
from .transactional_acquisition import AcquiringLink, Acquisition
from .work import DELETED, TransactionWork

log = logging.getLogger(__name__)


class RestoredQueue(SourceQueue, TargetQueue, Protocol):
    """A queue on which a prepared transaction has messages."""


class ClientTransaction:
    """A client's transaction, created by `Transactions`."""

    def __init__(self, context: TransactionContext, controller: Controller[Any], id: bytes) -> None:
        self.id = id
        self.since_us = context.core.clock.wall_us()
        self.state = TransactionState.OPEN
        self.failure: tuple[str, str] | None = None
        """The AMQP error of the transaction, after which it cannot continue."""
        self.partial = 0
        """The number of its messages that are incomplete."""
        self.pending = 0
        """The number of its messages that wait: for their queues to be found or created, or for a later step."""
        self.when_complete: Callable[[], None] | None = None
        """The callback to run once `pending` is 0."""
        self.staging = StagingArea(context, controller, self)
        self.acquisition = Acquisition(context, self)
        self.taken = TakenMessages(context, self.acquisition, self)
        self.work = TransactionWork(context, self.staging, self.taken, self)
        self._refusal = ""
        """The AMQP error of the message that made it fail, until it is reported."""
        acquisition = self.acquisition
        self.has_acquired, self.recalls, self.lose = acquisition.has_acquired, acquisition.recalls, acquisition.lose
        self.forget, self.left = acquisition.forget, self.taken.left
        self._context = context
        self._core = context.core

    @property
    def is_open(self) -> bool:
        """Return whether its outcome is open, and the broker may roll it back."""
        return self.state in OPEN

    @property
    def is_prepared(self) -> bool:
        return self.state is TransactionState.PREPARED

    @property
    def is_committed(self) -> bool:
        """Return whether it is committed, or the members of the cluster decide on it."""
        return self.state in DECIDED

    @property
    def is_discharged(self) -> bool:
        """Return whether its client does not work in it any more."""
        return self.state not in WITH_CLIENT

    @property
    def xid(self) -> bytes:
        """Return the global ID of a distributed transaction; empty for a local one."""
        return self.staging.inner.xid if self.staging.inner is not None else b""

    @property
    def operations(self) -> int:
        return len(self.staging.posts) + len(self.taken.by_entry) + len(self.taken.locked) + self.work.operations

    def handle(self, event: TransactionEvent, failure: tuple[str, str] | None = None) -> None:
        """Change the state, and do the action, unless *event* is ignored in this state.

        *failure*: the AMQP error for all later operations in the transaction.
        """
        transition = TABLE.get((self.state, event))
        if transition is None:
            return
        self.state, action = transition
        if failure is not None:
            self.failure = failure
        self._ACTIONS[action](self)

    def _stop_acquiring(self) -> None:
        self.acquisition.stop()
        if self.failure is not None:
            self._forget()

    def _detach(self) -> None:
        self.acquisition.keep()
        self._forget()
        self.staging.detach()

    def _await(self) -> None:
        self.acquisition.keep()
        self._over()
        self._context.under_way[self] = None

    def _apply(self) -> None:
        self.acquisition.keep()
        self._over()

    def _undo(self) -> None:
        self._over()
        self._drop()
        self.taken.undo()
        self.acquisition.recall_all()
        self.taken.unlock()

    def _give_back(self) -> None:
        self._drop()
        self.taken.give_back()

    def _over(self) -> None:
        """Remove the transaction from the lists, unless its client has not discharged it, and may still use it."""
        if self.staging.inner is not None:
            self._context.ended(self.xid, self)
        if self.is_discharged:
            self._forget()

    def _forget(self) -> None:
        self.staging.controller.transactions.pop(self.id, None)

    def _drop(self) -> None:
        self.work.drop()
        self.staging.drop()

    _ACTIONS = {
        TransactionAction.STOP_ACQUIRING: _stop_acquiring,
        TransactionAction.DETACH: _detach,
        TransactionAction.AWAIT: _await,
        TransactionAction.APPLY: _apply,
        TransactionAction.UNDO: _undo,
        TransactionAction.GIVE_BACK: _give_back,
    }

    def answer(
        self, terminal: TerminalEnd, wanted: Sequence[Delivery], unwanted: Sequence[Delivery], credit: int
    ) -> None:
        """Report the outcome that the commit gives to staged messages; senders of *unwanted* await none."""
        if unwanted:
            terminal.release(unwanted, 0)
        if self.failure is None:
            terminal.accept_in(self.id, wanted, credit)
            return
        condition, reason = self.failure  # outside of a transaction, unavailable messages would be refused the same way
        terminal.reject_in(self.id, wanted, credit, self._refusal or condition, reason)
        self._refusal = ""
        if unwanted and self.failure[0] == UNKNOWN_ID:  # there is no other way to report it
            terminal.failure(*self.failure)

    def refuse(
        self, terminal: TerminalEnd, deliveries: Sequence[Delivery], credit: int, condition: str, reason: str
    ) -> None:
        """Reject messages that can't be staged, which makes the transaction fail."""
        self.fail(reason)
        terminal.reject_in(self.id, deliveries, credit, condition, reason)

    def take(self, consumer: AcquiringLink, queue: SourceQueue, outcomes: Sequence[Outcome]) -> None:
        """Apply outcomes of messages that *consumer* has, and no other open transaction, with the commit."""
        fresh = self.taken.fresh(outcomes)
        if not fresh:
            return
        if self.staging.has_room(ENTRY_BYTES * len(fresh)):
            self.work.take_off(queue, fresh)
        if self.failure is None:
            self.taken.add(consumer, queue, fresh)
            return
        for outcome in fresh:
            if not self.recalls(outcome.tag):
                self.taken.untake(Taken(consumer, queue, outcome))

    def repeats(self, outcome: Outcome) -> bool:
        """Return whether the transaction is discharged, and has this outcome already; note a settlement."""
        known = self.taken.by_entry.get(outcome.tag)
        if known is None or not self.is_discharged or outcome.state not in (0, known.state):
            return False
        if outcome.delivery is None:
            known.is_final = True
        return True

    def find_moves(self) -> None:
        """Find the targets of messages that the commit moves away: rejected ones, and those that failed too often.

        Targets may have to be looked up: `pending` counts that, and `when_complete` is called when it is done.
        """
        if self.failure is not None:
            return
        moves = [taken for taken in self.taken.by_entry.values() if taken.move_reason()]
        self.pending += len(moves)
        for taken in moves:
            taken.note()
            found = partial(self._move, taken)
            self._context.returns.look_up(taken.queue, taken.entry, taken.move_reason(), taken.failures, found)

    def _move(self, taken: Taken, found: Found | CairnError) -> None:
        if self.failure is None:
            if isinstance(found, CairnError):
                self.fail(f"a message can't be moved away: {found}")
            elif not taken.entry.is_dequeued:
                self.work.move(taken, *found)
        self.end_pending()

    def end_pending(self) -> None:
        """Note that a pending message was enqueued, or that the targets of a move are known."""
        self.pending -= 1
        if not self.pending and self.when_complete is not None:
            self.when_complete()

    def complete(self) -> None:
        """Complete the store's part before a commit or its preparation.

        Raise `StoreError` if the transaction can't be committed for a reason outside of the store.
        """
        self.staging.put_tags()
        posts, taken = self.staging.posts, self.taken.by_entry.values()
        queues: set[SourceQueue | TargetQueue] = {*[post.queue for post in posts], *[one.queue for one in taken]}
        for queue in queues:
            if queue.is_deleting:
                raise StoreError(f"queue {queue.name!r}", "it was deleted")
        self.work.check()

    def commit(self, then: Callable[[], None], refused: Callable[[], None] | None = None) -> None:
        """Commit; *then* is called when that is durable. Raises one of `CAN_FAIL`, and has done nothing then.

        *refused* is called if the members of the cluster refuse the commit later, and it has been rolled back.
        """
        self.complete()
        began = partial(self.handle, TransactionEvent.SUBMITTED, (UNKNOWN_ID, "the transaction was discharged"))
        if not self.work.submit(began, partial(self._is_safe, then), partial(self._is_refused, refused)):
            inner = self.staging.inner
            lsn = inner.commit(self._core.clock.wall_us()) if inner is not None else 0
            self.committed(lsn, then)

    def committed(self, lsn: int, then: Callable[[], None]) -> None:
        """Do the rest of a commit, whose part in the store is recorded at *lsn*."""
        self.handle(TransactionEvent.COMMITTED, (UNKNOWN_ID, "the transaction was committed"))
        shown = self.staging.shown()
        self._drop()
        self.taken.dequeue()
        self._core.commits.show(lsn, shown, self._durable, then)

    def _durable(self, then: Callable[[], None]) -> None:
        self.taken.settle()
        then()

    def _is_safe(self, then: Callable[[], None]) -> None:
        """Finish the commit: all members apply it, and a majority has it."""
        del self._context.under_way[self]
        self.committed(0, then)

    def _is_refused(self, then: Callable[[], None] | None) -> None:
        """Finish the transaction that all members refuse."""
        del self._context.under_way[self]
        self.handle(TransactionEvent.REFUSED, (ROLLBACK, DELETED))
        if then is not None:
            then()

    def lost(self) -> None:
        """Handle that this member has lost its cluster after the submission."""
        self.handle(TransactionEvent.LOST)

    def fail(self, reason: str, refusal: str = "") -> None:
        """Make the transaction fail for that reason. *refusal*: the AMQP error of the message that is being staged."""
        if self.failure is None:
            self._refusal = refusal
            if self.xid and self.is_discharged:  # its client takes it for done
                text = "transaction %s is rolled back before it is prepared: %s"
                log.warning(text, self.xid.hex(), reason, extra={"event": "transaction.rolled-back"})
        self.roll_back(ROLLBACK, reason)

    def roll_back(self, condition: str, reason: str) -> int:
        """Roll back the transaction with that error; return the LSN to wait for. A repeated call has no effect."""
        if self.failure is not None:
            return 0
        lsn, inner = 0, self.staging.inner
        if inner is not None and inner.state in (TxState.OPEN, TxState.PREPARED):
            lsn = inner.rollback(self._core.clock.wall_us())
        self.handle(TransactionEvent.FAILED, (condition, reason))
        return lsn

    def restored(self, inner: StoreTransaction, queues: Mapping[int, RestoredQueue]) -> None:
        """Restore a transaction that was prepared before the broker started."""
        self.state = TransactionState.PREPARED
        self.staging.inner = inner
        for operation in inner.operations:
            queue = queues.get(operation.queue_id)
            if queue is None:
                continue
            if isinstance(operation, Enqueue):
                self.staging.restore(queue, operation.message_id)
            elif isinstance(operation, Dequeue):
                for entry in queue.contents.take_stored((operation.message_id,)):
                    queue.locked[entry] = None
                    self.taken.locked[entry] = queue
