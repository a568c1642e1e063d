"""The end of a log for its readers.

While a broker has the store, the view ends at the last LSN that the log itself records as durable. Otherwise it ends
where the next opening will: behind the last complete block that is on the disk. No log reuses an LSN below either.
"""

from __future__ import annotations

import os
from contextlib import closing

from ...base.disk.real import RealFile
from ...base.errors import DiskError
from ...journal.format import container
from ...journal.read.scanner import Damage, LogReader


def end_of(journal: str, reader: LogReader, recorded_lsn: int) -> int:
    """The end of the log in directory *journal*, whose blocks record that it is durable up to *recorded_lsn*."""
    from ...store.directory.lock import is_in_use  # with SQL: workers of Spark do without

    store = os.path.dirname(os.path.abspath(journal))
    if is_in_use(store):
        return recorded_lsn
    try:
        for slot, head in reader.heads.by_slot.items():
            if slot >= recorded_lsn // reader.container_bytes:
                _settle(os.path.join(journal, container.file_name(head.number)))
    except DiskError:
        return recorded_lsn
    end_lsn = recorded_lsn
    for found in reader.scan(recorded_lsn):
        if not isinstance(found, Damage):
            end_lsn = max(end_lsn, found.end_lsn)
        elif found.torn:
            break
    return recorded_lsn if is_in_use(store) else end_lsn


def _settle(path: str) -> None:
    """Have the file's content on the disk, and read from there, as recovery does."""
    with closing(RealFile(path, os.O_RDONLY)) as file:
        file.sync()
        file.forget()
