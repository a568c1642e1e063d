"""The record heads of a block as a numpy table, for questions that look at many records at once."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...analytics.scan.number_sets import Longs
from ...journal.format.block import BLOCK_HEAD_BYTES, Block
from ...journal.format.record import HEAD_BYTES, TABLE


def heads_of_block(block: Block) -> npt.NDArray[np.void]:
    """The record heads of *block*, not copied, with the fields of `journal.format.record.TABLE`."""
    return np.frombuffer(block.body, TABLE, block.head.records)


class BlockTable:
    """The record heads of one block and their LSNs; a `HeadTable` for selections."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.lsn = block.head.lsn
        self._first_lsn = block.head.lsn + BLOCK_HEAD_BYTES
        self.end_lsn = self._first_lsn + block.head.records * HEAD_BYTES

    @cached_property
    def lsns(self) -> Longs:
        """The LSN of each record of the block, in order."""
        return np.arange(self._first_lsn, self.end_lsn, HEAD_BYTES, dtype=np.int64)

    @cached_property
    def heads(self) -> npt.NDArray[np.void]:
        """The heads; not copied."""
        return heads_of_block(self.block)
