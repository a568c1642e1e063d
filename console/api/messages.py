"""Messages on a queue, read without consuming them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from ...amqp.client.plain_values import plain
from ...base.texts import counted, text_in
from ..session.errors import INVALID, NOT_FOUND, ApiError
from .endpoint import ApiCall, Endpoint, Field
from .lists import forget_rows

MOST_BODY_BYTES = 64 << 10
LIST_BODY_BYTES = 1024
SEARCH_MESSAGES = 4000
SEARCH_BYTES = 8 << 20
"""Messages and bytes of bodies that one search reads at most; the client continues with `next`."""
PAGE = 200
PAGE_BYTES = 1 << 20
"""The approximate size of the bodies that a search requests from the broker at a time."""
MOST_SELECTED = 1000
ORIGIN = "x-opt-last-death-queue"


def described(message: Mapping[str, Any], body_bytes: int) -> dict[str, Any]:
    """Return a message of PEEK for JSON: its body as text, or in base64 if it is no text."""
    body = message.get("body")
    found = {key: plain(value) for key, value in message.items() if key != "body"}
    if isinstance(body, bytes | bytearray | memoryview):
        data = bytes(body)
        text = text_in(data, is_cut=len(data) == body_bytes)
        found["body"] = base64.b64encode(data).decode() if text is None else text
        found["body-encoding"] = "base64" if text is None else "text"
        found["body-bytes"] = len(data)
        found["body-cut"] = len(data) == body_bytes
    else:
        found["body"] = plain(body)
        found["body-encoding"] = "value"
        found["body-cut"] = False
    return found


async def list_messages(call: ApiCall) -> Any:
    text, limit, after = call.query["search"].casefold(), call.query["limit"], call.query["after"]
    async with call.session.pages:
        if text:
            return await _search(call, text, limit, after)
        found = await _peek(call, after, limit, LIST_BODY_BYTES)
        items = [described(message, LIST_BODY_BYTES) for message in found["messages"]]
    return {"items": items, "next": found["next"], "searched": len(items)}


async def _search(call: ApiCall, text: str, limit: int, after: int) -> Any:
    items: list[dict[str, Any]] = []
    searched = read_bytes = 0
    count = PAGE_BYTES // MOST_BODY_BYTES
    next_after: int | None = after
    while next_after is not None and searched < SEARCH_MESSAGES and read_bytes < SEARCH_BYTES:
        found = await _peek(call, next_after, count, MOST_BODY_BYTES)
        page_bytes = 0
        for message in found["messages"]:
            shown = described(message, MOST_BODY_BYTES)
            searched += 1
            page_bytes += shown.get("body-bytes", 0)
            next_after = shown["position"]
            if _matches(shown, text):
                items.append(_shortened(shown))
            if len(items) == limit:
                return {"items": items, "next": next_after, "searched": searched}
        next_after = found["next"]
        read_bytes += page_bytes
        mean_bytes = max(1, page_bytes // max(1, len(found["messages"])))
        count = min(PAGE, 2 * count, max(1, PAGE_BYTES // mean_bytes))
    return {"items": items, "next": next_after, "searched": searched}


async def _peek(call: ApiCall, after: int, count: int, body_bytes: int) -> Any:
    asked = {"after": after, "count": count, "body-bytes": body_bytes}
    return await call.session.quick.ask("PEEK", "queue", call.name, asked)


def _matches(message: Mapping[str, Any], text: str) -> bool:
    """Return whether an ID, a property, an annotation or the body contains *text*."""
    if str(message["id"]) == text or str(message["position"]) == text:
        return True
    values: list[Any] = [message.get("body")]
    for section in ("properties", "application-properties", "message-annotations"):
        values.append(message.get(section))
    return any(text in str(value).casefold() for value in values)


def _shortened(message: dict[str, Any]) -> dict[str, Any]:
    body = message["body"]
    if isinstance(body, str) and len(body) > LIST_BODY_BYTES:
        return {**message, "body": body[: LIST_BODY_BYTES // 4 * 4], "body-cut": True}
    return message


async def read_message(call: ApiCall) -> Any:
    position = call.path["position"]
    if len(position) > 20 or not position.isdecimal() or not 0 < int(position) < 1 << 62:
        raise ApiError(404, NOT_FOUND, f"no message has the position {position[:40]!r}; use a number from 1")
    asked = {"after": int(position) - 1, "count": 1, "body-bytes": MOST_BODY_BYTES}
    found = await call.session.quick.ask("PEEK", "queue", call.name, asked)
    messages = found["messages"]
    if not messages or messages[0]["position"] != int(position):
        raise ApiError(404, NOT_FOUND, f"the queue {call.name!r} has no message at position {position}; list it again")
    return described(messages[0], MOST_BODY_BYTES)


async def act_on_messages(call: ApiCall) -> Any:
    """Delete selected messages, or move them: to an address, or each back to the queue of its dead-lettering."""
    action, ids, target = call.body["action"], call.body["ids"], call.body["target"]
    if not ids or not all(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in ids):
        raise ApiError(400, INVALID, "ids: a list of positions is expected")
    if len(ids) > MOST_SELECTED:
        raise ApiError(400, INVALID, f"ids: more than {MOST_SELECTED} messages are selected; select fewer")
    if action == "delete":
        removed = (await call.session.long.ask("DISCARD", "queue", call.name, {"positions": ids}))["discarded"]
        forget_rows(call.session, "queue")
        left = len(ids) - removed
        text = f"{counted(left, 'message')} not removed: in use, or no longer in the queue"
        return {"done": removed, "failed": [{"id": None, "text": text}] if left else []}
    if action == "move" and not target:
        raise ApiError(400, INVALID, "target: it is required to move messages")
    by_target, failed = ({target: ids}, []) if target else await _by_origin(call, ids)
    done = 0
    for address, positions in by_target.items():
        asked = {"to": address, "positions": positions, "create": call.body["create"]}
        try:
            found = await call.session.long.ask("MOVE", "queue", call.name, asked)
        except ApiError as error:
            if target or error.status != HTTPStatus.NOT_FOUND:
                raise
            failed.append({"id": None, "text": f"{counted(len(positions), 'message')} not moved: {error.text}"})
            continue
        done += found["moved"]
        if found["moved"] < len(positions):
            left = len(positions) - found["moved"]
            failed.append(
                {"id": None, "text": f"{counted(left, 'message')} not moved to {address}: in use, or refused"}
            )
    forget_rows(call.session, "queue")
    return {"done": done, "failed": failed}


async def _by_origin(call: ApiCall, ids: list[int]) -> tuple[dict[str, list[int]], list[dict[str, Any]]]:
    """Return the positions by the queue that each message was dead-lettered from, and those without one."""
    by_target: dict[str, list[int]] = {}
    failed = []
    for position in ids:
        asked = {"after": position - 1, "count": 1}
        messages = (await call.session.quick.ask("PEEK", "queue", call.name, asked))["messages"]
        message = messages[0] if messages and messages[0]["position"] == position else None
        origin = None if message is None else (message.get("message-annotations") or {}).get(ORIGIN)
        if origin:
            by_target.setdefault(str(origin), []).append(position)
        else:
            text = "it has left the queue" if message is None else "it was not dead-lettered: name a target"
            failed.append({"id": position, "text": f"message {position}: {text}"})
    return by_target, failed


MESSAGE_ENDPOINTS = (
    Endpoint(
        "GET", "/queues/{name}/messages", "List messages without consuming them", list_messages,
        query={
            "search": Field("string", "Only messages with this text in ID, properties or body.", default=""),
            "after": Field("integer", "The position behind which the page begins.", default=0, most=1 << 62),
            "limit": Field("integer", "The number of messages.", default=50, least=1, most=200),
        },
    ),
    Endpoint(
        "POST", "/queues/{name}/messages/actions", "Retry, move or delete selected messages", act_on_messages,
        body={
            "action": Field("string", "The action.", required=True, choices=("retry", "move", "delete")),
            "ids": Field("array", "The positions of the messages.", required=True),
            "target": Field("string", "The address; for `retry`, by default the queue of origin.", default=""),
            "create": Field("boolean", "Let the broker create the target, if `--auto-create` permits.", default=False),
        },
    ),
    Endpoint("GET", "/queues/{name}/messages/{position}", "Show a message with up to 64 KiB of its body", read_message),
)  # fmt: skip
