"""The containers that a store has in an archive."""

from __future__ import annotations

import os

from ...analytics.scan.journal_directory import journal_of
from ...base.disk.real import RealDirectory
from ...journal.files.archive import archived_lsn
from ...journal.format import log_mark as mark
from ...recovery.salvageable import Finding
from ..inspect.dump import bad_payloads
from ..inspect.evidence import open_evidence
from ..inspect.journal_check import Progress
from ..inspect.row_filter import RowFilter
from .verdicts import Verdict, VerifyReport

_ALL = RowFilter()


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
    report.verdicts.append(Verdict(kind, found.place, found.reason, "history", remedy, found.first_lsn, found.end_lsn))
