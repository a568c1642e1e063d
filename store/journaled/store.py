"""The journal store: wiring in SQL, messages in the journal. See `interface.MessageStore` for the contract.

A complete message on one queue is one record (Start with the enqueue flag), and its dequeue is one (Dequeue with the
delete flag). Longer content is a Start and Chunk records, put on its queue by an Enqueue record at the end.

Every record that removes something names, in `extra`, the record that had added it.

After a power cut, every record below `durable_lsn` exists; recovery accepts a later block completely or not at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from ...base.errors import JournalError, StoreError
from ...journal.files.space_reserve import FOR_OPENINGS
from ...journal.format.record import HEAD_BYTES, MAX_PAYLOAD_BYTES, Flag, RecordType
from ...journal.write.flusher import Flusher
from ...journal.write.journal import OWN_LSN
from ..contract.dequeue_reason import NOT_RECORDED, DequeueReason
from ..reclaim.relocation import Relocation
from ..reclaim.slot_holders import SlotHolders
from ..wiring.calls import WiringCalls
from ..wiring.wiring import Wiring
from .acquire_records import MOST_MESSAGES, encode
from .contents import ContentWriter
from .places import MessagePlaces
from .reads import ContentReader
from .recovered_log import RecoveredLog
from .transactions_writer import TransactionsWriter

_START, _DEQUEUE, _ACQUIRE = int(RecordType.START), int(RecordType.DEQUEUE), int(RecordType.ACQUIRE)
_BATCH_FROM = 4
"""Fewer records than this are appended faster one by one."""
_FOR_STARTS = FOR_OPENINGS + 3
"""The free containers above which a start that needs space continues: compaction uses some before it frees one."""
_FLAG_ENQUEUE, _FLAG_DELETE = int(Flag.ENQUEUE), int(Flag.DELETE)


class JournalStore(WiringCalls):
    """Made by `recovery.recover`. Without `start` it has no threads: `kick` then flushes in the caller."""

    def __init__(self, wiring: Wiring, log: RecoveredLog, release: Callable[[], None]) -> None:
        """*release* releases the store directory."""
        super().__init__(wiring)
        self.journal = journal = log.journal
        self.state = state = log.state
        self.checkpointing = log.checkpointing
        self.bookmarks = log.bookmarks
        self.durable_lsn = journal.writer.durable_lsn
        self.places = places = MessagePlaces(journal, state)
        self.contents = contents = ContentWriter(journal, state)
        self.transactions = TransactionsWriter(journal, state, contents, places, self.check_queue).open()
        self.relocation = Relocation(state, journal, places.settle)
        self.reads = reads = ContentReader(journal, state)
        # calls that are these parts' alone: without a method in between, since some are made for each message
        self.stage, self.append_content, self.discard = contents.stage, contents.append_content, contents.discard
        self.messages, self.holds = places.messages, places.holds
        self.size_of, self.piece_count = reads.size_of, reads.piece_count
        self.load_piece, self.load_content, self.load_many = reads.load_piece, reads.load_content, reads.load_many
        self._pool, self._sealed = journal.pool, journal.writer.sealed
        self._locks = places.locks
        self._unswept = state.cuts.unswept
        self._holders = SlotHolders(state, journal.container_bytes)
        self._release = release
        self._deferred: deque[tuple[int, dict[int, int]]] = deque()
        self._unexamined = list(journal.extent.slots)  # empty slots leave the log with the first flush
        self._flusher: Flusher | None = None
        self._on_durable: Callable[[int], None] | None = None
        self._background: list[ThreadPoolExecutor] = []
        self._go_on: Callable[[], object] = lambda: None
        self._notes_are_due = False

    def start(
        self,
        on_durable: Callable[[int], None],
        on_failure: Callable[[JournalError], None],
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self.journal.pool.on_room = on_room
        self._flusher = Flusher(self.journal, on_durable, on_failure)
        self.start_sql()
        reader, writer = ThreadPoolExecutor(1, "cairnmq-relocation"), ThreadPoolExecutor(1, "cairnmq-checkpoint")
        self._background = [reader, writer]

        def wake() -> None:
            on_durable(self.journal.writer.durable_lsn)

        self._go_on = lambda: reader.submit(wake)
        self.relocation.read_in(reader, wake)
        if self.checkpointing is not None:
            self.checkpointing.commit_in(writer, wake)

    def make_room(self) -> None:
        """On a full disk, empty slots until the next opening is sure of its containers. Before `start`.

        Else starts that are killed before relocation gets to anything would use up what is left to openings, and
        what relocation needs to get it back.
        """
        journal, pool = self.journal, self.journal.pool
        if pool.unclaimed <= _FOR_STARTS < len(journal.extent.slots):
            pool.find_room()  # only an attempt shows that the disk is full; a small log has nothing to empty
        if pool.in_need:
            self.became_durable(journal.writer.durable_lsn)
        while pool.in_need and pool.unclaimed <= _FOR_STARTS:
            if journal.has_unsealed:
                self.kick()
            elif self.relocation.is_at_work:
                self.became_durable(journal.writer.durable_lsn)
            else:
                journal.writer.write_mark()  # the base alone may give something back
                return

    def run_inline(self, on_durable: Callable[[int], None]) -> None:
        self._on_durable = on_durable

    # ---- messages -------------------------------------------------------------------------------------------------

    def put(self, queue_id: int, content: bytes, time_us: int) -> tuple[int, int]:
        if queue_id not in self._names:
            self.check_queue(queue_id)
        if len(content) > MAX_PAYLOAD_BYTES:
            message_id = self.stage(content, time_us, is_last=True)
            return message_id, self.enqueue(message_id, queue_id, time_us)
        lsn = self.journal.append_record(_START, content, time_us, _FLAG_ENQUEUE, 0, OWN_LSN, queue_id, 0, 0)
        self.state.started_plain(lsn, queue_id, len(content))
        return lsn, lsn

    def put_all(self, queue_id: int, contents: Sequence[bytes], time_us: int) -> tuple[Sequence[int], int]:
        if queue_id not in self._names:
            self.check_queue(queue_id)
        sizes = list(map(len, contents))
        if max(sizes) > MAX_PAYLOAD_BYTES:
            stored = [self.put(queue_id, content, time_us) for content in contents]
            return [message_id for message_id, _ in stored], stored[-1][1]
        if len(contents) < _BATCH_FROM:  # `put`, without a call
            lsns = []
            for content, size in zip(contents, sizes, strict=True):
                lsn = self.journal.append_record(_START, content, time_us, _FLAG_ENQUEUE, 0, OWN_LSN, queue_id, 0, 0)
                self.state.started_plain(lsn, queue_id, size)
                lsns.append(lsn)
            return lsns, lsns[-1]
        lsns = self.journal.append_all(_START, contents, time_us=time_us, flags=_FLAG_ENQUEUE, queue_id=queue_id)
        self.state.started_all(lsns, queue_id, sizes)
        return lsns, lsns[-1]

    def enqueue(self, message_id: int, queue_id: int, time_us: int) -> int:
        self.check_queue(queue_id)
        self.places.check_enqueue(message_id, queue_id)
        self._locks.check_enqueue(message_id, queue_id)
        return self.places.enqueue(message_id, queue_id, time_us)

    def dequeue(self, message_id: int, queue_id: int, time_us: int, reason: DequeueReason = NOT_RECORDED) -> int:
        state = self.state
        if self._unswept:
            self.places.settle(message_id)
        if state.queue_of(message_id) != queue_id or message_id in self._locks:
            self._locks.check_dequeue(message_id, queue_id)
            return self.places.dequeue(message_id, queue_id, time_us, reason)
        given_lsn = state.moved.get(message_id, message_id) if state.moved else message_id
        lsn = self.journal.append_record(
            _DEQUEUE, b"", time_us, _FLAG_DELETE | reason, message_id, message_id, queue_id, 0, given_lsn
        )
        state.deleted(lsn, message_id, given_lsn)
        return lsn

    def dequeue_all(
        self, message_ids: Sequence[int], queue_id: int, time_us: int, reason: DequeueReason = NOT_RECORDED
    ) -> list[int]:
        if (
            len(message_ids) < 2
            or self._unswept
            or self.state.moved
            or self._locks
            or not self.state.are_plain_on(message_ids, queue_id)
        ):
            return [self.dequeue(message_id, queue_id, time_us, reason) for message_id in message_ids]
        lsns = self.journal.append_last(
            _DEQUEUE, message_ids, time_us=time_us, flags=_FLAG_DELETE | reason, queue_id=queue_id
        )
        self.state.deleted_all(lsns, message_ids)
        return lsns

    def check_queue(self, queue_id: int) -> None:
        """Raise `StoreError` if the wiring does not have the queue."""
        if queue_id not in self._names:
            raise StoreError(f"queue {queue_id}", "there is no such queue")

    def destroy(self, message_id: int, time_us: int) -> int:
        self.places.check_destroy(message_id)
        return self.discard((message_id,), time_us)

    def purge(self, queue_id: int, time_us: int, *, keep: Iterable[int] = (), is_final: bool = False) -> int:
        if is_final:
            self.transactions.queue_goes(queue_id, time_us)
        return self.places.purge(queue_id, time_us, keep=keep, is_final=is_final)

    def discard_unfinished(self, time_us: int) -> int:
        """Delete the messages that recovery found incomplete, or on no queue; how many there were."""
        unfinished = self.state.unfinished()
        self.discard(unfinished, time_us)
        return len(unfinished)

    def bytes_on(self, queue_id: int) -> int:
        return self.state.queue_bytes.get(queue_id, 0)

    # ---- delivery tracking ----------------------------------------------------------------------------------------

    def note_acquired(
        self, queue_id: int, taker: bytes, message_ids: Sequence[int], time_us: int, *, returned: bool = False
    ) -> None:
        """Record that *taker* (see `acquisitions.taker`) acquired these messages of that queue.

        *returned*: they are on the queue again instead, for the reason that *taker* has as its link.
        No caller waits for it: it becomes durable with other records, or when `write_notes` is called. While the disk
        is full it is omitted, which the flags of the block show.
        """
        if self.journal.pool.find_room() is not None:
            self.journal.clear_flags()
            return
        for at in range(0, len(message_ids), MOST_MESSAGES):
            some = message_ids[at : at + MOST_MESSAGES]
            self.journal.append_hint(
                _ACQUIRE, encode(taker, some), time_us=time_us, queue_id=queue_id, extra=len(some),
                flags=Flag.ENQUEUE if returned else 0,
            )  # fmt: skip

    def write_notes(self) -> None:
        """Request durability, even if only notes were recorded."""
        self._notes_are_due = True
        self.kick()

    # ---- durability -----------------------------------------------------------------------------------------------

    def kick(self) -> None:
        journal = self.journal
        if self.state.pins.pending:
            self._defer_releases()
        if not (journal.head_bytes > journal.note_bytes or self._sealed or self._notes_are_due):
            if not (self._deferred and self._deferred[0][0] <= self.durable_lsn):
                return
            self.became_durable(self.durable_lsn)  # discards without a record have no flush to wait for
            if not journal.has_awaited:
                return
        if self._flusher is not None:
            self._flusher.kick()
        elif journal.has_unsealed:
            durable = journal.flush()
            if self._on_durable is not None:
                self._on_durable(durable)
            else:
                self.became_durable(durable)
        if self._notes_are_due:  # or the flusher was not at rest
            self._notes_are_due = journal.has_unsealed

    def _defer_releases(self) -> None:
        """Defer pending releases until everything recorded so far is durable."""
        if released := self.state.pins.take_pending():
            self._deferred.append((self.journal.next_awaited_lsn, released))

    def became_durable(self, lsn: int) -> None:
        """Drop the pins that records below *lsn*, which are durable, released, and retire the slots without pins.

        Then continue purges, compaction and the checkpoint. Where nothing was released, they are not asked.
        """
        before_slot = self.durable_lsn // self.journal.container_bytes
        self.durable_lsn = max(self.durable_lsn, lsn)  # relocation's notice may be older than the flusher's
        if self._unswept:
            if self.places.sweep_some() and self.checkpointing is None:
                self.state.cuts.forget(self.state.cuts.all_swept())
            self._defer_releases()
            self._go_on()
        deferred, pins = self._deferred, self.state.pins
        touched, self._unexamined = self._unexamined, []
        touched += range(before_slot, self.durable_lsn // self.journal.container_bytes)  # dead perhaps before its end
        while deferred and deferred[0][0] <= lsn:
            released = deferred.popleft()[1]
            pins.drop(released)
            touched += released
        relocation, checkpointing = self.relocation, self.checkpointing
        is_idle = relocation.idle_slot == self.journal.extent.current_slot
        if not is_idle:
            touched += relocation.became_durable(lsn)
        if touched:
            relocation.victims.look_at(touched)
            self._retire(touched)
        if touched or not is_idle or self._pool.full is not None:
            relocation.step()
        if checkpointing is not None and self.journal.writer.durable_lsn >= checkpointing.due_lsn:
            checkpointing.step()

    def _retire(self, touched: Iterable[int]) -> None:
        """Remove unneeded slots of *touched* from the log, and slots that are not needed without them."""
        journal, pins = self.journal, self.state.pins
        end = min(self.durable_lsn // journal.container_bytes, journal.extent.current_slot)
        self._unexamined += {slot for slot in touched if slot >= end and not pins.is_needed(slot)}
        while touched := [slot for slot in touched if slot < end and not pins.is_needed(slot)]:
            removed = journal.retire(touched)
            touched = pins.retired(removed)
            self.state.outcomes.retired(removed)

    @property
    def next_lsn(self) -> int:
        return self.journal.next_awaited_lsn

    def last_flushes(self) -> list[tuple[int, float]]:
        return list(self.journal.writer.meters.last_flushes)

    def full(self, size_bytes: int = 0, records: int = 0) -> str:
        pool, log_bytes = self._pool, size_bytes + HEAD_BYTES * records
        if pool.has_room and log_bytes <= pool.batch_bytes:
            return ""
        error = pool.find_room(log_bytes)
        return "" if error is None else error.reason

    def room_bytes(self) -> int | None:
        return self.journal.pool.room_bytes()

    def held_by(self, slot: int) -> tuple[str, str]:
        """Return the first holder of *slot* in the log as readable text, and its kind, from a fixed set. Any thread."""
        holder = self._holders.first(slot)
        if holder is not None:
            return holder.description(self._names), holder.kind
        if slot >= self.journal.writer.durable_lsn // self.journal.container_bytes:
            return "the end of the log", "log-end"
        if self.journal.extent.waits(slot):
            return "nothing: it is released with a neighbor, as the log has the maximum of reclaimed ranges", "none"
        return "the next flush, which releases it", "none"

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
            if self.checkpointing is not None and self.journal.writer.failure is None:
                with suppress(JournalError):  # closing the journal raises the same error
                    self.journal.flush()
                    self.checkpointing.close()
            self.journal.close()
        finally:
            self._wiring.close()
            self._release()
