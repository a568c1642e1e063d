"""From the path of a store, a backup or a journal to what `verify` looks at; and the archive beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from ..base.errors import ForeignStore
from ..disk.real import RealDirectory
from ..journal import container, mark
from ..journal.archive import archived_lsn
from ..recovery.remains import Finding
from ..store.checkpoint_file import LmdbFile
from ..store.kind import need_journal
from ..store.names import CHECKPOINT_NAME, JOURNAL_NAME, MANIFEST_NAME
from ..store.rescue import Rescued
from ..store.sql import parse_address
from ..store.wiring import FILE_NAME as WIRING_NAME
from ..store.wiring import Wiring
from ..store.wiring_place import told_place
from .checking import Progress
from .dump import bad_payloads
from .evidence import open_evidence
from .selection import Selection
from .verdicts import Verdict, VerifyReport
from .verify import Verify
from .verify_sql import read_wiring

_ALL = Selection()


def verify_store(
    report: VerifyReport, progress: Progress, connect: str | None = None, catalog: str | None = None
) -> None:
    """Verify the store, the backup or the journal at `report.store`. Raises `CairnError` for what is none of them."""
    path = report.store
    journal = journal_of(path)
    if journal == path:  # a journal alone: nothing is beside it
        Verify(report, RealDirectory(journal), None, None, progress).run()
        return
    read_sql: Callable[[], Rescued] | None = partial(read_wiring, os.path.join(path, WIRING_NAME))
    where = told_place(path)
    if connect is not None:
        read_sql = partial(_ask, connect, catalog)
    elif where:
        read_sql = None
        what = f"the wiring is in {where}: without --connect it is not compared with the journal"
        report.verdicts.append(Verdict("note", "SQL", what))
    is_backup = os.path.lexists(os.path.join(path, MANIFEST_NAME))
    checkpoint = None if is_backup else LmdbFile(os.path.join(path, CHECKPOINT_NAME))
    Verify(report, RealDirectory(journal), read_sql, checkpoint, progress).run()


def journal_of(path: str) -> str:
    """The directory of the journal that *path* names, or that of its store. Raises `CairnError` for what is neither."""
    names = RealDirectory(path).names()
    if mark.NAME in names or any(container.file_number(name) is not None for name in names):
        return path
    need_journal(path)
    if JOURNAL_NAME not in names:
        raise ForeignStore(path, "no journal in it", "name a store directory")
    return os.path.join(path, JOURNAL_NAME)


def _ask(connect: str, catalog: str | None) -> Rescued:
    wiring = Wiring.connect(parse_address(connect, catalog), alone=False)
    try:
        return Rescued(wiring.owner(), wiring.rows(), "")
    finally:
        wiring.close()


def verify_archive(report: VerifyReport, path: str, progress: Progress) -> None:
    """Verify what the store at `report.store` has in the archive at *path*."""
    known = mark.read(RealDirectory(journal_of(report.store)))
    names = [name for name in RealDirectory(path).names() if archived_lsn(name) is not None]
    own = names if known is None else [name for name in names if f"-{known.log_uuid.hex[:8]}." in name]
    report.checked.append("archive")
    if not own:
        report.verdicts.append(Verdict("note", path, "nothing of this log is in the archive"))
        return
    evidence = open_evidence([os.path.join(path, name) for name in own])
    total = sum(os.path.getsize(os.path.join(path, name)) for name in own if os.path.exists(os.path.join(path, name)))
    done, file = 0, ""
    for found in evidence.scan():
        if isinstance(found, Finding):
            _tell(report, found)
            continue
        name, block = found
        if name != file:
            file = name
            report.containers += 1
            progress("reading the archive", done, total)
        done += block.end_lsn - block.lsn
        report.blocks += 1
        report.records += block.head.records
        for lsn in bad_payloads(block, _ALL.rows(block)):
            what = f"the payload of the record at LSN {lsn} does not match its checksum, though its block is whole"
            report.verdicts.append(Verdict("corrupt", name, what, "history", first_lsn=lsn, end_lsn=lsn + 64))
    report.bytes += done
    report.verdicts += [Verdict("note", "archive", remark) for remark in evidence.remarks()]


def _tell(report: VerifyReport, found: Finding) -> None:
    kind, remedy = found.kind, "take the file from a backup of the archive; the store itself does not need it"
    report.verdicts.append(Verdict(kind, found.place, found.why, "history", remedy, found.first_lsn, found.end_lsn))
