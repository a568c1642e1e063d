"""Pages of lists: searched, sorted and cut on the server.

The rows of a type are read from the broker at most once per `FRESH_S`, and use at most a tenth of the time. A list of
10,000 queues that takes 0.3 s to read is read every 3 s at most. Sessions of one user share the rows. The reads of all
users together have a budget (`Sessions.reads`): the more users there are, the older their rows become.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from ...amqp.client.plain_values import plain
from ..http.csv_list import MOST_CSV_ROWS, csv_response
from ..session.errors import INVALID, ApiError
from ..session.sessions import BrowserSession

FRESH_S = 1.0
SHARE = 10
NEVER_S = -1e9
MOST_WAIT_S = 2.0
"""The time that rows which were not read yet, or which the user has changed, wait for the budget of all sessions."""
QUEUE_ATTRIBUTES = (
    "name", "durable", "arguments", "messages", "ready", "unsettled", "held-bytes", "consumers", "producers",
    "bindings", "enqueued", "dequeued", "dead-lettered", "expired",
    "enqueue-rate", "dequeue-rate", "state",
)  # fmt: skip
"""The attributes of queues for lists."""
MOST_ROWS = 100_000


class Snapshot:
    """The rows of one type, as a session last read them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.read_s = NEVER_S
        """The time of the end of the last read; `NEVER_S` also after a change by the user."""
        self.took_s = 0.0
        self.lock = asyncio.Lock()


async def rows_of(
    session: BrowserSession, type: str, attributes: tuple[str, ...] = (), *, internal: bool = False
) -> list[dict[str, Any]]:
    """Return all rows of *type*; they may be some seconds old."""
    key = f"rows {type} {attributes} {internal}"
    found: Snapshot = session.caches.setdefault(key, Snapshot())
    loop = asyncio.get_running_loop()
    async with found.lock:
        if loop.time() - found.read_s < max(FRESH_S, SHARE * found.took_s):
            return found.rows
        if found.read_s > NEVER_S and session.reads.is_used_up:
            return found.rows
        async with session.reads.turn(MOST_WAIT_S):
            begin_s = loop.time()
            rows = session.quick.rows(type, attributes, internal=internal, most=MOST_ROWS)
            found.rows = [plain(row) async for row in rows]
            found.read_s = loop.time()
            found.took_s = found.read_s - begin_s
    return found.rows


def forget_rows(session: BrowserSession, *types: str) -> None:
    """Have the rows of these types read again: the session has changed them."""
    for key, snapshot in session.caches.items():
        if key.startswith(tuple(f"rows {type} " for type in types)) and isinstance(snapshot, Snapshot):
            snapshot.read_s = NEVER_S


def page_of(rows: Iterable[Mapping[str, Any]], query: Mapping[str, Any], searched: tuple[str, ...] = ("name",)) -> Any:
    """Return the page of *rows* that a query with `LIST_QUERY` requests."""
    found = list(rows)
    if text := query["search"].casefold():
        found = [row for row in found if any(text in str(row.get(key, "")).casefold() for key in searched)]
    if field := query["sort"]:
        if found and not any(field in row for row in found):
            known = ", ".join(sorted({key for row in found for key in row}))
            raise ApiError(400, INVALID, f"sort: the items have no field {field[:80]!r}; use one of {known}")
        found.sort(key=lambda row: _order(row.get(field)), reverse=query["order"] == "desc")
    elif query["order"] == "desc":
        found.reverse()
    if query["format"] == "csv":
        return csv_response(found[:MOST_CSV_ROWS])
    begin = (query["page"] - 1) * query["per_page"]
    items = found[begin : begin + query["per_page"]]
    return {"items": items, "total": len(found), "page": query["page"], "per_page": query["per_page"]}


def _order(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    if isinstance(value, bool | int | float):
        return 1, value
    return 2, str(value).casefold()
