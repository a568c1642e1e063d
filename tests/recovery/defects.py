"""Mistakes somebody could make in the journal, the store or the recovery; `test_seeded_defects.py` puts them in.

What a second line of defence hides in every state a legal crash leaves is put in together with that line: a reader
that accepts stale LSNs is stopped by the chain, one that does not follow the chain by the LSNs and by the sync at a
container's end.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from cairnmq.disk.memory import MemoryDirectory, MemoryFile
from cairnmq.journal import block, container, opening, renewal
from cairnmq.journal import mark as mark_module
from cairnmq.journal.block import BadBlock, Block, BlockHead
from cairnmq.journal.container import ContainerHead
from cairnmq.journal.heads import Heads
from cairnmq.journal.log import Journal
from cairnmq.journal.mark import NAME as MARK_NAME
from cairnmq.journal.mark import Mark, MarkFile
from cairnmq.journal.pool import Pool
from cairnmq.journal.reader import Damage, LogReader
from cairnmq.journal.record import RecordHead, RecordType
from cairnmq.journal.writing import Writing
from cairnmq.recovery import recover as recover_module
from cairnmq.store.journal_store import JournalStore

Defect = Callable[[pytest.MonkeyPatch], None]
DEFECTS: dict[str, Defect] = {}


def defect(put_in: Defect) -> Defect:
    DEFECTS[put_in.__name__] = put_in
    return put_in


# ---- syncs ----------------------------------------------------------------------------------------------------------


@defect
def blocks_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    no_sync_of(patch, lambda name: name.endswith(".cairn"))


@defect
def a_container_that_is_left_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    def sync(self: Writing) -> None:
        self._close_left()
        real(self)

    real = Writing.sync
    patch.setattr(Writing, "sync", sync)


@defect
def new_containers_are_not_synced_with_their_directory(patch: pytest.MonkeyPatch) -> None:
    real = Pool._make

    def make(self: Pool) -> int:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(MemoryDirectory, "sync", lambda self: None)
            return real(self)

    patch.setattr(Pool, "_make", make)


@defect
def the_mark_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    no_sync_of(patch, lambda name: name.startswith(MARK_NAME))


@defect
def the_first_mark_is_not_synced_with_its_directory(patch: pytest.MonkeyPatch) -> None:
    real = MarkFile.format

    def format(directory: MemoryDirectory, mark: Mark) -> MarkFile:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(MemoryDirectory, "sync", lambda self: None)
            return real(directory, mark)

    patch.setattr(MarkFile, "format", format)


def no_sync_of(patch: pytest.MonkeyPatch, which: Callable[[str], bool]) -> None:
    real = MemoryFile.sync
    patch.setattr(MemoryFile, "sync", lambda self: None if which(self.name) else real(self))


# ---- claims ---------------------------------------------------------------------------------------------------------


@defect
def durable_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    real = Journal._write_blocks

    def write_blocks(self: Journal) -> tuple[int, int, tuple[int, int, int]]:
        self.durable_lsn = self._sealed[-1].end_lsn
        return real(self)

    patch.setattr(Journal, "_write_blocks", write_blocks)


@defect
def a_block_claims_itself(patch: pytest.MonkeyPatch) -> None:
    real = block.encode

    def encode(*args: Any, **fields: Any) -> bytearray:
        return real(*args, **fields | {"durable_lsn": fields["lsn"] + 64})

    patch.setattr(block, "encode", encode)


@defect
def the_mark_claims_what_is_only_appended(patch: pytest.MonkeyPatch) -> None:
    real = MarkFile.write

    def write(self: MarkFile, **fields: Any) -> None:
        real(self, **fields | {"durable_lsn": fields["durable_lsn"] + 512})

    patch.setattr(MarkFile, "write", write)


@defect
def damage_is_never_torn(patch: pytest.MonkeyPatch) -> None:
    judge(patch, lambda damage: damage and Damage(damage.first_lsn, damage.end_lsn, damage.why, False))


@defect
def damage_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    """Reading goes on at the next whole block, whatever lies between."""

    def successor(self: LogReader, lsn: int) -> int | None:
        found = next(self._whole_blocks_after(lsn), None)
        if found is not None:
            self.last = None
        return found and found.lsn

    patch.setattr(LogReader, "_successor", successor)


def judge(patch: pytest.MonkeyPatch, verdict: Callable[[Damage | None], Damage | None]) -> None:
    real = LogReader._damage
    patch.setattr(LogReader, "_damage", lambda self, *args: verdict(real(self, *args)))


# ---- what is read ---------------------------------------------------------------------------------------------------


@defect
def checksums_of_blocks_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(block, "whole", without_checksum)


def without_checksum(head: BlockHead, view: memoryview) -> Block:
    if head.size_bytes > len(view):
        raise BadBlock(head.lsn, "it passes the end of the container")
    return Block(head, view[block.BLOCK_HEAD_BYTES : head.size_bytes])


@defect
def stale_blocks_are_accepted(patch: pytest.MonkeyPatch) -> None:
    """From an earlier life of the container, and without a look at the chain, which would tell them, too."""
    real = block.peek

    def peek(view: memoryview, lsn: int, log_id: int) -> BlockHead:
        claimed = BlockHead._make(block.HEAD.unpack_from(view)).lsn
        return real(view, claimed, log_id)._replace(lsn=lsn)

    patch.setattr(block, "peek", peek)
    patch.setattr(LogReader, "_follows", lambda self, found: True)


@defect
def the_log_ends_with_its_container(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogReader, "_successor", lambda self, lsn: None)


@defect
def the_base_is_taken_from_the_heads_alone(patch: pytest.MonkeyPatch) -> None:
    def learn(self: LogReader) -> None:
        self.slots = [slot for slot in sorted(self.heads) if self.holds(slot)]

    patch.setattr(LogReader, "_learn", learn)


@defect
def the_base_is_taken_from_the_mark_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogReader, "_raise_base", lambda self, base_lsn: None)


# ---- reclaiming -----------------------------------------------------------------------------------------------------


@defect
def the_base_goes_too_far(patch: pytest.MonkeyPatch) -> None:
    real = Journal.retire

    def retire(self: Journal, slots: Iterable[int]) -> list[int]:
        gone = real(self, slots)
        return gone + (real(self, [next(iter(self.extent.slots))]) if gone else [])

    patch.setattr(Journal, "retire", retire)


@defect
def a_slot_too_many_becomes_a_hole(patch: pytest.MonkeyPatch) -> None:
    """The one behind a slot that leaves the log in the middle."""
    real = Journal.retire

    def retire(self: Journal, slots: Iterable[int]) -> list[int]:
        wanted = set(slots)
        behind = {slot + 1 for slot in wanted if slot * self.container_bytes > self.extent.base_lsn}
        return real(self, wanted | behind)

    patch.setattr(Journal, "retire", retire)


@defect
def pins_fall_before_the_dequeue_is_durable(patch: pytest.MonkeyPatch) -> None:
    real = JournalStore.kick

    def kick(self: JournalStore) -> None:
        fallen = self.state.pins.fallen()
        self.state.pins.drop(fallen)
        self._retire(fallen)
        self.journal._release(1 << 62, self.journal.extent.base_lsn)
        real(self)

    patch.setattr(JournalStore, "kick", kick)


@defect
def containers_are_freed_before_what_says_so_is_durable(patch: pytest.MonkeyPatch) -> None:
    real = Journal.retire

    def retire(self: Journal, slots: Iterable[int]) -> list[int]:
        gone = real(self, slots)
        self._release(1 << 62, self.extent.base_lsn)
        return gone

    patch.setattr(Journal, "retire", retire)


@defect
def the_base_is_where_the_log_ends(patch: pytest.MonkeyPatch) -> None:
    real = Journal.retire
    patch.setattr(Journal, "retire", lambda self, slots: real(self, list(self.slots)))


@defect
def a_head_says_another_slot(patch: pytest.MonkeyPatch) -> None:
    real = container.encode_head

    def encode_head(head: ContainerHead) -> bytes:
        return real(head._replace(slot_lsn=max(0, head.slot_lsn - head.container_bytes)))

    patch.setattr(container, "encode_head", encode_head)


# ---- recovery -------------------------------------------------------------------------------------------------------


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
        reader.directory.unlink(container.file_name(reader.heads[slot].number))
        return data

    patch.setattr(renewal, "_blocks", blocks)
    patch.setattr(Pool, "retire", lambda self, number: None)


@defect
def the_container_of_a_copy_is_still_free(patch: pytest.MonkeyPatch) -> None:
    def fresh(self: Pool) -> int:
        return self._free[0] if self._free else self._make()

    patch.setattr(Pool, "fresh", fresh)


@defect
def the_earlier_of_two_copies_counts(patch: pytest.MonkeyPatch) -> None:
    real = Heads._take

    def take(self: Heads, head: ContainerHead, place: str) -> None:
        other = self.heads.get(head.slot, head)
        real(self, head, place)
        self.heads[head.slot] = min(head, other, key=lambda one: one.incarnation)

    patch.setattr(Heads, "_take", take)


@defect
def a_container_of_dequeues_counts_as_empty(patch: pytest.MonkeyPatch) -> None:
    """Openings drop what shows nothing; but what ends other records is needed."""
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
    real = JournalStore.messages

    def messages(self: JournalStore) -> dict[int, array[int]]:
        return {queue_id: array("Q", sorted(on)) for queue_id, on in real(self).items()}

    patch.setattr(JournalStore, "messages", messages)


def read_as(patch: pytest.MonkeyPatch, change: Callable[[RecordHead], RecordHead]) -> None:
    """Recovery reads other record heads than were written."""
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
    """Nothing but the mark tells of an incarnation in which nothing happened."""
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
    real = Pool.adopt
    patch.setattr(Pool, "adopt", lambda self, number, slot: real(self, number, None))


@defect
def a_free_container_keeps_its_name_for_a_new_one(patch: pytest.MonkeyPatch) -> None:
    """The next number is counted from the free containers alone."""
    real = Pool.__init__

    def init(self: Pool, *args: Any, **fields: Any) -> None:
        real(self, *args, **fields)
        self._next_number = 1

    patch.setattr(Pool, "__init__", init)


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
