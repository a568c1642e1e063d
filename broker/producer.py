"""Producers: drivers of channels on which a client sends."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..amqp import header
from ..amqp.codec import Malformed
from ..channel.words import ABORTED, MORE, SETTLED, Delivery, Fragment, Outcome, TerminalEnd
from .entry import Entry, HeldContent
from .memory import ENTRY_BYTES
from .queue import Queue

if TYPE_CHECKING:
    from .broker import Broker

PIECE_BYTES = 64 * 1024
"""A message that grows past this while it arrives is stored piece by piece."""

NO_MEMORY = "no memory is left for messages that are not durable; see --memory-limit"


class _Growing:
    """A message that arrives in several fragments."""

    __slots__ = ("full", "held", "held_bytes", "homeless", "message_id", "pieces", "pieces_bytes", "queue")

    def __init__(self) -> None:
        self.full = ""
        """Why no more of it was taken; then it is refused at its end."""
        self.held: list[bytes] = []
        self.held_bytes = 0
        self.queue: Queue | None = None
        """Known once enough has arrived to tell; then pieces are stored, or held if they need no storing."""
        self.homeless = False
        """Enough has arrived, and there is no queue for it yet: all of it is held until it is complete."""
        self.message_id = 0
        self.pieces: list[bytes] = []
        """Of a message that is not stored."""
        self.pieces_bytes = 0
        """What they count for on the queue's account."""


