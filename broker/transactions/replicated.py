"""A client's transaction in a cluster: its operations on replicated queues are one event, sent at discharge.

Nothing is replicated before (D63): what it puts is held in memory, and what it takes stays with this member, like all
that is not settled, whoever owns the queue meanwhile. All members do the event in one go, or none of them does, if a
queue or a message is gone by then. The client is answered when it is safe. Core only.

Two stores can't commit together without a second phase. So a transaction is about replicated queues, or about durable
ones that only this member has; what does not last goes with either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

from ...amqp.codec import header
from ...amqp.codec.primitives import Malformed
from ...amqp.native.proton_ffi import ACCEPTED, REJECTED
from ...base.errors import StoreError
from ...channel.ports import Fragment, Outcome
from ...store.contract.dequeue_reason import Why
from ..kernel.memory_budget import ENTRY_BYTES
from ..messages.entry import Entry
from ..messages.message_times import may_have_times, stamped, times_of
from ..nodes.replication_port import Kept, Moved, Work
from ..queues.queue import Queue, own, shared
from .context import Controller, TransactionContext
from .moves import WHY
from .transaction import ROLLBACK, UNKNOWN_ID, Taken, Transaction

_GONE = "a message that was taken in it is gone, or a queue"


class OrderedTransaction(Transaction):
    """A transaction on a member of a cluster."""

    def __init__(self, context: TransactionContext, controller: Controller, id: bytes) -> None:
        super().__init__(context, controller, id)
        self._puts: list[tuple[tuple[tuple[Queue, ...], bool], tuple[bytes, bool]]] = []
        """Queues, and whether the message may have times; the message as in `Kept`."""
        self._moves: list[Moved] = []

    @property
    def operations(self) -> int:
        return super().operations + len(self._puts) + len(self._moves)

    # ---- work -----------------------------------------------------------------------------------------------------

    def stage_all(self, queues: Sequence[Queue], fragments: Sequence[Fragment]) -> None:
        if others := own(queues):
            super().stage_all(others, fragments)
        if ordered := shared(queues):
            self._gather(tuple(ordered), fragments)

    def _gather(self, queues: tuple[Queue, ...], fragments: Sequence[Fragment]) -> None:
        """Whole messages, each for all of *queues*, which are replicated."""
        lives = any(queue.policy.message_ttl_ms for queue in queues)
        now_us = self._core.clock.wall_us()
        full = ""
        if self._context.members.is_alone:  # among others the commit waits for room
            full = self._core.store.full()
        for _, content, _ in fragments:
            try:
                head = header.parse(content)
                if timed := lives or may_have_times(content, head):
                    content = stamped(content, head, now_us, always=lives)
            except Malformed as error:
                self.fail(f"a message can't be read: {error}")
                break
            if full and head.durable:
                self.fail(f"the store is full: {full}")
                break
            if not self._holds(queues, content):
                break
            self._puts.append(((queues, timed), (content, head.durable)))
        self._count()

    def _holds(self, queues: Sequence[Queue], content: bytes) -> bool:
        """Count a message that is held until the discharge; False, and it has failed, if that is too much."""
        held_bytes = len(content) + ENTRY_BYTES
        if not self._has_room(held_bytes):
            return False
        if held_bytes > min([queue.spare_bytes() for queue in queues]):
            self.fail("no memory is left for messages of transactions; see --memory-limit")
            return False
        self._transient_bytes += held_bytes
        return True

    def _take_off(self, queue: Queue, taken: Sequence[Outcome]) -> None:
        if own([queue]):
            super()._take_off(queue, taken)

    def _move_to(self, taken: Taken, targets: Sequence[Queue], content: bytes) -> None:
        ordered, others = tuple(shared(targets)), own(targets)
        message = (content, taken.entry.message_id > 0)
        if own([taken.queue]):
            super()._move_to(taken, others, content)
            if ordered and self.failure is None and self._holds(ordered, content):
                self._puts.append(((ordered, True), message))
        elif any(target.queue_id for target in others):
            self.fail("a message can't be moved to a durable queue that only this member has")
        elif not ordered or self._holds(ordered, content):
            for target in others:
                self.hold(target, content, len(content), times_of(content, target.policy.message_ttl_ms))
            if self.failure is None:
                self._moves.append(Moved(taken.queue, taken.entry, ordered, message, WHY[taken.why_moved()]))
                taken.is_off = True
        self._count()

    # ---- the end --------------------------------------------------------------------------------------------------

    def commit(self, then: Callable[[], None], refused: Callable[[], None] | None = None) -> None:
        work = self._work()
        if not any(work):
            super().commit(then, refused)
            return
        self.check()
        if self.inner is not None:
            raise StoreError(
                "transaction",
                "it is about replicated queues and about durable ones that only this member has",
                "make it two transactions",
            )
        self.is_committed = True
        self.keep_acquired()
        self.failure = (UNKNOWN_ID, "the transaction was discharged")
        self._over()
        self._context.under_way[self] = None
        is_safe, is_refused = partial(self._is_safe, then), partial(self._is_refused, refused)
        self._context.members.transact(work, self._is_heard, is_safe, is_refused)

    def check(self) -> None:
        super().check()
        for (queues, _), _ in self._puts:
            for queue in queues:
                if queue.is_deleting:
                    raise StoreError(f"queue {queue.name!r}", "it is gone")
        if any(taken.is_off and taken.entry.gone and shared([taken.queue]) for taken in self._taken.values()):
            raise StoreError("transaction", _GONE)

    def _work(self) -> Work:
        """Return the operations of the transaction on replicated queues."""
        puts = [
            (queues, Kept([message for _, message in alike], timed))
            for (queues, timed), alike in groupby(self._puts, itemgetter(0))
        ]
        moved = {move.entry for move in self._moves}
        takes: dict[tuple[Queue, Why], list[Entry]] = {}
        for taken in self._taken.values():
            if taken.is_off and shared([taken.queue]) and taken.entry not in moved:
                why = Why.ACCEPTED if taken.state == ACCEPTED else Why.REJECTED
                takes.setdefault((taken.queue, why), []).append(taken.entry)
        return Work(puts, [(queue, entries, why) for (queue, why), entries in takes.items()], self._moves)

    def _is_heard(self) -> None:
        """Remove the puts on replicated queues from the staged totals: they are counted there now, or will never be."""
        self._unstage([limits for limits in self._staged if limits.is_shared])

    def _is_safe(self, then: Callable[[], None]) -> None:
        """Finish the commit: all members apply it, and a majority has it."""
        del self._context.under_way[self]
        for taken in self._taken.values():
            if taken.state == REJECTED and shared([taken.queue]):
                taken.queue.dead_lettered += taken.is_off
        self.committed(0, then)

    def _is_refused(self, then: Callable[[], None] | None) -> None:
        """Finish the transaction that all members refuse."""
        del self._context.under_way[self]
        self.is_committed = False
        self.rolled_back(ROLLBACK, _GONE)
        if then is not None:
            then()

    def lost(self) -> None:
        """Handle that this member has lost its cluster after the discharge: only the others know the outcome."""
        self._drop()
        held, self._taken = self._taken, {}
        self._context.settled(held)
        for taken in held.values():
            taken.queue.locked.pop(taken.entry, None)
            if not taken.entry.gone:
                taken.entry.previously_delivered = True
                taken.queue.give_back(taken.entry)

    def _drop(self) -> None:
        self._puts, self._moves = [], []
        super()._drop()


def _nothing() -> None:
    """Ignore the result, which no caller awaits."""
