"""Tests of holes: any containers may leave the log, the rest is read in order, and other gaps are corruption."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.base.errors import CorruptJournal, JournalError
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format import block, holes
from cairnmq.journal.format.block import Block
from cairnmq.journal.format.holes import Hole
from cairnmq.journal.format.record import MAX_PAYLOAD_BYTES, RecordType
from cairnmq.journal.read.scanner import Damage, LogReader
from cairnmq.journal.write.journal import Journal
from tests.harness.journal.logs import (
    BIG,
    LOG_ID,
    SIZE,
    Read,
    blocks,
    container_of,
    content,
    flip_lsn,
    new_log,
    patch,
    put,
    records_of,
    reopen,
    scan,
)

U64 = st.integers(0, (1 << 64) - 1)


def log_of(slots: int, directory: MemoryDirectory | None = None) -> tuple[MemoryDirectory, Journal, list[int]]:
    """Return a log that has just begun its last slot, with one block per record, and the LSNs of the records."""
    directory = directory or MemoryDirectory()
    _, journal = new_log(directory)
    lsns: list[int] = []
    while len(journal.extent.slots) < slots:
        lsns.append(put(journal, b"%d" % len(lsns) + BIG[5:]))
        journal.flush()
    return directory, journal, lsns


def retire(journal: Journal, *slots: int) -> None:
    """Retire *slots*, and reclaim their containers."""
    assert journal.retire(slots) == list(slots)
    put(journal, b"makes it durable")
    journal.flush()
    assert not set(slots) & set(journal.pool.slots())


def messages(found: list[Read]) -> list[int]:
    return [read.lsn for read in found if read.head.type == RecordType.START and len(read.payload) > 1000]


def alive(lsns: list[int], *removed: int) -> list[int]:
    return [lsn for lsn in lsns if lsn // SIZE not in removed]


# ---- the record -----------------------------------------------------------------------------------------------------


@given(st.lists(st.builds(Hole, U64, U64, U64), max_size=50))
def test_holes_come_back_from_their_bytes(some: list[Hole]) -> None:
    assert holes.decode(holes.encode(some)) == some
    assert holes.decode(memoryview(holes.encode(some))) == some


def test_the_bytes_are_as_the_format_says() -> None:
    assert holes.encode([Hole(1, 2, 3)]).hex() == "01" + "00" * 7 + "02" + "00" * 7 + "03" + "00" * 7


@given(
    started=st.sets(st.integers(1, 60), min_size=4, max_size=40).map(sorted),
    seed=st.integers(0, 1000),
)
def test_neighbours_are_joined_and_nobody_else(started: list[int], seed: int) -> None:
    """Two holes join, in any order, when no live slot is between them; slots never started do not count."""
    rng = random.Random(seed)
    prev_lsn = {slot: before * SIZE + 512 for before, slot in zip([0, *started], started, strict=False)}
    removed = rng.sample(started[1:-1], rng.randrange(1, len(started) - 1))
    found: list[Hole] = []
    for slot in removed:
        found = holes.add(found, slot, prev_lsn[slot], SIZE)
    expected: list[list[int]] = []
    for before, slot in pairwise(started):
        if slot in removed and before in removed:
            expected[-1].append(slot)
        elif slot in removed:
            expected.append([slot])
    assert found == [Hole(run[0], run[-1] + 1 - run[0], prev_lsn[run[0]]) for run in expected]
    for slot in started:
        assert any(hole.holds(slot) for hole in found) == (slot in removed)
    base = rng.choice([slot for slot in started if slot not in removed])
    assert holes.from_slot(found, base) == [hole for hole in found if hole.first > base]


def test_holes_with_living_slots_between_them_stay_apart() -> None:
    """Slots 58 and 64 were once joined because they were neighbors in the list."""
    found = holes.add([Hole(58, 1, 57 * SIZE + 512)], 64, 63 * SIZE + 512, SIZE)
    assert found == [Hole(58, 1, 57 * SIZE + 512), Hole(64, 1, 63 * SIZE + 512)]


# ---- the log --------------------------------------------------------------------------------------------------------


@given(order=st.permutations(range(7)), count=st.integers(1, 6))
@settings(max_examples=25)
def test_what_is_left_is_read_in_order(order: list[int], count: int) -> None:
    """E8, E9, E24: any slots are retired in any order; the rest is read by scan, by LSN and by the next opening."""
    directory, journal, lsns = log_of(8)
    removed = order[:count]
    for slot in removed:
        retire(journal, slot)
        left = alive(lsns, *removed[: removed.index(slot) + 1])
        assert messages([read for found in blocks(directory) for read in records_of(found)]) == left
    for lsn in lsns:
        if lsn in left:
            assert journal.stored.read_record(lsn).lsn == lsn
        else:
            with pytest.raises(JournalError, match="no container holds it any more"):
                journal.stored.read_record(lsn)
    with pytest.raises(JournalError, match=f"slot {removed[0]}: no container holds it any more"):
        next(journal.stored.blocks_of(removed[0], 1 << 60))
    assert journal.extent.base_lsn == min(journal.extent.slots) * SIZE
    journal.abandon()
    again, report, found = reopen(directory)
    assert messages(found) == left
    assert report.torn is None
    assert (again.extent.holes, again.extent.base_lsn) == (journal.extent.holes, journal.extent.base_lsn)
    assert list(again.extent.slots)[:-1] == list(journal.extent.slots)


def test_a_container_is_free_only_when_the_hole_is_durable() -> None:
    directory, journal, lsns = log_of(5)
    assert journal.retire([2]) == [2]
    assert messages(reopen(directory.after_power_cut([]))[2]) == lsns
    assert journal.stored.read_record(alive(lsns, 0, 1, 3, 4)[0]).payload
    assert 2 in journal.pool.slots()
    journal.flush()
    assert 2 not in journal.pool.slots()
    assert messages(reopen(directory.after_power_cut([]))[2]) == alive(lsns, 2)


def test_the_slot_that_is_written_to_never_leaves() -> None:
    _, journal, _ = log_of(3)
    assert journal.retire([2, 3, 77]) == []
    assert journal.retire([0, 1, 2]) == [0, 1]
    assert list(journal.extent.slots) == [2]
    assert journal.extent.holes == []


def test_the_base_forgets_the_holes_it_passes() -> None:
    directory, journal, lsns = log_of(7)
    retire(journal, 1)
    retire(journal, 3)
    retire(journal, 0)
    assert journal.extent.base_lsn == 2 * SIZE
    assert [hole.first for hole in journal.extent.holes] == [3]
    retire(journal, 2)
    assert (journal.extent.base_lsn, journal.extent.holes) == (4 * SIZE, [])
    reader = LogReader(directory)
    assert (reader.heads.base_lsn, reader.holes) == (4 * SIZE, [])
    assert messages(reopen(directory)[2]) == alive(lsns, 0, 1, 2, 3)


def test_every_container_begins_with_the_holes() -> None:
    """The newest container lists all holes, whichever containers were reused."""
    directory, journal, _ = log_of(5)
    retire(journal, 1)
    retire(journal, 3)
    while len(journal.extent.slots) < 8:
        put(journal, BIG)
        journal.flush()
    by_slot: dict[int, Block] = {}
    for found in blocks(directory):
        by_slot.setdefault(found.lsn // SIZE, found)
    for slot in [slot for slot in by_slot if slot > 4]:
        first = records_of(by_slot[slot])[0]
        assert first.head.type == RecordType.LOG_HOLES
        assert holes.decode(first.payload) == journal.extent.holes
    assert [hole.first for hole in journal.extent.holes] == [1, 3]


def test_with_too_many_holes_a_slot_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot beyond the limit leaves when the base passes it, or when its neighbor becomes a hole."""
    monkeypatch.setattr(holes, "MAX_HOLES", 2)
    directory, journal, lsns = log_of(12)
    assert journal.retire([1, 3, 5, 7]) == [1, 3]
    assert 5 in journal.extent.slots
    assert journal.retire([2]) == [2, 5]  # 1, 2 and 3 are one hole now
    assert 7 in journal.extent.slots
    journal.flush()
    assert messages(reopen(directory.after_kill())[2]) == alive(lsns, 1, 2, 3, 5)
    assert journal.retire([0, 4]) == [0, 4, 7]
    journal.flush()
    assert journal.extent.base_lsn == 6 * SIZE
    assert messages(reopen(directory)[2]) == alive(lsns, 0, 1, 2, 3, 4, 5, 7)


