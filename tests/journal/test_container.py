"""Tests of the container header, which identifies the log and the slot of a file, or is rejected."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.disk.seam import SECTOR_BYTES
from cairnmq.base.errors import ForeignStore
from cairnmq.journal.format import container
from cairnmq.journal.format.container import (
    BadContainer,
    ContainerHead,
    decode_head,
    encode_head,
    file_name,
    file_number,
)
from cairnmq.journal.write.open import container_size
from tests.harness.journal.logs import SIZE, with_crc

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
SIZES = st.sampled_from([512 << 10, 1 << 20, 1 << 30])
HEADS = st.builds(ContainerHead, U32, st.uuids(), SIZES, U64, U64.map(lambda lsn: lsn - lsn % (1 << 30)), U64, U64, U64)
SOME = ContainerHead(3, UUID(int=5), SIZE, 7, 4 * SIZE, 3 * SIZE + 512, 2 * SIZE, 99)


@given(head=HEADS)
def test_what_was_encoded_is_decoded(head: ContainerHead) -> None:
    data = encode_head(head)
    assert len(data) == SECTOR_BYTES
    assert decode_head(data, "x") == head


def test_every_flipped_bit_is_detected() -> None:
    data = encode_head(SOME)
    for place in range(container.HEAD.size):
        for bit in range(8):
            rotten = bytearray(data)
            rotten[place] ^= 1 << bit
            with pytest.raises(BadContainer):
                decode_head(bytes(rotten), "x")


@given(size=st.integers(0, 600))
def test_zeros_never_decode(size: int) -> None:
    with pytest.raises(BadContainer):
        decode_head(bytes(size), "x")


@pytest.mark.parametrize(("at", "value"), [(8, 2), (10, 4096)])
def test_a_newer_format_is_told_from_damage(at: int, value: int) -> None:
    data = encode_head(SOME)
    newer = with_crc(data[:at] + struct.pack("<H", value) + data[at + 2 :], container.HEAD.size)
    with pytest.raises(ForeignStore, match="newer than this program's format 1"):
        decode_head(newer, "x")


def test_the_slot_is_told_by_the_lsn() -> None:
    assert SOME.slot == 4


@given(number=st.integers(0, 99_999_999))
def test_a_name_tells_the_number(number: int) -> None:
    assert file_number(file_name(number)) == number


@pytest.mark.parametrize(
    "name",
    ["log.mark", "1.cairn", "00000001.cairn.new", "0000000x.cairn", "000000001.cairn", "00000001", "²0000001.cairn"],
)
def test_other_names_are_no_containers(name: str) -> None:
    assert file_number(name) is None


@given(requested=st.integers(-1, 1 << 40))
def test_the_size_is_at_least_512_kib_and_whole_sectors(requested: int) -> None:
    """E59: the container size is rounded up to complete sectors, and is at least 512 KiB."""
    size = container_size(requested)
    assert size >= 512 * 1024
    assert size % SECTOR_BYTES == 0
    assert size == 512 * 1024 or 0 <= size - requested < SECTOR_BYTES
