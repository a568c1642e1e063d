"""The work of a client's transaction: the store does that on queues of this broker alone, with the commit. Core only.

In a cluster, the operations on replicated queues are one event, sent at discharge. Nothing is replicated before (D63):
the messages that it enqueues are held in memory, and those that it takes stay with this member, like all unsettled
messages, whichever member leads the queue meanwhile. All members apply the event, or none of them does if a queue or a
message was removed by then. The client is answered when the event is safe.

Two stores cannot commit together without a second phase. So a transaction contains replicated queues, or durable queues
of this member only; transient messages are allowed with either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter

from ...amqp.codec import header
from ...amqp.codec.primitives import Malformed
from ...amqp.native.proton_ffi import ACCEPTED, REJECTED
from ...amqp.ports import Fragment, Outcome
from ...base.errors import StoreError
from ...store.contract.dequeue_reason import DequeueReason
from ..kernel.memory_budget import ENTRY_BYTES
from ..messages.entry import Entry
from ..messages.message_times import may_have_times, stamped, times_of
from ..nodes.replication_port import Kept, Moved, Work
from ..queues.ends import SourceQueue, TargetQueue, own, shared
from .context import Claimant, TransactionContext
from .moves import REASONS
from .staging import StagingArea
from .taken_messages import Taken, TakenMessages, is_off

DELETED = "a message that it acquired or a queue was deleted"


class TransactionWork:
    """The operations of one transaction."""

    def __init__(
        self, context: TransactionContext, staging: StagingArea, taken: TakenMessages, owner: Claimant
    ) -> None:
        self._context = context
        self._core = context.core
        self._staging = staging
        self._taken = taken
        self._owner = owner
        self._shares_queues = context.members.shares_queues
        self._puts: list[tuple[tuple[tuple[TargetQueue, ...], bool], tuple[bytes, bool]]] = []
        """Queues, and whether the message may have times; the message as in `Kept`."""
        self._moves: list[Moved] = []

    @property
    def operations(self) -> int:
        """Return the number of operations besides those in the staging area."""
        return len(self._puts) + len(self._moves)

    def stage(self, queues: Sequence[TargetQueue], fragments: Sequence[Fragment]) -> None:
        """Enqueue complete messages, each on all of *queues*."""
        ordered = shared(queues) if self._shares_queues else []
        if others := own(queues) if ordered else queues:
            self._staging.stage_all(others, fragments)
        if ordered:
            self._gather(tuple(ordered), fragments)

    def _gather(self, queues: tuple[TargetQueue, ...], fragments: Sequence[Fragment]) -> None:
        """Gather complete messages, each for all of *queues*, which are replicated."""
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
                self._owner.fail(f"a message can't be read: {error}")
                break
            if full and head.durable:
                self._owner.fail(f"the store is full: {full}")
                break
            if not self._holds(queues, content):
                break
            self._puts.append(((queues, timed), (content, head.durable)))
        self._staging.count()

    def _holds(self, queues: Sequence[TargetQueue], content: bytes) -> bool:
        """Count a message that is held until the discharge; return False if that is too much, and it has failed."""
        held_bytes = len(content) + ENTRY_BYTES
        if not self._staging.has_room(held_bytes):
            return False
        if held_bytes > min([queue.memory.spare_bytes() for queue in queues]):
            self._owner.fail("no memory is left for messages of transactions; see --memory-limit")
            return False
        self._staging.transient_bytes += held_bytes
        return True

    def take_off(self, queue: SourceQueue, outcomes: Sequence[Outcome]) -> None:
        """Dequeue messages from *queue*, as far as they leave it permanently."""
        if self._shares_queues and shared([queue]):  # by the event
            return
        off = [one for one in outcomes if one.tag.message_id and is_off(queue, one.state)]
        for state, reason in ((ACCEPTED, DequeueReason.ACCEPTED), (REJECTED, DequeueReason.REJECTED)):
            ids = [one.tag.message_id for one in off if one.state == state]
            if ids and self._owner.failure is None:
                self._staging.dequeue(ids, queue.queue_id, reason)

    def move(self, taken: Taken, targets: Sequence[TargetQueue], content: bytes) -> None:
        """Move a message to *targets*, with *content* there."""
        ordered, others = tuple(shared(targets)), own(targets)
        message_id, reason = taken.entry.message_id, REASONS[taken.move_reason()]
        message = (content, message_id > 0)
        if own([taken.queue]):
            if message_id:
                self._staging.dequeue([message_id], taken.queue.queue_id, reason)
            self._staging.move(others, content, is_stored=message_id > 0)
            taken.is_off = self._owner.failure is None
            if ordered and taken.is_off and self._holds(ordered, content):
                self._puts.append(((ordered, True), message))
        elif any(target.queue_id for target in others):
            self._owner.fail("a message can't be moved to a durable queue of this member alone; use a replicated one")
        elif not ordered or self._holds(ordered, content):
            for target in others:
                self._staging.hold(target, content, len(content), times_of(content, target.policy.message_ttl_ms))
            if self._owner.failure is None:
                self._moves.append(Moved(taken.queue, taken.entry, ordered, message, reason))
                taken.is_off = True
        self._staging.count()

    def check(self) -> None:
        """Raise `StoreError` if the members would refuse the work; the store checks its part."""
        if not self._shares_queues:
            return
        for (queues, _), _ in self._puts:
            for queue in queues:
                if queue.is_deleting:
                    raise StoreError(f"queue {queue.name!r}", "it was deleted")
        taken = self._taken.by_entry.values()
        if any(one.is_off and one.entry.is_dequeued and shared([one.queue]) for one in taken):
            raise StoreError("transaction", DELETED)

    def submit(self, began: Callable[[], None], is_safe: Callable[[], None], is_refused: Callable[[], None]) -> bool:
        """Multicast the work on replicated queues; return False without such work."""
        if not (self._shares_queues and any(work := self._work())):
            return False
        if self._staging.inner is not None:
            raise StoreError(
                "transaction",
                "it is about replicated queues and about durable ones that only this member has",
                "make it two transactions",
            )
        began()

        def safe() -> None:
            for taken in self._taken.by_entry.values():
                if taken.state == REJECTED and shared([taken.queue]):
                    taken.queue.dead_lettered += taken.is_off
            is_safe()

        self._context.members.transact(work, self._staging.unstage_shared, safe, is_refused)
        return True

    def _work(self) -> Work:
        """Return the operations of the transaction on replicated queues."""
        puts = [
            (queues, Kept([message for _, message in alike], timed))
            for (queues, timed), alike in groupby(self._puts, itemgetter(0))
        ]
        moved = {move.entry for move in self._moves}
        takes: dict[tuple[SourceQueue, DequeueReason], list[Entry]] = {}
        for taken in self._taken.by_entry.values():
            if taken.is_off and shared([taken.queue]) and taken.entry not in moved:
                reason = DequeueReason.ACCEPTED if taken.state == ACCEPTED else DequeueReason.REJECTED
                takes.setdefault((taken.queue, reason), []).append(taken.entry)
        return Work(puts, [(queue, entries, reason) for (queue, reason), entries in takes.items()], self._moves)

    def drop(self) -> None:
        self._puts, self._moves = [], []
