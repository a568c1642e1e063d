"""Properties of blocks, which decode only in their place, complete and unchanged."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from cairnmq.base.disk.seam import SECTOR_BYTES
from cairnmq.journal.format import block
from cairnmq.journal.format.block import BLOCK_HEAD_BYTES, BadBlock, Block
from cairnmq.journal.format.record import HEAD, HEAD_BYTES
from tests.harness.journal.logs import LOG_ID, with_crc

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
LSNS = st.integers(1, 2**50).map(lambda sector: sector * SECTOR_BYTES)
PAYLOADS = st.lists(st.binary(max_size=700), min_size=1, max_size=6)


def encode(payloads: list[bytes], lsn: int, **fields: int) -> bytes:
    heads, place = b"", 0
    for number, payload in enumerate(payloads):
        heads += HEAD.pack(1, 0, number, place, len(payload), crc32c(payload), 0, lsn, 7, 0, 99, 0)
        place += len(payload)
    known = {"prev_lsn": 0, "incarnation": 1, "durable_lsn": 0, "base_lsn": 0, "log_id": LOG_ID} | fields
    return bytes(block.encode(heads, payloads, place, lsn=lsn, **known))


def decode(data: bytes | bytearray, lsn: int, log_id: int = LOG_ID) -> Block:
    return block.decode(memoryview(data), lsn, log_id)


def size_of(data: bytes | bytearray) -> int:
    return int(struct.unpack_from("<I", data, 16)[0])


@given(payloads=PAYLOADS, lsn=LSNS, incarnation=U32, prev_lsn=U64, durable_lsn=U64, base_lsn=U64, behind=st.binary())
def test_what_was_encoded_is_decoded(
    payloads: list[bytes], lsn: int, incarnation: int, prev_lsn: int, durable_lsn: int, base_lsn: int, behind: bytes
) -> None:
    """The block decodes with any bytes behind it."""
    fields = {"incarnation": incarnation, "prev_lsn": prev_lsn, "durable_lsn": durable_lsn, "base_lsn": base_lsn}
    data = encode(payloads, lsn, **fields)
    found = decode(data + behind, lsn)
    assert {name: getattr(found.head, name) for name in fields} == fields
    assert found.lsn == lsn
    assert found.end_lsn == lsn + len(data)
    assert len(data) % SECTOR_BYTES == 0
    assert not any(data[size_of(data) :])
    heads = found.heads()
    assert [bytes(found.payload(head)) for head in heads] == payloads
    for number, head in enumerate(heads):
        at = found.record_lsn(number) - lsn  # the LSN of a record is the address of its header
        assert HEAD.unpack_from(data, at) == head
        at = found.payload_lsn(head) - lsn  # and its payload has an address, too
        assert data[at : at + head.size] == payloads[number]


@given(payloads=PAYLOADS, place=st.integers(0), mask=st.integers(1, 255))
def test_a_flipped_byte_is_detected(payloads: list[bytes], place: int, mask: int) -> None:
    data = bytearray(encode(payloads, 1024))
    data[place % size_of(data)] ^= mask
    with pytest.raises(BadBlock):
        decode(data, 1024)


def test_every_flipped_bit_is_detected() -> None:
    data = encode([b"some payload", b""], 1024, prev_lsn=512, durable_lsn=1024, base_lsn=512)
    for place in range(size_of(data)):
        for bit in range(8):
            rotten = bytearray(data)
            rotten[place] ^= 1 << bit
            with pytest.raises(BadBlock):
                decode(rotten, 1024)


def test_the_padding_is_nothing() -> None:
    data = bytearray(encode([b"payload"], 1024))
    data[-1] ^= 1
    assert decode(data, 1024).heads()


@given(payloads=PAYLOADS, lsn=LSNS, other=LSNS)
def test_a_block_from_an_earlier_life_is_stale(payloads: list[bytes], lsn: int, other: int) -> None:
    data = encode(payloads, other)
    if lsn == other:
        decode(data, lsn)
    else:
        with pytest.raises(BadBlock, match=f"stale: it claims LSN {other}"):
            decode(data, lsn)


@given(log_id=U64)
@example(0)
def test_a_block_of_another_log_is_foreign(log_id: int) -> None:
    data = encode([b"x"], 512)
    if log_id != LOG_ID:
        with pytest.raises(BadBlock, match=f"foreign: it belongs to log {LOG_ID:016x}"):
            decode(data, 512, log_id)


def test_a_newer_format_is_rejected() -> None:
    data = encode([b"x"], 512)
    newer = with_crc(data[:8] + struct.pack("<H", 2) + data[10:], size_of(data))
    with pytest.raises(BadBlock, match="its format 2 is newer than 1"):
        decode(newer, 512)


def test_records_that_do_not_fit_are_rejected() -> None:
    """A block is rejected if its checksum is valid, but its record count is impossible."""
    data = encode([b"x"], 512)
    with pytest.raises(BadBlock, match="3 records do not fit"):
        decode(with_crc(data[:12] + struct.pack("<I", 3) + data[16:], size_of(data)), 512)


@given(size=st.integers(0, 5000), lsn=LSNS | st.just(0), log_id=U64 | st.just(0))
def test_zeros_never_decode(size: int, lsn: int, log_id: int) -> None:
    with pytest.raises(BadBlock):
        decode(bytes(size), lsn, log_id)


@given(payloads=PAYLOADS, cut=st.integers(0))
def test_a_part_never_decodes(payloads: list[bytes], cut: int) -> None:
    data = encode(payloads, 512)
    with pytest.raises(BadBlock):
        decode(data[: cut % size_of(data)], 512)


@given(payloads=PAYLOADS, lost=st.sets(st.integers(0, 8), min_size=1))
def test_a_block_with_a_lost_sector_never_decodes(payloads: list[bytes], lost: set[int]) -> None:
    """The block does not decode, unless the lost sectors contained only zeros."""
    data = bytearray(encode(payloads, 512))
    complete = bytes(data)
    for sector in lost:
        data[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES] = bytes(
            len(data[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])
        )
    if data != complete:
        with pytest.raises(BadBlock):
            decode(data, 512)


def test_sizes_are_what_the_format_says() -> None:
    assert (BLOCK_HEAD_BYTES, HEAD_BYTES, block.padded(1), block.padded(512), block.padded(513)) == (
        64, 64, 512, 512, 1024,
    )  # fmt: skip
