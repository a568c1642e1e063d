"""The salvage: everything that is whole in a damaged store, made into a new one. The damaged store is only read.

The new store is another log, with a UUID and LSNs of its own; its queues have the ids and the names they had. It is
built beside its place and moved there when it is complete, so that a salvage that is broken off leaves no store that
looks like all there was.
"""

from __future__ import annotations

import json
import os
from contextlib import closing
from uuid import uuid4

from ...base.clock import Clock
from ...base.disk.real import RealDirectory
from ...base.errors import CairnError
from ...recovery.recover import open_store
from ...store.contract.layout import JOURNAL_NAME
from ...store.contract.options import StoreOptions
from ...store.contract.wiring_rows import Rows
from ...store.directory.lock import StoreLock
from ...store.wiring.wiring import FILE_NAME as WIRING_NAME
from ...store.wiring.wiring import Wiring
from ..inspect.journal_check import Progress
from .damaged_store import DamagedStore, check_store, examine
from .message_copy import MessageCopy
from .partial_directory import check_new, move_complete
from .quarantine import QUARANTINE_NAME, Quarantine
from .salvage_report import SalvageReport


def salvage(
    path: str, target: str, clock: Clock, progress: Progress, connect: str | None = None, catalog: str | None = None
) -> SalvageReport:
    """Salvage the store at *path* into a new store at *target*, where nothing may be yet.

    *connect* and *catalog* name the server that the wiring is on; that of the new store is in SQLite.
    Raises `StoreInUse` while a broker runs on it, `ForeignStore` for what is no store or a newer one, `DiskError`, and
    what SQL means.
    """
    check_store(path)
    building = _check_target(path, target)
    with closing(StoreLock(path, writes=False)):
        examined = examine(path, progress, connect, catalog)
        examined.report.salvaged = target
        build(examined, building, clock, progress)
        move_complete(building, target)
    return examined.report


def preview(
    path: str, target: str | None, progress: Progress, connect: str | None = None, catalog: str | None = None
) -> DamagedStore:
    """Examine the store at *path* as a salvage to *target*, or in place, does, and write nothing.

    Raises the errors of `salvage`.
    """
    check_store(path)
    if target is not None:
        _check_target(path, target)
    with closing(StoreLock(path, writes=False)):
        examined = examine(path, progress, connect, catalog)
    if examined.survey is not None:
        examined.report.remarks = examined.survey.remarks()
    return examined


def _check_target(path: str, target: str) -> str:
    """Return the directory in which the new store is built. Raises `CairnError` if it or *target* can't be used."""
    if (os.path.realpath(target) + os.sep).startswith(os.path.realpath(path) + os.sep):
        raise CairnError(target, "it lies in the damaged store", "name a directory outside of it")
    building = target.rstrip(os.sep) + ".salvaging"
    check_new(target, building, "left by a salvage that was interrupted")
    return building


def build(examined: DamagedStore, building: str, clock: Clock, progress: Progress) -> None:
    """Make the new store in the directory *building*, with its quarantine, and fill in the report."""
    report, found, rows = examined
    make_wiring(building, rows)
    quarantine = Quarantine(os.path.join(building, QUARANTINE_NAME))
    report.files = quarantine.files
    options = StoreOptions() if found is None else StoreOptions(container_bytes=found.mark.container_bytes)
    store, _ = open_store(building, clock, options)
    with closing(store):
        if found is not None:
            MessageCopy(found, store, report, quarantine, progress).run()
    if found is not None:
        for gap in found.gaps:
            if gap.finding.place:
                quarantine.keep_range(gap.finding.first_lsn, gap.finding.end_lsn, gap.finding.place, found.read)
        report.remarks = found.remarks()
    quarantine.close(json.dumps(report.fields(), indent=1))


def make_wiring(building: str, rows: Rows) -> None:
    """Make the wiring of a new store in the directory *building*, which is created with its journal directory."""
    RealDirectory(os.path.join(building, JOURNAL_NAME), create=True)
    with closing(Wiring.open(os.path.join(building, WIRING_NAME))) as wiring:
        wiring.restore(uuid4(), rows, formatted=False)
