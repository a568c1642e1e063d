"""The messages that a client's transaction enqueues: invisible until the commit is durable. Core only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...amqp.codec import header
from ...amqp.codec.primitives import Malformed
from ...amqp.codec.sections import envelope
from ...base.errors import DiskError, StoreError
from ...channel.ports import Content, Delivery, Fragment, TerminalEnd
from ...store.contract.transaction import MAX_HELD_BYTES, StoreTransaction, TxState
from ..kernel.commit_queue import Shown
from ..kernel.memory_budget import ENTRY_BYTES, NO_MEMORY
from ..messages.entry import Entry
from ..messages.message_times import TimedEntry, Times, may_have_times, stamped, times_of
from ..queues.limits import QueueLimits, Staged
from ..queues.queue import Queue
from .context import Controller, TransactionContext

ROLLBACK = "amqp:transaction:rollback"
UNKNOWN_ID = "amqp:transaction:unknown-id"
TIMEOUT = "amqp:transaction:timeout"

NO_ROOM = "amqp:resource-limit-exceeded"

CAN_FAIL = (StoreError, DiskError)
"""Errors that the store raises without having written anything; other errors end the broker."""


class Post(NamedTuple):
    """A message on a queue with the commit."""

    queue: Queue
    content: bytes | Content | None = None
    """None of those that the store has, in its order."""
    held_bytes: int = 0
    """Bytes that the message counts for on the queue if it is not stored."""
    times: Times | None = None
    beginning: bytes = b""
    """The beginning of the message, for a queue that inspects it."""
    tagged: Callable[[int], None] | None = None
    """The callback for the ID of the message that keeps a delivery's tag; the message stays invisible."""


