"""Replay of journal blocks into the state: the records of a slot are collected, and applied at once if many."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from ..base.errors import ForeignStore
from ..journal.format.block import BLOCK_HEAD_BYTES, Block
from ..journal.format.record import END_NOTES, FIRST_NOTE, HEAD_BYTES, TABLE, RecordType
from ..store.message_map.bulk_apply import apply_all
from ..store.message_map.reconciliation import reconcile
from ..store.message_map.state import State

_KNOWN = bytes(
    [
        RecordType.START, RecordType.CHUNK, RecordType.DELETE, RecordType.ENQUEUE, RecordType.DEQUEUE,
        RecordType.DTX_START, RecordType.TX_START, RecordType.TX_END, RecordType.TX_PREPARE, RecordType.TX_COMMIT,
        RecordType.TX_ROLLBACK, RecordType.TX_DELETE, RecordType.LOG_OPEN, RecordType.QUEUE_DELETE,
        RecordType.LOG_HOLES, *range(FIRST_NOTE, END_NOTES),
    ]
)  # fmt: skip
_MANY = 1 << 16
"""The number of records that are applied at once, at most a block more."""
_FEW = 32
"""The number of records below which applying them one by one is faster."""


class Replay:
    """A batch that collects blocks in order and applies them to a state. Call `apply` after the last one."""

    def __init__(self, state: State, place: str, container_bytes: int) -> None:
        self.state = state
        self._place = place
        self._container_bytes = container_bytes
        self._slot = -1
        self._records = 0
        self._blocks: list[Block] = []

    def take(self, block: Block) -> None:
        """Gather *block*. Raises `ForeignStore` at once for a record of an unknown type: nothing is changed yet."""
        slot = block.lsn // self._container_bytes
        if slot != self._slot or self._records > _MANY:
            self.apply()
            self._slot = slot
        count = block.head.records
        kinds = bytes(block.body[: HEAD_BYTES * count : HEAD_BYTES])
        if strangers := kinds.translate(None, _KNOWN):
            raise ForeignStore(
                f"{self._place}: LSN {block.record_lsn(kinds.index(strangers[0]))}",
                f"a record of type {strangers[0]}, which this program does not know",
                "use the CairnMQ version that wrote it",
            )
        self._blocks.append(block)
        self._records += count

    def apply(self) -> None:
        """Apply the collected records to the state."""
        blocks, self._blocks = self._blocks, []
        count, self._records = self._records, 0
        if count < _FEW or not self._take_in_at_once(blocks):
            for block in blocks:
                for number, head in enumerate(block.heads()):
                    self.state.apply(block.record_lsn(number), head, partial(block.payload, head))

    def reconcile(self, slots: Mapping[int, int]) -> dict[int, int]:
        """Check the state against the slots of the log; return the number of messages on each queue.

        Raises `JournalError` if they contradict each other.
        """
        return reconcile(self.state, slots)

    def _take_in_at_once(self, blocks: list[Block]) -> bool:
        heads = [block.table().view(np.uint64) for block in blocks]
        firsts = [(block.lsn + BLOCK_HEAD_BYTES, HEAD_BYTES * block.head.records) for block in blocks]
        lsns = [np.arange(first, first + size, HEAD_BYTES, dtype=np.uint64) for first, size in firsts]
        # joined as plain numbers: tables of structures are joined slowly
        return apply_all(self.state, np.concatenate(lsns), np.concatenate(heads).view(TABLE))
