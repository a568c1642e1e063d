"""From the path of a store, a backup or a journal to its verification."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from ...analytics.scan.journal_directory import journal_of
from ...base.disk.real import RealDirectory
from ...store.checkpoint.checkpoint_file import LmdbFile
from ...store.contract.layout import CHECKPOINT_NAME, MANIFEST_NAME
from ...store.wiring.location import recorded_place
from ...store.wiring.rescue import Rescued
from ..inspect.journal_check import Progress
from ..inspect.store_wiring import connected_wiring, file_of
from .verdicts import Verdict, VerifyReport
from .verify import Verify
from .wiring_check import read_wiring


def verify_store(
    report: VerifyReport, progress: Progress, connect: str | None = None, catalog: str | None = None
) -> None:
    """Verify the store, the backup or the journal at `report.store`. Raises `CairnError` for what is none of them."""
    path = report.store
    journal = journal_of(path)
    if journal == path:  # a journal alone: nothing is beside it
        Verify(report, RealDirectory(journal), None, None, progress).run()
        return
    read_sql: Callable[[], Rescued] | None = partial(read_wiring, file_of(path))
    where = recorded_place(path)
    if connect is not None:
        read_sql = partial(_ask, connect, catalog)
    elif where:
        read_sql = None
        what = f"the wiring is in {where}: without --connect it is not compared with the journal"
        report.verdicts.append(Verdict("note", "SQL", what))
    is_backup = os.path.lexists(os.path.join(path, MANIFEST_NAME))
    checkpoint = None if is_backup else LmdbFile(os.path.join(path, CHECKPOINT_NAME))
    Verify(report, RealDirectory(journal), read_sql, checkpoint, progress).run()


def _ask(connect: str, catalog: str | None) -> Rescued:
    with connected_wiring(connect, catalog) as wiring:
        return Rescued(wiring.owner(), wiring.rows(), "")
