"""Tests of blocks with a wrong checksum: all records that other checksums prove are used, and no false ones."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format import block
from cairnmq.journal.format.block import BLOCK_HEAD_BYTES
from cairnmq.journal.format.record import HEAD_BYTES, Flag, RecordHead, RecordType
from cairnmq.journal.write.journal import OWN_LSN
from cairnmq.recovery.broken_block import broken_blocks, expected_crc, says_twice
from tests.harness.journal.logs import LOG_ID, new_log

LSN = 1024


def block_of(payloads: list[bytes]) -> tuple[bytes, list[tuple[int, RecordHead]]]:
    """Return the bytes of a block with a message for each payload and a dequeue of the first, and its records."""
    directory = MemoryDirectory()
    _, journal = new_log(directory)
    assert journal.next_lsn == LSN
    lsns = [
        journal.append(RecordType.START, payload, flags=Flag.ENQUEUE, message_id=OWN_LSN, queue_id=7, time_us=5)
        for payload in payloads
    ]
    lsns.append(
        journal.append(
            RecordType.DEQUEUE, flags=Flag.DELETE, message_id=lsns[0], undo_prev=lsns[0], queue_id=7, time_us=6,
            extra=lsns[0],
        )
    )  # fmt: skip
    journal.flush()
    end = journal.next_lsn
    journal.close()
    data = directory.open("00000001.cairn").read_at(LSN, end - LSN)
    complete = block.decode(memoryview(data), LSN, LOG_ID)
    return data, list(zip(lsns, complete.heads(), strict=True))


PAYLOADS = st.lists(st.binary(min_size=1, max_size=900), min_size=1, max_size=6)


@given(PAYLOADS)
def test_the_checksum_follows_from_the_heads(payloads: list[bytes]) -> None:
    data, records = block_of(payloads)
    table = memoryview(data)[4 : BLOCK_HEAD_BYTES + HEAD_BYTES * len(records)]
    assert expected_crc(table, [head for _, head in records]) == struct.unpack_from("<I", data)[0]


@settings(max_examples=200)
@given(PAYLOADS, st.integers(0), st.integers(1, 255), st.integers(1, 3))
def test_what_is_believed_is_true(payloads: list[bytes], at: int, mask: int, times: int) -> None:
    """Flips in payloads leave the headers proven; with flips in headers none is proven, and no false one passes."""
    data, records = block_of(payloads)
    size = BLOCK_HEAD_BYTES + HEAD_BYTES * len(records) + sum(map(len, payloads))
    hurt = bytearray(data)
    hits = {(at * 7919 * (n + 1) + at) % size for n in range(times)}
    for hit in hits:
        hurt[hit] ^= mask
    first_payload = BLOCK_HEAD_BYTES + HEAD_BYTES * len(records)
    for broken in broken_blocks(bytes(hurt), LSN, LOG_ID):
        assert broken.proven == (min(hits) >= first_payload)
        if broken.proven:
            assert broken.rows == records
            spoilt = {
                lsn for lsn, head in records
                if any(first_payload + head.place <= hit < first_payload + head.place + head.size for hit in hits)
            }  # fmt: skip
            assert broken.complete == {lsn for lsn, _ in records} - spoilt
        for number, (lsn, row) in enumerate(broken.rows):
            if lsn in broken.complete and says_twice(lsn, row, number):
                original = records[number][1]
                told = row._replace(queue_id=7, time_us=original.time_us, place=original.place)
                assert told == original  # no second field confirms these; the payload at the place is the same
    if min(hits) >= first_payload:
        assert list(broken_blocks(bytes(hurt), LSN, LOG_ID))


@given(PAYLOADS)
def test_without_the_blocks_head_the_rows_are_found(payloads: list[bytes]) -> None:
    data, records = block_of(payloads)
    [broken] = broken_blocks(bytes(BLOCK_HEAD_BYTES) + data[BLOCK_HEAD_BYTES:], LSN, LOG_ID)
    assert (broken.proven, broken.rows, len(broken.complete)) == (False, records, len(records))


def test_a_row_that_says_it_once_is_not_believed() -> None:
    lsn = LSN + BLOCK_HEAD_BYTES
    start = RecordHead(int(RecordType.START), int(Flag.ENQUEUE), 0, 0, 5, 1, 0, lsn, 7, 0, 5, 0)
    dequeue = RecordHead(int(RecordType.DEQUEUE), int(Flag.DELETE), 0, 0, 0, 0, 600, 600, 7, 0, 5, 600)
    assert says_twice(lsn, start, 0)
    assert says_twice(lsn, dequeue, 0)
    for lie in (
        start._replace(message_id=9), start._replace(number=1), start._replace(size=0), start._replace(txn_id=1),
        start._replace(undo_prev=1), start._replace(flags=0), dequeue._replace(extra=601),
        dequeue._replace(undo_prev=601), dequeue._replace(message_id=601), dequeue._replace(flags=0),
        dequeue._replace(type=int(RecordType.DELETE)),
    ):  # fmt: skip
        assert not says_twice(lsn, lie, 0)