def test_the_longest_runs_become_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots that join a hole are retired at once; the others wait, and the longest run of them comes next."""
    monkeypatch.setattr(holes, "MAX_HOLES", 2)
    directory, journal, lsns = log_of(16)
    assert journal.retire([2, 4, 5, 9, 10, 11]) == [4, 5, 9, 10, 11]
    assert journal.retire([7, 13, 14]) == []
    assert journal.retire([3]) == [2, 3]  # slot 2 was waiting, and joins the hole by way of slot 3
    assert journal.retire([6]) == [6, 7]
    assert journal.retire([8]) == [8, 13, 14]  # two holes become one
    assert [(hole.first, hole.slots) for hole in journal.extent.holes] == [(2, 10), (13, 2)]
    journal.flush()
    assert messages(reopen(directory.after_kill())[2]) == alive(lsns, *range(2, 12), 13, 14)


def test_starts_in_a_row_take_one_container_though_there_are_as_many_holes_as_there_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slots of openings that wrote nothing else join into one hole, for which there is extra room; others wait."""
    monkeypatch.setattr(holes, "MAX_HOLES", 4)
    directory, journal, lsns = log_of(14)
    retire(journal, 1, 3, 5, 7)
    assert journal.retire([9]) == []
    used = []
    for _ in range(8):
        journal.abandon()
        journal, _, found = reopen(directory)
        assert messages(found) == alive(lsns, 1, 3, 5, 7)
        used.append(len(journal.pool.slots()))
    assert used == [used[0]] * len(used)
    assert len(journal.extent.holes) == holes.MAX_HOLES + 1 <= holes.most_of_openings(SIZE)
    assert journal.retire([11]) == []


