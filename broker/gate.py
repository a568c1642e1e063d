"""A queue's gate: it looks at each message before the queue takes it, if the policy has limits or wants no duplicates.

Core only. A queue without such a policy has no gate, and its messages are taken a batch at a time. What open
transactions will put on the queue counts where a limit refuses or drops messages, else a commit would go beyond it.
Where it blocks it does not: a sender would wait in the middle of its transaction for room that nobody can make.
In a cluster so does what came in here and is not heard yet; what came in elsewhere meanwhile nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..channel.words import TerminalEnd
from ..store.why import Why
from .duplicates import Duplicates, key_of
from .entry import ARRIVAL_MASK, Entry
from .policy import Policy

if TYPE_CHECKING:
    from .broker import Broker
    from .queue import Queue

LOW_MARK = 0.75
"""Senders that were blocked get credit again when so much of a limit is in use."""


class Staged:
    """What one open transaction will put on a queue that has a gate."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.keys: set[bytes] = set()
        """Of its messages' ids, if they are remembered."""


class Gate:
    """Limits, and memory of message-ids, of one queue."""

    def __init__(self, broker: Broker, queue: Queue) -> None:
        policy = queue.policy
        self.bytes = 0
        """Of all messages on the queue, if they are limited."""
        self._broker = broker
        self._queue = queue
        self._most_messages = policy.max_messages
        self._most_bytes = policy.max_bytes
        self._overflow = policy.overflow
        self.duplicates = Duplicates(broker, queue) if policy.duplicate_window else None
        self._sizes: dict[int, int] = {}
        """Position to size, for a limit in bytes."""
        self._withheld: dict[TerminalEnd, int] = {}
        self._leaving = self._leaving_bytes = 0
        """Of a replicated ring: what is on its way out."""
        self._coming = self._coming_bytes = 0
        """Of a replicated queue: what this member has said, and nobody has heard."""
        self._staged = self._staged_bytes = 0
        """What open transactions will add."""

    def recovered(self, ids: Sequence[int]) -> None:
        """These were on the queue when the store was opened, at the positions from 1 on."""
        if self._most_bytes:
            self._sizes = {number: self._broker.store.size_of(one) for number, one in enumerate(ids, 1)}
            self.bytes = sum(self._sizes.values())

    def change(self, policy: Policy) -> None:
        """Other limits, from now on."""
        counted = bool(self._most_bytes)
        self._most_messages, self._most_bytes = policy.max_messages, policy.max_bytes
        self._overflow = policy.overflow
        if self._most_bytes and not counted:
            self._count()
        elif not self._most_bytes:
            self._sizes, self.bytes = {}, 0
        self.took(())
        if self._overflow != "block":
            self._grant()
        self.shown()

    def begin(self) -> None:
        """The queue was there before its limits."""
        if self._most_bytes:
            self._count()
        self.shown()

    def _count(self) -> None:
        """The sizes of what is there; of what is not durable yet they are not known, and not counted."""
        queue, store = self._queue, self._broker.store
        there = [*queue.in_memory(-1, queue.messages), *queue.away, *queue.with_consumers()]
        self._sizes = {entry.position & ARRIVAL_MASK: self._size_of(entry) for entry in there if not entry.gone}
        page = queue.backlog.page(0, queue.backlog.count)
        for position, message_id in enumerate(page.ids, page.first):
            if message_id:
                self._sizes[position & ARRIVAL_MASK] = store.size_of(message_id)
        for position, entry in page.held.items():
            self._sizes[position & ARRIVAL_MASK] = self._size_of(entry)
        self.bytes = sum(self._sizes.values())

    @property
    def is_replicated(self) -> bool:
        """Whether all members of a cluster have its queue."""
        return self._queue.replicated

    # ---- messages that come ---------------------------------------------------------------------------------------

    def look_at(self, content: bytes, size_bytes: int, staged: Staged | None = None) -> str | None:
        """Whether to take it: an empty text. Else why it is refused, or None to drop it without a word.

        *content*: how it begins, if it has more bytes than that; *staged*: what its transaction will put here, too.
        """
        if why := self.too_long(size_bytes):
            return why
        is_known = self.duplicates is not None and self.duplicates.knows(content)
        if is_known:  # also if it is full: it was taken; in a cluster all members ask again when they hear it
            return "" if self.is_replicated else None
        more = 1 + self._staged + self._coming, size_bytes + self._staged_bytes + self._coming_bytes
        if self._overflow in ("reject", "drop") and self._use(*more) > 1:
            if self._overflow == "drop":
                return None
            return f"the queue {self._queue.name!r} is full: {self._shown_use()}"
        if staged is not None and staged.keys and key_of(content) in staged.keys:
            return None
        return ""

    def too_long(self, size_bytes: int) -> str:
        """Why a message that has so many bytes, and perhaps more, is refused, whatever is on the queue; or nothing."""
        if 0 < self._most_bytes < size_bytes:
            return f"the queue {self._queue.name!r} has room for {self._most_bytes} bytes"
        return ""

    def stage(self, staged: Staged, content: bytes, size_bytes: int) -> None:
        """It is in a transaction, which will put it here. *content* may be the beginning of it."""
        staged.messages += 1
        staged.bytes += size_bytes
        self._staged += 1
        self._staged_bytes += size_bytes
        if self.duplicates is not None and (key := key_of(content)) is not None:
            staged.keys.add(key)

    def unstage(self, staged: Staged) -> None:
        """That transaction is over: what it has put counts as what is on the queue does."""
        self._staged -= staged.messages
        self._staged_bytes -= staged.bytes

    def put(self, entries: Sequence[Entry]) -> int:
        """These were recorded; the LSN to wait for beside theirs, 0 for none."""
        self.count(entries)
        return 0 if self.duplicates is None else self.duplicates.remember(entries)

    def count(self, entries: Sequence[Entry]) -> None:
        """These are on the queue."""
        if self._most_bytes:
            for entry in entries:
                size = self._size_of(entry)
                self._sizes[entry.position & ARRIVAL_MASK] = size
                self.bytes += size

    def shown(self) -> None:
        """They can be handed out now. What is too much of a ring goes."""
        if self._overflow != "ring" or not self._queue.decides:
            return
        if self._queue.replicated:
            self._order_out()
            return
        while self._use() > 1:
            oldest = self._queue.take_oldest()
            if oldest is None:  # consumers have the others
                return
            self._queue.took([oldest])
            if oldest.message_id:
                now_us = self._broker.clock.wall_us()
                self._broker.store.dequeue(oldest.message_id, self._queue.queue_id, now_us, Why.OVERFLOW)

    def _order_out(self) -> None:
        """What is too much of a replicated ring: one event for all members names it (rule 16 of the cluster)."""
        cluster = self._broker.cluster
        assert cluster is not None
        out: list[Entry] = []
        while self._use(-self._leaving, -self._leaving_bytes) > 1 and (oldest := self._queue.take_oldest()) is not None:
            out.append(oldest)
            self._leaving += 1
            self._leaving_bytes += self._sizes.get(oldest.position & ARRIVAL_MASK, 0)
        if not out:
            return
        count, size = len(out), sum([self._sizes.get(entry.position & ARRIVAL_MASK, 0) for entry in out])

        def gone() -> None:  # it was heard before it is safe, and counted twice in between
            self._leaving -= count
            self._leaving_bytes -= size
            self.shown()

        cluster.take(self._queue, out, Why.OVERFLOW, gone)

    def comes(self, messages: int, size_bytes: int) -> None:
        """So much was said to the cluster, to be put here; until `came`."""
        self._coming += messages
        self._coming_bytes += size_bytes

    def came(self, messages: int, size_bytes: int) -> None:
        """It was heard, and counts as what is on the queue, or is not there."""
        self._coming -= messages
        self._coming_bytes -= size_bytes

    def nothing_is_under_way(self) -> None:
        """What was on its way in or out before never gets there."""
        self._coming = self._coming_bytes = self._leaving = self._leaving_bytes = 0

    def took(self, entries: Sequence[Entry]) -> None:
        """These are off the queue for good."""
        if self._most_bytes:
            for entry in entries:
                self.bytes -= self._sizes.pop(entry.position & ARRIVAL_MASK, 0)
        if self._withheld and self._use() <= LOW_MARK:
            self._grant()

    def _grant(self) -> None:
        withheld, self._withheld = self._withheld, {}
        for terminal, credit in withheld.items():
            terminal.grant(credit)

    def end(self) -> None:
        """The queue is gone."""
        if self.duplicates is not None:
            self.duplicates.end()

    def emptied(self) -> None:
        """The queue was purged."""
        kept = {entry.position & ARRIVAL_MASK for entry in self._queue.with_consumers()}
        self._sizes = {position: size for position, size in self._sizes.items() if position in kept}
        self.bytes = sum(self._sizes.values())
        self.took(())

    # ---- credit ---------------------------------------------------------------------------------------------------

    def credit(self, terminal: TerminalEnd, wanted: int) -> int:
        """How much credit its sender gets back of *wanted*; the rest is given when there is room."""
        if self._overflow != "block" or self._use() < 1:
            return wanted
        self._withheld[terminal] = self._withheld.get(terminal, 0) + wanted
        return 0

    def no_credit(self, terminal: TerminalEnd) -> None:
        """The channel is gone, and what was withheld from it."""
        self._withheld.pop(terminal, None)

    # ---- limits ---------------------------------------------------------------------------------------------------

    def _use(self, more_messages: int = 0, more_bytes: int = 0) -> float:
        """How much of a limit is in use, of the one that is nearer: 1 is all of it."""
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
            return self._broker.store.size_of(entry.message_id)
        return sum(len(content.piece(number)) for number in range(content.pieces))
