"""The limits of a queue: each message is checked before it is enqueued, if the policy has limits or rejects duplicates.

A queue without such a policy has no limits, and its messages are enqueued a batch at a time. The pending enqueues of
open transactions count if a limit refuses or drops messages, or else a commit would exceed it. They do not count if it
blocks: a sender would wait in its transaction for space that no consumer can make. In a cluster, pending enqueues of
this member also count; those of others are unknown. Core only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ...amqp.ports import TerminalEnd
from ...store.contract.dequeue_reason import DequeueReason
from ..contents.contents import QueueContents
from ..contents.internal_queues import InternalQueues
from ..contents.policy import Policy
from ..contents.ports import QueueState
from ..kernel.context import CoreContext
from ..messages.entry import ARRIVAL_MASK, Entry
from ..scheduling.throttle import Throttle
from .deduplication import Deduplication, key_of

LOW_MARK = 0.75
"""The used part of a limit at which blocked senders get credit again."""


class LimitedQueue(QueueState, Protocol):
    """A queue as its limits see it."""

    messages: int

    @property
    def contents(self) -> QueueContents: ...

    def with_consumers(self) -> list[Entry]:
        """Return the messages that consumers have, and those that transactions take off."""


class Staged:
    """The messages that one open transaction will enqueue on a queue that has limits."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.keys: set[bytes] = set()
        """The keys of its message-ids, if the queue detects duplicates."""


