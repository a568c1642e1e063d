"""A store whose truth is in memory, and written to a ledger: the calls of `interface.MessageStore` about messages.

An LSN is a number that rises with everything that is done. It is also the id of the message that it begins, and the
position of the one that it puts on a queue. What makes LSNs durable, and reads contents back, is in the classes above.

Threads: those of `interface`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence

from ..base.errors import MessageLocked, StoreError
from .ledger import Ledger
from .mapped_transactions import MappedTransactions
from .maps import Maps, Message
from .parts import part_of
from .transaction import Transactions
from .why import Why
from .wiring import Wiring
from .wiring_calls import WiringCalls

MAX_PIECE_BYTES = 1 << 20
"""Longer content is kept in pieces, so that no row and no reading is longer than this."""


class MappedStore(WiringCalls):
    """Everything but durability and reading."""

    def __init__(self, wiring: Wiring, maps: Maps, ledger: Ledger, next_lsn: int) -> None:
        super().__init__(wiring)
        self.maps = maps
        self.ledger = ledger
        self.next_lsn = next_lsn
        """The one that is given next."""
        self.durable_lsn = next_lsn
        self._going = {row.id for row in self.going_queues()}
        self.transactions = Transactions(MappedTransactions(self))

    def last_flushes(self) -> Sequence[tuple[int, float]]:
        return ()

    # ---- queues ---------------------------------------------------------------------------------------------------

    def begin_destroy_queue(self, queue_id: int, done: Callable[[Exception | None], None]) -> None:
        self._going.add(queue_id)
        super().begin_destroy_queue(queue_id, done)

    def finish_destroy_queue(self, queue_id: int, done: Callable[[Exception | None], None]) -> None:
        def finished(answer: Exception | None) -> None:
            if answer is None:
                self._going.discard(queue_id)
            done(answer)

        super().finish_destroy_queue(queue_id, finished)

    def knows_queue(self, queue_id: int) -> bool:
        return queue_id in self._names

    def _check_known(self, queue_id: int) -> None:
        """One that is going is known until it is gone: its owner may not have heard yet that SQL took it away."""
        if queue_id not in self._names and queue_id not in self._going:
            raise StoreError(f"queue {queue_id}", "there is no such queue", "create it first")

    def messages(self) -> dict[int, array[int]]:
        return self.maps.on_queues()

    def purge(self, queue_id: int, time_us: int, *, keep: Iterable[int] = (), is_final: bool = False) -> int:
        if is_final:
            self.transactions.queue_goes(queue_id, time_us)
        messages, concern = self.maps.messages, self.transactions.concern
        ids = list(self.maps.queues.get(queue_id, ()))
        kept = {*keep, *self.transactions.taken_off(queue_id)}
        if kept or any(concern(message_id) or len(messages[message_id].places) > 1 for message_id in ids):
            for message_id in ids:
                if message_id not in kept:
                    self.take(message_id, queue_id)
        else:
            self.ledger.purged(queue_id, ids)
            for message_id in ids:
                del messages[message_id]
            self.maps.queues.pop(queue_id, None)
        return self.take_lsn()

    # ---- messages -------------------------------------------------------------------------------------------------

    def put(self, queue_id: int, content: bytes, time_us: int) -> tuple[int, int]:
        self._check_known(queue_id)
        message_id = self.stage_complete(content)
        return message_id, self.place(message_id, queue_id)

    def put_all(self, queue_id: int, contents: Sequence[bytes], time_us: int) -> tuple[Sequence[int], int]:
        self._check_known(queue_id)
        ids: list[int] = []
        lsn = 0
        for content in contents:
            ids.append(self.stage_complete(content))
            lsn = self.place(ids[-1], queue_id)
        return ids, lsn

    def stage(self, piece: bytes, time_us: int) -> int:
        message_id = self._start(piece[:MAX_PIECE_BYTES], is_last=False)
        if len(piece) > MAX_PIECE_BYTES:
            self._continue(message_id, piece[MAX_PIECE_BYTES:], is_last=False)
        return message_id

    def append_content(self, message_id: int, piece: bytes, time_us: int, *, last: bool) -> None:
        message = self.maps.messages.get(message_id)
        if message is None or message.is_complete:
            raise StoreError(f"message {message_id}", "its content is complete, or it does not exist")
        self._continue(message_id, piece, is_last=last)

    def stage_complete(self, content: bytes) -> int:
        """A message of that content, on no queue; its id."""
        message_id = self._start(content[:MAX_PIECE_BYTES], is_last=len(content) <= MAX_PIECE_BYTES)
        if len(content) > MAX_PIECE_BYTES:
            self._continue(message_id, content[MAX_PIECE_BYTES:], is_last=True)
        return message_id

    def _start(self, content: bytes, *, is_last: bool) -> int:
        message_id = self.take_lsn()
        self.maps.messages[message_id] = Message([len(content)], is_complete=is_last)
        self.ledger.started(message_id, content, is_last=is_last)
        return message_id

    def _continue(self, message_id: int, content: bytes, *, is_last: bool) -> None:
        self.take_lsn()
        message = self.maps.messages[message_id]
        for at in range(0, max(len(content), 1), MAX_PIECE_BYTES):
            part = content[at : at + MAX_PIECE_BYTES]
            ends = is_last and at + len(part) == len(content)
            self.ledger.continued(message_id, len(message.sizes), part, is_last=ends)
            message.sizes.append(len(part))
        message.is_complete = is_last

    def enqueue(self, message_id: int, queue_id: int, time_us: int) -> int:
        self._check_known(queue_id)
        self.check_enqueue(message_id, queue_id)
        self.transactions.check_add(message_id, queue_id)
        return self.place(message_id, queue_id)

    def check_enqueue(self, message_id: int, queue_id: int) -> None:
        """Raises `StoreError` if the message can't be put on that queue."""
        message = self.maps.messages.get(message_id)
        if message is None or not message.is_complete:
            raise StoreError(f"message {message_id}", "it does not exist, or its content is not complete")
        if queue_id in message.places:
            raise StoreError(f"message {message_id}", f"it is on queue {queue_id} already")

    def dequeue(self, message_id: int, queue_id: int, time_us: int, why: Why = Why.NOT_RECORDED) -> int:
        self.transactions.check_lock(message_id, queue_id)
        self.check_dequeue(message_id, queue_id)
        return self.take(message_id, queue_id)

    def dequeue_all(
        self, message_ids: Sequence[int], queue_id: int, time_us: int, why: Why = Why.NOT_RECORDED
    ) -> list[int]:
        return [self.dequeue(message_id, queue_id, time_us) for message_id in message_ids]

    def check_dequeue(self, message_id: int, queue_id: int) -> None:
        """Raises `StoreError` if the message is not on that queue."""
        if not self.maps.is_on(message_id, queue_id):
            raise StoreError(f"message {message_id}", f"it is not on queue {queue_id}")

    def destroy(self, message_id: int, time_us: int) -> int:
        message = self.maps.messages.get(message_id)
        if message is None or message.places:
            raise StoreError(f"message {message_id}", "it does not exist, or is still on a queue")
        if self.transactions.holds_place(message_id):
            raise MessageLocked(f"message {message_id}", "a transaction puts it on a queue")
        return self._delete(message_id)

    def discard_unfinished(self) -> int:
        """Delete the messages that are incomplete, or on no queue and not going to be; how many there were."""
        unfinished = self.maps.unfinished(self.transactions.adding())
        for message_id in unfinished:
            self._delete(message_id)
        return len(unfinished)

    def empty_going(self, time_us: int) -> dict[str, int]:
        """Take the messages off the queues that are going, but what transactions take; queue to how many there were.

        Of prepared transactions that work on such a queue, the note that it is going waits for the outcome.
        """
        emptied: dict[str, int] = {}
        for row in self.going_queues():
            before = len(self.maps.queues.get(row.id, ()))
            self.purge(row.id, time_us)
            count = before - len(self.maps.queues.get(row.id, ()))
            if count:
                emptied[row.name] = emptied.get(row.name, 0) + count
        return emptied

    # ---- what is done, unasked: also by transactions --------------------------------------------------------------

    def take_lsn(self) -> int:
        lsn = self.next_lsn
        self.next_lsn = lsn + 1
        return lsn

    def place(self, message_id: int, queue_id: int) -> int:
        lsn = self.take_lsn()
        self.maps.place(message_id, queue_id, lsn)
        self.ledger.placed(message_id, queue_id, lsn)
        return lsn

    def take(self, message_id: int, queue_id: int) -> int:
        """Off a queue that it is on; with the last one it is deleted, unless a transaction is adding one (E43)."""
        lsn = self.take_lsn()
        position = self.maps.take(message_id, queue_id)
        if self.maps.messages[message_id].places or self.transactions.holds_place(message_id):
            self.ledger.taken(message_id, position)
        else:
            self._delete(message_id)
        return lsn

    def _delete(self, message_id: int) -> int:
        del self.maps.messages[message_id]
        self.ledger.deleted(message_id)
        return self.take_lsn()

    # ---- what is known of contents --------------------------------------------------------------------------------

    def holds(self, message_id: int) -> bool:
        return message_id in self.maps.messages

    def size_of(self, message_id: int) -> int:
        message = self.maps.messages.get(message_id)
        return 0 if message is None else sum(message.sizes)

    def piece_count(self, message_id: int) -> int:
        return len(self._message(message_id).sizes)

    def load_piece(self, message_id: int, number: int) -> bytes:
        raise NotImplementedError

    def load_content(self, message_id: int, offset: int, length: int) -> bytes:
        return part_of(message_id, offset, length, lambda: self._message(message_id).sizes, self.load_piece)

    def _message(self, message_id: int) -> Message:
        message = self.maps.messages.get(message_id)
        if message is None:
            raise StoreError(f"message {message_id}", "it does not exist")
        return message

