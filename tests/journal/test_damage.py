"""Tests of damage: it is corruption if a later block or the mark proves it durable, and a torn tail otherwise."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.base.disk.seam import Directory
from cairnmq.base.errors import CorruptJournal, DiskError, ForeignStore
from cairnmq.base.testing.faulty_disk import DiskCall, Fault, FaultyDirectory
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.base.testing.sectors import Pending
from cairnmq.journal.format import log_mark as mark
from cairnmq.journal.format.block import Block
from cairnmq.journal.format.container import HEAD as CONTAINER_HEAD
from cairnmq.journal.read.scanner import Damage
from cairnmq.journal.write.journal import Journal
from tests.harness.journal.logs import (
    BIG,
    LOG_ID,
    SIZE,
    blocks,
    container_of,
    content,
    flip,
    flip_lsn,
    new_log,
    patch,
    put,
    read_all,
    reopen,
    scan,
    with_crc,
)


def log_of(payloads: list[bytes]) -> tuple[MemoryDirectory, Journal, list[int]]:
    """Return a log with one block per payload, and the LSNs of the records."""
    directory = MemoryDirectory()
    _, journal = new_log(directory)
    lsns = []
    for payload in payloads:
        lsns.append(put(journal, payload))
        journal.flush()
    return directory, journal, lsns


def damage_of(directory: Directory) -> list[Damage]:
    return [found for found in scan(directory) if isinstance(found, Damage)]


def payloads_of(directory: Directory) -> list[bytes]:
    return [read.payload for read in reopen(directory)[2]]


SOME = [b"one", b"two" * 300, b"three", b"four" * 15_000, b"five"]


@given(which=st.integers(0, 3), byte=st.integers(0), mask=st.integers(1, 255))
@settings(max_examples=60)
def test_rot_below_a_claim_is_corrupt(which: int, byte: int, mask: int) -> None:
    """A later block proves durability: opening fails without changes, and the error names the LSNs."""
    directory, journal, _ = log_of(SOME)
    journal.abandon()
    hurt, following = blocks(directory)[which + 1 : which + 3]
    flip_lsn(directory, hurt.lsn + byte % hurt.head.size_bytes, mask)
    before = content(directory)
    found = damage_of(directory)
    assert [(damage.first_lsn, damage.end_lsn, damage.torn) for damage in found] == [(hurt.lsn, following.lsn, False)]
    with pytest.raises(CorruptJournal, match=f"LSN {hurt.lsn} to {following.lsn} was durable") as raised:
        reopen(directory)
    assert (raised.value.first_lsn, raised.value.end_lsn) == (hurt.lsn, following.lsn)
    assert content(directory) == before


def test_a_tool_reads_on_behind_the_damage() -> None:
    directory, _, _ = log_of(SOME)
    hurt = blocks(directory)[2]
    flip_lsn(directory, hurt.lsn + 100)
    found = scan(directory)
    assert [isinstance(item, Block) for item in found] == [True, True, False, True, True, True]


def test_a_left_over_block_behind_the_damage_hides_none_of_the_log() -> None:
    """A block left by an older incarnation is skipped, and reading continues at the log's own next block."""
    directory, journal, _ = log_of([b"of the first incarnation"])
    journal.close()
    journal = reopen(directory)[0]
    for payload in SOME:
        put(journal, payload)
        journal.flush()
    journal.close()
    hurt, left, following, last = blocks(directory)[-4:]
    flip_lsn(directory, hurt.lsn + 100)
    slot, at = divmod(left.lsn, SIZE)
    data = content(directory)[container_of(directory, slot)][at : at + left.end_lsn - left.lsn]
    older = data[:20] + struct.pack("<I", 1) + data[24:]
    patch(directory, container_of(directory, slot), at, with_crc(older, left.head.size_bytes))
    found = scan(directory)[-3:]
    assert [(item.first_lsn, item.end_lsn) for item in found if isinstance(item, Damage)] == [(hurt.lsn, following.lsn)]
    assert [item.lsn for item in found if isinstance(item, Block)] == [following.lsn, last.lsn]


@given(byte=st.integers(0), mask=st.integers(1, 255))
@settings(max_examples=40)
def test_what_nothing_claims_is_torn(byte: int, mask: int) -> None:
    """Damage of the last block makes recovery truncate the log there, and continue it in a new container."""
    directory, journal, _ = log_of(SOME)
    journal.abandon()
    last = blocks(directory)[-1]
    flip_lsn(directory, last.lsn + byte % last.head.size_bytes, mask)
    assert all(damage.torn for damage in damage_of(directory))
    again, report, found = reopen(directory)
    assert [read.payload for read in found] == SOME[:-1]
    assert report.end_lsn == last.lsn
    assert put(again, b"new") > last.lsn + SIZE // 2
    again.close()
    assert damage_of(directory) == []
    again, report, found = reopen(directory)
    assert [read.payload for read in found] == [*SOME[:-1], b"new"]
    assert report.torn is None
    assert report.closed_cleanly


