"""The wiring that belongs to a log, for tools that show names: read from SQLite or a server, and never written."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, closing
from uuid import UUID

from ...base.errors import ForeignStore
from ...recovery.salvageable import log_id_of
from ...store.wiring.database import parse_address
from ...store.wiring.location import recorded_place
from ...store.wiring.wiring import FILE_NAME, Wiring


def connected_wiring(connect: str, catalog: str | None) -> AbstractContextManager[Wiring]:
    """The wiring on the server that *connect* and *catalog* name. Raises `UnusableConnect`, and what SQL means."""
    return closing(Wiring.connect(parse_address(connect, catalog), alone=False))


def check_owner(wiring: Wiring, log_uuid: UUID) -> None:
    """Raises `ForeignStore` if *wiring* is not that of log *log_uuid*."""
    owner = wiring.owner()
    if owner is None or log_id_of(owner) != log_id_of(log_uuid):
        whose = f"the wiring is of store {owner}, the journal of store {log_uuid}"
        raise ForeignStore(wiring.place, whose, wiring.database.remedy)


def file_of(store: str) -> str:
    """The path of the SQLite file that holds the wiring of *store*, if it is not on a server."""
    return os.path.join(store, FILE_NAME)


def missing_names_remark(store: str) -> str:
    """The remark that the queues of *store* are shown by number, as the wiring is on a server; empty if it is not."""
    elsewhere = recorded_place(store)
    return f"the wiring is in {elsewhere}: without --connect queues are shown by number" if elsewhere else ""
