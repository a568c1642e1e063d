"""Seeded defects in the journal and the store, which `test_seeded_defects.py` injects with those of other modules.

If a second safeguard hides a defect in every state that a legal crash leaves, the defect also disables that safeguard:
a reader that accepts stale LSNs is stopped by the chain of blocks, and one that does not follow the chain is stopped by
the LSNs and by the sync at the end of a container.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from cairnmq.base.testing.memory_disk import MemoryDirectory, MemoryFile
from cairnmq.journal.files.container_pool import ContainerPool
from cairnmq.journal.format import block, container
from cairnmq.journal.format.block import BadBlock, Block, BlockHead
from cairnmq.journal.format.container import ContainerHead
from cairnmq.journal.format.log_mark import NAME as MARK_NAME
from cairnmq.journal.format.log_mark import Mark, MarkFile
from cairnmq.journal.read.container_heads import ContainerHeads
from cairnmq.journal.read.scanner import Damage, LogReader
from cairnmq.journal.write.journal import Journal
from cairnmq.journal.write.log_writer import ContainerWriter, LogWriter
from cairnmq.store.journaled.store import JournalStore

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
    patch.setattr(ContainerWriter, "sync_left", ContainerWriter._close_left)


@defect
def new_containers_are_not_synced_with_their_directory(patch: pytest.MonkeyPatch) -> None:
    real = ContainerPool._make

    def make(self: ContainerPool) -> int:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(MemoryDirectory, "sync", lambda self: None)
            return real(self)

    patch.setattr(ContainerPool, "_make", make)


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


# ---- durability claims ----------------------------------------------------------------------------------------------


@defect
def durable_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    real = LogWriter._write_blocks

    def write_blocks(self: LogWriter) -> tuple[int, int, tuple[int, int, int]]:
        self.durable_lsn = self.sealed[-1].end_lsn
        return real(self)

    patch.setattr(LogWriter, "_write_blocks", write_blocks)


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
    judge(patch, lambda damage: damage and Damage(damage.first_lsn, damage.end_lsn, damage.reason, False))


@defect
def damage_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    """Continue reading at the next complete block, whatever lies between."""

    def successor(self: LogReader, lsn: int) -> int | None:
        found = next(self._complete_blocks_after(lsn), None)
        if found is not None:
            self.last = None
        return found and found.lsn

    patch.setattr(LogReader, "_successor", successor)


def judge(patch: pytest.MonkeyPatch, verdict: Callable[[Damage | None], Damage | None]) -> None:
    real = LogReader._damage
    patch.setattr(LogReader, "_damage", lambda self, *args: verdict(real(self, *args)))


# ---- reading --------------------------------------------------------------------------------------------------------


@defect
def checksums_of_blocks_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(block, "complete", without_checksum)


def without_checksum(head: BlockHead, view: memoryview) -> Block:
    if head.size_bytes > len(view):
        raise BadBlock(head.lsn, "it passes the end of the container")
    return Block(head, view[block.BLOCK_HEAD_BYTES : head.size_bytes])


@defect
def stale_blocks_are_accepted(patch: pytest.MonkeyPatch) -> None:
    """Accept blocks of an earlier use of the container, and ignore the chain, which would reveal them, too."""
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
        self.slots = [slot for slot in sorted(self.heads.by_slot) if self.holds(slot)]

    patch.setattr(LogReader, "_learn", learn)


@defect
def the_base_is_taken_from_the_mark_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ContainerHeads, "raise_base", lambda self, base_lsn: None)


# ---- reclaiming -----------------------------------------------------------------------------------------------------


@defect
def the_base_goes_too_far(patch: pytest.MonkeyPatch) -> None:
    real = Journal.retire

    def retire(self: Journal, slots: Iterable[int]) -> list[int]:
        removed = real(self, slots)
        return removed + (real(self, [next(iter(self.extent.slots))]) if removed else [])

    patch.setattr(Journal, "retire", retire)


@defect
def a_slot_too_many_becomes_a_hole(patch: pytest.MonkeyPatch) -> None:
    """Reclaim also the slot behind each slot that leaves the middle of the log."""
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
        fallen = self.state.pins.take_pending()
        self.state.pins.drop(fallen)
        self._retire(fallen)
        self.journal.writer._release(1 << 62, self.journal.extent.base_lsn)
        real(self)

    patch.setattr(JournalStore, "kick", kick)


@defect
def containers_are_freed_before_what_says_so_is_durable(patch: pytest.MonkeyPatch) -> None:
    real = Journal.retire

    def retire(self: Journal, slots: Iterable[int]) -> list[int]:
        removed = real(self, slots)
        self.writer._release(1 << 62, self.extent.base_lsn)
        return removed

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