@pytest.mark.parametrize("closed", [True, False])
def test_the_mark_claims_the_last_block(closed: bool) -> None:
    directory, journal, _ = log_of(SOME)
    if closed:
        journal.close()
    else:
        journal.writer.write_mark()
    last = blocks(directory)[-1]
    flip_lsn(directory, last.lsn + 70)
    with pytest.raises(CorruptJournal, match=f"LSN {last.lsn} to {last.end_lsn} was durable"):
        reopen(directory)


def test_blocks_behind_a_torn_one_are_not_read() -> None:
    """The first block of a group that was not synced is lost; the others were never confirmed either."""
    directory, journal, _ = log_of([b"safe"])
    moments = []
    for payload in (b"lost", b"whole", b"whole, too"):
        put(journal, payload)
        journal.seal()
    directory.on_operation = lambda operation: moments.append(directory.after_kill())
    journal.writer.write_out()
    disk = moments[2]
    first = disk.pending()[0].operation
    left = disk.after_power_cut(lambda item: item.operation != first)
    [damage] = damage_of(left)
    assert damage.torn
    again, report, found = reopen(left)
    assert [read.payload for read in found] == [b"safe"]
    assert report.torn == damage
    for _ in range(3):
        put(again, b"more")
        again.close()
        assert damage_of(left) == []
        again, report, found = reopen(left)
        assert report.torn is None
    assert [read.payload for read in found] == [b"safe", b"more", b"more", b"more"]


def test_a_missing_container_is_corrupt() -> None:
    directory, journal, lsns = log_of([BIG] * 20)
    journal.abandon()
    directory.unlink(container_of(directory, 1))
    with pytest.raises(CorruptJournal) as raised:
        reopen(directory)
    assert any(raised.value.first_lsn <= lsn < raised.value.end_lsn for lsn in lsns)


def test_a_missing_newest_container_is_noticed_by_the_mark() -> None:
    directory, journal, _ = log_of([BIG] * 10)
    journal.close()
    directory.unlink(container_of(directory, 1))
    with pytest.raises(CorruptJournal):
        reopen(directory)


