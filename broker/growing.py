"""Messages that arrive in pieces: stored, or held, while more of them is still arriving. Core only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from ..amqp import header
from ..amqp.codec import Malformed
from ..amqp.sections import envelope
from ..amqp.vouching import NotTheSender, Walk, condition_of
from .entry import Entry, HeldContent
from .line import Shown
from .memory import ENTRY_BYTES, NO_MEMORY
from .queue import Queue
from .times import TimedEntry, may_have_times, stamped, times_of

if TYPE_CHECKING:
    from .broker import Broker
    from .transaction import Transaction

PIECE_BYTES = 64 * 1024
"""A message that grows past this while it arrives is stored piece by piece."""
LEAST_PIECE_BYTES = 4 * 1024
"""With no memory left pieces are that small, so that many messages that go on and on hold little each."""


class Growing:
    """One message that is arriving."""

    def __init__(self, broker: Broker, walk: Walk | None) -> None:
        """*walk*: along its sections, if its sender is vouched for."""
        self.walk = walk
        self.wrong: tuple[str, str] | None = None
        """The AMQP error it is refused with at its end; nothing of it is kept."""
        self.full = ""
        """Why no more of it was taken; then it is refused at its end."""
        self.malformed = ""
        self.held_bytes = 0
        """What arrived since the last piece."""
        self.queues: Sequence[Queue] | None = None
        """Known once enough has arrived to tell; then pieces are stored, or held if they need no storing."""
        self.size_bytes = 0
        """What has arrived of it."""
        self.unwanted: Collection[Queue] = ()
        """Those of its queues that let it pass by."""
        self.homeless = False
        """Enough has arrived, and where it goes is not known yet: all of it is held until its end, or it is refused."""
        self.transaction: Transaction | None = None
        """The one that it began to arrive for."""
        self._broker = broker
        self._held: list[bytes] = []
        self.beginning = b""
        """Its sections before the body, where one of its queues wants to know what is in it."""
        self._message_id = 0
        self._stores = False
        self._holds = False
        """Some of its queues do not last, or it needs no storing: its pieces are held in memory for them."""
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        """What they count for on the account of each of these queues."""

    def add(self, data: bytes) -> None:
        """Until it is stored or on a queue it counts in the memory budget, on no queue's account."""
        if not (self.homeless and self.full):
            self._held.append(data)
            self.size_bytes += len(data)
            self.held_bytes += len(data)
            self._broker.memory.used_bytes += len(data)

    def has_piece(self) -> bool:
        """Whether what arrived since the last piece is the next one."""
        scarce = self._broker.memory.free_bytes <= 0
        if self.homeless:
            if scarce and not self.full:
                self.refuse(NO_MEMORY)
            return False
        return self.held_bytes >= (LEAST_PIECE_BYTES if scarce else PIECE_BYTES)

    def walk_on(self, walk: Walk, data: bytes, *, last: bool) -> None:
        """See that it may be what it says; once it may not, it is `wrong`."""
        try:
            walk.feed(data, last=last)
        except (NotTheSender, Malformed) as error:
            self.drop()
            self.walk, self.wrong = None, condition_of(error)
            self._held, self.held_bytes = [], 0

    def whole(self) -> bytes:
        """All of it, as long as it goes nowhere."""
        return b"".join(self._held)

    def settle_on(self, queues: Sequence[Queue]) -> None:
        """Where it goes is known; the first piece of it is there."""
        self.queues = queues
        piece = self.whole()
        lives = any(queue.policy.message_ttl_ms for queue in queues)
        try:
            head = header.parse(piece)
            if lives or may_have_times(piece, head):
                piece = stamped(piece, head, self._broker.clock.wall_us(), always=lives)
                self._held = [piece]
                self.beginning = envelope(piece)
            elif any(queue.policy.looks_inside for queue in queues):
                self.beginning = envelope(piece)
            self._stores = head.durable and any(queue.queue_id for queue in queues)
        except Malformed as error:
            self.malformed = str(error)
            return
        self._holds = any(self._is_held_for(queue) for queue in queues)

    def end_piece(self) -> None:
        """What arrived since the last one is a piece."""
        piece = self.whole()
        self._let_go_held()
        self._take(piece, last=False)

    def finish(self, enqueue: Callable[[int, int, int], int], now_us: int) -> tuple[int, Shown]:
        """It is complete: the LSN to wait for, and what is on which queue then. Not if it is `full` or `malformed`.

        *enqueue* is the store's, or one that does the same later and tells any LSN but 0.
        """
        assert self.queues is not None
        rest = self.whole()
        self._let_go_held()
        self._take(rest, last=True)
        self._let_go()
        if self.full:
            return 0, []
        lsn = 0
        shown: Shown = []
        for queue in self.queues:
            if queue.going or queue in self.unwanted:
                continue
            if self._is_held_for(queue):
                size_bytes = sum(map(len, self._pieces)) + ENTRY_BYTES
                entry = self._entry(queue, 0, HeldContent(self._pieces), size_bytes)
            else:
                lsn = enqueue(self._message_id, queue.queue_id, now_us)
                entry = self._entry(queue, self._message_id, None, ENTRY_BYTES)
            shown.append((queue, [entry]))
        if self._message_id and not lsn:
            self._destroy()
        return lsn, shown

    def finish_in(self, transaction: Transaction, now_us: int) -> None:
        """It is complete: put it on its queues in a transaction, if it is not `full`."""
        assert self.queues is not None
        rest = self.whole()
        self._let_go_held()
        self._take(rest, last=True)
        self._let_go()
        if self.full:
            return
        for queue in self.queues:
            if queue in self.unwanted:
                continue
            times = times_of(self.beginning, queue.policy.message_ttl_ms) if self.beginning else None
            if self._is_held_for(queue):
                held_bytes = sum(map(len, self._pieces))
                transaction.hold(queue, HeldContent(self._pieces), held_bytes, times, self.beginning)
            else:
                transaction.enqueue(queue, self._message_id, times, self.beginning)
        if self._message_id:  # unless the transaction has it
            self._broker.store.transactions.store.discard((self._message_id,), now_us)

    def _entry(self, queue: Queue, message_id: int, content: HeldContent | None, held_bytes: int) -> Entry:
        times = times_of(self.beginning, queue.policy.message_ttl_ms) if self.beginning else None
        entry = Entry(message_id, next(queue.positions), content, held_bytes)
        if times is not None:
            queue.begin_timing()
            entry = TimedEntry(message_id, entry.position, content, held_bytes, times)
        if queue.policy.looks_inside:
            entry.beginning = self.beginning
        return entry

    def drop(self) -> None:
        """It is not wanted any more, its sender took it back, or it goes its way whole."""
        self._let_go_held()
        self._let_go()
        if self._message_id:
            self._destroy()

    def _is_held_for(self, queue: Queue) -> bool:
        return not (self._stores and queue.queue_id)

    def _take(self, piece: bytes, *, last: bool) -> None:
        if self.full or self.malformed:
            return
        store, now_us = self._broker.store, self._broker.clock.wall_us()
        if self._stores:
            full = store.full(len(piece), 1 + (len(self.queues or ()) if last else 0))
            if full:
                self.refuse(f"the store is full: {full}")
                return
            if self._message_id:
                store.append_content(self._message_id, piece, now_us, last=last)
            else:
                self._message_id = store.stage(piece, now_us)
        if self._holds:
            self._hold(piece)

    def _hold(self, piece: bytes) -> None:
        assert self.queues is not None
        holding = [queue for queue in self.queues if self._is_held_for(queue)]
        if any(len(piece) > queue.spare_bytes() for queue in holding):
            self.refuse(NO_MEMORY)
            return
        self._pieces.append(piece)
        self._pieces_bytes += len(piece)
        for queue in holding:
            queue.hold(len(piece))

    def refuse(self, why: str) -> None:
        """No more is taken of it, and what there is of it goes."""
        self.full = why
        self.drop()

    def _let_go_held(self) -> None:
        self._broker.memory.used_bytes -= self.held_bytes
        self._held, self.held_bytes = [], 0

    def _let_go(self) -> None:
        """Its pieces are not held for it any more."""
        for queue in self.queues or ():
            if self._is_held_for(queue):
                queue.let_go(self._pieces_bytes)
        self._pieces_bytes = 0

    def _destroy(self) -> None:
        self._broker.store.destroy(self._message_id, self._broker.clock.wall_us())
        self._message_id = 0
