"""Tests of the log: appended records get an LSN at once, are durable after a flush, and are read back unchanged."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.base.errors import JournalError
from cairnmq.base.testing.faulty_disk import FaultyDirectory
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.block import MAX_RECORDS
from cairnmq.journal.format.container import DATA_OFFSET
from cairnmq.journal.format.record import HEAD, HEAD_BYTES, MAX_PAYLOAD_BYTES, RecordHead
from cairnmq.journal.read.scanner import LogReader
from cairnmq.journal.write.journal import BLOCK_LIMIT_BYTES, OWN_LSN
from tests.harness.journal.logs import BIG, SIZE, START, blocks, container_of, new_log, put, read_all, reopen

SIZES = st.integers(0, 2000) | st.sampled_from([0, 448, 449, 60_000, MAX_PAYLOAD_BYTES])
BATCHES = st.lists(st.lists(SIZES, max_size=12), min_size=1, max_size=6)
some_batches = settings(max_examples=60)


def payloads_of(sizes: list[int]) -> list[bytes]:
    return [(b"%d," % number * (size // 2 + 1))[:size] for number, size in enumerate(sizes)]


@given(batches=BATCHES, unflushed=st.lists(st.integers(0, 2000), max_size=5))
@some_batches
def test_what_was_flushed_is_read(batches: list[list[int]], unflushed: list[int]) -> None:
    """Only flushed records are read, in order, by the reader, by LSN and by the next opening."""
    directory, journal = new_log()
    written = []
    for sizes in batches:
        for payload in payloads_of(sizes):
            written.append((put(journal, payload), payload))
        durable_lsn = journal.flush()
        assert durable_lsn == journal.writer.durable_lsn == journal.next_lsn
        assert all(lsn < durable_lsn for lsn, _ in written)
    before = journal.writer.durable_lsn
    for payload in payloads_of(unflushed):
        assert put(journal, payload) > before
    assert journal.writer.durable_lsn == before
    assert [(read.lsn, read.payload) for read in read_all(directory)] == written
    for lsn, payload in written:
        assert journal.stored.read_record(lsn).payload == payload
    journal.abandon()
    again, report, found = reopen(directory)
    assert [(read.lsn, read.payload) for read in found] == written
    assert report.torn is None
    assert report.end_lsn == before
    lsns = [lsn for lsn, _ in written] + [put(again, b"")]
    assert lsns == sorted(set(lsns))  # E7: strictly rising, also over an opening
    assert all(lsn > 0 for lsn in lsns)  # E15


@given(batches=BATCHES)
@some_batches
def test_an_lsn_is_an_address(batches: list[list[int]]) -> None:
    """E7: an LSN is the byte position of the record header in an endless log that is cut into containers."""
    directory, journal = new_log()
    lsns = [put(journal, payload) for sizes in batches for payload in payloads_of(sizes)]
    journal.flush()
    for lsn in lsns:
        file = directory.open(container_of(directory, lsn // SIZE))
        head = RecordHead._make(HEAD.unpack(file.read_at(lsn % SIZE, HEAD_BYTES)))
        assert (head.type, head.time_us) == (START, 1)


@given(batches=BATCHES)
@some_batches
def test_blocks_form_a_chain_and_stay_in_their_container(batches: list[list[int]]) -> None:
    """E10: each block names its predecessor."""
    directory, journal = new_log()
    for sizes in batches:
        for payload in payloads_of(sizes):
            put(journal, payload)
        journal.flush()
    found = blocks(directory)
    assert found[0].head.prev_lsn == 0
    for before, block in pairwise(found):
        assert block.head.prev_lsn == before.lsn
        same = block.lsn // SIZE == before.lsn // SIZE
        assert block.lsn == (before.end_lsn if same else block.lsn // SIZE * SIZE + DATA_OFFSET)
        assert block.head.durable_lsn <= block.lsn
    for block in found:
        assert block.lsn // SIZE == (block.end_lsn - 1) // SIZE
        assert block.lsn % SIZE >= DATA_OFFSET
        assert block.end_lsn - block.lsn <= BLOCK_LIMIT_BYTES
        assert block.head.incarnation == 1


def test_a_record_keeps_every_field() -> None:
    directory, journal = new_log()
    first = journal.append(START, b"whole", time_us=5, flags=3, message_id=OWN_LSN, queue_id=2, txn_id=OWN_LSN, extra=9)
    second = journal.append(3, time_us=6, undo_prev=first, message_id=first, queue_id=8, txn_id=4)
    journal.flush()
    one, other = read_all(directory)
    assert one.lsn == first
    assert (one.head.message_id, one.head.txn_id) == (first, first)  # E13
    assert (one.head.flags, one.head.queue_id, one.head.time_us, one.head.extra) == (3, 2, 5, 9)
    assert (other.lsn, other.head.undo_prev, other.head.message_id) == (second, first, first)  # E10, E14
    assert (other.head.type, other.head.queue_id, other.head.txn_id, other.head.time_us) == (3, 8, 4, 6)


def test_a_record_takes_64_kib() -> None:
    """E18: a payload has up to 64 KiB, and a larger one is refused."""
    directory, journal = new_log()
    put(journal, BIG)
    with pytest.raises(JournalError, match="a payload of 65537 bytes, a record takes 65536"):
        put(journal, BIG + b"x")
    put(journal, b"after")
    journal.flush()
    assert [read.payload for read in read_all(directory)] == [BIG, b"after"]


def test_many_records_without_payload() -> None:
    """The records exceed the capacity of a block and of a container."""
    directory, journal = new_log(buffers=0)
    count = 3 * SIZE // HEAD_BYTES
    lsns = [put(journal, b"") for _ in range(count)]
    journal.flush()
    assert [read.lsn for read in read_all(directory)] == lsns
    assert all(block.head.records <= MAX_RECORDS for block in blocks(directory))


@given(gap=st.integers(0, 3000))
@settings(max_examples=40)
def test_the_end_of_a_container_may_lie_anywhere(gap: int) -> None:
    """A block fills a container to the last byte, or leaves a rest too small for another block."""
    directory, journal = new_log()
    room = SIZE - journal.next_lsn % SIZE
    written = [BIG] * (room // (len(BIG) + 2 * HEAD_BYTES) - 1)
    lsns = []
    for payload in written:
        lsns.append(put(journal, payload))
        journal.flush()
    rest = SIZE - journal.next_lsn % SIZE - 2 * HEAD_BYTES - gap
    for size in (*[60_000] * (rest // 60_512), rest % 60_512 - 512 * bool(rest // 60_512), 0, 100, 1000):
        if 0 <= size <= len(BIG):
            written.append(bytes(size))
            lsns.append(put(journal, written[-1]))
            journal.flush()
    assert [(read.lsn, read.payload) for read in read_all(directory)] == list(zip(lsns, written, strict=True))
    assert journal.writer.durable_lsn // SIZE == 1 or SIZE - journal.writer.durable_lsn % SIZE < 3500


def test_nothing_is_written_before_a_flush() -> None:
    """E61: a flush is deferred until it is requested, or until too many blocks wait."""
    directory = MemoryDirectory()
    _, journal = new_log(directory, buffers=3)
    operations: list[str] = []
    directory.on_operation = operations.append
    for _ in range(7):
        put(journal, BIG)
    assert operations == []
    assert journal.has_unsealed
    for _ in range(50):
        put(journal, BIG)
        assert len(journal.writer.sealed) <= 3
    assert operations  # E61: more than three buffers never wait
    journal.flush()
    assert len(journal.writer.sealed) == 0
    assert not journal.has_unsealed
    assert len(read_all(directory)) == 57


def test_any_number_of_buffers_may_wait() -> None:
    """E61: 0 is no limit."""
    directory = MemoryDirectory()
    _, journal = new_log(directory, buffers=0)
    operations: list[str] = []
    directory.on_operation = operations.append
    for _ in range(100):
        put(journal, BIG)
    assert operations == []
    assert len(journal.writer.sealed) > 10
    journal.flush()
    assert len(read_all(directory)) == 100


def test_one_sync_for_a_group() -> None:
    directory = MemoryDirectory()
    _, journal = new_log(directory)
    operations: list[str] = []
    directory.on_operation = operations.append
    for number in range(1000):
        put(journal, b"%d" % number)
    journal.flush()
    assert [operation.split()[0] for operation in operations] == ["write", "sync"]
    assert journal.flush() == journal.writer.durable_lsn
    assert len(operations) == 2  # there was nothing to do
    assert journal.writer.meters.written.flushes == 2  # the first was that of the opening


def test_an_opening_looks_once_at_each_container() -> None:
    """A reader of a live log looks again at the end of the log; recovery has the log to itself."""
    directory, journal = new_log()
    for _ in range(40):
        put(journal, BIG)
        journal.flush()
    journal.close()
    faulty = FaultyDirectory(directory)
    reader = LogReader(faulty, live=False)
    list(reader.scan())
    heads = Counter(call.name for call in faulty.calls if call.kind == "read" and call.offset == 0)
    assert len(heads) > 4
    assert {count for name, count in heads.items() if name.endswith(".cairn")} == {1}


def test_an_lsn_that_is_none() -> None:
    directory, journal = new_log()
    lsn = put(journal, b"payload")
    journal.flush()
    for wrong in (lsn + 8, lsn - 64, lsn + 512, lsn + SIZE, 0, 64):
        with pytest.raises(JournalError):
            journal.stored.read_record(wrong)
    file = directory.open(container_of(directory, 0), writable=True)
    file.write_at(lsn + HEAD_BYTES, b"P")
    with pytest.raises(JournalError, match="checksum fails over a payload of 7 bytes"):
        journal.stored.read_record(lsn)
