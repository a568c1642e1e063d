"""A crash test must be able to fail: defects are put in on purpose, and each is found.

Every defect is a mistake somebody could make in the journal, the store or the recovery. The hunt is a smaller version
of `test_power_cut.py`; without a defect it finds nothing.

Not among them is what a second line of defence hides in every state a legal crash leaves: a reader that accepts stale
LSNs is stopped by the chain, one that does not follow the chain by the LSNs and by the sync at a container's end (here
both are taken away together). A reader that ignores incarnations is found by `tests/journal/test_damage.py`, trust in
the page cache and a second try after a failed sync by `test_io_errors.py`, a verdict that is always torn by
`test_bit_rot.py`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cairnmq.disk.memory import MemoryDirectory, MemoryFile
from cairnmq.journal import block, container, opening
from cairnmq.journal.block import BadBlock, Block, BlockHead
from cairnmq.journal.container import ContainerHead
from cairnmq.journal.log import Journal
from cairnmq.journal.mark import NAME as MARK_NAME
from cairnmq.journal.mark import Mark, MarkFile
from cairnmq.journal.pool import Pool
from cairnmq.journal.reader import Damage, LogReader
from cairnmq.journal.record import RecordHead
from cairnmq.recovery import recover as recover_module
from cairnmq.store.journal_store import JournalStore
from cairnmq.store.state import State

from .checker import Broken
from .explorer import Explorer, World, workload

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
    def file_for(self: Journal, slot: int, prev_lsn: int) -> object:
        if slot != self._writing_slot:
            self._writing_file = None
        return real(self, slot, prev_lsn)

    real = Journal._file_for
    patch.setattr(Journal, "_file_for", file_for)


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

    def write_blocks(self: Journal) -> tuple[int, int]:
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
    patch.setattr(block, "decode", without_checksum)


def without_checksum(view: memoryview, lsn: int, log_id: int) -> Block:
    head = block.peek(view, lsn, log_id)
    if head.size_bytes > len(view):
        raise BadBlock(lsn, "it passes the end of the container")
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
    patch.setattr(LogReader, "learn_base", lambda self: None)


# ---- reclaiming -----------------------------------------------------------------------------------------------------


@defect
def the_base_goes_too_far(patch: pytest.MonkeyPatch) -> None:
    real = Journal.advance_base
    patch.setattr(Journal, "advance_base", lambda self, base_lsn: real(self, base_lsn + self.container_bytes))


@defect
def the_base_is_raised_before_the_dequeue_is_durable(patch: pytest.MonkeyPatch) -> None:
    real = JournalStore.kick

    def kick(self: JournalStore) -> None:
        if self._freed:
            self._falling.append((0, self._freed))
            self._freed = {}
            self.became_durable(self.durable_lsn)
            if self.journal.pool.release_below(self.journal.base_lsn):
                self.journal.pool.trim()
        real(self)

    patch.setattr(JournalStore, "kick", kick)


@defect
def containers_are_freed_before_the_base_is_durable(patch: pytest.MonkeyPatch) -> None:
    real = Journal.advance_base

    def advance_base(self: Journal, base_lsn: int) -> None:
        real(self, base_lsn)
        if self.pool.release_below(self.base_lsn):
            self.pool.trim()

    patch.setattr(Journal, "advance_base", advance_base)


@defect
def the_base_is_the_newest_message(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "oldest_slot", lambda self: max(self.live, default=None))


@defect
def a_head_says_another_slot(patch: pytest.MonkeyPatch) -> None:
    real = container.encode_head

    def encode_head(head: ContainerHead) -> bytes:
        return real(head._replace(slot_lsn=max(0, head.slot_lsn - head.container_bytes)))

    patch.setattr(container, "encode_head", encode_head)


# ---- recovery -------------------------------------------------------------------------------------------------------


@defect
def what_was_found_is_not_written_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opening, "_rewrite", lambda reader, unproven: None)


@defect
def what_was_found_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    real = opening._rewrite

    def rewrite(reader: LogReader, unproven: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            no_sync_of(inner, lambda name: name.endswith(".cairn"))
            real(reader, unproven)

    patch.setattr(opening, "_rewrite", rewrite)


@defect
def the_log_goes_on_behind_a_torn_tail(patch: pytest.MonkeyPatch) -> None:
    class Same(Journal):
        def __init__(self, *args: Any, slot: int, **fields: Any) -> None:
            super().__init__(*args, slot=max(0, slot - 1), **fields)

    patch.setattr(opening, "Journal", Same)


@defect
def dequeues_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    skip(patch, lambda head: head.type == 5)


@defect
def enqueues_on_a_second_queue_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    skip(patch, lambda head: head.type == 4)


@defect
def the_end_of_the_content_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = State.continued
    patch.setattr(State, "continued", lambda self, lsn, flags, message_id: real(self, message_id, flags, message_id))


@defect
def positions_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = State.apply

    def apply(self: State, lsn: int, head: RecordHead) -> None:
        real(self, lsn, head)
        self.positions.clear()

    patch.setattr(State, "apply", apply)


@defect
def what_is_incomplete_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JournalStore, "destroy", lambda self, message_id, time_us: 0)


@defect
def a_store_is_formatted_again_and_again(patch: pytest.MonkeyPatch) -> None:
    real = opening.is_formatted

    def is_formatted(directory: MemoryDirectory) -> bool:
        return real(directory) and len(directory.names()) > 2

    patch.setattr(recover_module, "is_formatted", is_formatted)


def skip(patch: pytest.MonkeyPatch, which: Callable[[RecordHead], bool]) -> None:
    real = State.apply
    patch.setattr(State, "apply", lambda self, lsn, head: None if which(head) else real(self, lsn, head))


# ---- the hunt -------------------------------------------------------------------------------------------------------


def hunt(seed: int, share: float = 1.0) -> int:
    """A small exploration; how many states it took. The first thing that is wrong is raised."""
    explorer = Explorer(seed)
    rng = random.Random(seed)
    world = World(MemoryDirectory())
    try:
        workload(world)
    except Broken:
        raise
    except Exception as error:
        raise Broken("I10", f"the store does not work at all: {type(error).__name__}: {error}") from error
    moments = rng.sample(world.moments, round(len(world.moments) * share))
    for moment in moments:
        pending = moment.disk.pending()
        for kept in ([], pending[:1], pending[1:], pending[:-1]):
            explorer.one(moment, frozenset(kept))
    for moment in moments[::4]:
        if moment.disk.pending():
            explorer.stays(*explorer.recovered(moment.disk.after_kill(), moment), samples=1)
    for moment in moments[::12]:
        again, _ = explorer.recovered(moment.disk.after_kill(), moment)
        for later in again.moments:
            explorer.one(later, frozenset())
    return explorer.states


@pytest.fixture(scope="module")
def found(tell: Callable[[str], None]) -> Iterator[dict[str, str]]:
    begun_s = time.process_time()
    found: dict[str, str] = {}
    yield found
    tell(f"seeded defects: {len(found)} of {len(DEFECTS)} found in {time.process_time() - begun_s:.1f} s of CPU")


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch, found: dict[str, str]) -> None:
    DEFECTS[name](monkeypatch)
    with pytest.raises(Broken) as raised:
        hunt(1)
    found[name] = raised.value.invariant


def test_without_a_defect_nothing_is_found() -> None:
    assert hunt(1, 0.5) > 200