def test_the_record_of_most_holes_fits() -> None:
    """The largest list of holes fits into a record, and is a small part of the written bytes."""
    assert holes.HOLE_BYTES * holes.most_of_openings(1 << 30) <= MAX_PAYLOAD_BYTES
    for container_bytes in (512 << 10, 1 << 20, 64 << 20):
        assert 300 < holes.most(container_bytes) <= min(holes.MAX_HOLES, container_bytes / 64 / holes.HOLE_BYTES)


def test_a_log_with_more_holes_than_there_may_be_is_read_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier limit may have been higher; no hole is added until there is room for one."""
    directory, journal, lsns = log_of(14)
    journal.retire([1, 3, 5, 7, 9])
    journal.flush()
    monkeypatch.setattr(holes, "MAX_HOLES", 2)
    again, _, found = reopen(directory)
    assert messages(found) == alive(lsns, 1, 3, 5, 7, 9)
    assert again.retire([11]) == []
    assert again.retire([4]) == [4]
    assert again.retire([0, 2, 6]) == [0, 2, 6, 11]
    assert [hole.first for hole in again.extent.holes] == [9, 11]
    again.flush()
    assert messages(reopen(directory)[2]) == alive(lsns, *range(8), 9, 11)


# ---- damage ---------------------------------------------------------------------------------------------------------


def test_a_missing_container_that_is_no_hole_is_corrupt() -> None:
    for lost in (2, 3, 5, 6):
        directory, journal, _ = log_of(8)
        retire(journal, 4)
        journal.close()
        directory.unlink(container_of(directory, lost))
        with pytest.raises(CorruptJournal) as raised:
            reopen(directory)
        assert raised.value.first_lsn // SIZE in (lost - 1, lost) or (lost, raised.value.first_lsn // SIZE) == (5, 3)


@pytest.mark.parametrize("removed", [[4], [4, 5], [5, 4]])
def test_rot_in_the_last_block_before_a_hole_is_noticed(removed: list[int]) -> None:
    """The block that names the last one before a hole was reclaimed with the hole, which stores the LSN instead."""
    directory, journal, _ = log_of(8)
    for slot in removed:
        retire(journal, slot)
    journal.close()
    last = [found for found in blocks(directory) if found.lsn // SIZE == 3][-1]
    flip_lsn(directory, last.lsn + 100)
    with pytest.raises(CorruptJournal, match=f"LSN {last.lsn} to {(max(removed) + 1) * SIZE + 512}"):
        reopen(directory)


def test_rot_in_the_first_block_behind_a_hole_is_noticed() -> None:
    directory, journal, _ = log_of(8)
    retire(journal, 4)
    journal.close()
    flip_lsn(directory, 5 * SIZE + 512 + 100)
    with pytest.raises(CorruptJournal):
        reopen(directory)


def test_a_cut_that_takes_the_first_block_of_a_container_takes_no_holes() -> None:
    """Only the second block of a flush into a new container survives: the previous container lists the holes."""
    directory, journal, lsns = log_of(6)
    retire(journal, 3)
    while journal.extent.current_slot < 6:
        lsns.append(put(journal, BIG))
        journal.seal()
    put(journal, b"in a block of its own")
    before = content(directory)["log.mark"]
    journal.flush()
    journal.abandon()
    patch(directory, "log.mark", 0, before)  # as if it had not been written again
    first, second = [found for found in blocks(directory) if found.lsn // SIZE == 6]
    flip_lsn(directory, first.lsn + 100)
    assert second.head.durable_lsn <= first.lsn
    assert LogReader(directory).holes == journal.extent.holes
    assert messages(reopen(directory)[2]) == alive(lsns[:-1], 3)


def test_a_block_left_over_in_a_slot_that_was_started_again_tells_no_holes() -> None:
    """A block of an earlier incarnation whose end was lost in a crash lists fewer holes than the block before it."""
    directory, journal, lsns = log_of(6)
    retire(journal, 2)
    journal.close()
    last = [found for found in blocks(directory) if found.lsn // SIZE == 5][-1]
    _, report, _ = reopen(directory.after_kill())
    assert report.incarnation == 2
    for prev_lsn, incarnation in ((last.lsn, 0), (last.head.prev_lsn, 1)):
        no_holes = bytes([RecordType.LOG_HOLES]) + bytes(63)
        stale = block.encode(
            no_holes, [], 0, lsn=last.end_lsn, prev_lsn=prev_lsn, incarnation=incarnation, durable_lsn=0, base_lsn=0,
            log_id=LOG_ID,
        )  # fmt: skip
        left = directory.after_kill()
        patch(left, container_of(left, 5), last.end_lsn % SIZE, bytes(stale))
        assert LogReader(left).holes == journal.extent.holes
        assert messages(reopen(left)[2]) == alive(lsns, 2)


# ---- a log that is being written ------------------------------------------------------------------------------------


@given(
    at=st.integers(0, 40),
    removed=st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True),
    then=st.integers(0, 20),
)
@settings(max_examples=60)
def test_holes_are_made_while_the_log_is_read(at: int, removed: list[int], then: int) -> None:
    """No damage is reported, all live records are read in order, and recycled unread containers are reported."""
    directory, journal, lsns = log_of(7)
    reader = LogReader(directory)
    read: list[int] = []
    for number, found in enumerate(reader.scan()):
        assert isinstance(found, Block), found
        read += messages(records_of(found))
        if number == at:
            for slot in removed:
                retire(journal, slot)
            for _ in range(then):  # the containers are reused
                lsns.append(put(journal, BIG))
                journal.flush()
    assert read == sorted(set(read))
    missed = {lsn // SIZE for lsn in lsns} - {lsn // SIZE for lsn in read}
    assert missed <= set(removed)
    assert set(alive(lsns, *removed)) <= set(read)
    if missed:
        assert reader.recycled or reader.holes


def test_a_scan_may_begin_in_a_hole() -> None:
    directory, journal, lsns = log_of(8)
    retire(journal, 3)
    retire(journal, 4)
    for slot in (3, 4, 5):
        found = scan(directory, slot * SIZE + 5000)
        assert not [item for item in found if isinstance(item, Damage)]
        read = [read for item in found if isinstance(item, Block) for read in records_of(item)]
        assert messages(read) == [lsn for lsn in lsns if lsn >= 5 * SIZE]
