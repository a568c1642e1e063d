"""Seeded defects in the recovery of a store from its log; see `defects.py`."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, cast

import pytest

from cairnmq.base.disk.seam import Directory
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.files.archiver import Left
from cairnmq.journal.files.container_pool import ContainerPool
from cairnmq.journal.files.held_containers import NO_SLOT_HELD
from cairnmq.journal.format import container
from cairnmq.journal.format import log_mark as mark_module
from cairnmq.journal.format.block import Block
from cairnmq.journal.format.container import ContainerHead
from cairnmq.journal.format.log_mark import Mark
from cairnmq.journal.format.record import RecordHead, RecordType
from cairnmq.journal.read.container_heads import ContainerHeads
from cairnmq.journal.read.scanner import LogReader
from cairnmq.journal.write import open as opening
from cairnmq.journal.write import rewrite_unproven as renewal
from cairnmq.journal.write.journal import Journal
from cairnmq.recovery import recover as recover_module
from cairnmq.store.journaled.places import MessagePlaces
from cairnmq.store.journaled.store import JournalStore
from tests.harness.recovery.defects import defect, no_sync_of


@defect
def what_is_unproven_is_neither_synced_nor_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opening, "forget_unproven", lambda directory: LogReader(directory, live=False))
    patch.setattr(opening, "copy_slots", lambda *args: None)


@defect
def copies_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    real = renewal.copy_slots

    def copy_slots(*args: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            no_sync_of(inner, lambda name: name.endswith(".cairn"))
            real(*args)

    patch.setattr(opening, "copy_slots", copy_slots)


@defect
def a_container_goes_before_its_copy_is_there(patch: pytest.MonkeyPatch) -> None:
    real = renewal._blocks

    def blocks(reader: LogReader, slot: int, end_lsn: int) -> memoryview:
        data = real(reader, slot, end_lsn)
        cast(Directory, reader.directory).unlink(container.file_name(reader.heads.by_slot[slot].number))
        return data

    patch.setattr(renewal, "_blocks", blocks)
    patch.setattr(ContainerPool, "retire", lambda self, number: None)


@defect
def the_container_of_a_copy_is_still_free(patch: pytest.MonkeyPatch) -> None:
    def fresh(self: ContainerPool) -> int:
        return self._free[0] if self._free else self._make()

    patch.setattr(ContainerPool, "fresh", fresh)


@defect
def the_earlier_of_two_copies_counts(patch: pytest.MonkeyPatch) -> None:
    real = ContainerHeads._take

    def take(self: ContainerHeads, head: ContainerHead, place: str) -> None:
        other = self.by_slot.get(head.slot, head)
        real(self, head, place)
        self.by_slot[head.slot] = min(head, other, key=lambda one: one.incarnation)

    patch.setattr(ContainerHeads, "_take", take)


@defect
def a_container_of_dequeues_counts_as_empty(patch: pytest.MonkeyPatch) -> None:
    """Drop containers that hold only dequeues when the log is opened, although dequeues end other records."""
    patch.setattr(opening, "_OPENINGS", bytes((RecordType.LOG_OPEN, RecordType.LOG_HOLES, RecordType.DEQUEUE)))


@defect
def the_log_goes_on_behind_a_torn_tail(patch: pytest.MonkeyPatch) -> None:
    class Same(Journal):
        def __init__(self, *args: Any, slot: int, **fields: Any) -> None:
            super().__init__(*args, slot=max(0, slot - 1), **fields)

    patch.setattr(opening, "Journal", Same)


@defect
def dequeues_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    read_as(patch, lambda head: head._replace(type=32) if head.type == 5 else head)


@defect
def enqueues_on_a_second_queue_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    read_as(patch, lambda head: head._replace(type=32) if head.type == 4 else head)


@defect
def chunks_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    read_as(patch, lambda head: head._replace(type=32) if head.type == 2 and head.flags else head)


@defect
def the_end_of_the_content_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    read_as(patch, lambda head: head._replace(flags=4) if head.type == 2 else head)


@defect
def a_dequeue_never_deletes(patch: pytest.MonkeyPatch) -> None:
    read_as(patch, lambda head: head._replace(flags=0) if head.type == 5 else head)


@defect
def a_dequeue_always_deletes(patch: pytest.MonkeyPatch) -> None:
    read_as(patch, lambda head: head._replace(flags=2) if head.type == 5 else head)


@defect
def a_message_is_on_its_queue_before_it_is_whole(patch: pytest.MonkeyPatch) -> None:
    read_as(patch, lambda head: head._replace(flags=1, queue_id=1) if head.type == 1 else head)


@defect
def the_last_record_of_a_block_is_left_out(patch: pytest.MonkeyPatch) -> None:
    real = Block.heads
    patch.setattr(Block, "heads", lambda self: real(self)[:-1] if self.head.records > 1 else real(self))


@defect
def a_queue_is_shown_in_the_order_of_ids(patch: pytest.MonkeyPatch) -> None:
    real = MessagePlaces.messages

    def messages(self: MessagePlaces) -> dict[int, array[int]]:
        return {queue_id: array("Q", sorted(on)) for queue_id, on in real(self).items()}

    patch.setattr(MessagePlaces, "messages", messages)


def read_as(patch: pytest.MonkeyPatch, change: Callable[[RecordHead], RecordHead]) -> None:
    """Make recovery read record headers that differ from those written, as *change* returns them."""
    real = Block.heads
    patch.setattr(Block, "heads", lambda self: [change(head) for head in real(self)])


@defect
def what_is_incomplete_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JournalStore, "discard_unfinished", lambda self, time_us: 0)


@defect
def a_store_is_formatted_again_and_again(patch: pytest.MonkeyPatch) -> None:
    real = opening.is_formatted

    def is_formatted(directory: MemoryDirectory) -> bool:
        return real(directory) and len(directory.names()) > 2

    patch.setattr(recover_module, "is_formatted", is_formatted)


@defect
def a_store_is_known_as_formatted_before_its_mark_is_durable(patch: pytest.MonkeyPatch) -> None:
    real = recover_module._identify

    def identify(directory: MemoryDirectory, *args: Any) -> object:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(MemoryDirectory, "sync", lambda self: None)
            return real(directory, *args)

    patch.setattr(recover_module, "_identify", identify)


@defect
def the_opening_record_is_not_written(patch: pytest.MonkeyPatch) -> None:
    """Omit the record of an opening: only the mark then shows an incarnation without operations."""
    real = Journal.append

    def append(self: Journal, type: int, *args: Any, **fields: Any) -> int:
        return self.next_lsn if type == 32 else real(self, type, *args, **fields)

    patch.setattr(Journal, "append", append)


@defect
def the_incarnation_is_not_raised(patch: pytest.MonkeyPatch) -> None:
    class Same(Journal):
        def __init__(self, *args: Any, incarnation: int, **fields: Any) -> None:
            super().__init__(*args, incarnation=1, **fields)

    patch.setattr(opening, "Journal", Same)


@defect
def a_new_block_names_no_predecessor(patch: pytest.MonkeyPatch) -> None:
    class Unchained(Journal):
        def __init__(self, *args: Any, prev_lsn: int, **fields: Any) -> None:
            super().__init__(*args, prev_lsn=0, **fields)

    patch.setattr(opening, "Journal", Unchained)


@defect
def a_container_in_use_is_taken_for_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ContainerPool, "adopt", lambda self, slot, number: self.give_back(Left(NO_SLOT_HELD, number)))


@defect
def a_free_container_keeps_its_name_for_a_new_one(patch: pytest.MonkeyPatch) -> None:
    """Derive the number of the next container from the free containers alone."""
    real = ContainerPool.__init__

    def init(self: ContainerPool, *args: Any, **fields: Any) -> None:
        real(self, *args, **fields)
        self._next_number = 1

    patch.setattr(ContainerPool, "__init__", init)


@defect
def the_mark_is_always_written_to_one_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mark_module, "PLACES", (0, 0))


@defect
def a_mark_is_read_from_the_first_place_that_is_whole(patch: pytest.MonkeyPatch) -> None:
    real = mark_module.read

    def read(directory: MemoryDirectory) -> Mark | None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(mark_module, "PLACES", (0,))
            return real(directory)

    patch.setattr(mark_module, "read", read)