@given(byte=st.integers(0, CONTAINER_HEAD.size - 1), mask=st.integers(1, 255), slot=st.integers(0, 1))
@settings(max_examples=40)
def test_a_container_with_a_rotten_head_is_no_free_one(byte: int, mask: int, slot: int) -> None:
    """I11: blocks of a container contain their LSNs. A crash leaves no header that is neither complete nor zeros."""
    payloads = [b"%d" % number + BIG[5:] for number in range(12)]
    directory, journal, lsns = log_of(payloads)
    journal.abandon()
    assert {lsn // SIZE for lsn in lsns} == {0, 1}
    flip(directory, container_of(directory, slot), byte, mask)
    again, report, found = reopen(directory)
    assert [read.payload for read in found] == payloads
    assert any("head" in remark for remark in report.remarks)
    assert again.stored.read_record(lsns[0]).payload == payloads[0]
    again.close()
    assert payloads_of(directory) == payloads


def is_container_head(item: Pending) -> bool:
    return item.kind == "sector" and item.at == 0 and item.name.endswith(".cairn")


def test_a_container_that_was_lost_with_its_head_stays_free() -> None:
    """A crash may lose the header of a new container and keep its blocks, which were never confirmed."""
    directory, journal, _ = log_of([b"safe"])
    while journal.next_lsn < SIZE:
        put(journal, BIG)
    journal.seal()
    moments: list[MemoryDirectory] = []
    directory.on_operation = lambda operation: moments.append(directory.after_kill())
    journal.writer.write_out()
    disk = [moment for moment in moments if any(is_container_head(item) for item in moment.pending())][-1]
    left = disk.after_power_cut(lambda item: not is_container_head(item))
    assert {read.lsn // SIZE for read in reopen(left)[2]} == {0}


@pytest.mark.parametrize("kind", ["read", "open"])
def test_a_read_error_is_no_torn_tail(kind: str) -> None:
    """Unreadable data may be intact: opening fails without changes and never truncates, whichever call fails."""
    directory, journal, _ = log_of(SOME)
    journal.abandon()
    before = content(directory)
    probe = FaultyDirectory(directory.after_kill())
    reopen(probe)
    reads = [call.number for call in probe.calls if call.kind == kind]
    refused = 0
    for number in reads:
        disk = directory.after_kill()

        def fails(call: DiskCall, number: int = number) -> Fault | None:
            return Fault() if call.number == number else None

        try:
            assert payloads_of(FaultyDirectory(disk, fails)) == SOME
        except DiskError:
            refused += 1
            assert payloads_of(disk) == SOME
    assert refused >= 5
    assert content(directory) == before


def test_a_stale_block_of_a_reused_slot_is_not_read() -> None:
    """I13: a crash loses a container's new header, but not its blocks.

    The next incarnation starts the same slot in the same file, and its first block is as long as the old one. The block
    that follows is complete, and names the LSN of the new block as its predecessor, but is of an older incarnation.
    """
    directory, journal, _ = log_of([b"safe"])
    while (room := SIZE - journal.next_lsn % SIZE) > 60_000:
        put(journal, bytes(50_000))
        journal.flush()
    put(journal, bytes(room - 128))
    journal.flush()
    assert journal.next_lsn == SIZE
    moments: list[MemoryDirectory] = []
    directory.on_operation = lambda operation: moments.append(directory.after_kill())
    put(journal, b"#" * 384)  # one sector, in the next container
    assert journal.next_lsn == SIZE + 1024
    for _ in range(2):
        journal.seal()
        put(journal, b"stale")
    journal.seal()
    journal.writer.write_out()
    before_sync = moments[-4]  # the container's sync, and the mark's write and sync, come after it
    left = before_sync.after_power_cut(lambda item: not is_container_head(item))
    again, _, found = reopen(left)
    assert [read.payload for read in found if read.payload == b"stale"] == []
    assert again.next_lsn == SIZE + 1024  # the slot and the file are reused
    again.abandon()
    again, report, found = reopen(left)
    assert [read.payload for read in found if read.payload == b"stale"] == []
    again.close()
    _, report, _ = reopen(left)
    assert report.torn is None
    assert report.closed_cleanly


def test_strangers_are_left_alone_and_told() -> None:
    """Files of another log, with another number or of another size are not changed, and their numbers are not used."""
    directory, journal, _ = log_of([b"one"])
    journal.close()
    other = MemoryDirectory()
    _, journal = new_log(other)
    journal.close()
    own = content(directory)[container_of(directory, 0)]
    foreign = bytearray(own)
    foreign[16:32] = bytes(16)
    files = {
        "00000003.cairn": with_crc(bytes(foreign), CONTAINER_HEAD.size),
        "00000004.cairn": own,
        "00000005.cairn": own[:4096],
        "00000006.cairn": b"",
        "notes.txt": b"mine",
    }
    for name, data in files.items():
        directory.create(name).write_at(0, data)
    again, report, found = reopen(directory)
    assert [read.payload for read in found] == [b"one"]
    for name in files:
        assert any(name in remark for remark in report.remarks)
    for _ in range(40):
        put(again, BIG)
        again.flush()
    left = content(directory)
    assert {name: left[name] for name in files} == files


def test_a_newer_container_is_refused() -> None:
    directory, journal, _ = log_of([b"one"])
    journal.close()
    name = container_of(directory, 0)
    data = content(directory)[name]
    patch(directory, name, 0, with_crc(data[:8] + struct.pack("<H", 2) + data[10:512], CONTAINER_HEAD.size))
    before = content(directory)
    with pytest.raises(ForeignStore, match="container format 2"):
        reopen(directory)
    assert content(directory) == before


def test_a_newer_mark_is_refused() -> None:
    directory, journal, _ = log_of([b"one"])
    journal.close()
    for place in mark.PLACES:
        data = content(directory)[mark.NAME][place : place + 512]
        newer = with_crc(data[:8] + struct.pack("<H", 2) + data[10:], mark.HEAD.size)
        patch(directory, mark.NAME, place, newer)
    before = content(directory)
    with pytest.raises(ForeignStore, match="store format 2"):
        reopen(directory)
    assert content(directory) == before


def test_a_log_without_a_whole_mark_is_refused() -> None:
    directory, journal, _ = log_of([b"one"])
    journal.close()
    for place in mark.PLACES:
        flip(directory, mark.NAME, place + 20)
    before = content(directory)
    with pytest.raises(ForeignStore, match="no intact copy"):
        reopen(directory)
    assert content(directory) == before
    directory.unlink(mark.NAME)
    with pytest.raises(ForeignStore, match=r"log\.mark is missing"):
        reopen(directory)


def test_a_block_of_another_log_ends_the_chain() -> None:
    """Containers of two stores with consistent headers are mixed up: blocks of the other log are not read."""
    directory, journal, _ = log_of(SOME)
    journal.abandon()
    last = blocks(directory)[-1]
    slot, at = divmod(last.lsn, SIZE)
    data = content(directory)[container_of(directory, slot)][at : at + 512]
    assert int.from_bytes(data[56:64], "little") == LOG_ID
    other = with_crc(data[:56] + bytes(8) + data[64:], last.head.size_bytes)
    patch(directory, container_of(directory, slot), at, other)
    assert payloads_of(directory) == SOME[:-1]
    assert [read.payload for read in read_all(directory)] == SOME[:-1]
