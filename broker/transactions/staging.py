"""The messages that a client's transaction enqueues: invisible until the commit is durable. Core only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...amqp.codec import header
from ...amqp.codec.primitives import Malformed
from ...amqp.codec.sections import envelope
from ...amqp.ports import Content, Fragment
from ...base.errors import CairnError, DiskError, StoreError
from ...store.contract.dequeue_reason import DequeueReason
from ...store.contract.transaction import MAX_HELD_BYTES, StoreTransaction
from ..kernel.commit_queue import Shown
from ..kernel.memory_budget import ENTRY_BYTES, NO_MEMORY
from ..messages.entry import Entry
from ..messages.message_times import TimedEntry, Times, may_have_times, stamped, times_of
from ..queues.ends import TargetQueue
from ..queues.limits import QueueLimits, Staged
from .context import Claimant, Controller, TransactionContext

ROLLBACK = "amqp:transaction:rollback"
UNKNOWN_ID = "amqp:transaction:unknown-id"
TIMEOUT = "amqp:transaction:timeout"

NO_ROOM = "amqp:resource-limit-exceeded"

CAN_FAIL = (StoreError, DiskError)
"""Errors that the store raises without having written anything; other errors end the broker."""


class Post(NamedTuple):
    """A message on a queue with the commit."""

    queue: TargetQueue
    content: bytes | Content | None = None
    """None of those that the store has, in its order."""
    held_bytes: int = 0
    """Bytes that the message counts for on the queue if it is not stored."""
    times: Times | None = None
    beginning: bytes = b""
    """The beginning of the message, for a queue that inspects it."""
    tag: DeliveryTag | None = None
    """The tag of a delivery that the message keeps; the message stays invisible."""


@dataclass(eq=False, slots=True)
class DeliveryTag:
    """The tag of a delivery in a transaction, which is stored with the commit."""

    queue: TargetQueue
    """The queue of the message that keeps the tag."""
    tag: bytes
    ended: Callable[[DeliveryTag, int], None]
    """The callback for the end of the transaction; it gets the ID of that message, 0 if the tag is not stored."""
    is_settled: bool = False
    """The client has settled the delivery, and may use the tag again."""


class StagingArea:
    """The messages that a transaction enqueues, stored by a transaction of the store or held here."""

    def __init__(self, context: TransactionContext, controller: Controller[Any], owner: Claimant) -> None:
        self.controller = controller
        self.inner: StoreTransaction | None = None
        """The store's part, once there is one, until the transaction ends."""
        self.posts: list[Post] = []
        self.transient_bytes = 0
        """Bytes that are held until the commit. `count` follows each change."""
        self.staged: dict[QueueLimits, Staged] = {}
        """The messages that the transaction will enqueue, by the limits of their queue."""
        self._owner = owner
        self._core = context.core
        self._most_bytes = context.limits.size_bytes
        self._size_bytes = 0
        """Bytes that the transaction counts for in the limit of its connection."""
        self._counted_bytes = 0
        self._tags: deque[DeliveryTag] = deque()
        """Tags to store with the commit: until then the link of a delivery may be closed, and its queue deleted."""

    def stage(self, limits: QueueLimits, content: bytes, size_bytes: int) -> None:
        """Count a message that the limits accepted, of so many bytes; *content* may be the beginning of it."""
        if self._owner.failure is None:
            limits.stage(self.staged.setdefault(limits, Staged()), content, size_bytes)

    def unstage_shared(self) -> None:
        """Remove the messages for replicated queues from the staged totals: they are counted there, or were removed."""
        self._unstage([limits for limits in self.staged if limits.is_shared])

    def _unstage(self, all_limits: Sequence[QueueLimits]) -> None:
        for limits in all_limits:
            limits.unstage(self.staged.pop(limits))

    def has_room(self, size_bytes: int) -> bool:
        """Count *size_bytes* more for the connection; return False if the transaction has failed, or fails by that."""
        if self._owner.failure is not None:
            return False
        if self.controller.size_bytes + size_bytes > self._most_bytes:
            self._owner.fail(f"the open transactions of a connection may have {self._most_bytes} bytes together")
            return False
        self._size_bytes += size_bytes
        self.controller.size_bytes += size_bytes
        return True

    def count(self) -> None:
        """Count the bytes held in memory."""
        held_bytes = self.transient_bytes
        if self.inner is not None and not self.inner.xid and self._owner.failure is None:
            held_bytes += min(self.inner.held_bytes, MAX_HELD_BYTES)
        self._core.memory.used_bytes += held_bytes - self._counted_bytes
        self._counted_bytes = held_bytes

    def detach(self) -> None:
        """Stop counting for the connection."""
        self.controller.size_bytes -= self._size_bytes
        self.controller = Controller()
        self.controller.size_bytes = self._size_bytes

    def stage_all(self, queues: Sequence[TargetQueue], fragments: Sequence[Fragment]) -> None:
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
                self._owner.fail(f"a message can't be read: {error}", "amqp:decode-error")
                break
            if head.durable and not timed and len(durable) == len(queues):
                run.append(content)
                continue
            self._store(durable, run)
            run = []
            lasting = durable if head.durable else []
            self._store(lasting, [content], timed=True)
            for queue in queues:
                if queue not in lasting:
                    self.hold(queue, content, len(content), times_of(content, queue.policy.message_ttl_ms))
        self._store(durable, run)
        self.count()

    def hold(
        self, queue: TargetQueue, content: bytes | Content, size_bytes: int, times: Times | None, beginning: bytes = b""
    ) -> None:
        """Stage a message that is not stored."""
        held_bytes = size_bytes + ENTRY_BYTES
        if self.has_room(held_bytes):
            if held_bytes > queue.memory.spare_bytes():
                self._owner.fail(NO_MEMORY, NO_ROOM)
                return
            self.posts.append(Post(queue, content, held_bytes, times, beginning))
            self.transient_bytes += held_bytes
            self.count()

    def enqueue(self, queue: TargetQueue, message_id: int, times: Times | None, beginning: bytes) -> None:
        """Stage a message that the store has."""
        if self.has_room(self._core.store.size_of(message_id)):
            self.do(lambda inner, now_us: inner.enqueue(message_id, queue.queue_id, now_us))
            self.posts.append(Post(queue, None, 0, times, beginning))

    def remember(self, tag: DeliveryTag) -> None:
        """Store the tag of a delivery with the commit."""
        if self.has_room(len(tag.tag) + ENTRY_BYTES):
            self._tags.append(tag)
        else:
            tag.ended(tag, 0)

    def put_tags(self) -> None:
        """Put the tags that are wanted on their queues. Raises one of `CAN_FAIL`; the others can be put later."""
        now_us = self._core.clock.wall_us()
        while self._tags:
            tag = self._tags[0]
            if tag.is_settled or tag.queue.is_deleting:
                tag.ended(tag, 0)
            else:
                self.inner = self.inner or self._core.store.transactions.begin(now_us)
                self.inner.put(tag.queue.queue_id, tag.tag, now_us)
                self.posts.append(Post(tag.queue, tag=tag))
            self._tags.popleft()

    def move(self, targets: Sequence[TargetQueue], content: bytes, *, is_stored: bool) -> None:
        """Stage a message that moves to *targets*; *is_stored*: its former queue stores it."""
        lasting = [target for target in targets if target.queue_id and is_stored]
        if lasting and self.has_room(len(content)):
            ids = [target.queue_id for target in lasting]
            self.do(lambda inner, now_us: inner.put_on(ids, content, now_us))
        for target in targets:
            if self._owner.failure is not None:
                return
            if target in lasting:
                self.posts.append(_stored_on(target, content, timed=True))
            else:
                self.hold(target, content, len(content), times_of(content, target.policy.message_ttl_ms))

    def restore(self, queue: TargetQueue, message_id: int) -> None:
        """Stage a stored message of a transaction that was prepared, with its size, ID and times."""
        store, beginning = self._core.store, b""
        with suppress(CairnError):  # its receiver is notified
            beginning = envelope(store.load_piece(message_id, 0))
        if queue.limits is not None:
            self.stage(queue.limits, beginning, store.size_of(message_id))
        times = times_of(beginning, queue.policy.message_ttl_ms)
        self.posts.append(Post(queue, None, 0, times, beginning if queue.policy.looks_inside else b""))

    def dequeue(self, message_ids: list[int], queue_id: int, reason: DequeueReason) -> None:
        """Have the store dequeue messages with the commit."""
        self.do(lambda inner, now_us: inner.dequeue_all(message_ids, queue_id, now_us, reason))

    def do(self, operation: Callable[[StoreTransaction, int], None]) -> None:
        """Add an operation to the store's part, unless the transaction has failed; it fails if the store refuses it."""
        if self._owner.failure is not None:
            return
        now_us = self._core.clock.wall_us()
        if self.inner is None:
            self.inner = self._core.store.transactions.begin(now_us)
        try:
            operation(self.inner, now_us)
        except CAN_FAIL as error:
            self._owner.fail(str(error))

    def _store(self, queues: Sequence[TargetQueue], contents: list[bytes], *, timed: bool = False) -> None:
        """Stage durable messages, each for all of *queues*, which are durable."""
        if not (queues and contents):
            return
        if not self.has_room(sum(map(len, contents)) + ENTRY_BYTES * len(contents) * len(queues)):
            return
        store, many = self._core.store, len(queues) > 1  # then each is stored, and put on each of them by the commit
        full = store.full(sum(map(len, contents)), len(contents) * (1 + len(queues))) if many else store.full()
        excess = "" if full else self._core.users.refusal_in_transaction(queues, max(map(len, contents)))
        if full or excess:
            self._owner.fail(excess or f"the store is full: {full}", NO_ROOM)
        elif len(queues) == 1:
            queue, queue_id = queues[0], queues[0].queue_id
            self.do(lambda inner, now_us: inner.put_all(queue_id, contents, now_us))
            if timed or queue.policy.looks_inside:
                self.posts += [_stored_on(queue, content, timed=timed) for content in contents]
            else:
                self.posts += [Post(queue)] * len(contents)
        else:
            for content in contents:
                self._store_on(queues, content, timed=timed)

    def _store_on(self, queues: Sequence[TargetQueue], content: bytes, *, timed: bool) -> None:
        ids = [queue.queue_id for queue in queues]
        self.do(lambda inner, now_us: inner.put_on(ids, content, now_us))
        for queue in queues:
            self.posts.append(_stored_on(queue, content, timed=timed))

    def shown(self) -> Shown:
        """Take the messages out of the area; return the entries that become visible on each queue with the commit."""
        stored = self.inner.stored() if self.inner is not None else iter(())
        shown: dict[TargetQueue, list[Entry]] = {}
        posts, self.posts = self.posts, []
        for queue, content, held_bytes, times, beginning, tag in posts:
            message_id = 0
            if content is None:
                message_id, content = next(stored)
                if tag is not None:
                    tag.ended(tag, message_id)
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

    def drop(self) -> None:
        """Forget all messages: they are on their queues now, or will never be."""
        posts, self.posts = self.posts, []
        tags, self._tags = self._tags, deque()
        for tag in [*[post.tag for post in posts if post.tag is not None], *tags]:
            tag.ended(tag, 0)
        self.inner = None  # or its contents would stay, uncounted, until Python looks for reference cycles
        self._unstage([*self.staged])
        self.controller.size_bytes -= self._size_bytes
        self._size_bytes = self.transient_bytes = 0
        self.count()


def _stored_on(queue: TargetQueue, content: bytes, *, timed: bool) -> Post:
    """Make the post of a message that the store puts on *queue*."""
    times = times_of(content, queue.policy.message_ttl_ms) if timed else None
    return Post(queue, None, 0, times, envelope(content) if queue.policy.looks_inside else b"")
