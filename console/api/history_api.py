"""Endpoints of history: the time slider, the trace of a message, and the map of the journal.

Users see the history of queues that they may browse. All queues together, and the journal, are for administrators.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from ...base.texts import counted
from ..history.readers import HistoryReaders
from ..session.errors import DENIED, INVALID, ApiError
from .access import denial, may_manage, require, require_manager
from .endpoint import ApiCall, Endpoint, Field
from .history_schemas import CONTENTS, DIFFERENCE, TRACE
from .lists import forget_rows

log = logging.getLogger(__name__)

MOST_REPLAYED = 50_000
POINT = "An LSN, a time like 2026-05-17T12:30:00Z, an age like 10m, or `end`."
QUEUE = Field("string", "Only this queue; required unless the user may manage the broker.", default="")


class HistoryApi:
    """The endpoints that read the files of the store."""

    def __init__(self, readers: HistoryReaders) -> None:
        self._readers = readers

    async def range(self, call: ApiCall) -> Any:
        return await self._readers.ask(call.session.user, "range")

    async def progress(self, call: ApiCall) -> Any:
        """Return the progress of the question of the user that is read."""
        running = self._readers.running.get(call.session.user)
        return {"running": None if running is None else vars(running)}

    async def contents(self, call: ApiCall) -> Any:
        await _check(call)
        return await self._readers.ask(call.session.user, "contents", **call.query)

    async def difference(self, call: ApiCall) -> Any:
        await _check(call)
        return await self._readers.ask(call.session.user, "difference", **call.query)

    async def trace(self, call: ApiCall) -> Any:
        if call.query["queue"]:
            await require(call.session, "browse", call.query["queue"])
        found = await self._readers.ask(call.session.user, "trace", **call.query)
        is_manager = await may_manage(call.session)
        if not is_manager:
            for life in found["messages"]:
                if text := await _denial(call, life):
                    raise ApiError(403, DENIED, text)
        if self._readers.others:
            await self._continue_elsewhere(call, found, is_manager=is_manager)
        return found

    async def _continue_elsewhere(self, call: ApiCall, found: Any, *, is_manager: bool) -> None:
        """Add the lifetimes that messages have in the stores of other brokers.

        Only the messages of administrators may be unknown to this broker. The access rules of this broker decide about
        the queues of all stores, by name.
        """
        names = {life["message"]["message-id"] for life in found["messages"]} - {None}
        correlation_id = ""
        if is_manager:
            names |= {call.query["message_id"]} - {""}
            correlation_id = call.query["correlation_id"]
        if not names and not correlation_id:
            return
        others = await self._readers.ask(
            call.session.user, "trace elsewhere", others=self._readers.others, message_ids=sorted(names),
            correlation_id=correlation_id,
        )  # fmt: skip
        hidden: Counter[str] = Counter()
        for life in others["messages"]:
            if not is_manager and await _denial(call, life):
                hidden[life["store"]] += 1
            else:
                found["messages"].append(life)
        found["found"] += others["found"] - hidden.total()
        found["remarks"] += others["remarks"]
        found["remarks"] += [
            f"{label}: {counted(count, 'message')} left out: on a queue that this user may not browse"
            for label, count in hidden.items()
        ]

    async def journal(self, call: ApiCall) -> Any:
        await require_manager(call.session)
        return await self._readers.ask(call.session.user, "journal")

    async def replay(self, call: ApiCall) -> Any:
        if not call.body["target"]:  # a reader without a target sends messages to the queues that they came from
            raise ApiError(400, INVALID, "target: an address is expected", field="target")
        await require(call.session, "browse", call.body["queue"])
        login = call.session.quick.login._asdict()
        found = await self._readers.ask(call.session.user, "replay", **call.body, login=login)
        forget_rows(call.session, "queue")
        asked = call.body
        log.info(
            "replay for user %r: messages %s to %s of queue %r to %r: %d accepted, %d refused",
            call.session.user, asked["from"], asked["to"], asked["queue"], asked["target"], found["sent"],
            found["refused"], extra={"event": "console.replayed"},
        )  # fmt: skip
        return found

    def endpoints(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                "GET", "/history/range", "Show between which LSNs and times history is kept", self.range,
                ends_with_client=True,
            ),
            Endpoint(
                "GET", "/history/progress", "Show how far the question to the history that runs is", self.progress,
                is_use=False,
            ),
            Endpoint(
                "GET", "/history/contents", "List messages on queues at a point in time", self.contents,
                ends_with_client=True, schema=CONTENTS,
                query={
                    "at": Field("string", POINT, required=True), "queue": QUEUE,
                    "limit": Field("integer", "The number of messages.", default=200, least=1, most=1000),
                },
            ),
            Endpoint(
                "GET", "/history/difference", "Compare queues between two points in time", self.difference,
                ends_with_client=True, schema=DIFFERENCE,
                query={
                    "from": Field("string", POINT, required=True), "to": Field("string", POINT, required=True),
                    "queue": QUEUE,
                },
            ),
            Endpoint(
                "GET", "/history/trace", "Show the lifetime of a message", self.trace, ends_with_client=True,
                schema=TRACE,
                query={
                    "id": Field("integer", "The message ID of the store, or an LSN of its records.", default=0),
                    "message_id": Field("string", "The message-id of its sender.", default=""),
                    "correlation_id": Field("string", "The correlation-id of its sender.", default=""),
                    "queue": Field("string", "Only messages that were on this queue.", default=""),
                },
            ),
            Endpoint(
                "POST", "/history/replay", "Send the messages that arrived on a queue in a range again", self.replay,
                body={
                    "from": Field("any", POINT, required=True), "to": Field("any", POINT, required=True),
                    "queue": Field("string", "The queue.", required=True),
                    "target": Field("string", "The address to send them to.", required=True),
                    "count": Field("integer", "The most messages.", default=10_000, least=1, most=MOST_REPLAYED),
                    "create": Field(
                        "boolean", "Let the broker create the target, if `--auto-create` permits.", default=False
                    ),
                },
            ),
            Endpoint(
                "GET", "/journal", "Show the containers of the journal, and what keeps them", self.journal,
                ends_with_client=True,
            ),
        )  # fmt: skip


async def _denial(call: ApiCall, life: Any) -> str:
    """Return why the user may not see a lifetime; empty if it is allowed. One without a queue is for administrators."""
    queues = sorted({event["queue"] for event in life["events"]} - {None})
    if not queues:
        return await denial(call.session, "manage", "")
    for queue in queues:
        if text := await denial(call.session, "browse", queue):
            return text
    return ""


async def _check(call: ApiCall) -> None:
    if call.query["queue"]:
        await require(call.session, "browse", call.query["queue"])
    else:
        await require_manager(call.session)
