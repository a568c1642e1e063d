"""Which records are meant: ranges of LSNs and time, types, queues, messages. What is not given admits all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..base.errors import CairnError
from ..journal.record import Flag, RecordType, type_name

TYPES = {type_name(kind): int(kind) for kind in RecordType}
"""What a record type is called, to its number."""


@dataclass(frozen=True)
class Selection:
    """An empty tuple admits all."""

    start_lsn: int = 0
    end_lsn: int | None = None
    """The first LSN that is not meant."""
    start_us: int | None = None
    end_us: int | None = None
    """The first microsecond since 1970 that is not meant."""
    types: tuple[int, ...] = ()
    queue_ids: tuple[int, ...] = ()
    message_ids: tuple[int, ...] = ()

    def rows(
        self, table: npt.NDArray[np.void], rows: npt.NDArray[np.int64], lsn: int
    ) -> npt.NDArray[np.int64]:
        """Those of *rows* in *table*, which stands at *lsn*, that are meant."""
        if self.start_lsn > lsn or (self.end_lsn is not None and self.end_lsn < lsn + table.nbytes):
            first = -(-(self.start_lsn - lsn) // table.itemsize)
            end = len(table) if self.end_lsn is None else -(-(self.end_lsn - lsn) // table.itemsize)
            rows = rows[np.searchsorted(rows, first) : np.searchsorted(rows, end)]
        if self.types:
            rows = rows[np.isin(table["type"][rows], np.array(self.types, np.uint8))]
        if self.queue_ids:
            rows = rows[np.isin(table["queue_id"][rows], np.array(self.queue_ids, np.uint64))]
        if self.message_ids:
            rows = rows[np.isin(table["message_id"][rows], np.array(self.message_ids, np.uint64))]
        if self.start_us is not None:
            rows = rows[table["time_us"][rows] >= np.uint64(max(self.start_us, 0))]
        if self.end_us is not None:
            rows = rows[table["time_us"][rows] < np.uint64(max(self.end_us, 0))]
        return rows


def types_named(names: list[str]) -> tuple[int, ...]:
    """The numbers of record types by their names. Raises `CairnError` for a name that there is not."""
    for name in names:
        if name not in TYPES:
            raise CairnError(f"type {name!r}", "there is no such record type", f"one of {', '.join(TYPES)}")
    return tuple(TYPES[name] for name in names)


FLAGS = {"enqueue": Flag.ENQUEUE, "delete": Flag.DELETE, "more": Flag.MORE, "moved": Flag.MOVED,
         "prepared": Flag.PREPARED}  # fmt: skip
"""What a flag is called."""
