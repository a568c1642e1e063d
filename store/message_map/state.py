"""The message map: the existing messages, their queues, and the parts of the log that they need.

State changes in one place: the methods below are called at run time as a record is appended, and by `apply` in recovery
as it is read back, so the two cannot drift apart. Records are idempotent: recovery may begin with a checkpoint that
already contains the effects of records that it then reads again.

A message ID is the LSN of the first record of the message, and never changes. Messages are grouped by the slot of the
log that their ID lies in. The live messages of a slot are therefore found directly, and empty slots cost nothing.

A record that removes something is needed as long as the record that added it is still in the log: otherwise recovery
would find only the latter. `Pins` counts both.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ...base.errors import StoreError
from ...journal.format.record import HEAD_BYTES, Flag, RecordHead, RecordType
from .message_entry import SIZE_BITS, SIZE_MASK, DetailedMessage, Plain, plain
from .pins import Pins
from .purges import PurgeMark, PurgeMarks
from .transaction_log import TransactionLog

START, CHUNK, DELETE = int(RecordType.START), int(RecordType.CHUNK), int(RecordType.DELETE)
ENQUEUE, DEQUEUE = int(RecordType.ENQUEUE), int(RecordType.DEQUEUE)
QUEUE_DELETE = int(RecordType.QUEUE_DELETE)
FLAG_ENQUEUE, FLAG_DELETE, FLAG_MORE, FLAG_MOVED = map(int, (Flag.ENQUEUE, Flag.DELETE, Flag.MORE, Flag.MOVED))
_MAX_SHARED = 1 << 16
FEW = 32
"""The number of messages below which a page is processed faster one by one."""

Lsns = npt.NDArray[np.uint64]
_NO_PAGE: dict[int, int] = {}


class State:
    """The message map (checklist E50). One thread at a time; `place_of`, `piece_sizes` and `readable` for any."""

    def __init__(self, container_bytes: int) -> None:
        self.pages: dict[int, dict[int, Plain]] = {}
        """Slot to the plain messages whose ids lie in it."""
        self.detailed: dict[int, DetailedMessage] = {}
        """The others."""
        self.moved: dict[int, int] = {}
        """Plain messages whose Start record was copied forward, to the copy's LSN."""
        self.unsettled: dict[int, int] = {}
        """LSN of a copy that is not durable yet, to where the record can be read meanwhile."""
        self.pins = Pins(container_bytes)
        self.outcomes = TransactionLog(container_bytes, self.pins)
        self.cuts = PurgeMarks()
        """The purges and deletions of queues."""
        self.queue_bytes: dict[int, int] = {}
        """Queue id to the bytes of content on it. While the log is read back it is not kept; `reconcile` counts it."""
        self.changed_pages: set[int] = set()
        """Slots whose page changed since the last checkpoint looked."""
        self.changed_detailed: set[int] = set()
        """Messages in `detailed` that changed since the last checkpoint."""
        self._container_bytes = container_bytes
        self.out_of_order: set[int] = set()
        """In recovery: slots whose page has messages out of order, because their transaction was committed later."""
        self.restored_lsn = 0
        """The LSN from which recovery replayed the log behind a checkpoint; 0 without a checkpoint."""
        self.unknown_ends: set[int] = set()
        """In recovery: copies of purge records that may end records in any older slot."""
        self.replaced: list[tuple[int, int, int, int]] = []
        """In recovery: queue, message, position and LSN of places that the message left before it got the known one."""
        self._shared: dict[Plain, Plain] = {}  # the same number is one object for all messages that have it

    # ---- effects of records ---------------------------------------------------------------------------------------

    def started(self, lsn: int, flags: int, queue_id: int, size_bytes: int) -> None:
        """A Start record: a message exists, and with the enqueue flag is on its first queue."""
        if flags == FLAG_ENQUEUE and lsn not in self.detailed:
            self.started_plain(lsn, queue_id, size_bytes)
        else:
            self.pins.hold(lsn, HEAD_BYTES + size_bytes)
            self._start(self.particulars(lsn), lsn, lsn, flags, queue_id, size_bytes)

    def started_plain(self, lsn: int, queue_id: int, size_bytes: int) -> None:
        """Apply a Start record with only the enqueue flag: a complete message on its only queue."""
        slot = lsn // self._container_bytes
        pins, held_bytes = self.pins, HEAD_BYTES + size_bytes  # `hold`, `_page`, `_share`: once a message
        pins.live[slot] = pins.live.get(slot, 0) + held_bytes
        pins.live_bytes += held_bytes
        page = self.pages.get(slot)
        if page is None:
            page = self.pages[slot] = {}
        self.changed_pages.add(slot)
        value = queue_id << SIZE_BITS | size_bytes
        page[lsn] = self._shared.get(value) or self._share(value)
        self.queue_bytes[queue_id] = self.queue_bytes.get(queue_id, 0) + size_bytes

    def started_all(self, lsns: Sequence[int], queue_id: int, sizes: Sequence[int]) -> None:
        """Start records with the enqueue flag, in order: `started` for each of them."""
        size = self._container_bytes
        alike = min(sizes) == max(sizes)
        done = 0
        while done < len(lsns):
            slot = lsns[done] // size
            end = bisect_left(lsns, (slot + 1) * size, done)
            some = lsns[done:end]
            if alike:
                new = dict.fromkeys(some, self._share(plain(queue_id, sizes[0])))
            else:
                new = dict(zip(some, [plain(queue_id, size_bytes) for size_bytes in sizes[done:end]], strict=True))
            self.page_of(lsns[done]).update(new)
            self.pins.hold(lsns[done], HEAD_BYTES * len(some) + sum(sizes[done:end]))
            done = end
        self._count(queue_id, sum(sizes))

    def moved_start(self, lsn: int, flags: int, message_id: int, queue_id: int, size_bytes: int, source: int) -> None:
        """A copy of a Start record, at *lsn*; it takes the place of the one at *source*."""
        self.pins.hold(lsn, HEAD_BYTES + size_bytes)
        self.pins.supersede(lsn, source)
        if flags & FLAG_ENQUEUE and not flags & FLAG_MORE and message_id not in self.detailed:
            self.page_of(message_id)[message_id] = self._share(plain(queue_id, size_bytes))
            self.moved[message_id] = lsn
        else:
            self._start(self.particulars(message_id), lsn, message_id, flags, queue_id, size_bytes)

    def moved_all(self, lsns: list[int], message_ids: list[int], values: list[Plain], sources: Lsns) -> None:
        """Apply copies of plain messages in recovery, which counts live bytes at its end; *lsns* are in one slot."""
        self.pins.supersede_all(lsns[0], sources)
        for message_id, value in zip(message_ids, values, strict=True):
            self.page_of(message_id)[message_id] = value
        self.moved.update(zip(message_ids, lsns, strict=True))

    def continued(self, lsn: int, flags: int, message_id: int, number: int, size_bytes: int) -> None:
        """A Chunk record: piece *number* of the content."""
        self.pins.hold(lsn, HEAD_BYTES + size_bytes)
        message = self.particulars(message_id)
        if number not in message.pieces:
            for queue_id in message.queues:
                self._count(queue_id, size_bytes)
        message.pieces[number] = (lsn, size_bytes)
        if not flags & FLAG_MORE:
            message.last = number

    def enqueued(self, lsn: int, message_id: int, queue_id: int, position: int, source: int = 0) -> None:
        """An Enqueue record, or a copy of the one at *source*."""
        self.pins.hold(lsn, HEAD_BYTES)
        if source:
            self.pins.supersede(lsn, source)
        message = self.particulars(message_id)
        at = message.queues.get(queue_id)
        if at is None:
            self._count(queue_id, message.content_bytes)
        elif at[0] != position:
            self.replaced.append((queue_id, message_id, *at))
        message.queues[queue_id] = (position, lsn)

    def dequeued(self, lsn: int, message_id: int, queue_id: int, given_lsn: int) -> None:
        """A Dequeue record without the delete flag; *given_lsn* is the record that put the message on the queue."""
        self.pins.end(lsn, given_lsn)
        if message_id not in self.detailed and queue_id != self.queue_of(message_id):
            return
        message = self.particulars(message_id)
        at = message.queues.get(queue_id)
        if at is not None and at[1] <= given_lsn:
            if at[1] < given_lsn:
                self.replaced.append((queue_id, message_id, *at))
            self.leave_queue(message, queue_id)
            if at[1] != message.start:
                self.pins.release(at[1], HEAD_BYTES)

    def deleted(self, lsn: int, message_id: int, given_lsn: int) -> None:
        """Apply a Delete record, or a Dequeue with the delete flag; *given_lsn* is the Start record of the message."""
        slot = message_id // self._container_bytes
        page = self.pages.get(slot)
        if page is not None and (found := page.pop(message_id, None)) is not None:
            self.changed_pages.add(slot)
            if not page:
                del self.pages[slot]
            if self.moved:
                self.moved.pop(message_id, None)
            self._count(found >> SIZE_BITS, -(found & SIZE_MASK))
            self.pins.release_ended(lsn, given_lsn, HEAD_BYTES + (found & SIZE_MASK))
            return
        self.pins.end(lsn, given_lsn)
        if (message := self.detailed.pop(message_id, None)) is not None:
            self.changed_detailed.add(message_id)
            for queue_id in [*message.queues]:
                self._count(queue_id, -message.content_bytes)
            for at, size_bytes in message.records():
                self.pins.release(at, size_bytes)

    def discarded(self, message_id: int) -> None:
        """Remove a message on no queue without a record: a later recovery finds it on none, and discards it, too.

        Its Dequeue records are needed in the log as long as the records that had enqueued it.
        """
        self.changed_detailed.add(message_id)
        for at, size_bytes in self.detailed.pop(message_id).records():
            self.pins.release(at, size_bytes)

    def deleted_all(self, lsns: Sequence[int], message_ids: Sequence[int]) -> None:
        """Delete different plain messages, none of which was ever moved: `are_plain_on` has checked them."""
        begin, container_bytes, taken_bytes = 0, self._container_bytes, 0
        queue_id = self.queue_of(message_ids[0]) or 0
        while begin < len(lsns):
            ending, slot = lsns[begin] // container_bytes, message_ids[begin] // container_bytes
            pop = self.pages[slot].pop
            count = size_bytes = 0
            for lsn, message_id in zip(lsns[begin:], message_ids[begin:], strict=True):
                if message_id // container_bytes != slot or lsn // container_bytes != ending:
                    break
                size_bytes += pop(message_id) & SIZE_MASK
                count += 1
            self.changed_pages.add(slot)
            if not self.pages[slot]:
                del self.pages[slot]
            self.pins.end_run(ending, slot, count, HEAD_BYTES * count + size_bytes)
            taken_bytes += size_bytes
            begin += count
        self._count(queue_id, -taken_bytes)

    def taken(self, lsn: int, message_id: int, queue_id: int, given_lsn: int, *, is_last: bool) -> None:
        """A Dequeue record: `deleted` if it has the delete flag, else `dequeued`."""
        if is_last:
            self.deleted(lsn, message_id, given_lsn)
        else:
            self.dequeued(lsn, message_id, queue_id, given_lsn)

    def cut(self, cut: PurgeMark, source_lsn: int = 0) -> None:
        """Apply a Queue-Delete record, or a copy of the one at *source_lsn*: `sweeping` removes the messages.

        A copy ends the records that the original ended, including those of messages that are no longer known. If the
        original was copied and left the log after the checkpoint, these are not known: see `unknown_ends`.
        """
        if source_lsn:
            ends = [*self.pins.tombstones.get(self.slot_of(source_lsn), ())]
            for ended in ends:
                self.pins.end_once(cut.lsn, self.start_of(ended))
            is_known = self.cuts.is_kept(cut.queue_id, source_lsn) or (bool(ends) and source_lsn < self.restored_lsn)
            if self.restored_lsn and (source_lsn in self.unknown_ends or not is_known):
                self.unknown_ends.add(cut.lsn)
        self.pins.hold(cut.lsn, cut.size_bytes)
        for needless in self.cuts.add(cut):
            self.pins.release(needless.lsn, needless.size_bytes)

    # ---- recovery -------------------------------------------------------------------------------------------------

    def apply(self, lsn: int, head: RecordHead, payload: Callable[[], memoryview]) -> None:
        """Apply a record that was read back from the log; the *payload* of some types is read."""
        kind, flags = head.type, head.flags
        if head.txn_id and kind <= DEQUEUE:
            self.outcomes.gather(lsn, head)
        elif head.txn_id:
            self.outcomes.apply(lsn, head, payload, self._do)
        elif kind == START:
            if flags & FLAG_MOVED:
                self.moved_start(lsn, flags, head.message_id, head.queue_id, head.size, head.undo_prev)
            else:
                self.started(lsn, flags, head.queue_id, head.size)
        elif kind in (DELETE, DEQUEUE):
            self._end(lsn, head)
        elif kind == CHUNK:
            self.continued(lsn, flags, head.message_id, head.extra, head.size)
        elif kind == ENQUEUE:
            source = head.undo_prev if flags & FLAG_MOVED else 0
            self.enqueued(lsn, head.message_id, head.queue_id, head.extra or lsn, source)
        elif kind == QUEUE_DELETE:
            kept = frozenset(array("Q", bytes(payload())))
            self.cut(PurgeMark(head.queue_id, head.extra or lsn, kept, lsn), head.undo_prev)

    def _do(self, lsn: int, head: RecordHead, is_placed: bool) -> None:
        """Apply an operation of a transaction whose commit was read; *is_placed*: a Start record enqueues it."""
        if head.type == START:
            self.started(lsn, head.flags if is_placed else head.flags & ~FLAG_ENQUEUE, head.queue_id, head.size)
            self.out_of_order.add(lsn // self._container_bytes)
        elif head.type == ENQUEUE:
            self.enqueued(lsn, head.message_id, head.queue_id, head.extra or lsn)
        else:
            self._end(lsn, head)

    def _end(self, lsn: int, head: RecordHead) -> None:
        """Apply a Delete or Dequeue record."""
        is_last = head.type == DELETE or head.flags & FLAG_DELETE > 0
        self.taken(lsn, head.message_id, head.queue_id, head.extra, is_last=is_last)

    def forget_plain(self, message_id: int) -> bool:
        """Drop *message_id* without a word if it is plain; whether it was."""
        slot = message_id // self._container_bytes
        page = self.pages.get(slot)
        value = None if page is None else page.pop(message_id, None)
        if page is None or value is None:
            return False
        self._count(value >> SIZE_BITS, -(value & SIZE_MASK))
        self.changed_pages.add(slot)
        if not page:
            del self.pages[slot]
        if self.moved:
            self.moved.pop(message_id, None)
        return True

    def forget(self, message_id: int) -> None:
        """Drop *message_id* without a record, plain or not."""
        if not self.forget_plain(message_id) and self.detailed.pop(message_id, None) is not None:
            self.changed_detailed.add(message_id)

    def forget_all(self, message_ids: Lsns) -> None:
        """Drop several messages without a record."""
        for slot, ids in self._by_slot(message_ids):
            page = self.pages.get(slot)
            if page is not None:
                for message_id in ids:  # nearly all are plain, and were never moved
                    page.pop(message_id, None)
                self.changed_pages.add(slot)
                if not page:
                    del self.pages[slot]
            if self.moved:
                for message_id in ids:
                    self.moved.pop(message_id, None)
            if self.detailed:
                removed = [message_id for message_id in ids if self.detailed.pop(message_id, None) is not None]
                self.changed_detailed.update(removed)

    def _by_slot(self, message_ids: Lsns) -> Iterator[tuple[int, list[int]]]:
        """*message_ids* by the slot that they lie in."""
        slots = message_ids // np.uint64(self._container_bytes)
        if slots.min() == slots.max():
            yield int(slots[0]), message_ids.tolist()
            return
        for slot in np.unique(slots).tolist():
            yield slot, message_ids[slots == slot].tolist()

    def leave_queue(self, message: DetailedMessage, queue_id: int) -> None:
        """Take a message that has particulars off a queue that it is on."""
        del message.queues[queue_id]
        self._count(queue_id, -message.content_bytes)

    # ---- for the checkpoint ---------------------------------------------------------------------------------------

    def start_of(self, slot: int) -> int:
        """The LSN that *slot* begins at."""
        return slot * self._container_bytes

    def slot_of(self, lsn: int) -> int:
        return lsn // self._container_bytes

    def change_all(self) -> None:
        """Take everything for changed: there is no checkpoint that knows it."""
        self.changed_pages.update(self.pages)
        self.changed_detailed.update(self.detailed)
        self.pins.changed_tombstones.update(self.pins.tombstones)
        self.outcomes.changed = self.cuts.changed = True

    def take_over(self, other: State) -> None:
        """Take the content of *other*, the state in a checkpoint, unchanged since except for more recent pages.

        Messages that became detailed after their page was taken are in its entries until they are rewritten.
        """
        self.pages, self.detailed, self.moved, self.pins = other.pages, other.detailed, other.moved, other.pins
        self.outcomes, self.cuts = other.outcomes, other.cuts
        self.changed_pages, self.changed_detailed, self.pins.changed_tombstones = other.changed_pages, set(), set()
        self.outcomes.changed = self.cuts.changed = False

    def restore_page(self, slot: int, ids: Lsns, values: npt.NDArray[np.uint64]) -> None:
        """Restore the plain messages whose IDs lie in *slot*."""
        self.pages[slot] = dict(zip(ids.tolist(), self.share_all(values), strict=True))

    # ---- what is asked --------------------------------------------------------------------------------------------

    def __contains__(self, message_id: int) -> bool:
        return message_id in self.pages.get(message_id // self._container_bytes, ()) or message_id in self.detailed

    def __len__(self) -> int:
        return sum(map(len, self.pages.values())) + len(self.detailed)

    def plain_value(self, message_id: int) -> Plain | None:
        """Return the state of a plain message; None if it does not exist, or is not plain."""
        page = self.pages.get(message_id // self._container_bytes)
        return None if page is None else page.get(message_id)

    def queue_of(self, message_id: int) -> int | None:
        """The queue of a plain message; None if there is no such message, or it is not plain."""
        page = self.pages.get(message_id // self._container_bytes)
        found = None if page is None else page.get(message_id)
        return None if found is None else found >> SIZE_BITS

    def are_plain_on(self, message_ids: Sequence[int], queue_id: int) -> bool:
        """Return whether these are different plain messages, all of them on that queue."""
        slot, size_of = -1, _NO_PAGE.get
        for message_id in message_ids:
            if message_id // self._container_bytes != slot:
                slot = message_id // self._container_bytes
                size_of = self.pages.get(slot, _NO_PAGE).get
            if size_of(message_id, -1) >> SIZE_BITS != queue_id:
                return False
        return len(set(message_ids)) == len(message_ids)

    def place_of(self, message_id: int) -> int:
        """The LSN of the message's Start record, the newest copy of it."""
        message = self.detailed.get(message_id)
        return self.moved.get(message_id, message_id) if message is None else message.start

    def piece_sizes(self, message_id: int) -> list[int]:
        """Return the size in bytes of each piece of the message's content."""
        found = self.plain_value(message_id)
        if found is not None:
            return [found & SIZE_MASK]
        message = self.detailed.get(message_id)  # looked for last: from plain to odd it is in both for a moment
        if message is None:
            raise StoreError(f"message {message_id}", "it does not exist")
        return [message.size_bytes, *(message.pieces[number][1] for number in range(1, len(message.pieces) + 1))]

    def readable(self, lsn: int) -> int:
        """Return the LSN at which the record at *lsn* can be read: a copy only once it is durable."""
        return self.unsettled.get(lsn, lsn)

    @property
    def on_queues(self) -> int:
        """The number of messages that are complete and on a queue, or in a prepared transaction."""
        return len(self) - len(self.unfinished())

    def unfinished(self) -> list[int]:
        """Return messages that are incomplete, or never reached a queue; those of prepared transactions still may."""
        adds = self.outcomes.adds()
        found = [
            message_id for message_id, message in self.detailed.items() if not message.queues or not message.is_complete
        ]
        return [message_id for message_id in found if message_id not in adds]

    # ---- inside ---------------------------------------------------------------------------------------------------

    def page_of(self, message_id: int) -> dict[int, Plain]:
        """The page that a plain message belongs on, from now on changed."""
        slot = message_id // self._container_bytes
        self.changed_pages.add(slot)
        page = self.pages.get(slot)
        if page is None:
            page = self.pages[slot] = {}
        return page

    def _count(self, queue_id: int, size_bytes: int) -> None:
        """Add *size_bytes*, which may be negative, to the size of that queue."""
        total = self.queue_bytes.get(queue_id, 0) + size_bytes
        if total:
            self.queue_bytes[queue_id] = total
        else:
            self.queue_bytes.pop(queue_id, None)

    def _share(self, value: Plain) -> Plain:
        if len(self._shared) > _MAX_SHARED:
            self._shared.clear()
        return self._shared.setdefault(value, value)

    def share_all(self, values: npt.NDArray[np.uint64]) -> list[Plain]:
        """The values as numbers, of which equal ones are one object."""
        if len(values) < FEW:
            return [self._share(value) for value in values.tolist()]
        if (values == values[0]).all():
            return [self._share(int(values[0]))] * len(values)
        different, which = np.unique(values, return_inverse=True)
        shared = np.array([self._share(value) for value in different.tolist()], object)
        found: list[Plain] = shared[which].tolist()
        return found

    def particulars(self, message_id: int) -> DetailedMessage:
        """The message with its particulars, from now on: it may have been plain, or never seen."""
        self.changed_detailed.add(message_id)
        message = self.detailed.get(message_id)
        if message is None:
            message = DetailedMessage()
            slot = message_id // self._container_bytes
            page = self.pages.get(slot, {})
            value = page.get(message_id)
            if value is not None:
                at = self.moved.get(message_id, message_id)
                self._start(message, at, message_id, FLAG_ENQUEUE, value >> SIZE_BITS, value & SIZE_MASK)
            self.detailed[message_id] = message  # whole, because another thread may ask where it is
            if value is not None:
                self.forget_plain(message_id)
        return message

    def _start(
        self, message: DetailedMessage, lsn: int, message_id: int, flags: int, queue_id: int, size_bytes: int
    ) -> None:
        message.start, message.size_bytes = lsn, size_bytes
        if not flags & FLAG_MORE:
            message.last = 0
        if flags & FLAG_ENQUEUE:
            if queue_id not in message.queues:
                self._count(queue_id, message.content_bytes)
            message.queues[queue_id] = (message_id, lsn)
