"""The extent of a log as of an earlier LSN: the containers that it had then, and whether all are still there.

Live records at an LSN were in the slots that the log had then: from its base on, without its reclaimed ranges. The
blocks before that LSN record both, as base and reclaimed ranges depend on records that were durable before they were
written. So does the first block behind it, unless the LSN lies inside a block: then it may depend on later records.

If each of these slots exists now, no live record is missing. A slot that was reclaimed since may have held records that
were live then and ended later; the log no longer shows whether it did. Records behind the LSN do not matter.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from contextlib import closing
from typing import NamedTuple

import numpy as np

from ...base.disk.real import RealFile, was_missing
from ...base.errors import DiskError
from ...journal.format import block, holes
from ...journal.format.block import BLOCK_HEAD_BYTES, BadBlock, Block
from ...journal.format.container import DATA_OFFSET
from ...journal.format.holes import Hole, hole_with
from ...journal.format.record import RecordType
from ..scan.files import Gap, Log, LogPiece, find_again


class _LogStart(NamedTuple):
    """The state of the log that a block records."""

    base_lsn: int = 0
    holes: tuple[Hole, ...] = ()

    def after(self, found: Block) -> _LogStart:
        """Return the state after the block *found*, which follows."""
        is_hole = found.table()["type"] == int(RecordType.LOG_HOLES)
        start = self.holes
        for number in np.flatnonzero(is_hole).tolist():
            start = tuple(holes.decode(found.payload(found.heads()[number])))
        return _LogStart(max(self.base_lsn, found.head.base_lsn), start)


class LogExtent(NamedTuple):
    """The containers of a log as of an LSN."""

    pieces: tuple[LogPiece, ...]
    """The containers that exist."""
    missing: Gap | None
    """The newest that was reclaimed since; None if all are there."""


def missing_as_of(log: Log, lsn: int) -> Gap | None:
    """The newest slot that the log had as of *lsn* and gave back since, None if all are there. Damage is passed by.

    At most two containers are read. Raises `DiskError`.
    """
    return None if log.journal and lsn >= log.durable_lsn else extent_as_of(log, lsn).missing


def extent_as_of(log: Log, lsn: int) -> LogExtent:
    """The containers that *log* had as of *lsn*. At most two are read. Raises `DiskError`."""
    start, last_lsn = _LogStart(log.base_lsn if lsn >= log.durable_lsn else 0), lsn
    at = bisect_left(log.pieces, lsn, key=lambda piece: piece.slot_lsn) - 1
    last = log.pieces[at] if at >= 0 else None
    following = log.pieces[at + 1] if at + 1 < len(log.pieces) else None
    end_lsn = 0 if last is None else last.slot_lsn + log.container_bytes
    removed = log.missing(end_lsn, lsn if following is None else following.slot_lsn)
    if any(gap.is_reclaimed and gap.first_lsn < lsn for gap in removed):
        if following is None or lsn < following.slot_lsn:
            return LogExtent(log.between(0, lsn), Gap(lsn - 1 - (lsn - 1) % log.container_bytes, lsn, True))
        start, last_lsn = _recorded_before(log, following, lsn, start)[0], following.prev_lsn
    else:
        is_all = False
        if last is not None:
            start, is_all = _recorded_before(log, last, lsn, start)
        if following is not None and not is_all and not removed:
            start, _ = _recorded_before(log, following, lsn, start)
        last_lsn = end_lsn - 1
    size = log.container_bytes
    pieces = log.between(start.base_lsn, lsn)
    there = tuple(piece for piece in pieces if hole_with(start.holes, piece.slot_lsn // size) is None)
    return LogExtent(there, _missing(log, last_lsn, start))


def whole_from(log: Log) -> int:
    """From this LSN on all is there as of any LSN: where a container begins, or the log's end."""
    begin = log.gaps[-1].end_lsn if log.gaps else 0
    pieces = log.between(begin, log.durable_lsn)
    # after the last missing slot, ever fewer reclaimed slots belonged to the log
    at = bisect_left(pieces, True, key=lambda piece: missing_as_of(log, piece.slot_lsn) is None)
    return pieces[at].slot_lsn if at < len(pieces) else log.durable_lsn


def _recorded_before(log: Log, piece: LogPiece, lsn: int, start: _LogStart) -> tuple[_LogStart, bool]:
    """Return *start* after the blocks of *piece* up to *lsn*, as in the module; and whether all were readable."""
    data = _content(log, piece)
    before, at = piece.prev_lsn, DATA_OFFSET
    while at < len(data):
        try:
            found = block.decode(data[at:], piece.slot_lsn + at, log.log_id)
        except BadBlock:
            break
        if found.head.prev_lsn != before:
            break
        if at == DATA_OFFSET:
            start = _LogStart(start.base_lsn)  # a container begins with all holes that there are
        start = start.after(found)
        if found.lsn + BLOCK_HEAD_BYTES >= lsn or found.record_lsn(found.head.records - 1) >= lsn:
            return start, True
        before, at = found.lsn, found.end_lsn - piece.slot_lsn
    return start, False


def _content(log: Log, piece: LogPiece) -> memoryview:
    """Return the content of the container, which may have moved; empty if it no longer exists."""
    found: LogPiece | None = piece
    while found is not None:
        try:
            file = RealFile(found.path, os.O_RDONLY)
        except DiskError as error:
            if not was_missing(error):
                raise
        else:
            with closing(file):
                data = file.read_at(0, log.container_bytes)
                if data[: len(found.head)] == found.head == file.read_at(0, len(found.head)):
                    return memoryview(data)
        found = find_again(log, piece.slot_lsn) if found is piece else None
    return memoryview(b"")


def _missing(log: Log, lsn: int, start: _LogStart) -> Gap | None:
    """The newest slot that is missing, of those up to the one of *lsn* that belong to the log by *start*."""
    size = log.container_bytes
    pieces = {piece.slot_lsn // size: piece for piece in log.between(start.base_lsn, lsn + 1)}
    slot = lsn // size
    while slot >= start.base_lsn // size:
        hole = hole_with(start.holes, slot)
        piece = pieces.get(slot)
        if hole is not None:
            prev_lsn = hole.prev_lsn
        elif piece is not None:
            prev_lsn = piece.prev_lsn
        else:
            gap = next(iter(log.missing(slot * size, slot * size + 1)), None)
            openings_lsn = log.start_of_openings(slot * size)
            if openings_lsn is None and (gap is None or gap.is_reclaimed):
                return Gap(slot * size, (slot + 1) * size, True)
            # it was lost, and with it what stood before it; or nothing but openings is missing
            prev_lsn = (slot * size if openings_lsn is None else openings_lsn) - 1
        if not 0 < prev_lsn < slot * size:
            break
        slot = prev_lsn // size
    return None
