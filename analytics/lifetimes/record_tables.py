"""The records of a log on messages, queues and transactions, gathered as tables of numbers.

A record takes 58 bytes, and derived tables take some hundred more, so a part of the messages can be requested. The
dominant cost is memory that is touched for the first time: types and flags keep their size in the log, and no table is
copied if a mask is sufficient.

Copies by compaction do not change the result. A place on a queue is identified by the LSN of the record that first
enqueued it, a message by its ID, an end by its target. A copy therefore has no additional effect, and replaces a
missing original.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...journal.format.record import FIRST_NOTE, Flag, RecordType
from ..scan.files import Log, LogPiece
from ..scan.log_scan import ScanOptions, scan_piece, scanner_of
from ..scan.number_sets import Flags, Longs, is_ascending, last_of_each
from ..scan.scanner import Damaged, Window

Bytes = npt.NDArray[np.uint8]
_FIELDS = ("type", "flags", "size", "message_id", "queue_id", "txn_id", "time_us", "extra")
_KINDS = {"lsn": np.int64, **dict.fromkeys(_FIELDS, np.int64), "type": np.uint8, "flags": np.uint8, "size": np.uint32}
_MAY_TELL = np.zeros(256, bool)
"""By type, whether the payload concerns messages or transactions; that of a commit does only in copies."""
_MAY_TELL[[RecordType.DTX_START, RecordType.TX_END, RecordType.QUEUE_DELETE, RecordType.TX_COMMIT]] = True


class RecordTables(NamedTuple):
    """Records side by side, in the order of LSNs."""

    lsn: Longs
    type: Bytes
    flags: Bytes
    size: npt.NDArray[np.uint32]
    message_id: Longs
    queue_id: Longs
    txn_id: Longs
    time_us: Longs
    extra: Longs
    payloads: dict[int, bytes]
    """The payloads that concern messages or transactions, by LSN."""
    damage: tuple[Damaged, ...]
    """The unreadable ranges among the records."""
    gaps: tuple[int, ...]
    """The LSNs at which missing ranges begin."""

    @property
    def breaks(self) -> Longs:
        """The LSNs, ascending, at which unreadable or missing ranges begin."""
        return np.array(sorted((*self.gaps, *(one.first_lsn for one in self.damage))), np.int64)

    def where(self, chosen: Flags) -> RecordTables:
        """Return the records in the mask."""
        return self.at(np.flatnonzero(chosen))

    def of_type(self, kind: RecordType) -> RecordTables:
        return self.where(self.type == int(kind))

    def has(self, flag: Flag) -> Flags:
        found: Flags = (self.flags & int(flag)) != 0
        return found

    def at(self, chosen: Longs) -> RecordTables:
        """Return the records with these numbers."""
        fields = {name: getattr(self, name)[chosen] for name in ("lsn", *_FIELDS)}
        return self._replace(**fields)


def gather(log: Log, pieces: Iterable[LogPiece], how: ScanOptions, ids: tuple[int, int] | None = None) -> RecordTables:
    """Gather the records of *pieces*.

    *ids*: the range of messages to include. Records of transactions, queues and openings of the log are included in any
    case, and so are the record before each opening, and the last one.
    """
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in ("lsn", *_FIELDS)}
    payloads: dict[int, bytes] = {}
    damage: list[Damaged] = []
    scanner = scanner_of(log, how, lambda heads: bool(_MAY_TELL[heads["type"]].any()))
    for piece in pieces:
        for window in scan_piece(log, piece, how, scanner):
            if isinstance(window, Damaged):
                damage.append(window)
                continue
            chosen = _about(window, ids)
            heads = window.heads if chosen is None else window.heads[chosen]
            parts["lsn"].append(window.lsns if chosen is None else window.lsns[chosen])
            for name in _FIELDS:
                values = heads[name].copy()  # the buffer is used again; one value alone is contiguous as it stands
                parts[name].append(values.view(np.int64) if values.itemsize == 8 else values)
            kinds, flags = parts["type"][-1], parts["flags"][-1]
            reported = np.flatnonzero(
                _MAY_TELL[kinds] & ((kinds != int(RecordType.TX_COMMIT)) | ((flags & Flag.MOVED) != 0))
            )
            if len(reported):
                payloads.update(zip(
                    parts["lsn"][-1][reported].tolist(),
                    window.payloads(reported if chosen is None else chosen[reported]), strict=True,
                ))  # fmt: skip
    joined = {
        name: np.concatenate(some) if (some := parts.pop(name)) else np.empty(0, kind) for name, kind in _KINDS.items()
    }  # fmt: skip
    gaps = tuple(gap.first_lsn for gap in log.gaps)
    return RecordTables(**joined, payloads=payloads, damage=tuple(damage), gaps=gaps)


def content_records(tables: RecordTables) -> RecordTables:
    """The newest record of each piece of content, original or copy, by message and number of the piece."""
    pieces = tables.where((tables.type == int(RecordType.START)) | (tables.type == int(RecordType.CHUNK)))
    if is_ascending(pieces.message_id, strictly=True):
        return pieces
    number = np.where(pieces.type == int(RecordType.CHUNK), pieces.extra, 0)
    return pieces.at(last_of_each(pieces.message_id, number))


def _about(window: Window, ids: tuple[int, int] | None) -> Longs | None:
    """Return the numbers of the records about messages in this range, or about none; None for all."""
    kinds = window.heads["type"]
    counts = (kinds != int(RecordType.LOG_HOLES)) & (kinds < FIRST_NOTE)
    if ids is None:
        return None if counts.all() else np.flatnonzero(counts)
    rows = np.flatnonzero(counts)
    messages = window.heads["message_id"][rows].view(np.int64)
    chosen = (messages == 0) | ((messages >= ids[0]) & (messages < ids[1]))
    opens = np.flatnonzero(kinds[rows] == int(RecordType.LOG_OPEN))
    chosen[opens[opens > 0] - 1] = True
    chosen[-1:] = True  # an opening, or nothing, may follow in the next window
    found: Longs = rows[chosen]
    return found
