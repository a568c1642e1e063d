"""Where the wiring of a store is read from while its broker runs: its file, or a server."""

from __future__ import annotations

import os
from uuid import UUID

from ..base.errors import ForeignStore
from .sql import parse_address
from .wiring import FILE_NAME, Wiring
from .wiring_copy import copy_rows, copy_wiring, read_queue_names, sync_file
from .wiring_place import has_sqlite, refuse_elsewhere


class WiringSource:
    """Of one store, which may be in use. Any thread."""

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
        wiring = Wiring.connect(self._address, alone=False)
        try:
            return wiring.queue_names() if wiring.is_identified() else {}
        finally:
            wiring.close()

    def copy(self, target: str, uuid: UUID, before: dict[int, str]) -> None:
        """Make the new file *target* a copy, and sync it; queues of *before* that are gone are going in it.

        Raises `ForeignStore` if the wiring is not of store *uuid*, `DiskError`, and what SQL means.
        """
        if self._address is None:
            copy_wiring(self._path, target, uuid)
        else:
            server = Wiring.connect(self._address, alone=False)
            try:
                copy_rows(server, target, uuid)
            finally:
                server.close()
        made = Wiring.open(target)
        try:
            if before.keys() - made.queue_names().keys():
                made.note_going(before)
        finally:
            made.close()
        sync_file(target)
