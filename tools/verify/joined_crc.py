"""CRC32C of many pieces put together, from the checksum and size of each: a sum over GF(2), without the bytes.

The checksum of A followed by B is that of A moved on by the length of B, xor that of B. To move on by n bytes is to
multiply by x^(8 n) modulo the polynomial, which is linear in the checksum. A table for each byte of n, with a part for
each byte of the checksum, reduces this to four look-ups for each nonzero byte of n, by numpy for all pieces at once.
Checksums with the same remaining distance are added before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78
_DIGITS = 3
MAX_BYTES = 1 << 8 * _DIGITS
"""The maximum size of joined pieces."""

Words = npt.NDArray[np.uint32]
Lengths = npt.NDArray[np.int64]
_FIRST = np.zeros(1, np.int64)


def joined(crcs: Words, sizes: Lengths, begins: Lengths = _FIRST) -> Words:
    """The checksums of wholes that begin with the pieces number *begins*: the pieces of each, one behind the other.

    *crcs* and *sizes*, in bytes, are those of all pieces. Each whole has one at least, and less than `MAX_BYTES`.
    """
    ends = np.cumsum(sizes)
    lasts = np.append(begins[1:], len(sizes)) - 1
    behind = np.repeat(ends[lasts], lasts + 1 - begins) - ends
    opens = np.zeros(len(sizes), np.bool_)
    opens[begins] = True
    moved = crcs
    for table in _tables():
        row = (behind & 0xFF) << 10
        if row.any():
            bits = moved.astype(np.int64)
            moved = table.take(row + (bits & 0xFF))
            for byte in (1, 2, 3):
                moved = moved ^ table.take(row + ((bits >> 8 * byte & 0xFF) + (byte << 8)))
        behind >>= 8
        is_other = opens.copy()
        is_other[1:] |= behind[1:] != behind[:-1]
        others = np.flatnonzero(is_other)
        if len(others) < len(behind):
            moved, behind, opens = np.bitwise_xor.reduceat(moved, others), behind[others], opens[others]
        if not behind.any():
            break
    return np.bitwise_xor.reduceat(moved, np.flatnonzero(opens))


@cache
def _tables() -> list[Words]:
    """For each digit of a number of bytes, base 256: [its value, a byte's place in the checksum, that byte], flat."""
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = (crc >> 1 ^ (crc & 1) * np.uint32(_POLYNOMIAL)).astype(np.uint32)
    one = _by_bytes(lambda bits: crc[bits & 0xFF] ^ bits >> 8)
    made = []
    for _ in range(_DIGITS):
        table = np.empty((256, 4, 256), np.uint32)
        table[0] = _by_bytes(lambda bits: bits)
        for value in range(1, 256):
            table[value] = _through(one, table[value - 1])
        one = _through(one, table[255])
        made.append(table.reshape(-1))
    return made


def _by_bytes(change: Callable[[Words], Words]) -> Words:
    """The result of *change* for each byte in each place of a checksum."""
    places = np.arange(4, dtype=np.uint32)[:, None] * np.uint32(8)
    return change(np.arange(256, dtype=np.uint32)[None, :] << places)


def _through(step: Words, bits: Words) -> Words:
    """*bits* moved on by what *step* is the table of."""
    made: Words = step[0][bits & 0xFF]
    for byte in (1, 2, 3):
        made = made ^ step[byte][bits >> np.uint32(8 * byte) & 0xFF]
    return made
