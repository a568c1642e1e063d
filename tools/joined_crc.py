"""CRC32C of many pieces put together, from the checksum and size of each: a sum over GF(2), without the bytes.

The checksum of A followed by B is that of A moved on by the length of B, xor that of B. To move on by n bytes is to
multiply by x^(8 n) modulo the polynomial, which is linear in the checksum. So there is a table for each byte of n, and
in it for each byte of the checksum: twelve look-ups for a piece, by numpy for all pieces at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78
_DIGITS = 3
MAX_BYTES = 1 << 8 * _DIGITS
"""So much can be put together."""

Words = npt.NDArray[np.uint32]


def joined(crcs: Words, sizes: npt.NDArray[np.int64]) -> int:
    """The checksum of pieces of *sizes* bytes with these checksums, one behind the other, below `MAX_BYTES` in all."""
    behind = sizes.sum() - np.cumsum(sizes)
    moved = crcs
    for digit, table in enumerate(_tables()):
        row = (behind >> 8 * digit & 0xFF) << 10
        if digit and not row.any():
            break
        bits = moved.astype(np.int64)
        moved = table[row + (bits & 0xFF)]
        for byte in (1, 2, 3):
            moved = moved ^ table[row + (byte << 8) + (bits >> 8 * byte & 0xFF)]
    return int(np.bitwise_xor.reduce(moved)) if len(moved) else 0


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
    """What *change* makes of each byte in each place of a checksum."""
    places = np.arange(4, dtype=np.uint32)[:, None] * np.uint32(8)
    return change(np.arange(256, dtype=np.uint32)[None, :] << places)


def _through(step: Words, bits: Words) -> Words:
    """*bits* moved on by what *step* is the table of."""
    made: Words = step[0][bits & 0xFF]
    for byte in (1, 2, 3):
        made = made ^ step[byte][bits >> np.uint32(8 * byte) & 0xFF]
    return made
