"""The salvage: everything that is whole in a damaged store, made into a new one. The damaged store is only read.

The new store is another log, with a UUID and LSNs of its own; its queues have the ids and the names they had. It is
built beside its place and moved there when it is complete, so that a salvage that is broken off leaves no store that
looks like all there was.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import NamedTuple
from uuid import uuid4

from ..base.clock import Clock
from ..base.errors import CairnError, DiskError, ForeignStore
from ..disk.real import RealDirectory, disk_error
from ..recovery.identity import NoLog
from ..recovery.recover import open_store
from ..recovery.remains import Finding, log_id_of
from ..recovery.survey import Survey, survey
from ..store.directory import lock_unchanged
from ..store.kind import need_journal
from ..store.names import JOURNAL_NAME
from ..store.options import StoreOptions
from ..store.placement import on_queues
from ..store.rescue import Rescued, rescue
from ..store.sql import parse_address
from ..store.wiring import FILE_NAME as WIRING_NAME
from ..store.wiring import QueueRow, Rows, Wiring
from ..store.wiring_place import has_sqlite, refuse_elsewhere
from .copying import Copying, Progress
from .quarantine import QUARANTINE_NAME, Quarantine
from .salvage_report import SalvageReport


class Examined(NamedTuple):
    """A damaged store, read through."""

    report: SalvageReport
    survey: Survey | None
    """None if there is no journal to speak of."""
    rows: Rows
    """What the new wiring is to say."""

    @property
    def is_sound(self) -> bool:
        """Whether a broker starts on the store as it is, and finds everything."""
        return self.survey is not None and not self.report.findings and not self.survey.directory.remarks


def salvage(
    path: str, target: str, clock: Clock, progress: Progress, connect: str | None = None, catalog: str | None = None
) -> SalvageReport:
    """Salvage the store at *path* into a new store at *target*, where nothing may be yet.

    *connect* and *catalog* name the server that the wiring is on; that of the new store is in SQLite.
    Raises `StoreInUse` while a broker runs on it, `ForeignStore` for what is no store or a newer one, `DiskError`, and
    what SQL means.
    """
    check_store(path)
    if (os.path.realpath(target) + os.sep).startswith(os.path.realpath(path) + os.sep):
        raise CairnError(target, "it lies in the damaged store", "name a directory outside of it")
    building = target.rstrip(os.sep) + ".salvaging"
    for place, why in ((target, "there is something already"), (building, "left by a salvage that was broken off")):
        if os.path.lexists(place):
            raise CairnError(place, why, "name another directory, or remove it")
    fd = lock_unchanged(path)
    try:
        examined = examine(path, progress, connect, catalog)
        examined.report.salvaged = target
        build(examined, building, clock, progress)
        try:
            os.rename(building, target)
        except OSError as error:
            raise disk_error(building, f"rename to {target}", error) from error
        RealDirectory(os.path.dirname(os.path.abspath(target))).sync()
    finally:
        if fd >= 0:
            os.close(fd)
    return examined.report


def check_store(path: str) -> None:
    """`CairnError` unless *path* is a store, or what is left of one."""
    if not os.path.isdir(path):
        raise CairnError(path, "not a directory", "name a store directory")
    need_journal(path)
    if not any(os.path.lexists(os.path.join(path, name)) for name in (JOURNAL_NAME, WIRING_NAME)):
        why = f"no store: neither {JOURNAL_NAME} nor {WIRING_NAME} is in it"
        raise ForeignStore(path, why, "name a store directory")


def examine(path: str, progress: Progress, connect: str | None = None, catalog: str | None = None) -> Examined:
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
    if rescued.why:
        report.findings.append(Finding("corrupt", 0, 0, WIRING_NAME, rescued.why))
    queues = _queues(rescued, found, report)
    report.queue_names = {row.id: row.name for row in queues}
    return Examined(report, found, replace(rescued.rows, queues=queues, going=[]))


def _ask_server(path: str, connect: str, catalog: str | None) -> Rescued:
    if has_sqlite(path):
        raise ForeignStore(path, "its wiring is in SQLite, not on a server", "leave --connect out")
    wiring = Wiring.connect(parse_address(connect, catalog), alone=False)
    try:
        uuid = wiring.owner()
        if uuid is None:
            raise ForeignStore(wiring.place, "there is no wiring", wiring.remedy)
        return Rescued(uuid, wiring.rows(), "")
    finally:
        wiring.close()


def build(examined: Examined, building: str, clock: Clock, progress: Progress) -> None:
    """Make the new store in the directory *building*, with its quarantine, and fill in the report."""
    report, found, rows = examined
    _make_wiring(building, rows)
    quarantine = Quarantine(os.path.join(building, QUARANTINE_NAME), report)
    options = StoreOptions() if found is None else StoreOptions(container_bytes=found.mark.container_bytes)
    store, _ = open_store(building, clock, options)
    try:
        if found is not None:
            Copying(found, store, report, quarantine, progress).run()
    finally:
        store.close()
    if found is not None:
        quarantine.keep_gaps(found)
        report.remarks = found.remarks()
    quarantine.close(json.dumps(report.fields(), indent=1))


def _survey(journal: str, rescued: Rescued, report: SalvageReport, progress: Progress) -> Survey | None:
    """The survey of the journal; None if there is none, which is told in *report*."""
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


def _make_wiring(building: str, rows: Rows) -> None:
    RealDirectory(os.path.join(building, JOURNAL_NAME), create=True)
    wiring = Wiring.open(os.path.join(building, WIRING_NAME))
    try:
        wiring.restore(uuid4(), rows, formatted=False)
    finally:
        wiring.close()
