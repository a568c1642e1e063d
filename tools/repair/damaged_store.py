"""Examination of a damaged store: its journal surveyed, its wiring rescued. The store is only read."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import NamedTuple

from ...base.disk.real import RealDirectory
from ...base.errors import DiskError, ForeignStore, MissingStore
from ...recovery.damage_survey import Survey, survey
from ...recovery.log_identity import NoLog
from ...recovery.salvageable import Finding, log_id_of
from ...store.contract.layout import JOURNAL_NAME
from ...store.contract.wiring_rows import QueueRow, Rows
from ...store.directory.kind import need_journal
from ...store.message_map.placement import on_queues
from ...store.wiring.location import has_sqlite, refuse_elsewhere
from ...store.wiring.rescue import Rescued, rescue
from ...store.wiring.wiring import FILE_NAME as WIRING_NAME
from ..inspect.journal_check import Progress
from ..inspect.store_wiring import connected_wiring
from .salvage_report import SalvageReport


class DamagedStore(NamedTuple):
    """A damaged store, read through."""

    report: SalvageReport
    survey: Survey | None
    """The survey; None without a usable journal."""
    rows: Rows
    """The rows of the new wiring."""

    @property
    def is_sound(self) -> bool:
        """Return whether a broker starts on the store as it is, and finds everything."""
        return self.survey is not None and not self.report.findings and not self.survey.directory.remarks


def check_store(path: str) -> None:
    """Raises `ForeignStore` unless *path* is a store, or what is left of one."""
    if not os.path.isdir(path):
        reason = "not a directory" if os.path.exists(path) else "no such directory"
        raise MissingStore(path, reason, "name a store directory")
    need_journal(path)
    if not any(os.path.lexists(os.path.join(path, name)) for name in (JOURNAL_NAME, WIRING_NAME)):
        reason = f"no store: neither {JOURNAL_NAME} nor {WIRING_NAME} is in it"
        raise ForeignStore(path, reason, "name a store directory")


def examine(path: str, progress: Progress, connect: str | None = None, catalog: str | None = None) -> DamagedStore:
    """Read the store at *path*, which the caller has locked."""
    report = SalvageReport(path)
    if connect is None:
        refuse_elsewhere(path)
        rescued = rescue(os.path.join(path, WIRING_NAME))
    else:
        rescued = _ask_server(path, connect, catalog)
    found = _survey(os.path.join(path, JOURNAL_NAME), rescued, report, progress)
    if found is not None and rescued.uuid and log_id_of(rescued.uuid) != log_id_of(found.mark.log_uuid):
        whose = f"it is of store {rescued.uuid}, the journal of store {found.mark.log_uuid}"
        rescued = Rescued(None, Rows(), whose)
    if rescued.reason:
        report.findings.append(Finding("corrupt", 0, 0, WIRING_NAME, rescued.reason))
    queues = _queues(rescued, found, report)
    report.queue_names = {row.id: row.name for row in queues}
    return DamagedStore(report, found, replace(rescued.rows, queues=queues, going=[]))


def _ask_server(path: str, connect: str, catalog: str | None) -> Rescued:
    if has_sqlite(path):
        raise ForeignStore(path, "its wiring is in SQLite, not on a server", "leave --connect out")
    with connected_wiring(connect, catalog) as wiring:
        uuid = wiring.owner()
        if uuid is None:
            raise ForeignStore(wiring.place, "there is no wiring", wiring.database.remedy)
        return Rescued(uuid, wiring.rows(), "")


def _survey(journal: str, rescued: Rescued, report: SalvageReport, progress: Progress) -> Survey | None:
    """Return the survey of the journal; None without a journal, which *report* then states."""
    try:
        found = survey(
            RealDirectory(journal),
            rescued.queue_names,
            rescued.uuid,
            lambda done, total: progress("reading the journal", done, total),
        )
    except (NoLog, DiskError) as error:
        report.findings.append(Finding("corrupt", 0, 0, JOURNAL_NAME, error.reason))
        return None
    report.findings += found.findings
    report.gaps = found.gaps
    return found


def _queues(rescued: Rescued, found: Survey | None, report: SalvageReport) -> list[QueueRow]:
    """All queues but those that are going, also such that have messages and whose name is lost."""
    queues = {row.id: row for row in rescued.rows.queues}
    names = {row.name for row in rescued.rows.queues}
    going = {row.id for row in rescued.rows.going}
    for queue_id in on_queues(found.state) if found is not None else ():
        if queue_id not in queues and queue_id not in going:
            name = f"salvaged-{queue_id}"
            while name in names:
                name += "-"
            queues[queue_id] = QueueRow(queue_id, name)
            names.add(name)
            report.unnamed.append(name)
    return list(queues.values())
