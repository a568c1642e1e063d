"""The journal store: wiring in SQL, messages in the journal. See `interface.MessageStore` for the contract.

A whole message with its only queue is one record (Start with the enqueue flag), and taking it off is one (Dequeue with
the delete flag). Longer content is a Start and Chunk records, put on its queue by an Enqueue record at the end.

Every record that takes something away names, in `extra`, the record that had given it.

What a power cut leaves: every record below `durable_lsn`; of the rest nothing that recovery would half believe.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from ..base.errors import JournalError, MessageLocked, StoreError
from ..journal.flusher import Flusher
from ..journal.log import OWN_LSN, Journal
from ..journal.record import HEAD_BYTES, MAX_PAYLOAD_BYTES, Flag, RecordType
from ..journal.room import FOR_OPENINGS
from .acquisitions import MOST_MESSAGES, encode
from .bookmarks import Bookmarks
from .checkpointing import Checkpointing
from .cuts import MAX_KEPT, Cut
from .holders import Holders
from .journal_reading import JournalReading
from .journal_transactions import JournalTransactions
from .placement import on_queues
from .relocation import Relocation
from .state import State
from .sweeping import AT_ONCE, is_cut, settle, sweep, sweep_all
from .transaction import Transactions
from .why import Why
from .wiring import Wiring
from .wiring_calls import WiringCalls

_START, _CHUNK, _DELETE = int(RecordType.START), int(RecordType.CHUNK), int(RecordType.DELETE)
_ENQUEUE, _DEQUEUE = int(RecordType.ENQUEUE), int(RecordType.DEQUEUE)
_QUEUE_DELETE, _ACQUIRE = int(RecordType.QUEUE_DELETE), int(RecordType.ACQUIRE)
_BATCH_FROM = 4
"""Fewer records than this are appended faster one by one."""
_DISCARDED_AT_ONCE = 1024
"""So many messages are deleted before it is asked again whether there is room for the records."""
_FOR_STARTS = FOR_OPENINGS + 3
"""More free containers than these let a start that is in need go on: emptying takes some before it gives one back."""
_FLAG_ENQUEUE, _FLAG_DELETE, _FLAG_MORE = int(Flag.ENQUEUE), int(Flag.DELETE), int(Flag.MORE)


class JournalStore(WiringCalls, JournalReading):
    """Made by `recovery.recover`. Without `start` it has no threads: `kick` then flushes in the caller."""

    def __init__(
        self,
        wiring: Wiring,
        journal: Journal,
        state: State,
        release: Callable[[], None],
        checkpointing: Checkpointing | None = None,
    ) -> None:
        """*release* lets go of the store directory."""
        super().__init__(wiring)
        self.journal = journal
        self.state = state
        self.durable_lsn = journal.durable_lsn
        self._holders = Holders(state, journal.container_bytes)
        self._release = release
        self._falling: deque[tuple[int, dict[int, int]]] = deque()
        self._unexamined = list(journal.extent.slots)  # what holds nothing leaves the log with the first flush
        self.relocation = Relocation(state, journal, self.settle)
        self.checkpointing = checkpointing
        self.bookmarks: Bookmarks | None = None
        """Of those that read history; None for a store that heeds none."""
        writing = JournalTransactions(self)
        self.transactions = Transactions(writing)
        writing.restore(self.transactions)
        self._flusher: Flusher | None = None
        self._on_durable: Callable[[int], None] | None = None
        self._background: list[ThreadPoolExecutor] = []
        self.settles_at_once = AT_ONCE
        """So many messages of deleted queues are looked at in a step."""
        self._unswept = state.cuts.unswept
        self._sweep: Iterator[None] | None = None
        self._go_on: Callable[[], object] = lambda: None
        self._notes_are_due = False

    def start(
        self,
        on_durable: Callable[[int], None],
        on_failure: Callable[[JournalError], None],
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the threads.

        *on_durable* gets each new durable LSN on the flusher's thread, *on_failure* the error that ends the journal;
        the owner passes the LSN on to `became_durable`, in the thread that makes the calls. *on_room* is told, on any
        thread, that `full` no longer holds.
        """
        self.journal.pool.on_room = on_room
        self._flusher = Flusher(self.journal, on_durable, on_failure)
        self.start_sql()
        reader, writer = ThreadPoolExecutor(1, "cairnmq-relocation"), ThreadPoolExecutor(1, "cairnmq-checkpoint")
        self._background = [reader, writer]
        self._go_on = lambda: reader.submit(lambda: on_durable(self.journal.durable_lsn))
        self.relocation.read_in(reader, lambda: on_durable(self.journal.durable_lsn))
        if self.checkpointing is not None:
            self.checkpointing.commit_in(writer, lambda: on_durable(self.journal.durable_lsn))

    def make_room(self) -> None:
        """On a full disk, empty slots until the next opening is sure of its containers. Before `start`.

        Else starts that are killed before relocation gets to anything would use up what is left to openings, and
        what relocation needs to get it back.
        """
        journal, pool = self.journal, self.journal.pool
        if pool.unclaimed <= _FOR_STARTS < len(journal.extent.slots):
            pool.find_room()  # only who has tried knows that the disk is full; a small log has nothing to empty
        if pool.in_need:
            self.became_durable(journal.durable_lsn)
        while pool.in_need and pool.unclaimed <= _FOR_STARTS:
            if journal.has_unsealed:
                self.kick()
            elif self.relocation.is_at_work:
                self.became_durable(journal.durable_lsn)
            else:
                journal.write_mark()  # the base alone may give something back
                return

    def run_inline(self, on_durable: Callable[[int], None]) -> None:
        """No threads: `kick` flushes in the caller and then calls *on_durable*."""
        self._on_durable = on_durable

    # ---- messages -------------------------------------------------------------------------------------------------

    def messages(self) -> dict[int, array[int]]:
        self.settle_all()
        return on_queues(self.state)

    def put(self, queue_id: int, content: bytes, time_us: int) -> tuple[int, int]:
        if queue_id not in self._names:
            self.check_queue(queue_id)
        if len(content) > MAX_PAYLOAD_BYTES:
            message_id = self.stage(content[:MAX_PAYLOAD_BYTES], time_us)
            self.append_content(message_id, content[MAX_PAYLOAD_BYTES:], time_us, last=True)
            return message_id, self.enqueue(message_id, queue_id, time_us)
        lsn = self.journal.append_record(_START, content, time_us, _FLAG_ENQUEUE, 0, OWN_LSN, queue_id, 0, 0)
        self.state.started_plain(lsn, queue_id, len(content))
        return lsn, lsn

    def put_all(self, queue_id: int, contents: Sequence[bytes], time_us: int) -> tuple[Sequence[int], int]:
        self.check_queue(queue_id)
        sizes = list(map(len, contents))
        if len(contents) < _BATCH_FROM or max(sizes) > MAX_PAYLOAD_BYTES:
            stored = [self.put(queue_id, content, time_us) for content in contents]
            return [message_id for message_id, _ in stored], stored[-1][1]
        lsns = self.journal.append_all(_START, contents, time_us=time_us, flags=_FLAG_ENQUEUE, queue_id=queue_id)
        self.state.started_all(lsns, queue_id, sizes)
        return lsns, lsns[-1]

    def stage(self, piece: bytes, time_us: int) -> int:
        first, rest = piece[:MAX_PAYLOAD_BYTES], piece[MAX_PAYLOAD_BYTES:]
        lsn = self.journal.append(_START, first, time_us=time_us, flags=_FLAG_MORE, message_id=OWN_LSN)
        self.state.started(lsn, _FLAG_MORE, 0, len(first))
        if rest:
            self.append_content(lsn, rest, time_us, last=False)
        return lsn

    def append_content(self, message_id: int, piece: bytes, time_us: int, *, last: bool) -> None:
        message = self.state.odd.get(message_id)
        if message is None or message.last is not None:
            raise StoreError(f"message {message_id}", "its content is complete, or it does not exist")
        view = memoryview(piece)
        for at in range(0, max(len(view), 1), MAX_PAYLOAD_BYTES):
            chunk = view[at : at + MAX_PAYLOAD_BYTES]
            flags = 0 if last and at + len(chunk) == len(view) else _FLAG_MORE
            number = len(message.pieces) + 1
            lsn = self.journal.append(
                _CHUNK, bytes(chunk), time_us=time_us, flags=flags, undo_prev=message_id, message_id=message_id,
                extra=number,
            )  # fmt: skip
            self.state.continued(lsn, flags, message_id, number, len(chunk))

    def stage_complete(self, content: bytes, time_us: int) -> int:
        """A message of one record that is on no queue yet; its id."""
        lsn = self.journal.append(_START, content, time_us=time_us, message_id=OWN_LSN)
        self.state.started(lsn, 0, 0, len(content))
        return lsn

    def enqueue(self, message_id: int, queue_id: int, time_us: int) -> int:
        self.check_queue(queue_id)
        self.check_enqueue(message_id, queue_id)
        self.transactions.check_add(message_id, queue_id)
        lsn = self.journal.append(
            _ENQUEUE, time_us=time_us, undo_prev=message_id, message_id=message_id, queue_id=queue_id
        )
        self.state.enqueued(lsn, message_id, queue_id, lsn)
        return lsn

    def check_enqueue(self, message_id: int, queue_id: int) -> None:
        """Raises `StoreError` if the message can't be put on that queue."""
        if self._unswept:
            self.settle(message_id)
        message = self.state.odd.get(message_id)
        queue = self.state.queue_of(message_id)
        if queue is None and (message is None or not message.is_complete):
            raise StoreError(f"message {message_id}", "it does not exist, or its content is not complete")
        if queue == queue_id or (message is not None and queue_id in message.queues):
            raise StoreError(f"message {message_id}", f"it is on queue {queue_id} already")

    def dequeue(self, message_id: int, queue_id: int, time_us: int, why: Why = Why.NOT_RECORDED) -> int:
        state = self.state
        if self._unswept:
            self.settle(message_id)
        if state.queue_of(message_id) != queue_id or self.transactions.concern(message_id):
            return self._dequeue_odd(message_id, queue_id, time_us, why)
        given_lsn = state.moved.get(message_id, message_id) if state.moved else message_id
        lsn = self.journal.append_record(
            _DEQUEUE, b"", time_us, _FLAG_DELETE | why, message_id, message_id, queue_id, 0, given_lsn
        )
        state.deleted(lsn, message_id, given_lsn)
        return lsn

    def dequeue_all(
        self, message_ids: Sequence[int], queue_id: int, time_us: int, why: Why = Why.NOT_RECORDED
    ) -> list[int]:
        if (
            len(message_ids) < 2
            or self._unswept
            or self.state.moved
            or self.transactions.are_concerned
            or not self.state.are_plain_on(message_ids, queue_id)
        ):
            return [self.dequeue(message_id, queue_id, time_us, why) for message_id in message_ids]
        lsns = self.journal.append_last(
            _DEQUEUE, message_ids, time_us=time_us, flags=_FLAG_DELETE | why, queue_id=queue_id
        )
        self.state.deleted_all(lsns, message_ids)
        return lsns

    def _dequeue_odd(self, message_id: int, queue_id: int, time_us: int, why: Why) -> int:
        self.transactions.check_lock(message_id, queue_id)
        is_last, given_lsn = self.taking(message_id, queue_id)
        lsn = self.journal.append(
            _DEQUEUE, time_us=time_us, flags=(_FLAG_DELETE if is_last else 0) | why, undo_prev=message_id,
            message_id=message_id, queue_id=queue_id, extra=given_lsn,
        )  # fmt: skip
        self.state.taken(lsn, message_id, queue_id, given_lsn, is_last=is_last)
        return lsn

    def taking(self, message_id: int, queue_id: int) -> tuple[bool, int]:
        """Whether the message goes if it is taken off that queue, and the record that this would end.

        Raises `StoreError` if it is not on that queue.
        """
        state = self.state
        goes = not self.transactions.holds_place(message_id)
        if state.queue_of(message_id) == queue_id:
            return goes, state.place_of(message_id)
        message = state.odd.get(message_id)
        if message is None or queue_id not in message.queues:
            raise StoreError(f"message {message_id}", f"it is not on queue {queue_id}")
        if goes and len(message.queues) == 1:
            return True, message.start
        return False, message.queues[queue_id][1]

    def check_queue(self, queue_id: int) -> None:
        """Raises `StoreError` if there is no such queue."""
        if queue_id not in self._names:
            raise StoreError(f"queue {queue_id}", "there is no such queue")

    def destroy(self, message_id: int, time_us: int) -> int:
        if self._unswept:
            self.settle(message_id)
        message = self.state.odd.get(message_id)
        if message is None or message.queues:
            raise StoreError(f"message {message_id}", "it does not exist, or is still on a queue")
        if self.transactions.holds_place(message_id):
            raise MessageLocked(f"message {message_id}", "a transaction puts it on a queue")
        return self.discard((message_id,), time_us)

    def purge(
        self, queue_id: int, time_us: int, *, keep: Iterable[int] = (), is_final: bool = False
    ) -> int:
        transactions, state = self.transactions, self.state
        if is_final:
            transactions.queue_goes(queue_id, time_us)
        kept = set()
        for message_id in {*keep, *transactions.taken_off(queue_id)}:
            self.settle(message_id)
            message = state.odd.get(message_id)
            if state.queue_of(message_id) == queue_id or (message is not None and queue_id in message.queues):
                kept.add(message_id)
        if len(kept) > MAX_KEPT:
            why = f"{len(kept)} of its messages are to be left, {MAX_KEPT} can be"
            raise MessageLocked(f"queue {queue_id}", why, "end the transactions that take them off")
        lsn = self.journal.append(
            _QUEUE_DELETE, array("Q", sorted(kept)).tobytes(), time_us=time_us,
            flags=_FLAG_DELETE if is_final else 0, queue_id=queue_id,
        )  # fmt: skip
        state.cut(Cut(queue_id, lsn, frozenset(kept), lsn))
        return lsn

    def settle(self, message_id: int) -> None:
        """Do to the message what the deletion of a queue says: it may not have been looked at since."""
        settle(self.state, message_id, self.transactions.holds_place)

    def settle_all(self) -> None:
        """The same to all messages, at once: for the start."""
        sweep_all(self.state, self.transactions.holds_place)
        self._sweep = None

    def _settle_some(self) -> None:
        if self._sweep is None:
            self._sweep = sweep(self.state, self.transactions.holds_place, self.settles_at_once)
        if next(self._sweep, self) is self:
            self._sweep = None
            if self.checkpointing is None:
                self.state.cuts.forget(self.state.cuts.all_swept())
        self._hold_fallen()
        self._go_on()

    def discard_unfinished(self, time_us: int) -> int:
        """Delete the messages that recovery found incomplete, or on no queue; how many there were."""
        unfinished = self.state.unfinished()
        self.discard(unfinished, time_us)
        return len(unfinished)

    def discard(self, message_ids: Sequence[int], time_us: int) -> int:
        """Delete messages that are on no queue, and that no transaction puts on one; the last record's LSN, or 0.

        Recovery does so with all of those that it finds, so the records are for who reads the history: without room
        they are left out. There may be more of them than all that is kept for a full disk.
        """
        lsn = 0
        for at in range(0, len(message_ids), _DISCARDED_AT_ONCE):
            is_full = self.journal.pool.find_room() is not None
            for message_id in message_ids[at : at + _DISCARDED_AT_ONCE]:
                if is_full:
                    self.state.discarded(message_id)
                    continue
                given_lsn = self.state.place_of(message_id)
                lsn = self.journal.append(
                    _DELETE, time_us=time_us, undo_prev=message_id, message_id=message_id, extra=given_lsn
                )
                self.state.deleted(lsn, message_id, given_lsn)
        return lsn

    def holds(self, message_id: int) -> bool:
        return message_id in self.state and not (self._unswept and is_cut(self.state, message_id))

    # ---- who has them ---------------------------------------------------------------------------------------------

    def note_acquired(self, queue_id: int, taker: bytes, message_ids: Sequence[int], time_us: int) -> None:
        """Write down that *taker* (see `acquisitions.taker`) was handed these messages of that queue.

        Nobody waits for that: it becomes durable with what is, or when `write_notes` is called. While the disk is full
        it is left out, and the block says so.
        """
        if self.journal.pool.find_room() is not None:
            self.journal.unflag()
            return
        for at in range(0, len(message_ids), MOST_MESSAGES):
            some = message_ids[at : at + MOST_MESSAGES]
            self.journal.append_note(
                _ACQUIRE, encode(taker, some), time_us=time_us, queue_id=queue_id, extra=len(some)
            )

    def write_notes(self) -> None:
        """As `kick`, also for notes alone."""
        self._notes_are_due = True
        self.kick()

    # ---- durability -----------------------------------------------------------------------------------------------

    def kick(self) -> None:
        self._hold_fallen()
        if not (self.journal.has_awaited or self.journal.waiting or self._notes_are_due):
            if not (self._falling and self._falling[0][0] <= self.durable_lsn):
                return
            self.became_durable(self.durable_lsn)  # what went without a record has no flush to wait for
            if not self.journal.has_awaited:
                return
        if self._flusher is not None:
            self._flusher.kick()
        elif self.journal.has_unsealed:
            durable = self.journal.flush()
            if self._on_durable is not None:
                self._on_durable(durable)
            else:
                self.became_durable(durable)
        if self._notes_are_due:  # or the flusher was not at rest
            self._notes_are_due = self.journal.has_unsealed

    def _hold_fallen(self) -> None:
        """What was let go of falls when all that was recorded so far is durable."""
        fallen = self.state.pins.fallen()
        if fallen:
            self._falling.append((self.journal.next_awaited_lsn, fallen))

    def became_durable(self, lsn: int) -> None:
        """Every record below *lsn* is on the disk: let the pins fall that durable records held, and give back slots.

        Then deletions of queues, relocation and the checkpoint go on where they stand.
        """
        before_slot = self.durable_lsn // self.journal.container_bytes
        self.durable_lsn = max(self.durable_lsn, lsn)  # relocation's notice may be older than the flusher's
        if self._unswept:
            self._settle_some()
        falling, pins = self._falling, self.state.pins
        touched, self._unexamined = self._unexamined, []
        touched += range(before_slot, self.durable_lsn // self.journal.container_bytes)  # dead perhaps before its end
        while falling and falling[0][0] <= lsn:
            fallen = falling.popleft()[1]
            pins.drop(fallen)
            touched += fallen
        touched += self.relocation.became_durable(lsn)
        if touched:
            self.relocation.victims.look_at(touched)
            self._retire(touched)
        self.relocation.step()
        if self.checkpointing is not None:
            self.checkpointing.step()

    def _retire(self, touched: Iterable[int]) -> None:
        """Take those of the slots *touched* that are not needed out of the log, and what is not needed without them."""
        journal, pins = self.journal, self.state.pins
        end = min(self.durable_lsn // journal.container_bytes, journal.extent.current_slot)
        self._unexamined += {slot for slot in touched if slot >= end and not pins.is_needed(slot)}
        while touched := [slot for slot in touched if slot < end and not pins.is_needed(slot)]:
            gone = journal.retire(touched)
            touched = pins.retired(gone)
            self.state.outcomes.retired(gone)

    @property
    def next_lsn(self) -> int:
        return self.journal.next_awaited_lsn

    def last_flushes(self) -> list[tuple[int, float]]:
        return list(self.journal.meters.last_flushes)

    def full(self, size_bytes: int = 0, records: int = 0) -> str:
        error = self.journal.pool.find_room(size_bytes + HEAD_BYTES * records)
        return "" if error is None else error.reason

    def held_by(self, slot: int) -> str:
        """What holds *slot* in the log, in words; the first thing of several. Any thread."""
        holder = self._holders.first(slot)
        if holder is not None:
            return holder.told(self._names)
        if slot >= self.journal.durable_lsn // self.journal.container_bytes:
            return "the end of the log"
        if self.journal.extent.waits(slot):
            return "nothing: it leaves with a neighbour, for the log has as many holes as it may have"
        return "what the next flush lets go"

    def end_reads(self) -> None:
        """No read waits for anything but the disk."""

    def close(self) -> None:
        self.close_sql()
        for executor in self._background:
            executor.shutdown()
        if self._flusher is not None:
            self._flusher.stop()
        self.relocation.close()
        try:
            if self.checkpointing is not None and self.journal.failure is None:
                with suppress(JournalError):  # closing the journal says the same
                    self.journal.flush()
                    self.checkpointing.close()
            self.journal.close()
        finally:
            self._wiring.close()
            self._release()
