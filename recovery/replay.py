"""Blocks read back become state: their head tables are gathered for a slot and taken in at once."""

from __future__ import annotations

import numpy as np

from ..base.errors import ForeignStore
from ..journal.block import BLOCK_HEAD_BYTES, Block
from ..journal.record import HEAD_BYTES, TABLE, RecordType
from ..store.state import Lsns, State

_KNOWN = np.zeros(256, bool)
_KNOWN[
    [
        RecordType.START, RecordType.CHUNK, RecordType.DELETE, RecordType.ENQUEUE, RecordType.DEQUEUE,
        RecordType.LOG_OPEN, RecordType.LOG_HOLES,
    ]
] = True  # fmt: skip
_MANY = 1 << 16
"""So many records are taken in at once, at most a block more."""


class Replay:
    """Takes blocks in order. `apply` ends it."""

    def __init__(self, state: State, place: str, container_bytes: int) -> None:
        self._state = state
        self._place = place
        self._container_bytes = container_bytes
        self._slot = -1
        self._records = 0
        self._tables: list[Lsns] = []  # as plain numbers: tables of structures are joined slowly
        self._lsns: list[Lsns] = []

    def take(self, block: Block) -> None:
        """Gather *block*. Raises `ForeignStore` at once for a record of an unknown type: nothing is changed yet."""
        slot = block.lsn // self._container_bytes
        if slot != self._slot or self._records > _MANY:
            self.apply()
            self._slot = slot
        count = block.head.records
        heads = np.frombuffer(block.body, TABLE, count)
        first = block.lsn + BLOCK_HEAD_BYTES
        if not (known := _KNOWN[heads["type"]]).all():
            stranger = int(np.argmin(known))
            raise ForeignStore(
                f"{self._place}: LSN {first + HEAD_BYTES * stranger}",
                f"a record of type {heads['type'][stranger]}, which this program does not know",
                "use the CairnMQ version that wrote it",
            )
        self._tables.append(heads.view(np.uint64))
        self._lsns.append(np.arange(first, first + HEAD_BYTES * count, HEAD_BYTES, dtype=np.uint64))
        self._records += count

    def apply(self) -> None:
        """Take in what was gathered."""
        if not self._tables:
            return
        heads, lsns = np.concatenate(self._tables).view(TABLE), np.concatenate(self._lsns)
        self._tables, self._lsns, self._records = [], [], 0
        self._state.apply_all(lsns, heads)
