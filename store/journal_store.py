"""The journal store: wiring in SQL, messages in the journal. See `interface.MessageStore` for the contract.

A whole message with its only queue is one record (Start with the enqueue flag), and taking it off is one (Dequeue with
the delete flag). Longer content is a Start and Chunk records, put on its queue by an Enqueue record at the end.

What a power cut leaves: every record below `durable_lsn`; of the rest nothing that recovery would half believe.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import compress, islice
from operator import lt

from ..base.errors import CairnError, JournalError, StoreError
from ..journal.flusher import Flusher
from ..journal.log import OWN_LSN, Journal
from ..journal.record import MAX_PAYLOAD_BYTES, Flag, RecordType
from .state import State
from .wiring import QueueRow, Wiring

_START, _CHUNK, _DELETE = int(RecordType.START), int(RecordType.CHUNK), int(RecordType.DELETE)
_ENQUEUE, _DEQUEUE = int(RecordType.ENQUEUE), int(RecordType.DEQUEUE)
_BATCH_FROM = 4
"""Fewer records than this are appended faster one by one."""
_FLAG_ENQUEUE, _FLAG_DELETE, _FLAG_MORE = int(Flag.ENQUEUE), int(Flag.DELETE), int(Flag.MORE)


class JournalStore:
    """Made by `recovery.recover`. Without `start` it has no threads: `kick` then flushes in the caller."""

    def __init__(self, wiring: Wiring, journal: Journal, state: State, release: Callable[[], None]) -> None:
        """*release* lets go of the store directory."""
        self.journal = journal
        self.state = state
        self.durable_lsn = journal.durable_lsn
        self._wiring = wiring
        self._rows = wiring.queues()
        self._release = release
        self._freed: dict[int, int] = {}  # slot to pins that fall with what was recorded since the last kick
        self._falling: deque[tuple[int, dict[int, int]]] = deque()
        self._flusher: Flusher | None = None
        self._on_durable: Callable[[int], None] | None = None
        self._sql: ThreadPoolExecutor | None = None

    def start(self, on_durable: Callable[[int], None], on_failure: Callable[[JournalError], None]) -> None:
        """Start the threads.

        *on_durable* gets each new durable LSN on the flusher's thread, *on_failure* the error that ends the journal;
        the owner passes the LSN on to `became_durable`, in the thread that makes the calls.
        """
        self._flusher = Flusher(self.journal, on_durable, on_failure)
        self._sql = ThreadPoolExecutor(1, "cairnmq-sql")

    def run_inline(self, on_durable: Callable[[int], None]) -> None:
        """No threads: `kick` flushes in the caller and then calls *on_durable*."""
        self._on_durable = on_durable

    # ---- wiring ---------------------------------------------------------------------------------------------------

    def queues(self) -> Iterable[QueueRow]:
        return self._rows

    def create_queue(self, name: str, done: Callable[[QueueRow | Exception], None]) -> None:
        def work() -> None:
            try:
                done(self._wiring.create_queue(name))
            except Exception as error:
                done(error)

        if self._sql is None:
            work()
        else:
            self._sql.submit(work)

    # ---- messages -------------------------------------------------------------------------------------------------

    def messages(self) -> dict[int, array[int]]:
        positions = self.state.positions
        found: dict[int, array[int]] = {}
        for message_id, queues in self.state.messages.items():
            for queue_id in (queues,) if isinstance(queues, int) else queues:
                if queue_id not in found:
                    found[queue_id] = array("Q")
                found[queue_id].append(message_id)
        late = {queue_id for _, queue_id in positions}
        for queue_id, ids in found.items():
            if queue_id in late or not all(map(lt, ids, islice(ids, 1, None))):
                places = (positions.get((message_id, queue_id), message_id) for message_id in ids)
                found[queue_id] = array("Q", (message_id for _, message_id in sorted(zip(places, ids, strict=True))))
        return found

    def put(self, queue_id: int, content: bytes, time_us: int) -> tuple[int, int]:
        if len(content) > MAX_PAYLOAD_BYTES:
            message_id = self.stage(content[:MAX_PAYLOAD_BYTES], time_us)
            self.append_content(message_id, content[MAX_PAYLOAD_BYTES:], time_us, last=True)
            return message_id, self.enqueue(message_id, queue_id, time_us)
        lsn = self.journal.append(
            _START, content, time_us=time_us, flags=_FLAG_ENQUEUE, message_id=OWN_LSN, queue_id=queue_id
        )
        self.state.started(lsn, _FLAG_ENQUEUE, queue_id)
        return lsn, lsn

    def put_all(self, queue_id: int, contents: Sequence[bytes], time_us: int) -> tuple[Sequence[int], int]:
        if len(contents) < _BATCH_FROM or max(map(len, contents)) > MAX_PAYLOAD_BYTES:
            stored = [self.put(queue_id, content, time_us) for content in contents]
            return [message_id for message_id, _ in stored], stored[-1][1]
        lsns = self.journal.append_all(_START, contents, time_us=time_us, flags=_FLAG_ENQUEUE, queue_id=queue_id)
        self.state.started_all(lsns, queue_id)
        return lsns, lsns[-1]

    def stage(self, piece: bytes, time_us: int) -> int:
        first, rest = piece[:MAX_PAYLOAD_BYTES], piece[MAX_PAYLOAD_BYTES:]
        lsn = self.journal.append(_START, first, time_us=time_us, flags=_FLAG_MORE, message_id=OWN_LSN)
        self.state.started(lsn, _FLAG_MORE, 0)
        if rest:
            self.append_content(lsn, rest, time_us, last=False)
        return lsn

    def append_content(self, message_id: int, piece: bytes, time_us: int, *, last: bool) -> None:
        if message_id not in self.state.growing:
            raise StoreError(f"message {message_id}", "its content is complete, or it does not exist")
        view = memoryview(piece)
        for at in range(0, max(len(view), 1), MAX_PAYLOAD_BYTES):
            chunk = view[at : at + MAX_PAYLOAD_BYTES]
            flags = 0 if last and at + len(chunk) == len(view) else _FLAG_MORE
            lsn = self.journal.append(
                _CHUNK, bytes(chunk), time_us=time_us, flags=flags, undo_prev=message_id, message_id=message_id
            )
            self.state.continued(lsn, flags, message_id)

    def enqueue(self, message_id: int, queue_id: int, time_us: int) -> int:
        if message_id not in self.state.messages or message_id in self.state.growing:
            raise StoreError(f"message {message_id}", "it does not exist, or its content is not complete")
        queues = self.state.messages[message_id]
        if queues == queue_id or (isinstance(queues, tuple) and queue_id in queues):
            raise StoreError(f"message {message_id}", f"it is on queue {queue_id} already")
        lsn = self.journal.append(
            _ENQUEUE, time_us=time_us, undo_prev=message_id, message_id=message_id, queue_id=queue_id
        )
        self.state.enqueued(lsn, message_id, queue_id)
        return lsn

    def dequeue(self, message_id: int, queue_id: int, time_us: int) -> int:
        queues = self.state.messages.get(message_id)
        if queues != queue_id and not (isinstance(queues, tuple) and queue_id in queues):
            raise StoreError(f"message {message_id}", f"it is not on queue {queue_id}")
        flags = _FLAG_DELETE if queues == queue_id else 0
        lsn = self.journal.append(
            _DEQUEUE, time_us=time_us, flags=flags, undo_prev=message_id, message_id=message_id, queue_id=queue_id
        )
        slot = self.state.dequeued(flags, message_id, queue_id)
        if slot is not None:
            self._freed[slot] = self._freed.get(slot, 0) + 1
        return lsn

    def destroy(self, message_id: int, time_us: int) -> int:
        if self.state.messages.get(message_id) != ():
            raise StoreError(f"message {message_id}", "it does not exist, or is still on a queue")
        lsn = self.journal.append(_DELETE, time_us=time_us, undo_prev=message_id, message_id=message_id)
        slot = self.state.deleted(message_id)
        assert slot is not None
        self._freed[slot] = self._freed.get(slot, 0) + 1
        return lsn

    def piece_count(self, message_id: int) -> int:
        return 1 + len(self.state.chunks.get(message_id, ()))

    def load_piece(self, message_id: int, number: int) -> bytes:
        lsn = self._start_lsns([message_id])[0] if number == 0 else self.state.chunks[message_id][number - 1]
        return self.journal.read_record(lsn).payload

    def load_many(self, message_ids: Sequence[int], most_bytes: int) -> list[bytes | CairnError | None]:
        chunks = self.state.chunks
        whole = [message_id not in chunks for message_id in message_ids]
        loaded = self.journal.read_many(self._start_lsns(list(compress(message_ids, whole))), most_bytes)
        if all(whole):
            return [*loaded]
        unread = iter(loaded)
        found: list[bytes | CairnError | None] = []
        for is_whole in whole:
            content = next(unread, None) if is_whole else None
            if is_whole and content is None:
                break
            found.append(content)
        return found

    def holds(self, message_id: int) -> bool:
        return message_id in self.state.messages

    def _start_lsns(self, message_ids: list[int]) -> list[int]:
        """Where the messages' Start records stand: the one place that knows."""
        return message_ids

    # ---- durability -----------------------------------------------------------------------------------------------

    def kick(self) -> None:
        if self._freed:
            self._falling.append((self.journal.next_lsn, self._freed))
            self._freed = {}
        if self._flusher is not None:
            self._flusher.kick()
        elif self.journal.has_unsealed:
            durable = self.journal.flush()
            if self._on_durable is not None:
                self._on_durable(durable)
            else:
                self.became_durable(durable)

    def became_durable(self, lsn: int) -> None:
        """Every record below *lsn* is on the disk: let the pins fall that durable dequeues held, and move the base."""
        self.durable_lsn = lsn
        falling = self._falling
        if not falling or falling[0][0] > lsn:
            return
        unpin = self.state.unpin
        while falling and falling[0][0] <= lsn:
            for slot, count in falling.popleft()[1].items():
                unpin(slot, count)
        journal = self.journal
        oldest = self.state.oldest_slot()
        journal.advance_base(
            journal.container_start(journal.next_lsn) if oldest is None else oldest * journal.container_bytes
        )

    def full(self) -> str:
        error = self.journal.pool.full or self.journal.pool.low
        return "" if error is None else error.reason

    def close(self) -> None:
        if self._sql is not None:
            self._sql.shutdown()
        if self._flusher is not None:
            self._flusher.stop()
        try:
            self.journal.close()
        finally:
            self._wiring.close()
            self._release()