class QueueLimits:
    """The limits and the duplicate detection of one queue."""

    def __init__(self, core: CoreContext, queue: LimitedQueue, internal_queues: InternalQueues) -> None:
        policy = queue.policy
        self.bytes = 0
        """The bytes of all messages on the queue, if they are limited."""
        self._core = core
        self._queue = queue
        self._most_messages = policy.max_messages
        self._most_bytes = policy.max_bytes
        self._overflow = policy.overflow
        self.duplicates = Deduplication(core, queue, internal_queues) if policy.duplicate_window else None
        self._sizes: dict[int, int] = {}
        """The size of each message by position, for a limit in bytes."""
        self._withheld = Throttle(core.users.throttles)
        """The senders to which a queue that blocks grants no credit."""
        self._leaving = self._leaving_bytes = 0
        """Messages of a replicated ring that are being removed."""
        self._coming = self._coming_bytes = 0
        """Messages for a replicated queue that this member sent to the cluster, and that are not delivered yet."""
        self._staged = self._staged_bytes = 0
        """Messages that open transactions will enqueue."""

    def recovered(self, ids: Sequence[int]) -> None:
        """Count messages that were on the queue when the store was opened, at the positions from 1 on."""
        if self._most_bytes:
            self._sizes = {number: self._core.store.size_of(one) for number, one in enumerate(ids, 1)}
            self.bytes = sum(self._sizes.values())

    def change(self, policy: Policy) -> None:
        """Apply the limits of another policy from now on."""
        counted = bool(self._most_bytes)
        self._most_messages, self._most_bytes = policy.max_messages, policy.max_bytes
        self._overflow = policy.overflow
        if self._most_bytes and not counted:
            self._count()
        elif not self._most_bytes:
            self._sizes, self.bytes = {}, 0
        self.count_dequeued(())
        if self._overflow != "block":
            self._withheld.release()
        self.shown()

    def begin(self) -> None:
        """Count the messages of a queue that existed before its limits."""
        if self._most_bytes:
            self._count()
        self.shown()

    def _count(self) -> None:
        """Count the sizes of all messages on the queue, except those that are not durable yet."""
        queue, contents, store = self._queue, self._queue.contents, self._core.store
        there = [*contents.in_memory(-1, queue.messages), *contents.delayed, *queue.with_consumers()]
        self._sizes = {entry.position & ARRIVAL_MASK: self._size_of(entry) for entry in there if not entry.is_dequeued}
        page = contents.backlog.page(0, contents.backlog.count)
        for position, message_id in enumerate(page.ids, page.first):
            if message_id:
                self._sizes[position & ARRIVAL_MASK] = store.size_of(message_id)
        for position, entry in page.held.items():
            self._sizes[position & ARRIVAL_MASK] = self._size_of(entry)
        self.bytes = sum(self._sizes.values())

    @property
    def is_shared(self) -> bool:
        """Return whether all members of a cluster have the queue."""
        return self._queue.order.remembers_together

    def look_at(self, content: bytes, size_bytes: int, staged: Staged | None = None) -> str | None:
        """Return an empty text to accept a message, the reason to refuse it, or None to drop it silently.

        *content*: the message or its beginning; *staged*: the messages that its transaction will enqueue here, too.
        """
        if reason := self.too_long(size_bytes):
            return reason
        is_known = self.duplicates is not None and self.duplicates.knows(content)
        if is_known:  # also if it is full: it was accepted; in a cluster all members check again when it is delivered
            return "" if self.is_shared else None
        more = 1 + self._staged + self._coming, size_bytes + self._staged_bytes + self._coming_bytes
        if self._overflow in ("reject", "drop") and self._use(*more) > 1:
            if self._overflow == "drop":
                return None
            return f"the queue {self._queue.name!r} is full: {self._shown_use()}"
        if staged is not None and staged.keys and key_of(content) in staged.keys:
            return None
        return ""

    def too_long(self, size_bytes: int) -> str:
        """Return why a message of at least *size_bytes* exceeds the limit of even an empty queue, or an empty text."""
        if 0 < self._most_bytes < size_bytes:
            return f"the queue {self._queue.name!r} has room for {self._most_bytes} bytes"
        return ""

    def stage(self, staged: Staged, content: bytes, size_bytes: int) -> None:
        """Count a message that a transaction will enqueue. *content* may be its beginning."""
        staged.messages += 1
        staged.bytes += size_bytes
        self._staged += 1
        self._staged_bytes += size_bytes
        if self.duplicates is not None and (key := key_of(content)) is not None:
            staged.keys.add(key)

    def unstage(self, staged: Staged) -> None:
        """Remove the counts of a transaction that has ended; messages that it enqueued are counted on the queue."""
        self._staged -= staged.messages
        self._staged_bytes -= staged.bytes

    def count_enqueued(self, entries: Sequence[Entry]) -> int:
        """Count recorded messages; return the LSN to wait for beside theirs, or 0."""
        self.count(entries)
        return 0 if self.duplicates is None else self.duplicates.remember(entries)

    def count(self, entries: Sequence[Entry]) -> None:
        """Count the bytes of messages on the queue."""
        if self._most_bytes:
            for entry in entries:
                size = self._size_of(entry)
                self._sizes[entry.position & ARRIVAL_MASK] = size
                self.bytes += size

    def shown(self) -> None:
        """Remove the oldest messages of a ring that exceeds its limits; called when messages are ready for dispatch."""
        if self._overflow != "ring" or not self._queue.is_owner:
            return
        out: list[Entry] = []
        take_oldest = self._queue.contents.order.take_oldest
        while self._use(-self._leaving, -self._leaving_bytes) > 1 and (oldest := take_oldest()) is not None:
            out.append(oldest)
            self._leaving += 1
            self._leaving_bytes += self._sizes.get(oldest.position & ARRIVAL_MASK, 0)
        if not out:
            return
        count, size = len(out), sum([self._sizes.get(entry.position & ARRIVAL_MASK, 0) for entry in out])

        def removed() -> None:  # it was delivered before it is safe, and counted twice in between
            self._leaving -= count
            self._leaving_bytes -= size
            self.shown()

        self._queue.order.drop(out, DequeueReason.OVERFLOW, removed)

    def comes(self, messages: int, size_bytes: int) -> None:
        """Count messages that this member sent to the cluster to be enqueued here, until `came`."""
        self._coming += messages
        self._coming_bytes += size_bytes

    def came(self, messages: int, size_bytes: int) -> None:
        """Remove the count that `comes` added: the messages are on the queue, or were not enqueued."""
        self._coming -= messages
        self._coming_bytes -= size_bytes

    def nothing_is_under_way(self) -> None:
        """Reset the counts of messages that are being added or removed, as none of them arrives."""
        self._coming = self._coming_bytes = self._leaving = self._leaving_bytes = 0

    def count_dequeued(self, entries: Sequence[Entry]) -> None:
        """Remove dequeued messages from the count; grant withheld credit again below `LOW_MARK`."""
        if self._most_bytes:
            for entry in entries:
                self.bytes -= self._sizes.pop(entry.position & ARRIVAL_MASK, 0)
        if self._withheld and self._use() <= LOW_MARK:
            self._withheld.release()

    def end(self) -> None:
        """Delete the remembered message-ids of a queue that is deleted."""
        if self.duplicates is not None:
            self.duplicates.end()

    def emptied(self, kept: Iterable[Entry]) -> dict[int, int]:
        """Keep the sizes of *kept* after a purge; return all former sizes, which can be disposed of."""
        sizes, positions = self._sizes, [entry.position & ARRIVAL_MASK for entry in kept]
        self._sizes = {position: sizes[position] for position in positions if position in sizes}
        self.bytes = sum(self._sizes.values())
        self.count_dequeued(())
        return sizes

    def credit(self, terminal: TerminalEnd, wanted: int) -> int:
        """Return how much of the credit *wanted* the sender gets now; the rest is granted when the queue has room."""
        if self._overflow != "block" or self._use() < 1:
            return wanted
        self._withheld.withhold(terminal, wanted)
        return 0

    def _use(self, more_messages: int = 0, more_bytes: int = 0) -> float:
        """Return the used part of the limit that is nearer, where 1 is all of it."""
        messages = (self._queue.messages + more_messages) / self._most_messages if self._most_messages else 0.0
        size = (self.bytes + more_bytes) / self._most_bytes if self._most_bytes else 0.0
        return max(messages, size)

    def _shown_use(self) -> str:
        shown = []
        if self._most_messages:
            shown.append(f"{self._queue.messages} of {self._most_messages} messages")
        if self._most_bytes:
            shown.append(f"{self.bytes} of {self._most_bytes} bytes")
        if self._staged:
            shown.append(f"and {self._staged} in open transactions")
        return ", ".join(shown)

    def _size_of(self, entry: Entry) -> int:
        content = entry.content
        if isinstance(content, bytes):
            return len(content)
        if content is None:
            return self._core.store.size_of(entry.message_id)
        return sum(len(content.piece(number)) for number in range(content.pieces))