class Producer:
    """What both kinds have in common: whole messages in batches, long ones piece by piece. Core only."""

    def __init__(self, broker: Broker, terminal: TerminalEnd) -> None:
        self.terminal = terminal
        self._broker = broker
        self._store = broker.store
        self._growing: _Growing | None = None

    def post(self, fragments: Sequence[Fragment]) -> None:
        whole: list[Fragment] = []
        for fragment in fragments:
            if not fragment[2] & (MORE | ABORTED) and self._growing is None:
                whole.append(fragment)
                continue
            if whole:
                self._accept(whole)
                whole = []
            self._grow(*fragment)
        if whole:
            self._accept(whole)

    def request(self, limit: int, drain: bool) -> None:
        """A client that sends wants nothing."""

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing was forwarded, so nothing is answered."""

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._drop_growing()
        self._broker.no_credit(self.terminal)

    def _accept(self, fragments: list[Fragment]) -> None:
        raise NotImplementedError

    def _queue_of(self, start: bytes) -> Queue | None:
        """Where a long message goes that begins with *start*; None if nowhere."""
        raise NotImplementedError

    def _put(self, queue: Queue, fragments: Sequence[Fragment]) -> None:
        """Whole messages for one queue: record them, and confirm and show them once all of them are durable."""
        store, queue_id = self._store, queue.queue_id
        now_us = self._broker.clock.wall_us()
        full = store.full() if queue_id else ""
        spare_bytes = queue.spare_bytes()
        positions = queue.positions
        kept: list[tuple[bytes, bool]] = []
        confirmed: list[Delivery] = []
        unwanted: list[Delivery] = []
        refused: list[Delivery] = []
        for delivery, content, flags in fragments:
            try:
                stored = queue_id > 0 and header.parse(content).durable
            except Malformed as error:
                self.terminal.reject((delivery,), 1, "amqp:decode-error", str(error))
                continue
            if not stored:
                spare_bytes -= len(content) + ENTRY_BYTES
                if spare_bytes < 0:
                    self._reject_full((delivery,), NO_MEMORY, self._credit(queue, 1))
                    continue
            elif full:
                refused.append(delivery)
                continue
            kept.append((content, stored))
            if flags & SETTLED:
                unwanted.append(delivery)
            else:
                confirmed.append(delivery)
        if refused:
            self._reject_full(refused, f"the store is full: {full}", self._credit(queue, len(refused)))
            if not kept:
                return
        lasting = [content for content, stored in kept if stored]
        ids, lsn = store.put_all(queue_id, lasting, now_us) if lasting else ((), 0)
        fresh = iter(ids)
        entries = [
            Entry(next(fresh) if stored else 0, next(positions), content, len(content) + ENTRY_BYTES)
            for content, stored in kept
        ]
        self._show(lsn, queue, entries, confirmed, unwanted)

    def _show(
        self, lsn: int, queue: Queue, entries: list[Entry], confirmed: list[Delivery], unwanted: list[Delivery]
    ) -> None:
        if lsn or queue.waiting:
            queue.waiting += 1
            self._broker.when_durable(lsn, self._stored, queue, entries, confirmed, unwanted, 1)
        else:
            self._stored(queue, entries, confirmed, unwanted, 0)

    def _stored(
        self, queue: Queue, entries: list[Entry], confirmed: list[Delivery], unwanted: list[Delivery], waited: int
    ) -> None:
        queue.waiting -= waited
        queue.add(entries)
        self._broker.touch(queue)
        if confirmed:
            self.terminal.confirm(confirmed, self._credit(queue, len(confirmed)))
        if unwanted:
            self.terminal.release(unwanted, self._credit(queue, len(unwanted)))

    def _credit(self, queue: Queue, wanted: int) -> int:
        """What the client gets back for *wanted* messages to *queue*."""
        return self._broker.credit(self.terminal, wanted) if queue.queue_id else wanted

    def _reject_gone(self, delivery: Delivery, queue: Queue) -> None:
        self.terminal.reject((delivery,), 1, "amqp:not-found", f"the queue {queue.name!r} is gone")

    def _reject_full(self, deliveries: Sequence[Delivery], why: str, credit: int) -> None:
        self.terminal.reject(deliveries, credit, "amqp:resource-limit-exceeded", why)

    # ---- messages that arrive in pieces ---------------------------------------------------------------------------

    def _grow(self, delivery: Delivery, data: bytes, flags: int) -> None:
        growing = self._growing
        if flags & ABORTED:
            self._drop_growing()
            self.terminal.release((delivery,), 1)
            return
        if growing is None:
            growing = self._growing = _Growing()
        growing.held.append(data)
        growing.held_bytes += len(data)
        if flags & MORE:
            if growing.held_bytes >= PIECE_BYTES and not growing.homeless:
                self._hold_piece(growing)
            return
        self._growing = None
        if growing.queue is None:
            self._accept([(delivery, b"".join(growing.held), flags)])
        else:
            self._finish(growing, growing.queue, delivery, flags)

    def _hold_piece(self, growing: _Growing) -> None:
        piece = b"".join(growing.held)
        if growing.queue is None:
            queue = self._queue_of(piece)
            if queue is None:
                growing.homeless = True
                return
            growing.queue = queue
            try:
                durable = header.parse(piece).durable
            except Malformed:
                durable = False  # refused at the end
            if not (durable and queue.queue_id):
                self._hold_in_memory(growing, queue, piece)
            elif not self._found_full(growing):
                growing.message_id = self._store.stage(piece, self._broker.clock.wall_us())
        elif growing.message_id:
            if not self._found_full(growing):
                self._store.append_content(growing.message_id, piece, self._broker.clock.wall_us(), last=False)
        elif not growing.full:
            self._hold_in_memory(growing, growing.queue, piece)
        growing.held, growing.held_bytes = [], 0

    def _hold_in_memory(self, growing: _Growing, queue: Queue, piece: bytes) -> None:
        if len(piece) > queue.spare_bytes():
            growing.full = NO_MEMORY
            self._let_go(growing)
            return
        growing.pieces.append(piece)
        growing.pieces_bytes += len(piece)
        queue.hold(len(piece))

    def _let_go(self, growing: _Growing) -> None:
        """Its pieces are not held by the producer any more."""
        if growing.queue is not None:
            growing.queue.let_go(growing.pieces_bytes)
        growing.pieces, growing.pieces_bytes = [], 0

    def _found_full(self, growing: _Growing) -> bool:
        """Whether the store takes no more; what it has of the message goes, and the rest is not kept."""
        full = self._store.full()
        growing.full = f"the store is full: {full}" if full else ""
        if growing.full and growing.message_id:
            self._store.destroy(growing.message_id, self._broker.clock.wall_us())
            growing.message_id = 0
        return bool(growing.full)

    def _finish(self, growing: _Growing, queue: Queue, delivery: Delivery, flags: int) -> None:
        now_us = self._broker.clock.wall_us()
        pieces = [*growing.pieces, rest := b"".join(growing.held)]
        lsn = 0
        self._let_go(growing)
        if queue.gone:
            self._reject_gone(delivery, queue)
            return
        if growing.full or (growing.message_id and self._found_full(growing)):
            self._reject_full((delivery,), growing.full, self._credit(queue, 1))
            return
        if growing.message_id:
            self._store.append_content(growing.message_id, rest, now_us, last=True)
            lsn = self._store.enqueue(growing.message_id, queue.queue_id, now_us)
            entry = Entry(growing.message_id, next(queue.positions), None, ENTRY_BYTES)
        else:
            try:
                header.parse(pieces[0])
            except Malformed as error:
                self.terminal.reject((delivery,), 1, "amqp:decode-error", str(error))
                return
            entry = Entry(0, next(queue.positions), HeldContent(pieces), sum(map(len, pieces)) + ENTRY_BYTES)
        settled = bool(flags & SETTLED)
        self._show(lsn, queue, [entry], [] if settled else [delivery], [delivery] if settled else [])

    def _drop_growing(self) -> None:
        growing, self._growing = self._growing, None
        if growing is None:
            return
        self._let_go(growing)
        if growing.message_id:
            self._store.destroy(growing.message_id, self._broker.clock.wall_us())


class QueueProducer(Producer):
    """Sends to one queue."""

    def __init__(self, broker: Broker, terminal: TerminalEnd, queue: Queue) -> None:
        super().__init__(broker, terminal)
        self._queue = queue

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        super().close(returned, lost, for_good)
        self._broker.driver_closed(self, self._queue)

    def _accept(self, fragments: list[Fragment]) -> None:
        if not self._queue.gone:
            self._put(self._queue, fragments)
            return
        for delivery, _, _ in fragments:
            self._reject_gone(delivery, self._queue)

    def _queue_of(self, start: bytes) -> Queue | None:
        return None if self._queue.gone else self._queue


class AnonymousProducer(Producer):
    """Sends to wherever each message's `to` says (the anonymous relay).

    Messages keep their order: while a queue is being made for one, those behind it wait.
    """

    def __init__(self, broker: Broker, terminal: TerminalEnd) -> None:
        super().__init__(broker, terminal)
        self._held: deque[Fragment] = deque()
        self._asking = False
        """The broker is asked for the queue of the first message held."""
        self._routing = False

    def _accept(self, fragments: list[Fragment]) -> None:
        self._held.extend(fragments)
        self._route()

    def _route(self) -> None:
        self._routing = True
        while self._held and not self._asking:
            delivery, content, _ = self._held[0]
            try:
                address = header.address_of(content)
            except Malformed as error:
                self._refuse(delivery, "amqp:decode-error", str(error))
                continue
            if address is None:
                self._refuse(delivery, "amqp:not-found", "the message names no queue in its `to`")
                continue
            self._asking = True
            self._broker.find(address, self._found)
        self._routing = False

    def _found(self, found: Queue | Exception) -> None:
        self._asking = False
        delivery = self._held[0][0]
        if isinstance(found, Queue):
            self._put(found, (self._held.popleft(),))
        elif isinstance(found, LookupError):
            self._refuse(delivery, "amqp:not-found", str(found.args[0]))
        else:
            self._refuse(delivery, *self._broker.why_not_made(found))
        if not self._routing:  # the answer took its time
            self._route()

    def _refuse(self, delivery: Delivery, condition: str, why: str) -> None:
        self._held.popleft()
        self.terminal.reject((delivery,), 1, condition, why)

    def _queue_of(self, start: bytes) -> Queue | None:
        if self._held:
            return None
        try:
            address = header.address_of(start)
        except Malformed:
            return None
        return self._broker.queues.get(address or "")
