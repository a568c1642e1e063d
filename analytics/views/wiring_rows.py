"""The view `wiring`: queues, exchanges, bindings and configurations in SQL, read and never written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import closing
from typing import Any
from uuid import UUID

import pyarrow as pa

from ...base.errors import CairnError, ForeignStore
from ...store.contract.wiring_rows import Rows
from ...store.wiring.copy import file_wiring
from ...store.wiring.database import parse_address
from ...store.wiring.location import recorded_place
from ...store.wiring.wiring import FILE_NAME, Wiring
from .views import WIRING


def read_wiring(store: str, uuid: UUID, connect: str | None = None, catalog: str | None = None) -> Rows:
    """Return the wiring of the store in directory *store*, whose log is *uuid*: from a server if *connect* names one.

    Empty without a wiring. Raises `ForeignStore` if it belongs to another store, and the errors of SQL.
    """
    path = os.path.join(store, FILE_NAME)
    if connect is not None:
        opened = Wiring.connect(parse_address(connect, catalog), alone=False)
    elif os.path.exists(path) and os.path.getsize(path):
        opened = file_wiring(path)
    elif where := recorded_place(store):
        raise ForeignStore(store, f"its wiring is in {where}", "name that with the options connect and catalog")
    else:
        return Rows()
    with closing(opened) as wiring:
        owner = wiring.owner()
        if owner is not None and owner != uuid:
            raise ForeignStore(
                wiring.place, f"the wiring is of store {owner}, the journal of store {uuid}",
                "restore the files that belong together",
            )  # fmt: skip
        return wiring.rows()


def names_of(rows: Rows) -> dict[int, str]:
    """Queue id to name, also of those that are going."""
    return {row.id: row.name for row in (*rows.going, *rows.queues)}


def find_names(store: str, uuid: UUID, connect: str | None = None, catalog: str | None = None) -> dict[int, str]:
    """Queue id to name; empty where the wiring can't be read: names are a help, and a server may be out of reach."""
    try:
        return names_of(read_wiring(store, uuid, connect, catalog))
    except CairnError:
        if connect is not None:
            raise
        return {}


def table_of(rows: Rows) -> pa.Table:
    """The view `wiring`."""
    names = names_of(rows)
    exchanges = {row.id: row.name for row in rows.exchanges}
    found: list[dict[str, Any]] = [
        {"kind": kind, **vars(row), "arguments": _json(row.arguments)}
        for kind, some in (("queue", rows.queues), ("going-queue", rows.going), ("exchange", rows.exchanges))
        for row in some
    ]  # fmt: skip
    found += [
        {"kind": "binding", "exchange": exchanges.get(row.exchange_id), "queue": names.get(row.queue_id),
         "key": row.key, "arguments": _json(row.arguments)}
        for row in rows.bindings
    ]  # fmt: skip
    found += [{"kind": "config", "name": row.name, "arguments": _json(row.settings)} for row in rows.configs]
    return pa.Table.from_pylist(found, schema=WIRING)


def _json(arguments: Mapping[str, Any]) -> str:
    return json.dumps(dict(arguments), sort_keys=True)
