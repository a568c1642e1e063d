"""Tests of reclaiming: the base only rises, and containers below it are reused once it is durable."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.base.errors import JournalError
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.files.space_reserve import SPARES, reserve
from cairnmq.journal.format import log_mark as mark
from cairnmq.journal.format.container import file_number
from cairnmq.journal.format.record import RecordType
from cairnmq.journal.read.scanner import Damage, LogReader
from tests.harness.journal.logs import (
    BIG,
    SIZE,
    advance_base,
    container_of,
    container_start,
    flip,
    new_log,
    put,
    read_all,
    reopen,
)


def containers(directory: MemoryDirectory) -> list[str]:
    return [name for name in directory.names() if file_number(name) is not None]


@given(moves=st.lists(st.integers(0, 7 * SIZE), max_size=30))
@settings(max_examples=30)
def test_the_base_only_rises(moves: list[int]) -> None:
    """E25: a late smaller value is ignored."""
    _, journal = new_log()
    while len(journal.extent.slots) < 6:
        journal.append(RecordType.CHUNK, bytes(60_000), time_us=1)
    journal.flush()
    highest = journal.extent.base_lsn
    for base_lsn in moves:
        advance_base(journal, base_lsn)
        highest = max(highest, min(container_start(journal, base_lsn), max(journal.extent.slots) * SIZE))
        assert journal.extent.base_lsn == highest


def test_traffic_one_at_a_time_does_not_grow_the_log() -> None:
    """E9, E22, E68, E69: containers below the base are reused forever."""
    directory = MemoryDirectory()
    _, journal = new_log(directory)
    created: list[str] = []
    directory.on_operation = lambda operation: created.append(operation) if operation.startswith("create") else None
    most = 0
    for number in range(1, 400):
        lsn = put(journal, BIG)
        journal.flush()
        advance_base(journal, container_start(journal, journal.next_lsn))
        most = max(most, len(containers(directory)))
        assert journal.stored.read_record(lsn).payload == BIG
        assert journal.next_lsn > number * len(BIG)
    assert most <= 4
    assert len(created) <= 2
    assert journal.next_lsn > 45 * SIZE
    assert len(journal.pool.slots()) <= 2


@pytest.mark.parametrize("carried_by", ["block", "mark"])
def test_a_container_waits_until_the_base_is_durable(carried_by: str) -> None:
    """E8, E9: without traffic the mark of the idle log carries the base, so that space is reclaimed all the same."""
    directory, journal = new_log()
    old = put(journal, b"old")
    while journal.next_lsn < SIZE:
        put(journal, BIG)
        journal.flush()
    advance_base(journal, SIZE)
    assert journal.stored.read_record(old).payload == b"old"
    assert LogReader(directory).heads.base_lsn == 0
    if carried_by == "block":
        put(journal, b"carries the base")
        journal.flush()
        assert LogReader(directory).heads.mark.base_lsn == 0
    else:
        journal.writer.write_mark()
        assert LogReader(directory).heads.mark.base_lsn == SIZE
        put(journal, b"carries the base")
        assert len(journal.pool.slots()) == 1
        journal.flush()
    with pytest.raises(JournalError, match="no container holds it any more"):
        journal.stored.read_record(old)
    reader = LogReader(directory)
    assert reader.heads.base_lsn == SIZE
    assert [read.payload for read in reopen(directory)[2]] == [BIG, b"carries the base"]


@pytest.mark.parametrize("place", mark.PLACES)
def test_either_place_of_the_mark_tells_a_base_that_no_block_tells(place: int) -> None:
    """Containers below the base were reclaimed with the mark: damage to one copy must not require them."""
    directory = MemoryDirectory()
    _, journal = new_log(directory)
    while journal.next_lsn < SIZE:
        put(journal, BIG)
        journal.flush()
    advance_base(journal, SIZE)
    journal.close()
    kept = container_of(directory, 1)
    for name in directory.names():
        if name not in (kept, mark.NAME):
            directory.unlink(name)
    flip(directory, mark.NAME, place + 74)
    assert [read.payload for read in reopen(directory)[2]] == [BIG]


@given(lifetimes=st.lists(st.integers(1, 40), min_size=20, max_size=120))
@settings(max_examples=30)
def test_a_live_record_is_never_recycled(lifetimes: list[int]) -> None:
    """E21, E24: records are deleted out of order, the base follows the oldest live one, all live ones can be read."""
    directory, journal = new_log()
    live: dict[int, tuple[int, int]] = {}
    for now, lifetime in enumerate(lifetimes):
        lsn = put(journal, now.to_bytes(4, "big") + BIG[4:])
        live[now] = (now + lifetime, lsn)
        journal.flush()
        live = {number: (end, lsn) for number, (end, lsn) in live.items() if end > now}
        oldest = min((lsn for _, lsn in live.values()), default=journal.next_lsn)
        advance_base(journal, container_start(journal, oldest))
        for number, (_, lsn) in live.items():
            assert int.from_bytes(journal.stored.read_record(lsn).payload[:4], "big") == number
    held = {lsn // SIZE for _, lsn in live.values()}
    assert held <= set(journal.pool.slots())
    journal.close()
    again, _, found = reopen(directory)
    assert {lsn for _, lsn in live.values()} <= {read.lsn for read in found}
    for number, (_, lsn) in live.items():
        assert int.from_bytes(again.stored.read_record(lsn).payload[:4], "big") == number


def test_the_log_shrinks_when_half_is_unused() -> None:
    """E62: free containers beyond half of the log are deleted, except for a minimum and the reserve."""
    directory = MemoryDirectory()
    _, journal = new_log(directory, keep=3)
    lsns = deque([put(journal, BIG)])
    while len(journal.pool.slots()) < 24:
        lsns.append(put(journal, BIG))
        journal.flush()
    assert len(containers(directory)) >= 24
    while len(lsns) > 1:
        lsns.popleft()
        advance_base(journal, container_start(journal, lsns[0]))
        put(journal, b"")
        journal.flush()
        used, free = len(journal.pool.slots()), journal.pool.free_count
        assert len(containers(directory)) == used + free
        assert free * 2 <= used + free or used + free <= 3 or free <= reserve(SIZE, used) + SPARES
    assert len(containers(directory)) <= 1 + reserve(SIZE, 1) + SPARES
    assert journal.stored.read_record(lsns[0]).payload == BIG


def test_a_trimmed_log_is_whole() -> None:
    """E62: after trimming, the next opening finds all live records, also after a power failure."""
    directory = MemoryDirectory()
    _, journal = new_log(directory)
    while len(journal.pool.slots()) < 12:
        put(journal, BIG)
        journal.flush()
    advance_base(journal, 11 * SIZE)
    last = put(journal, b"last")
    unlinked = []

    def moment(operation: str) -> None:
        if operation.startswith("unlink"):
            unlinked.append(directory.after_kill())

    directory.on_operation = moment
    journal.flush()
    assert len(unlinked) >= 2
    for killed in unlinked:
        names = [item for item in killed.pending() if item.kind == "unlink"]
        for kept in ([], names, names[1:], names[:1]):
            found = reopen(killed.after_power_cut(kept))[2]
            assert found[-1].lsn == last
            assert all(read.lsn >= 5 * SIZE for read in found)


@pytest.mark.parametrize("keep", [2, 3, 7])
def test_containers_made_at_first(keep: int) -> None:
    """E6, E60: a new log has the given number of containers, all of full size."""
    directory = MemoryDirectory()
    new_log(directory, keep=keep)
    assert len(containers(directory)) == keep
    assert {directory.open(name).size_bytes() for name in containers(directory)} == {SIZE}


@pytest.mark.parametrize("keep", [0, 1])
def test_there_are_two_containers_at_least(keep: int) -> None:
    """E6: a container has at least 512 KiB, so the smallest log has 1 MiB."""
    directory = MemoryDirectory()
    _, journal = new_log(directory, keep=keep)
    assert len(containers(directory)) == 2
    journal.close()
    reopen(directory, keep=keep)
    assert len(containers(directory)) >= 2


def test_the_number_of_first_containers_is_ignored_if_there_is_a_log() -> None:
    """E60: the number of first containers has no effect on an existing log."""
    directory = MemoryDirectory()
    _, journal = new_log(directory, keep=2)
    journal.close()
    reopen(directory, keep=9)[0].close()
    assert len(containers(directory)) <= 3


def test_a_recycled_container_shows_nothing_of_its_earlier_life() -> None:
    directory, journal = new_log()
    for life in range(60):
        for number in range(3):
            put(journal, b"life %d, %d" % (life, number) + BIG[100 + number * life :])
        journal.flush()
        advance_base(journal, container_start(journal, journal.next_lsn) - SIZE)
        reader = LogReader(directory)
        for read in read_all(directory):
            if read.lsn >= reader.heads.base_lsn:
                assert int(read.payload.removeprefix(b"life ").split(b",")[0]) > life - 8
    assert journal.next_lsn > 20 * SIZE


def test_a_rotten_block_does_not_hide_the_base_that_blocks_behind_it_tell() -> None:
    """Recovery must report the block as lost, and not the reclaimed containers."""
    directory, journal = new_log()
    for _ in range(20):
        put(journal, BIG)
        journal.flush()
    rotten = put(journal, b"rotten")
    journal.flush()
    base_lsn = container_start(journal, rotten)
    advance_base(journal, base_lsn)
    for _ in range(2):
        put(journal, b"whole")
        journal.flush()
    assert min(journal.pool.slots()) == rotten // SIZE
    name = container_of(directory, rotten // SIZE)
    journal.abandon()
    file = directory.open(name, writable=True)
    file.write_at(rotten % SIZE, b"\xff")
    reader = LogReader(directory)
    assert reader.heads.base_lsn == base_lsn
    damage = next(found for found in reader.scan() if isinstance(found, Damage))
    assert damage.first_lsn <= rotten < damage.end_lsn
    assert not damage.torn


def test_a_slot_that_is_full_to_the_last_byte_stays_until_the_next_begins() -> None:
    """The base is always in a slot of the log."""
    _, journal = new_log()
    while (room := SIZE - journal.next_lsn % SIZE) > len(BIG):
        put(journal, BIG[:50_000])
        journal.flush()
    put(journal, BIG[: room - 128])
    journal.flush()
    assert journal.next_lsn == SIZE
    assert journal.retire([0]) == []
    put(journal, b"x")
    journal.flush()
    assert journal.retire([0]) == [0]
    assert journal.extent.base_lsn == SIZE
    journal.abandon()
