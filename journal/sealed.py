"""A block that is sealed: what its writer gets of it, and how long it will be. No lock: it does not change."""

from __future__ import annotations

from typing import NamedTuple

from .block import BLOCK_HEAD_BYTES, padded
from .record import HEAD_BYTES


class Sealed(NamedTuple):
    """One block."""

    lsn: int
    prev_lsn: int
    heads: list[bytes]
    payloads: list[bytes]
    payload_bytes: int
    base_lsn: int
    """As it was when the block was sealed: never behind the holes that the block tells of."""
    moved_bytes: int
    own_bytes: int
    flags: int

    @property
    def record_bytes(self) -> int:
        return HEAD_BYTES * len(self.heads) + self.payload_bytes

    @property
    def end_lsn(self) -> int:
        return self.lsn + padded(BLOCK_HEAD_BYTES + self.record_bytes)
