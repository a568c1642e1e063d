"""The containers that a store has in an archive."""

from __future__ import annotations

import os
from functools import partial

from ...analytics.scan.journal_directory import journal_of
from ...base.disk.real import RealDirectory
from ...base.errors import ForeignStore
from ...journal.files.archive import archived_lsn
from ...journal.format import log_mark as mark
from ...journal.format.container import file_name
from ...journal.read.container_chain import ChainedContainer, chain_breaks
from ...journal.read.container_heads import ContainerHeads
from ...recovery.salvageable import Finding
from ...store.directory.archive_lease import chained_in, refuse_other_copy
from ..inspect.dump import bad_payloads
from ..inspect.evidence import open_evidence
from ..inspect.journal_check import Progress, byte_counter
from ..inspect.row_filter import RowFilter
from .verdicts import Verdict, VerifyReport


def _foreign(store: str, path: str) -> list[Verdict]:
    """Return where the archived containers, and the log, are not of one history."""
    journal = RealDirectory(journal_of(store))
    archive = RealDirectory(path)
    heads = ContainerHeads(journal)
    known = [
        ChainedContainer(number, head, partial(journal.open, number))
        for head in heads.by_slot.values() if head.slot_lsn >= heads.base_lsn and (number := file_name(head.number))
    ]  # fmt: skip
    known += chained_in(archive, heads.log_uuid)
    try:
        refuse_other_copy(journal.path, path, heads.log_uuid)
    except ForeignStore as error:
        return [Verdict("corrupt", error.place, error.reason, "history", error.remedy)]
    remedy = "another store of the same origin used this archive: give each its own, and move the other's files there"
    return [
        Verdict("corrupt", found.earlier.place, f"not of the history of {found.later.place}: {found.reason}", "history",
                remedy, found.earlier.head.slot_lsn, found.later.head.slot_lsn)
        for found in chain_breaks(known, heads.log_id)
    ]  # fmt: skip


def verify_archive(report: VerifyReport, path: str, progress: Progress) -> None:
    """Verify what the store at `report.store` has in the archive at *path*."""
    known = mark.read(RealDirectory(journal_of(report.store)))
    names = [name for name in RealDirectory(path).names() if archived_lsn(name) is not None]
    own = names if known is None else [name for name in names if f"-{known.log_uuid.hex[:8]}." in name]
    report.checked.append("archive")
    if not own:
        report.verdicts.append(Verdict("note", path, "nothing of this log is in the archive"))
        return
    report.verdicts += _foreign(report.store, path)
    evidence = open_evidence([os.path.join(path, name) for name in own])
    total = sum(os.path.getsize(os.path.join(path, name)) for name in own if os.path.exists(os.path.join(path, name)))
    add, file, all_records = byte_counter("reading the archive", total, progress), "", RowFilter()
    for found in evidence.scan():
        if isinstance(found, Finding):
            remedy = "take the file from a backup of the archive; the store itself does not need it"
            lsns = found.first_lsn, found.end_lsn
            report.verdicts.append(Verdict(found.kind, found.place, found.reason, "history", remedy, *lsns))
            continue
        name, block = found
        report.containers += name != file
        file = name
        add(block.end_lsn - block.lsn)
        report.bytes += block.end_lsn - block.lsn
        report.blocks += 1
        report.records += block.head.records
        for lsn in bad_payloads(block, all_records.rows(block)):
            what = f"the payload of the record at LSN {lsn} does not match its checksum, though its block is whole"
            report.verdicts.append(Verdict("corrupt", name, what, "history", first_lsn=lsn, end_lsn=lsn + 64))
    report.verdicts += [Verdict("note", "archive", remark) for remark in evidence.remarks()]
