"""The source from which a wiring is read while its broker runs: its file, or a server."""

from __future__ import annotations

import os
from contextlib import closing
from uuid import UUID

from ...base.errors import ForeignStore
from .copy import copy_rows, copy_wiring, read_queue_names, sync_file
from .database import parse_address
from .location import has_sqlite, refuse_elsewhere
from .wiring import FILE_NAME, Wiring


class WiringSource:
    """The wiring of one store, which may be in use. Any thread."""

    def __init__(self, store: str, connect: str | None, catalog: str | None) -> None:
        """*connect* and *catalog* name the server that it is on, if it is. `ForeignStore` if it is elsewhere."""
        self._path = os.path.join(store, FILE_NAME)
        if connect is None:
            refuse_elsewhere(store)
            self._address = None
        elif has_sqlite(store):
            raise ForeignStore(self._path, "the wiring is in this file, not on a server", "leave --connect out")
        else:
            self._address = parse_address(connect, catalog)

    def queue_names(self) -> dict[int, str]:
        if self._address is None:
            return read_queue_names(self._path, in_use=True)
        with closing(Wiring.connect(self._address, alone=False)) as wiring:
            return wiring.queue_names() if wiring.is_identified() else {}

    def copy(self, target: str, uuid: UUID, before: dict[int, str]) -> None:
        """Make the new file *target* a copy, and sync it; deleted queues of *before* are marked as being deleted.

        Raises `ForeignStore` if the wiring does not belong to store *uuid*, `DiskError`, and the errors of SQL.
        """
        if self._address is None:
            copy_wiring(self._path, target, uuid)
        else:
            with closing(Wiring.connect(self._address, alone=False)) as server:
                copy_rows(server, target, uuid)
        with closing(Wiring.open(target)) as made:
            if before.keys() - made.queue_names().keys():
                made.note_going(before)
        sync_file(target)
