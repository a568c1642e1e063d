"""Compaction (relocation): old live records are copied forward, so that no slow message holds the log.

The log may take twice the size of its live records, plus a few containers. When it takes more, or the disk is full and
the reserve in use, the slot that is cheapest to empty is chosen. Its needed records (live records, and ends of records
elsewhere) are copied to new blocks at the end of the log. When these are durable, the slot is retired like any other.
Only records that outlived their neighbors are therefore copied. A message keeps its ID; its content and place are in
one block.

A power cut at any step leaves the old record, or both, or the new one: a copy is equivalent to the original, and the
slot of the original leaves the log only after the copy is durable.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, Future

from ...base.errors import CairnError
from ...journal.format.block import Block
from ...journal.format.record import HEAD_BYTES, RecordHead
from ...journal.write.journal import Journal
from ..message_map.purges import PurgeMark
from ..message_map.state import (
    CHUNK,
    DELETE,
    DEQUEUE,
    ENQUEUE,
    FLAG_DELETE,
    FLAG_ENQUEUE,
    FLAG_MORE,
    FLAG_MOVED,
    QUEUE_DELETE,
    START,
    State,
)
from ..message_map.transaction_log import (
    DTX_START,
    FLAG_PREPARED,
    TX_COMMIT,
    TX_DELETE,
    TX_END,
    TX_PREPARE,
    TX_ROLLBACK,
    UNPLACED,
)
from .relocation_policy import RelocationPolicy

log = logging.getLogger(__name__)

_STEP_BYTES = 256 << 10
"""A step goes through so much of the log, a quarter of a container if that is less, or a block."""


class Relocation:
    """Empties slots one after another, a block at a step. The thread that makes the store's calls."""

    def __init__(self, state: State, journal: Journal, settle: Callable[[int], None]) -> None:
        """*settle* applies to a message the purges of its queues that are still pending for it."""
        self.copied_bytes = 0
        """Record bytes copied so far."""
        self.emptied = 0
        """Slots emptied so far."""
        self.victims = RelocationPolicy(state.pins, journal)
        """The choice of the slots to empty."""
        self.idle_slot = -1
        """The log's last slot if `step` has nothing to do before the next slot, or before a slot needs less; else -1.

        On a full disk it may have something to do at any time.
        """
        self._state = state
        self._journal = journal
        self._settle = settle
        self._step_bytes = min(_STEP_BYTES, journal.container_bytes // 4)
        self._victim = -1
        self._blocks: Generator[Block, None, None] | None = None
        self._steps: dict[int, RecordHead] = {}  # the operations that outcomes in the victim speak of
        self._settling: deque[tuple[int, list[int], int]] = deque()  # durable from, copies, the slot if it is done
        self._copies: list[int] = []
        self._executor: Executor | None = None
        self._wake: Callable[[], None] = lambda: None
        self._reading: Future[list[Block]] | None = None

    def read_in(self, executor: Executor, wake: Callable[[], None]) -> None:
        """Read slots on *executor*, and call *wake* there when `step` can continue. Without it `step` reads itself."""
        self._executor, self._wake = executor, wake

    def step(self) -> None:
        """Copy a few blocks' worth, if there is something to gain."""
        if self._blocks is not None and self._victim not in self._journal.extent.slots:
            self._abandon()  # all of its records are copied or released
            self.emptied += 1
        if self._blocks is None:
            if self._settling or (victim := self.victims.choose()) is None:
                has_work = self._settling or self.victims.is_undecided
                self.idle_slot = -1 if has_work else self._journal.extent.current_slot
                return
            self.idle_slot = -1
            self._victim = victim
            self._blocks = self._read(victim)
        try:
            blocks = self._next_blocks(self._blocks)
        except CairnError as error:
            event = {"event": "compaction.failed"}
            log.warning("slot %d of the log can't be compacted: %s", self._victim, error, extra=event)
            self.victims.unreadable[self._victim] = str(error)
            self._abandon()
            return
        if blocks is None:
            return
        for block in blocks:
            for number, head in enumerate(block.heads()):
                self._copy(block, block.record_lsn(number), head)
        if blocks:
            self._note(-1)
        else:
            self._blocks = None
            self.emptied += 1
            self._note(self._victim)

    def _read(self, victim: int) -> Generator[Block, None, None]:
        """The blocks of the slot. Before them all that its outcomes speak of is looked up, for `_mark_of`."""
        stored, last_lsn = self._journal.stored, self._journal.extent.last_block_of(victim)
        steps = [step for outcome in self._state.outcomes.needed.get(victim, {}).values() for step in outcome.steps]

        def read() -> Generator[Block, None, None]:
            self._steps = stored.read_heads(steps)
            yield from stored.blocks_of(victim, last_lsn)

        return read()

    def _abandon(self) -> None:
        """Stop emptying the slot; a read that is under way is left to itself."""
        self._blocks = self._reading = None

    def _next_blocks(self, blocks: Iterator[Block]) -> list[Block] | None:
        """The next blocks of the slot, none at its end; None if they are being read."""
        if self._executor is None:
            return _some(blocks, self._step_bytes)
        if self._reading is None:
            self._reading = self._executor.submit(_some, blocks, self._step_bytes)
            self._reading.add_done_callback(lambda _: self._wake())
            return None
        if not self._reading.done():
            return None
        reading, self._reading = self._reading, None
        return reading.result()

    def became_durable(self, lsn: int) -> list[int]:
        """Copies below *lsn* are on the disk; the slots that are emptied by that."""
        done = []
        unsettled = self._state.unsettled
        while self._settling and self._settling[0][0] <= lsn:
            _, copies, victim = self._settling.popleft()
            for copy in copies:
                unsettled.pop(copy, None)
            if victim >= 0:
                self._state.pins.forget_ends(victim)
                done.append(victim)
        return done

    def close(self) -> None:
        """Close the file that is being read. Copied records stay; the others keep their old position."""
        if self._blocks is not None:
            self._blocks.close()

    @property
    def is_at_work(self) -> bool:
        return self._blocks is not None or bool(self._settling)

    def _note(self, victim: int) -> None:
        if self._copies or victim >= 0:
            self._settling.append((self._journal.next_lsn, self._copies, victim))
            self._copies = []

    # ---- copying --------------------------------------------------------------------------------------------------

    def _copy(self, block: Block, lsn: int, head: RecordHead) -> None:
        """Copy the record at *lsn* forward if it is still needed."""
        kind, state = head.type, self._state
        if state.cuts.unswept and head.message_id:  # a copy behind the cut might be read without it
            self._settle(head.message_id)
        if head.flags & FLAG_PREPARED or kind in (DTX_START, TX_PREPARE, TX_END):
            if state.outcomes.counts(lsn, head):
                self._copy_of_transaction(block, lsn, head)
        elif kind in (TX_COMMIT, TX_ROLLBACK):
            self._copy_outcome(lsn, head)
        elif kind == QUEUE_DELETE:
            self._copy_cut(block, lsn, head)
        elif kind in (START, CHUNK, ENQUEUE):
            self._copy_content(block, lsn, head)
        elif kind in (DEQUEUE, DELETE, TX_DELETE):
            self._copy_end(block, lsn, head)

    def _copy_content(self, block: Block, lsn: int, head: RecordHead) -> None:
        """Copy a record of the content or place of a message, unless a newer record replaces it."""
        state, message_id = self._state, head.message_id
        flags, queue_id, extra = head.flags, head.queue_id, head.extra
        detailed = state.detailed.get(message_id)
        if head.type == START:
            if message_id not in state or state.place_of(message_id) != lsn:
                return
            if detailed is not None and flags & FLAG_ENQUEUE:  # it may have left that queue, and be on others
                at = detailed.queues.get(queue_id)
                if at is None or at[1] != lsn:
                    flags, queue_id = flags & ~FLAG_ENQUEUE, 0
        elif detailed is None:
            return
        elif head.type == CHUNK:
            if detailed.pieces.get(extra, (0, 0))[0] != lsn:
                return
        else:
            at = detailed.queues.get(queue_id)
            if at is None or at[1] != lsn:
                return
            extra = at[0]
        self._append(block, lsn, head, flags, queue_id, extra)

    def _copy_end(self, block: Block, lsn: int, head: RecordHead) -> None:
        """Copy a dequeue or delete, if the record that it ends is in another slot of the log."""
        ended = head.extra // self._journal.container_bytes
        if ended == self._victim or ended not in self._journal.extent.slots:
            return
        if head.txn_id and head.type != TX_DELETE and not self._is_done(head):
            return
        self._append(block, lsn, head, head.flags, head.queue_id, head.extra)

    def _is_done(self, head: RecordHead) -> bool:
        """Return whether the dequeue or delete of a transaction took effect: it may never have been committed."""
        state, message_id = self._state, head.message_id
        if message_id not in state:
            return True
        detailed = state.detailed.get(message_id)
        if head.type == DELETE or detailed is None or head.flags & FLAG_DELETE:
            return False
        at = detailed.queues.get(head.queue_id)
        return at is None or at[1] > head.extra

    def _copy_of_transaction(self, block: Block, lsn: int, head: RecordHead) -> None:
        copy = self._write(head._replace(undo_prev=lsn), bytes(block.payload(head)))
        self._state.outcomes.moved(copy, head, lsn)

    def _copy_cut(self, block: Block, lsn: int, head: RecordHead) -> None:
        """Copy a purge record, if its messages are not all processed yet, or are still in the log."""
        journal, state = self._journal, self._state
        ended = [slot for slot in state.pins.tombstones.get(self._victim, ()) if slot in journal.extent.slots]
        is_kept = state.cuts.is_kept(head.queue_id, lsn)
        if not ended and not is_kept:
            return
        payload, position = bytes(block.payload(head)), head.extra or lsn
        copy = self._write(head._replace(undo_prev=lsn, extra=position), payload)
        for slot in ended:  # those that other records of the slot end are among them, which does no harm
            state.pins.end_once(copy, state.start_of(slot))
        if is_kept:
            state.cut(PurgeMark(head.queue_id, position, frozenset(array("Q", payload)), copy))

    def _copy_outcome(self, lsn: int, head: RecordHead) -> None:
        """Copy a tx-commit or tx-rollback with the operations that still count, if any."""
        outcomes, journal = self._state.outcomes, self._journal
        outcome = outcomes.needed.get(self._victim, {}).get(lsn)
        if outcome is None:
            return
        size = journal.container_bytes
        prepare_lsn = outcome.prepare_lsn
        if prepare_lsn // size == self._victim or prepare_lsn // size not in journal.extent.slots:
            prepare_lsn = 0
        steps = [step for step in sorted(outcome.steps) if step // size in journal.extent.slots]
        marked = {step: mark for step in steps if (mark := self._mark_of(step)) is not None}
        listed = [step | mark for step, mark in marked.items()]
        if not listed and not prepare_lsn:
            return
        most = journal.most_payload_bytes // 8
        for at in range(0, max(1, len(listed)), most):
            some = listed[at : at + most]
            copy = self._write(head._replace(extra=prepare_lsn), array("Q", some).tobytes())
            outcomes.need(copy, head.txn_id, prepare_lsn, [step & ~UNPLACED for step in some])

    def _mark_of(self, lsn: int) -> int | None:
        """Return the mark for the operation at *lsn* in a copied tx-commit: `UNPLACED` or 0; None if obsolete."""
        state = self._state
        head = self._steps[lsn]
        message_id = head.message_id
        if state.cuts.unswept:
            self._settle(message_id)
        if head.type == START:
            if message_id not in state or state.place_of(message_id) != lsn:
                return None
            detailed = state.detailed.get(message_id)
            return 0 if detailed is None or detailed.queues.get(head.queue_id, (0, 0))[1] == lsn else UNPLACED
        if head.type == ENQUEUE:
            detailed = state.detailed.get(message_id)
            return 0 if detailed is not None and detailed.queues.get(head.queue_id, (0, 0))[1] == lsn else None
        return 0 if head.extra // self._journal.container_bytes in self._journal.extent.slots else None

    def _write(self, head: RecordHead, payload: bytes) -> int:
        """Append the copy of a record, with the fields of *head*; return its LSN."""
        copy = self._journal.append_record(
            head.type, payload, head.time_us, head.flags | FLAG_MOVED, head.undo_prev, head.message_id, head.queue_id,
            head.txn_id, head.extra,
        )  # fmt: skip
        self.copied_bytes += HEAD_BYTES + len(payload)
        self._journal.count_moved(HEAD_BYTES + len(payload))
        return copy

    def _append(self, block: Block, lsn: int, head: RecordHead, flags: int, queue_id: int, extra: int) -> None:
        kind, message_id, state = head.type, head.message_id, self._state
        ends = kind in (DEQUEUE, DELETE, TX_DELETE)
        changed = head._replace(
            flags=flags, undo_prev=head.undo_prev if ends else lsn, queue_id=queue_id,
            txn_id=head.txn_id if kind == TX_DELETE else 0, extra=extra,
        )  # fmt: skip
        copy = self._write(changed, bytes(block.payload(head)))
        if ends:
            state.pins.end(copy, extra)
            return
        state.unsettled[copy] = state.unsettled.get(lsn, lsn)  # before anyone can look the copy up
        if kind == START:
            state.moved_start(copy, flags, message_id, queue_id, head.size, lsn)
        elif kind == CHUNK:
            state.continued(copy, flags & FLAG_MORE, message_id, extra, head.size)
        else:
            state.enqueued(copy, message_id, queue_id, extra, lsn)
        state.pins.release(lsn, HEAD_BYTES + head.size)
        self._copies.append(copy)


def _some(blocks: Iterator[Block], at_most_bytes: int) -> list[Block]:
    some: list[Block] = []
    size_bytes = 0
    while size_bytes < at_most_bytes and (block := next(blocks, None)) is not None:
        some.append(block)
        size_bytes += block.head.size_bytes
    return some
