"""The check that the payloads of intact blocks have the checksums of their records, without reading a payload.

A block's checksum is known to be valid. It covers the record headers and the payloads, one behind the other. So the
checksums of the headers and of the records combine to it only if the latter are those of the payloads. This is done
for many blocks at once.
"""

from __future__ import annotations

import numpy as np
from crc32c import crc32c

from ...journal.format.block import CRC, HEAD, Block
from ...journal.format.record import HEAD_BYTES, RecordHead
from ..inspect.dump import bad_payloads
from ..inspect.row_filter import RowFilter
from .checked_reader import CheckedReader
from .joined_crc import MAX_BYTES, Words, joined
from .verdicts import SALVAGE, Verdict

_WORDS = HEAD_BYTES // 4
_PLACE, _SIZE, _CRC = 1, 2, 3
"""Words of a record head: place, size and checksum of the payload."""
_MANY = 1 << 13
"""The minimum number of records with a payload that are checked together."""
_NO_HEAD = np.zeros((1, 3), np.uint32)


class PayloadSums:
    """Takes blocks in order; `check` ends it."""

    def __init__(self) -> None:
        self.doubtful: list[int] = []
        """The LSNs of blocks whose payload checksums do not match; `bad_payloads` finds the records."""
        self._gathered: list[tuple[int, int, int, Words]] = []
        """The LSN of each block, its checksum, that of its heads, and place, size and checksum of each payload."""
        self._waiting = 0

    def take(self, block: Block) -> None:
        """Gather the checksums of the payloads of *block*."""
        count, body = block.head.records, block.body
        first = HEAD_BYTES * count
        words = np.frombuffer(body, "<u4", count * _WORDS).reshape(count, _WORDS)
        pieces = words[np.flatnonzero(words[:, _SIZE]), _PLACE : _CRC + 1]
        payload_bytes = len(body) - first
        if payload_bytes >= MAX_BYTES or int(pieces[:, 1].sum()) != payload_bytes:
            self.doubtful.append(block.lsn)
            return
        of_heads = crc32c(body[:first], crc32c(HEAD.pack(*block.head)[CRC.size :]))
        self._gathered.append((block.lsn, block.head.crc32c, of_heads, pieces))
        self._waiting += len(pieces)
        if self._waiting >= _MANY:
            self.check()

    def check(self) -> None:
        """Look at what was gathered."""
        if not self._gathered:
            return
        lsns, wanted, of_heads, pieces = zip(*self._gathered, strict=True)
        self._gathered, self._waiting = [], 0
        counts = np.array([len(some) + 1 for some in pieces])
        begins = np.cumsum(counts) - counts
        places, sizes, crcs = np.concatenate([part for some in pieces for part in (_NO_HEAD, some)]).T
        sizes, crcs = sizes.astype(np.int64), crcs.copy()
        crcs[begins] = of_heads
        before = np.cumsum(sizes) - sizes
        are_apart = before - np.repeat(before[begins], counts) != places
        differ = joined(crcs, sizes, begins) != np.array(wanted, np.uint32)
        if are_apart.any():
            differ |= np.logical_or.reduceat(are_apart, begins)
        self.doubtful += [lsns[at] for at in np.flatnonzero(differ)]


def payload_verdicts(sums: PayloadSums, reader: CheckedReader) -> list[Verdict]:
    """A verdict for each damaged payload in the blocks that *sums* doubts by now.

    A payload's checksum was made when the record was appended, before the block was.
    """
    doubtful, sums.doubtful = sums.doubtful, []
    found = []
    for block_lsn in doubtful:
        block = reader.block_at(block_lsn)
        if block is None:  # it has left the log meanwhile
            continue
        rows = RowFilter().rows(block)
        heads = dict(rows)
        for lsn in sorted(bad_payloads(block, rows)):
            message_id = RecordHead._make(heads[lsn]).message_id
            what = f"the payload of the record at LSN {lsn} does not match its checksum, though its block is whole"
            lost = f"message {message_id}" if message_id else ""
            found.append(Verdict("corrupt", reader.file_name_of(lsn), what, lost, SALVAGE, lsn, lsn + HEAD_BYTES))
    return found
