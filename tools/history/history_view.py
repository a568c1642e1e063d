"""Resolution of paths to a history and the names of its queues, while a broker may be running.

During the view no container in the log of a running broker is reused: the log is held, as for a backup. Without a
broker nothing is held, and nothing is written. Containers that move to an archive meanwhile are found there by a new
search. A broker whose disk is full breaks the hold; ranges that become unreadable because of that are reported as such.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from uuid import UUID

from ...analytics.scan.journal_directory import directory_of_containers, need_directory
from ...analytics.scan.read_lease import hold_of
from ...base.disk.real import RealDirectory
from ...base.errors import CairnError, HoldBroken
from ...store.contract.layout import LOCK_NAME, unnamed_queue
from ...store.contract.wiring_rows import Rows
from ...store.directory.hold import Hold
from ...store.wiring.rescue import rescue
from ..inspect.journal_check import Progress
from ..inspect.loose_containers import is_empty_archive
from ..inspect.point_in_time import PointInTime
from ..inspect.store_wiring import check_owner, connected_wiring, file_of, missing_names_remark
from .as_of import QueuesView
from .history import find_history

_TRIES = 5


class HistoryView:
    """The remaining containers of one log, opened for reading. A context."""

    def __init__(
        self, paths: Sequence[str], connect: str | None = None, catalog: str | None = None, *, holds: bool = True
    ) -> None:
        """*connect* and *catalog* name the server that the wiring is on. Raises `CairnError` for what is no log.

        Without *holds* a broker reuses containers as usual: for long reads that have an archive.
        """
        for path in paths:
            need_directory(path, "name a store directory, and archives")
        filled = [path for path in paths if not is_empty_archive(path)] or paths
        self.directories = [directory_of_containers(path) for path in filled]
        self.remarks = [f"{path}: empty" for path in paths if path not in filled]
        self._stores = stores_of(self.directories)
        self._holds = self._hold() if holds else []
        try:
            self.history = find_history(self.directories)
            self.rows, remarks = rows_of(self._stores, self.history.log.uuid, connect, catalog)
            self.remarks += remarks
        except BaseException:
            self.close()
            raise
        self.queue_names = {row.id: row.name for row in (*self.rows.going, *self.rows.queues)}

    def _hold(self) -> list[Hold]:
        holds = []
        for store in self._stores:
            try:
                hold = hold_of(store)
            except CairnError as error:
                self.remarks.append(f"{error}: containers that the broker reuses meanwhile can't be shown")
            else:
                holds += [hold] if hold is not None else []
        return holds

    def all_remarks(self) -> list[str]:
        """The remarks on the history, each once. Call it before `close`."""
        broken = []
        for hold in self._holds:
            try:
                hold.check()
            except HoldBroken as error:
                broken.append(f"{error}; what is missing may be missing for that")
        truncated = filter(None, (self.history.log.truncation(),))
        return list(dict.fromkeys((*self.remarks, *self.history.notes, *truncated, *broken)))

    def name_of(self, queue_id: int) -> str:
        """A queue's name; `$queue-ID` if none is known any more."""
        return self.queue_names.get(queue_id, unnamed_queue(queue_id))

    def look_again(self) -> bool:
        """Return whether containers are elsewhere by now, or others are there: then `history` is a new one."""
        before = self.history.containers
        self.history = find_history(self.directories)
        return self.history.containers != before

    def view(self, moment: PointInTime, progress: Progress, *, partial: bool = False) -> QueuesView:
        """The queues as of *moment*. Raises `CairnError` as `QueuesView` does."""
        for left in reversed(range(_TRIES)):
            try:
                found = QueuesView(self.history, self.history.lsn_of(moment), progress, partial=partial)
            except CairnError:
                if left and self.look_again():
                    continue
                for hold in self._holds:
                    hold.check()  # that is what it comes from
                raise
            if found.is_complete or not left or not self.look_again():
                return found
            found.close()
        raise AssertionError

    def close(self) -> None:
        for hold in self._holds:
            hold.end()

    def __enter__(self) -> HistoryView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def rows_of(stores: Sequence[str], log_uuid: UUID, connect: str | None, catalog: str | None) -> tuple[Rows, list[str]]:
    """The wiring of the log, in the first of *stores* or on a server, and what is worth knowing beside."""
    if connect is not None:
        with connected_wiring(connect, catalog) as wiring:
            check_owner(wiring, log_uuid)
            return wiring.rows(), []
    remarks = []
    for store in stores:
        if remark := missing_names_remark(store):
            remarks.append(remark)
            continue
        found = rescue(file_of(store))
        if found.reason:
            remarks.append(f"{file_of(store)}: {found.reason}; queues without a name are shown by number")
        return found.rows, remarks
    return Rows(), remarks


def stores_of(directories: Sequence[RealDirectory]) -> list[str]:
    """The store directories that journals' directories are in; archives are in none."""
    return [
        store for store in (os.path.dirname(os.path.abspath(directory.path)) for directory in directories)
        if any(map(os.path.exists, (os.path.join(store, LOCK_NAME), file_of(store)))) or missing_names_remark(store)
    ]  # fmt: skip
