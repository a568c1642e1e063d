"""Properties of joined checksums: they follow from those of the pieces, and change with each of them."""

from __future__ import annotations

import numpy as np
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.tools.verify.joined_crc import joined

LENGTHS = st.sampled_from([0, 1, 255, 256, 257, 65_535, 65_536, 65_537]) | st.integers(0, 3000)


def together(pieces: list[bytes]) -> int:
    crcs = np.array([crc32c(piece) for piece in pieces], np.uint32)
    return int(joined(crcs, np.array([len(piece) for piece in pieces], np.int64))[0])


@given(st.lists(LENGTHS, min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_it_is_that_of_all_the_bytes(sizes: list[int], random) -> None:  # type: ignore[no-untyped-def]
    pieces = [random.randbytes(size) for size in sizes]
    assert together(pieces) == crc32c(b"".join(pieces))


@given(st.lists(st.lists(LENGTHS, min_size=1, max_size=9), min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_many_wholes_are_known_at_once(wholes: list[list[int]], random) -> None:  # type: ignore[no-untyped-def]
    pieces = [[random.randbytes(size) for size in sizes] for sizes in wholes]
    crcs = np.array([crc32c(piece) for complete in pieces for piece in complete], np.uint32)
    sizes = np.array([size for complete in wholes for size in complete], np.int64)
    counts = np.array([len(complete) for complete in wholes])
    found = joined(crcs, sizes, np.cumsum(counts) - counts)
    assert found.tolist() == [crc32c(b"".join(complete)) for complete in pieces]


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=9), st.data())
def test_another_checksum_of_one_is_seen(pieces: list[bytes], data: st.DataObject) -> None:
    crcs = np.array([crc32c(piece) for piece in pieces], np.uint32)
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    crcs[data.draw(st.integers(0, len(pieces) - 1))] ^= np.uint32(data.draw(st.integers(1, (1 << 32) - 1)))
    assert int(joined(crcs, sizes)[0]) != crc32c(b"".join(pieces))


def test_all_digits_of_a_length_count() -> None:
    pieces = [b"first", b"\x5a" * ((1 << 24) - 6), b"x"]
    assert together(pieces) == crc32c(b"".join(pieces))
