"""A store made of what was on the queues as of a point: another log, with a UUID and LSNs of its own.

It is built beside its place and moved there when it is complete. Queues keep their ids, names, arguments and order, as
the wiring has them now: SQL keeps no history. A queue that SQL does not know any more is called `queue-ID`. What a
prepared transaction was going to do is not done.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace

from ...base.clock import Clock
from ...base.disk.real import RealDirectory, disk_error
from ...base.errors import CairnError
from ...store.contract.layout import unnamed_queue
from ...store.contract.wiring_rows import QueueRow
from ...store.directory.refusals import RESTORING
from ..history.as_of import QueuesView
from ..history.history_view import HistoryView
from ..inspect.journal_check import Progress
from ..repair.damaged_store import DamagedStore
from ..repair.salvage import build
from ..repair.salvage_report import SalvageReport


def restore_view(
    past: HistoryView, view: QueuesView, target: str, wanted: Callable[[int], bool], clock: Clock, progress: Progress
) -> SalvageReport:
    """Make the store at *target*, where nothing may be yet, of the queues that are *wanted*.

    Raises `CairnError`, and then leaves nothing.
    """
    if view.survey is None:
        raise CairnError(f"LSN {view.cut.lsn}", "there was nothing yet", "name a later moment")
    building = target.rstrip(os.sep) + RESTORING
    for place, why in ((target, "there is something already"), (building, "left by one that was killed")):
        if os.path.lexists(place):
            raise CairnError(place, why, "name another directory, or remove it")
    known = {row.id for row in past.rows.queues}
    queues = [row for row in past.rows.queues if wanted(row.id)]
    queues += [QueueRow(one, unnamed_queue(one)) for one in view.on if one not in known and wanted(one)]
    ids = {row.id for row in queues}
    bindings = [row for row in past.rows.bindings if row.queue_id in ids]
    report = SalvageReport(past.directories[0].path, findings=list(view.survey.findings), gaps=view.survey.gaps)
    report.queue_names = {row.id: row.name for row in queues}
    report.salvaged = target
    rows = replace(past.rows, queues=queues, bindings=bindings, going=[])
    try:
        build(DamagedStore(report, view.survey, rows), building, clock, progress)
        try:
            os.rename(building, target)
        except OSError as error:
            raise disk_error(building, f"rename to {target}", error) from error
        RealDirectory(os.path.dirname(os.path.abspath(target))).sync()
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return report
