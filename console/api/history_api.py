"""Endpoints of history: the time slider, the trace of a message, and the map of the journal.

Users see the history of queues that they may browse. All queues together, and the journal, are for administrators.
"""

from __future__ import annotations

from typing import Any

from ..history.readers import HistoryReaders
from ..session.errors import NOT_IMPLEMENTED, ApiError
from .access import may_manage, require, require_manager
from .endpoint import ApiCall, Endpoint, Field

POINT = "An LSN, a time like 2026-05-17T12:30:00Z, an age like 10m, or `end`."
QUEUE = Field("string", "Only this queue; required unless the user may manage the broker.", default="")


class HistoryApi:
    """The endpoints that read the files of the store."""

    def __init__(self, readers: HistoryReaders) -> None:
        self._readers = readers

    async def range(self, call: ApiCall) -> Any:
        return await self._readers.ask(call.session.user, "range")

    async def contents(self, call: ApiCall) -> Any:
        await _check(call)
        return await self._readers.ask(call.session.user, "contents", **call.query)

    async def difference(self, call: ApiCall) -> Any:
        await _check(call)
        return await self._readers.ask(call.session.user, "difference", **call.query)

    async def trace(self, call: ApiCall) -> Any:
        found = await self._readers.ask(call.session.user, "trace", **call.query)
        if not await may_manage(call.session):
            for queue in sorted({event["queue"] for life in found["messages"] for event in life["events"]} - {None}):
                await require(call.session, "browse", queue)
        return found

    async def journal(self, call: ApiCall) -> Any:
        await require_manager(call.session)
        return await self._readers.ask(call.session.user, "journal")

    async def replay(self, call: ApiCall) -> Any:
        asked = f"--from-lsn {call.body['from']} --to-lsn {call.body['to']}"
        text = f"the console does not replay yet; on the host of the broker: cairnmq replay STORE {asked} --to URL"
        raise ApiError(501, NOT_IMPLEMENTED, text)

    def endpoints(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                "GET", "/history/range", "Show between which LSNs and times history is kept", self.range,
                ends_with_client=True,
            ),
            Endpoint(
                "GET", "/history/contents", "List messages on queues at a point in time", self.contents,
                ends_with_client=True,
                query={
                    "at": Field("string", POINT, required=True), "queue": QUEUE,
                    "limit": Field("integer", "The number of messages.", default=200, least=1, most=1000),
                },
            ),
            Endpoint(
                "GET", "/history/difference", "Compare queues between two points in time", self.difference,
                ends_with_client=True,
                query={
                    "from": Field("string", POINT, required=True), "to": Field("string", POINT, required=True),
                    "queue": QUEUE,
                },
            ),
            Endpoint(
                "GET", "/history/trace", "Show the lifetime of a message", self.trace, ends_with_client=True,
                query={
                    "id": Field("integer", "The message ID of the store, or an LSN of its records.", default=0),
                    "message_id": Field("string", "The message-id of its sender.", default=""),
                    "correlation_id": Field("string", "The correlation-id of its sender.", default=""),
                    "queue": Field("string", "Not used.", default=""),
                },
            ),
            Endpoint(
                "POST", "/history/replay", "Not implemented: replay a range", self.replay,
                body={
                    "from": Field("any", POINT, required=True), "to": Field("any", POINT, required=True),
                    "queue": Field("string", "The queue.", default=""),
                    "target": Field("string", "The address.", default=""),
                },
            ),
            Endpoint(
                "GET", "/journal", "Show the containers of the journal, and what keeps them", self.journal,
                ends_with_client=True,
            ),
        )  # fmt: skip


async def _check(call: ApiCall) -> None:
    if call.query["queue"]:
        await require(call.session, "browse", call.query["queue"])
    else:
        await require_manager(call.session)
