"""Seeded defects in reclaimed ranges (holes), compaction (relocation) and checkpoints, for `test_seeded_defects.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from cairnmq.journal.format import holes
from cairnmq.journal.format.block import Block
from cairnmq.journal.format.holes import Hole
from cairnmq.journal.format.record import RecordHead, RecordType
from cairnmq.journal.read.scanner import LogReader, _Recorded
from cairnmq.journal.write.journal import Journal
from cairnmq.journal.write.log_writer import LogWriter
from cairnmq.store.checkpoint import checkpoint
from cairnmq.store.checkpoint.checkpoint import Meta
from cairnmq.store.checkpoint.checkpointer import Checkpointer
from cairnmq.store.message_map.pins import Pins
from cairnmq.store.message_map.reconciliation import reconcile
from cairnmq.store.message_map.state import DELETE, DEQUEUE, FLAG_DELETE, State
from cairnmq.store.reclaim.relocation import Relocation
from cairnmq.store.reclaim.relocation_policy import RelocationPolicy
from tests.harness.recovery.defects import defect

# ---- reclaimed ranges -----------------------------------------------------------------------------------------------


@defect
def a_container_does_not_begin_with_the_holes(patch: pytest.MonkeyPatch) -> None:
    real = Journal._begin_slot

    def begin_slot(self: Journal, slot: int, prev_lsn: int) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Journal, "_append_holes", lambda self: 0)
            real(self, slot, prev_lsn)

    patch.setattr(Journal, "_begin_slot", begin_slot)


@defect
def a_hole_does_not_remember_the_last_block_before_it(patch: pytest.MonkeyPatch) -> None:
    real = holes.decode
    patch.setattr(holes, "decode", lambda payload: [hole._replace(prev_lsn=0) for hole in real(payload)])


@defect
def the_first_holes_of_a_container_are_believed(patch: pytest.MonkeyPatch) -> None:
    """Ignore the holes that later blocks of a container record."""
    real = LogReader._recorded_in

    def told_in(self: LogReader, slot: int, end_lsn: int = 1 << 64) -> _Recorded:
        told = real(self, slot, end_lsn)
        first = self._block_at(self._first_block(slot))
        if isinstance(first, Block):
            first_holes = [
                hole
                for head in first.heads()
                if head.type == RecordType.LOG_HOLES
                for hole in holes.decode(first.payload(head))
            ]
            told = told._replace(holes=first_holes)
        return told

    patch.setattr(LogReader, "_recorded_in", told_in)


@defect
def the_holes_of_a_torn_container_count_as_all(patch: pytest.MonkeyPatch) -> None:
    real = LogReader._recorded_in

    def told_in(self: LogReader, slot: int, end_lsn: int = 1 << 64) -> _Recorded:
        told = real(self, slot, end_lsn)
        return told._replace(is_all=told.is_all or any(self._complete_blocks_in(slot, self._first_block(slot))))

    patch.setattr(LogReader, "_recorded_in", told_in)


@defect
def what_is_told_behind_the_end_of_the_log_counts_at_once(patch: pytest.MonkeyPatch) -> None:
    """Reclaim containers for a base or a hole whose record is then lost, because its block is cut off."""
    patch.setattr(LogReader, "recorded_until", lambda self, end_lsn: (self.heads.base_lsn, self.holes))


@defect
def the_base_of_a_block_is_that_of_its_writing(patch: pytest.MonkeyPatch) -> None:
    """Write a base that is ahead of the holes in the block, and of the records that made it durable."""
    real = LogWriter._write_blocks

    def write_blocks(self: LogWriter) -> tuple[int, int, tuple[int, int, int]]:
        for at, sealed in enumerate(self.sealed):
            self.sealed[at] = sealed._replace(base_lsn=self._extent.base_lsn)
        return real(self)

    patch.setattr(LogWriter, "_write_blocks", write_blocks)


@defect
def the_base_of_a_block_is_that_of_its_beginning(patch: pytest.MonkeyPatch) -> None:
    """Write a base that is behind the holes recorded in the block, which lack those that the base has passed since."""
    begins, seals = Journal._begin_block, Journal.seal

    def begin_block(self: Journal, lsn: int, prev_lsn: int) -> None:
        self.__dict__["begun_base"] = self.extent.base_lsn
        begins(self, lsn, prev_lsn)

    def seal(self: Journal) -> bool:
        base_lsn = self.__dict__["begun_base"]
        if not seals(self):
            return False
        self._sealed[-1] = self._sealed[-1]._replace(base_lsn=base_lsn)
        return True

    patch.setattr(Journal, "_begin_block", begin_block)
    patch.setattr(Journal, "seal", seal)


@defect
def holes_are_not_forgotten_when_the_base_passes_them(patch: pytest.MonkeyPatch) -> None:
    """Keep holes below the base, both in the writer and in the reader."""
    patch.setattr(holes, "from_slot", lambda holes, slot: holes)


@defect
def neighbouring_holes_are_not_joined(patch: pytest.MonkeyPatch) -> None:
    def add(known: list[Hole], slot: int, prev_lsn: int, container_bytes: int) -> list[Hole]:
        return sorted([*known, Hole(slot, 1, prev_lsn)])

    patch.setattr(holes, "add", add)


@defect
def a_hole_is_its_first_slot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Hole, "holds", lambda self, slot: slot == self.first)


# ---- compaction -----------------------------------------------------------------------------------------------------


@defect
def a_slot_is_retired_before_the_copies_are_durable(patch: pytest.MonkeyPatch) -> None:
    """Write the copies in an earlier block than the hole, but do not wait until they are on the disk."""
    real = Relocation.step

    def step(self: Relocation) -> None:
        real(self)
        if self._settling:
            self._journal.seal()
            pins = self._state.pins
            pins.drop(pins.take_pending())
            emptied = self.became_durable(1 << 62)
            pins.retired(self._journal.retire([slot for slot in emptied if not pins.is_needed(slot)]))

    patch.setattr(Relocation, "step", step)


@defect
def a_slot_is_retired_although_records_in_it_end_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pins, "is_needed", lambda self, slot: slot in self.live)


@defect
def what_ends_other_records_is_not_relocated(patch: pytest.MonkeyPatch) -> None:
    real = Relocation._copy

    def copy(self: Relocation, block: Block, lsn: int, head: RecordHead) -> None:
        if head.type not in (DEQUEUE, DELETE):
            real(self, block, lsn, head)

    patch.setattr(Relocation, "_copy", copy)


@defect
def the_source_of_a_copy_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pins, "supersede", lambda self, lsn, source_lsn: None)


@defect
def a_container_with_copies_does_not_wait_for_the_originals_to_leave(patch: pytest.MonkeyPatch) -> None:
    """Compact copies too early: a copy of a copy supersedes only the copy, so the first record seems current."""
    real = RelocationPolicy.is_settled

    def is_settled(self: RelocationPolicy, slot: int) -> bool:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self._pins, "superseded", {})
            return real(self, slot)

    patch.setattr(RelocationPolicy, "is_settled", is_settled)


@defect
def a_dequeue_names_the_message_and_not_its_copy(patch: pytest.MonkeyPatch) -> None:
    """Treat a dequeue as unneeded as soon as the container of the first record has left the log."""
    real = Journal.append

    def append(self: Journal, type: int, *args: Any, **fields: Any) -> int:
        if type == DEQUEUE and fields["flags"] & FLAG_DELETE:
            fields["extra"] = fields["message_id"]
        return real(self, type, *args, **fields)

    patch.setattr(Journal, "append", append)


@defect
def any_dequeue_takes_a_message_off_its_queue(patch: pytest.MonkeyPatch) -> None:
    """Apply a dequeue of an earlier enqueue, too, when recovery reads its copy behind the later enqueue."""
    real = State.dequeued

    def dequeued(self: State, lsn: int, message_id: int, queue_id: int, given_lsn: int) -> None:
        at = self.detailed[message_id].queues.get(queue_id) if message_id in self.detailed else None
        real(self, lsn, message_id, queue_id, max(given_lsn, at[1] if at else 0))

    patch.setattr(State, "dequeued", dequeued)


@defect
def a_copy_is_read_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "readable", lambda self, lsn: lsn)


@defect
def a_copied_enqueue_loses_its_position(patch: pytest.MonkeyPatch) -> None:
    real = State.enqueued

    def enqueued(self: State, lsn: int, message_id: int, queue_id: int, position: int, source: int = 0) -> None:
        real(self, lsn, message_id, queue_id, lsn, source)

    patch.setattr(State, "enqueued", enqueued)


@defect
def a_copied_start_puts_the_message_back_on_the_queue_it_left(patch: pytest.MonkeyPatch) -> None:
    real = Relocation._append

    def append(
        self: Relocation, block: Block, lsn: int, head: RecordHead, flags: int, queue_id: int, extra: int
    ) -> None:
        real(self, block, lsn, head, head.flags, head.queue_id, extra)

    patch.setattr(Relocation, "_append", append)


# ---- checkpoints ----------------------------------------------------------------------------------------------------


@defect
def a_checkpoint_is_committed_before_what_it_knows_is_durable(patch: pytest.MonkeyPatch) -> None:
    real = Checkpointer.step

    def step(self: Checkpointer) -> None:
        real(self)
        if self._meta is not None and self._portions is None:
            self._write()

    patch.setattr(Checkpointer, "step", step)


@defect
def a_checkpoint_goes_on_behind_where_it_was_written(patch: pytest.MonkeyPatch) -> None:
    """Lose changes to pages that the checkpoint had copied already: no recovery replays them."""
    real = Checkpointer._write

    def write(self: Checkpointer) -> None:
        journal = self._journal
        self._meta = Meta(journal.pool.log_uuid, journal.container_bytes, *journal.writer.durable_block)
        real(self)

    patch.setattr(Checkpointer, "_write", write)


@defect
def pages_that_change_while_a_checkpoint_is_taken_count_as_taken(patch: pytest.MonkeyPatch) -> None:
    real = Checkpointer._committed

    def committed(self: Checkpointer, result: Callable[[], int]) -> None:
        real(self, result)
        self._state.changed_pages = set()

    patch.setattr(Checkpointer, "_committed", committed)


@defect
def a_checkpoint_is_believed_although_the_log_lost_a_container(patch: pytest.MonkeyPatch) -> None:
    real = LogReader.chain_to

    def chain_to(self: LogReader, lsn: int) -> list[int]:
        chain = real(self, lsn)
        return [slot for slot in self.slots if slot <= lsn // self.container_bytes] if chain is None else chain

    patch.setattr(LogReader, "chain_to", chain_to)


@defect
def odd_messages_are_taken_before_pages(patch: pytest.MonkeyPatch) -> None:
    """Lose a message that stops being plain between the two phases: it is in neither."""
    begins, real = Checkpointer._begin, checkpoint.particulars

    def begin(self: Checkpointer) -> None:
        begins(self)
        for changes in real(self._state, 1):
            self._changes |= changes

    patch.setattr(Checkpointer, "_begin", begin)
    patch.setattr(checkpoint, "particulars", lambda state, at_most: iter(()))


@defect
def what_a_checkpoint_knows_is_not_forgotten_with_its_slot(patch: pytest.MonkeyPatch) -> None:
    def reconcile_with_all(state: State, slots: Iterable[int]) -> dict[int, int]:
        return reconcile(state, dict.fromkeys([*state.pages, *slots, *map(state.slot_of, state.moved.values())], 0))

    patch.setattr("cairnmq.recovery.replay.reconcile", reconcile_with_all)


@defect
def a_checkpoint_leaves_out_what_was_moved(patch: pytest.MonkeyPatch) -> None:
    real = State.restore_page

    def restore_page(self: State, *args: Any) -> None:
        real(self, *args)
        self.moved = _Deaf()

    patch.setattr(State, "restore_page", restore_page)


class _Deaf(dict[int, int]):
    def update(self, *args: object, **more: object) -> None:
        pass


@defect
def changed_ends_are_not_written_to_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    real = checkpoint.particulars

    def particulars(state: State, at_most: int) -> Iterator[checkpoint.Changes]:
        state.pins.changed_tombstones = set()
        return real(state, at_most)

    patch.setattr(checkpoint, "particulars", particulars)