class Posting:
    """The messages of a `Transaction`, stored by a transaction of the store or held here."""

    def __init__(self, context: TransactionContext, controller: Controller, id: bytes) -> None:
        self.id = id
        self.controller = controller
        self.inner: StoreTransaction | None = None
        """The store's part, once there is one."""
        self.failure: tuple[str, str] | None = None
        """Why nothing can be done in it any more, as an AMQP error."""
        self._refusal = ""
        """The AMQP error of the message that made it fail, until it is reported."""
        self.is_committed = False
        self.size_bytes = 0
        """Bytes that the transaction counts for in the limit of its connection."""
        self._context = context
        self._core = context.core
        self._posts: list[Post] = []
        self._transient_bytes = 0
        self._counted_bytes = 0
        self._staged: dict[QueueLimits, Staged] = {}

    @property
    def is_prepared(self) -> bool:
        return self.inner is not None and self.inner.state is TxState.PREPARED

    def roll_back(self, condition: str, why: str) -> int:
        """Roll back the transaction with that error; return the LSN to wait for. A repeated call has no effect."""
        raise NotImplementedError

    def staged_at(self, limits: QueueLimits) -> Staged | None:
        """Return what it will enqueue on the queue with these limits."""
        return self._staged.get(limits)

    def stage(self, limits: QueueLimits, content: bytes, size_bytes: int) -> None:
        """Count a message that the limits accepted, of so many bytes; *content* may be the beginning of it."""
        if self.failure is None:
            limits.stage(self._staged.setdefault(limits, Staged()), content, size_bytes)

    def stage_all(self, queues: Sequence[Queue], fragments: Sequence[Fragment]) -> None:
        """Stage complete messages, each for all of *queues*."""
        durable = [queue for queue in queues if queue.queue_id]
        lives = any(queue.policy.message_ttl_ms for queue in queues)
        now_us = self._core.clock.wall_us()
        run: list[bytes] = []
        for _, content, _ in fragments:
            try:
                head = header.parse(content)
                timed = lives or may_have_times(content, head)
                if timed:
                    content = stamped(content, head, now_us, always=lives)
            except Malformed as error:
                self.fail(f"a message can't be read: {error}", "amqp:decode-error")
                break
            if head.durable and not timed and len(durable) == len(queues):
                run.append(content)
                continue
            self._store(durable, run)
            run = []
            self._post_one(queues, durable if head.durable else [], content)
        self._store(durable, run)
        self._count()

    def _post_one(self, queues: Sequence[Queue], lasting: Sequence[Queue], content: bytes) -> None:
        """A message that is stored for some of its queues, or has times."""
        self._store(lasting, [content], timed=True)
        for queue in queues:
            if queue not in lasting:
                self.hold(queue, content, len(content), times_of(content, queue.policy.message_ttl_ms))

    def hold(
        self, queue: Queue, content: bytes | Content, size_bytes: int, times: Times | None, beginning: bytes = b""
    ) -> None:
        """A message that is not stored."""
        held_bytes = size_bytes + ENTRY_BYTES
        if self._has_room(held_bytes):
            if held_bytes > queue.spare_bytes():
                self.fail(NO_MEMORY, NO_ROOM)
                return
            self._posts.append(Post(queue, content, held_bytes, times, beginning))
            self._transient_bytes += held_bytes
            self._count()

    def enqueue(self, queue: Queue, message_id: int, times: Times | None, beginning: bytes) -> None:
        """A message that the store has."""
        if self._has_room(self._core.store.size_of(message_id)):
            self._do(lambda inner, now_us: inner.enqueue(message_id, queue.queue_id, now_us))
            self._posts.append(Post(queue, None, 0, times, beginning))

    def remember(self, queue: Queue, tag: bytes, then: Callable[[int], None]) -> None:
        """Keep a delivery's tag on *queue*, with the commit; *then* gets its message's id."""
        if self._has_room(len(tag) + ENTRY_BYTES):
            self._do(lambda inner, now_us: inner.put(queue.queue_id, tag, now_us))
            self._posts.append(Post(queue, tagged=then))

    def answer(
        self, terminal: TerminalEnd, wanted: Sequence[Delivery], unwanted: Sequence[Delivery], credit: int
    ) -> None:
        """Tell what becomes of posted messages with the commit; *unwanted*: of those nobody wants to hear."""
        if unwanted:
            terminal.release(unwanted, 0)
        if self.failure is None:
            terminal.accept_in(self.id, wanted, credit)
            return
        condition, why = self.failure  # and outside a transaction, what could not be taken would be refused as
        terminal.reject_in(self.id, wanted, credit, self._refusal or condition, why)
        self._refusal = ""
        if unwanted and self.failure[0] == UNKNOWN_ID:  # there is no other way to tell
            terminal.failure(*self.failure)

    def refuse(
        self, terminal: TerminalEnd, deliveries: Sequence[Delivery], credit: int, condition: str, why: str
    ) -> None:
        """Messages posted in it can't be taken, so it can't be committed."""
        self.fail(why)
        terminal.reject_in(self.id, deliveries, credit, condition, why)

    def fail(self, why: str, refusal: str = "") -> None:
        """Make the transaction fail for that reason. *refusal*: the AMQP error of the message that is being posted."""
        if self.failure is None:
            self._refusal = refusal
        self.roll_back(ROLLBACK, why)

    def _store(self, queues: Sequence[Queue], contents: list[bytes], *, timed: bool = False) -> None:
        """Durable messages, each for all of *queues*, which are durable."""
        if not (queues and contents):
            return
        if not self._has_room(sum(map(len, contents)) + ENTRY_BYTES * len(contents) * len(queues)):
            return
        store, many = self._core.store, len(queues) > 1  # then each is stored, and put on each of them by the commit
        full = store.full(sum(map(len, contents)), len(contents) * (1 + len(queues))) if many else store.full()
        excess = "" if full else self._core.users.refusal_in_transaction(queues, max(map(len, contents)))
        if full or excess:
            self.fail(excess or f"the store is full: {full}", NO_ROOM)
        elif len(queues) == 1:
            queue, queue_id = queues[0], queues[0].queue_id
            self._do(lambda inner, now_us: inner.put_all(queue_id, contents, now_us))
            if timed or queue.policy.looks_inside:
                self._posts += [stored_on(queue, content, timed=timed) for content in contents]
            else:
                self._posts += [Post(queue)] * len(contents)
        else:
            for content in contents:
                self._store_on(queues, content, timed=timed)

    def _store_on(self, queues: Sequence[Queue], content: bytes, *, timed: bool) -> None:
        ids = [queue.queue_id for queue in queues]
        self._do(lambda inner, now_us: inner.put_on(ids, content, now_us))
        for queue in queues:
            self._posts.append(stored_on(queue, content, timed=timed))

    def _has_room(self, size_bytes: int) -> bool:
        if self.failure is not None:
            return False
        most = self._context.limits.size_bytes
        if self.controller.size_bytes + size_bytes > most:
            self.fail(f"the open transactions of a connection may have {most} bytes together")
            return False
        self.size_bytes += size_bytes
        self.controller.size_bytes += size_bytes
        return True

    def _count(self) -> None:
        """Count what it holds in memory."""
        held_bytes = self._transient_bytes
        if self.inner is not None and not self.inner.xid and self.failure is None:
            held_bytes += min(self.inner.held_bytes, MAX_HELD_BYTES)
        self._core.memory.used_bytes += held_bytes - self._counted_bytes
        self._counted_bytes = held_bytes

    def _do(self, operation: Callable[[StoreTransaction, int], None]) -> None:
        now_us = self._core.clock.wall_us()
        if self.inner is None:
            self.inner = self._core.store.transactions.begin(now_us)
        try:
            operation(self.inner, now_us)
        except CAN_FAIL as error:
            self.fail(str(error))

    def _shown(self) -> Shown:
        """Return the entries that become visible on each queue with the commit."""
        stored = self.inner.stored() if self.inner is not None else iter(())
        shown: dict[Queue, list[Entry]] = {}
        for queue, content, held_bytes, times, beginning, tagged in self._posts:
            message_id = 0
            if content is None:
                message_id, content = next(stored)
                if tagged is not None:
                    tagged(message_id)
                    continue
                held_bytes = ENTRY_BYTES + (len(content) if content is not None else 0)
            position = next(queue.positions)
            if times is None:
                entry = Entry(message_id, position, content, held_bytes)
            else:
                queue.begin_timing()
                entry = TimedEntry(message_id, position, content, held_bytes, times)
            if beginning:
                entry.first_bytes = beginning
            shown.setdefault(queue, []).append(entry)
        return list(shown.items())

    def _unstage(self, all_limits: Sequence[QueueLimits]) -> None:
        """Remove the puts from the staged totals of *all_limits*: they are on their queues now, or will never be."""
        for limits in all_limits:
            limits.unstage(self._staged.pop(limits))

    def _drop(self) -> None:
        self._posts = []
        self._unstage([*self._staged])
        self.controller.size_bytes -= self.size_bytes
        self.size_bytes = self._transient_bytes = 0
        self._count()


def stored_on(queue: Queue, content: bytes, *, timed: bool) -> Post:
    """A message that the store puts on *queue*."""
    times = times_of(content, queue.policy.message_ttl_ms) if timed else None
    return Post(queue, None, 0, times, envelope(content) if queue.policy.looks_inside else b"")
