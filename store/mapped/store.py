"""A store with in-memory tables and a write log: the calls of `contract.interface.MessageStore` about messages.

Derived classes make LSNs durable and read contents back.

Threads: those of `contract.interface`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ...base.errors import CairnError, StoreError
from ..contract.dequeue_reason import NOT_RECORDED, DequeueReason
from ..contract.interface import Done
from ..contract.ranges import part_of
from ..contract.transaction import TransactionLocks, Transactions
from ..wiring.calls import WiringCalls
from ..wiring.wiring import Wiring
from .changes import MessageChanges
from .memory_tables import MappedMessage, MemoryTables
from .transactions import MappedTransactions
from .write_log import WriteLog

PURGED_AT_ONCE = 256
"""Messages that a purge deletes in one slice."""


class MappedStore(WiringCalls):
    """A store without durability and reading: subclasses define or assign `load_piece` and `load_first`."""

    load_piece: Callable[[int, int], bytes]
    """Returns a piece of a message's content by its number. Any thread."""
    load_first: Callable[[Sequence[int]], dict[int, bytes]]
    """Returns the first pieces of the messages, as far as they still exist. Any thread."""

    def __init__(self, wiring: Wiring, maps: MemoryTables, ledger: WriteLog, next_lsn: int) -> None:
        super().__init__(wiring)
        self.maps = maps
        locks = TransactionLocks()
        self.changes = changes = MessageChanges(maps, ledger, next_lsn, locks)
        self.stage, self.append_content, self.destroy = changes.stage, changes.append_content, changes.destroy
        self.messages = maps.on_queues
        self.durable_lsn = next_lsn
        self._on_durable: Callable[[int], None] = self.became_durable
        self._cuts: dict[int, list[tuple[dict[int, None], bool]]] = {}
        """By queue: messages that purges under way have not deleted yet, and whether the ledger knows."""
        self._going = {row.id for row in self.going_queues()}
        self.transactions = Transactions(MappedTransactions(self.changes, self._names), locks)
        self._locks = locks

    @property
    def next_lsn(self) -> int:
        return self.changes.next_lsn

    def last_flushes(self) -> Sequence[tuple[int, float]]:
        return ()

    def run_inline(self, on_durable: Callable[[int], None]) -> None:
        self._on_durable = on_durable

    def became_durable(self, lsn: int) -> None:
        self.durable_lsn = max(self.durable_lsn, lsn)

    def begin_destroy_queue(self, queue_id: int, done: Done[None]) -> None:
        self._going.add(queue_id)
        super().begin_destroy_queue(queue_id, done)

    def finish_destroy_queue(self, queue_id: int, done: Done[None]) -> None:
        def finished(answer: Exception | None) -> None:
            if answer is None:
                self._going.discard(queue_id)
            done(answer)

        super().finish_destroy_queue(queue_id, finished)

    def _check_known(self, queue_id: int) -> None:
        """Raise `StoreError` for an unknown queue. One that is being deleted is known: its owner may not be notified
        yet."""
        if queue_id not in self._names and queue_id not in self._going:
            raise StoreError(f"queue {queue_id}", "there is no such queue", "create it first")

    def purge(self, queue_id: int, time_us: int, *, keep: Iterable[int] = (), is_final: bool = False) -> int:
        *_, lsn = self.purge_in_slices(queue_id, time_us, keep=keep, is_final=is_final)
        return lsn

    def purge_in_slices(
        self, queue_id: int, time_us: int, *, keep: Iterable[int] = (), is_final: bool = False
    ) -> Iterator[int]:
        maps = self.maps
        if is_final:
            self.transactions.queue_goes(queue_id, time_us)
        kept = {*keep, *self._locks.dequeued_from(queue_id)}
        is_alone = not (kept or self._locks or queue_id in maps.sharing)
        cut = maps.cut(queue_id, kept)
        if is_alone and cut:
            self.changes.log.purged(queue_id)
        cuts = self._cuts.setdefault(queue_id, [])  # one that is under way ends before this one does
        cuts.append((cut, is_alone))
        return self._delete_cut(queue_id, cuts)

    def _delete_cut(self, queue_id: int, cuts: list[tuple[dict[int, None], bool]]) -> Iterator[int]:
        while cuts:
            cut, is_reported = cuts[0]
            many = [cut.popitem()[0] for _ in range(min(len(cut), PURGED_AT_ONCE))]
            if is_reported:
                for message_id in many:
                    del self.maps.messages[message_id]
                self.changes.log.dropped(many)
            else:
                for message_id in many:
                    self.changes.leave(message_id, self.maps.messages[message_id].places.pop(queue_id))
            if not cut:
                cuts.pop(0)
            else:
                yield self.changes.take_lsn()
        self._cuts.pop(queue_id, None)
        yield self.changes.take_lsn()

    def put(self, queue_id: int, content: bytes, time_us: int) -> tuple[int, int]:
        self._check_known(queue_id)
        changes = self.changes
        message_id = changes.stage(content, time_us, is_last=True)
        return message_id, changes.enqueue(message_id, queue_id)

    def put_all(self, queue_id: int, contents: Sequence[bytes], time_us: int) -> tuple[Sequence[int], int]:
        self._check_known(queue_id)
        changes = self.changes
        ids: list[int] = []
        lsn = 0
        for content in contents:
            ids.append(changes.stage(content, time_us, is_last=True))
            lsn = changes.enqueue(ids[-1], queue_id)
        return ids, lsn

    def enqueue(self, message_id: int, queue_id: int, time_us: int) -> int:
        self._check_known(queue_id)
        self.changes.check_enqueue(message_id, queue_id)
        self._locks.check_enqueue(message_id, queue_id)
        return self.changes.enqueue(message_id, queue_id)

    def dequeue(self, message_id: int, queue_id: int, time_us: int, reason: DequeueReason = NOT_RECORDED) -> int:
        changes = self.changes
        self._locks.check_dequeue(message_id, queue_id)
        changes.check_dequeue(message_id, queue_id)
        return changes.dequeue(message_id, queue_id)

    def dequeue_all(
        self, message_ids: Sequence[int], queue_id: int, time_us: int, reason: DequeueReason = NOT_RECORDED
    ) -> list[int]:
        return [self.dequeue(message_id, queue_id, time_us) for message_id in message_ids]

    def discard_unfinished(self) -> int:
        """Delete the messages that are incomplete, or on no queue and not going to be; how many there were."""
        unfinished = self.maps.unfinished(self._locks.enqueued())
        for message_id in unfinished:
            self.changes.delete(message_id)
        return len(unfinished)

    def holds(self, message_id: int) -> bool:
        return message_id in self.maps.messages

    def size_of(self, message_id: int) -> int:
        message = self.maps.messages.get(message_id)
        return 0 if message is None else sum(message.sizes)

    def room_bytes(self) -> int | None:
        return None

    def bytes_on(self, queue_id: int) -> int:
        return self.maps.queue_bytes[queue_id]

    def piece_count(self, message_id: int) -> int:
        return len(self._message(message_id).sizes)

    def load_many(self, message_ids: Sequence[int], most_bytes: int) -> list[bytes | CairnError | None]:
        wanted: list[int] = []
        size_bytes = count = 0
        for message_id in message_ids:
            message = self.maps.messages.get(message_id)
            if message is not None and len(message.sizes) == 1:
                wanted.append(message_id)
                size_bytes += message.sizes[0]
            count += 1
            if size_bytes >= most_bytes:
                break
        contents = self.load_first(wanted) if wanted else {}
        return [contents[one] if one in contents else self._no_content(one) for one in message_ids[:count]]

    def load_content(self, message_id: int, offset: int, length: int) -> bytes:
        return part_of(message_id, offset, length, lambda: self._message(message_id).sizes, self.load_piece)

    def _no_content(self, message_id: int) -> CairnError | None:
        """Return the error for a missing content; None for a message in pieces."""
        message = self.maps.messages.get(message_id)
        is_long = message is not None and len(message.sizes) > 1
        return None if is_long else StoreError(f"message {message_id}", "it does not exist")

    def _message(self, message_id: int) -> MappedMessage:
        message = self.maps.messages.get(message_id)
        if message is None:
            raise StoreError(f"message {message_id}", "it does not exist")
        return message
