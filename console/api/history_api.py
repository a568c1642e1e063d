"""Endpoints of history: the time slider, the trace of a message, and the map of the journal.

Users see the history of queues that they may browse. All queues together, and the journal, are for administrators.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..history.lifetimes import MOST_LIVES, MOST_READ_LIVES
from ..history.readers import HistoryReaders
from ..session.errors import INVALID, NOT_FOUND, ApiError
from .access import Confirm, denial, may_manage, require, require_browser, require_manager, while_allowed
from .endpoint import ApiCall, Endpoint, Field
from .history_schemas import CONTENTS, DIFFERENCE, TRACE
from .lists import forget_rows

log = logging.getLogger(__name__)

Check = Callable[[], Awaitable[None]]
MOST_REPLAYED = 50_000
POINT = "An LSN, a time like 2026-05-17T12:30:00Z, an age like 10m, or `end`."
NOTHING: dict[str, Any] = {
    "first_lsn": 0, "last_lsn": 0, "first_time": None, "last_time": None, "complete_from": None, "remarks": [],
}  # fmt: skip
"""The range of a user who may not browse any queue: others' messages move the ends of the log."""
QUEUE = Field("string", "Only this queue; required unless the user may manage the broker.", default="")


class HistoryApi:
    """The endpoints that read the files of the store."""

    def __init__(self, readers: HistoryReaders, confirm: Confirm) -> None:
        """*confirm*: see `Sessions.confirm`."""
        self._readers = readers
        self._confirm = confirm

    async def range(self, call: ApiCall) -> Any:
        if not call.session.rights.may_browse:
            return NOTHING
        return await self._asked(call, lambda: require_browser(call.session), "range")

    async def progress(self, call: ApiCall) -> Any:
        """Return the progress of the question of the user that is read."""
        running = self._readers.running.get(call.session.user)
        return {"running": None if running is None else vars(running)}

    async def contents(self, call: ApiCall) -> Any:
        return await self._asked(call, lambda: _check(call), "contents", **call.query)

    async def difference(self, call: ApiCall) -> Any:
        return await self._asked(call, lambda: _check(call), "difference", **call.query)

    async def trace(self, call: ApiCall) -> Any:
        """Return the lifetimes of messages, as if those on other queues than the user may browse did not exist."""

        async def check() -> None:
            if call.query["queue"]:
                await require(call.session, "browse", call.query["queue"])

        is_manager = await may_manage(call.session)
        if not is_manager and not call.session.rights.may_browse:
            found: Any = {"messages": [], "found": 0, "remarks": []}
        else:
            most = MOST_LIVES if is_manager else MOST_READ_LIVES
            try:
                found = await self._asked(call, check, "trace", **call.query, most_lives=most)
            except ApiError as error:
                if is_manager or not call.query["id"] or error.status not in (404, 409):
                    raise
                found = {"messages": [], "found": 0, "remarks": []}
        if not is_manager:
            parts = [part for life in found["messages"] if (part := await _visible(call, life))]
            found["messages"] = parts[:MOST_LIVES]
            found["found"] = len(found["messages"])
            if call.query["id"] and not found["messages"]:
                raise ApiError(404, NOT_FOUND, f"no message {call.query['id']} is known on a queue that you may browse")
        if self._readers.others:
            await self._continue_elsewhere(call, check, found, is_manager=is_manager)
        return found

    async def _continue_elsewhere(self, call: ApiCall, check: Check, found: Any, *, is_manager: bool) -> None:
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
        others = await self._asked(
            call, check, "trace elsewhere", others=self._readers.others, message_ids=sorted(names),
            correlation_id=correlation_id,
        )  # fmt: skip
        visible = [life if is_manager else await _visible(call, life) for life in others["messages"]]
        shown = [life for life in visible if life is not None]
        found["messages"] += shown
        found["found"] += others["found"] - (len(visible) - len(shown))
        found["remarks"] += others["remarks"]

    async def journal(self, call: ApiCall) -> Any:
        return await self._asked(call, lambda: require_manager(call.session), "journal")

    async def replay(self, call: ApiCall) -> Any:
        asked = call.body
        if not asked["target"]:  # a reader without a target sends messages to the queues that they came from
            raise ApiError(400, INVALID, "target: an address is expected", field="target")

        async def check() -> None:
            await require(call.session, "browse", asked["queue"])

        login = call.session.quick.login._asdict()
        found = await self._asked(call, check, "replay", **asked, login=login)
        forget_rows(call.session, "queue")
        await _record(call, "REPLAY", {"messages": found["sent"]})
        log.info(
            "replay for user %r: messages %s to %s of queue %r to %r: %d accepted, %d refused",
            call.session.user, asked["from"], asked["to"], asked["queue"], asked["target"], found["sent"],
            found["refused"], extra={"event": "console.replayed"},
        )  # fmt: skip
        return found

    async def _asked(self, call: ApiCall, check: Check, question: str, **asked: Any) -> Any:
        """Return the answer, as long as the account and *check* allow it; the audit trail has questions on messages."""
        session = call.session

        async def confirm() -> None:
            await self._confirm(session)
            await check()

        async def answer() -> Any:
            if question not in ("range", "journal"):
                await _record(call, "REPLAY" if question == "replay" else "HISTORY")
            return await self._readers.ask(session.user, question, is_manager=session.rights.is_manager, **asked)

        return await while_allowed(confirm, answer)

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


async def _record(call: ApiCall, action: str, more: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Have the audit trail of the broker record a read of the history of a queue, or of all."""
    queue = (call.body or call.query).get("queue") or "*"
    await call.session.quick.ask("AUDIT", "queue", queue, {"action": action, **more})


async def _visible(call: ApiCall, life: Any) -> Any:
    """Return the part of a lifetime on queues that the user may browse; None without one."""
    queues = {event["queue"] for event in life["events"]}.union(*life["on"].values()) - {None}
    seen = {queue for queue in queues if not await denial(call.session, "browse", queue)}
    ids = {event["message_id"] for event in life["events"] if event["queue"] in seen}
    if not ids:
        return None

    def is_seen(event: Any) -> bool:
        if event["queue"] is not None:
            return event["queue"] in seen
        return event["message_id"] in ids and event["kind"] != "acquired" and _copy_of(event) in (None, *ids)

    on = {key: [queue for queue in names if queue in seen] for key, names in life["on"].items() if int(key) in ids}
    message = {**life["message"], "ids": [one for one in life["message"]["ids"] if one in ids]}
    events = [event for event in life["events"] if is_seen(event)]
    return {**life, "message": message, "on": {key: names for key, names in on.items() if names}, "events": events}


def _copy_of(event: Any) -> int | None:
    """Return the ID of the copy that an event is about."""
    return int(event["more"]["to"]) if event["kind"] == "copied" else None


async def _check(call: ApiCall) -> None:
    if call.query["queue"]:
        await require(call.session, "browse", call.query["queue"])
    else:
        await require_manager(call.session)
