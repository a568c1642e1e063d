"""Endpoints of queues and of the messages on them."""

from __future__ import annotations

from typing import Any

from ...amqp.client.plain_values import plain
from .endpoint import LIST_QUERY, ApiCall, Endpoint, Field
from .lists import QUEUE_ATTRIBUTES, forget_rows, page_of, rows_of

ARGUMENTS = Field("object", "The arguments of the queue (limits and policies); null removes one.", default={})


async def list_queues(call: ApiCall) -> Any:
    rows = await rows_of(call.session, "queue", QUEUE_ATTRIBUTES, internal=call.query["internal"])
    return page_of(rows, without(call, "internal"))


def without(call: ApiCall, *names: str) -> dict[str, Any]:
    """Return the query without these parameters."""
    return {name: value for name, value in call.query.items() if name not in names}


async def create_queue(call: ApiCall) -> Any:
    asked = {"durable": call.body["durable"], "arguments": call.body["arguments"]}
    made = await call.session.quick.ask("CREATE", "queue", call.body["name"], asked)
    forget_rows(call.session, "queue")
    return plain(made)


async def read_queue(call: ApiCall) -> Any:
    found = plain(await call.session.quick.ask("READ", "queue", call.name))
    bindings = await rows_of(call.session, "binding")
    found["bindings-to"] = [row for row in bindings if row["queue"] == call.name]
    links = await rows_of(call.session, "link")
    found["links"] = [row for row in links if row["address"] in (call.name, f"/queue/{call.name}")]
    return found


async def update_queue(call: ApiCall) -> Any:
    return plain(await call.session.quick.ask("UPDATE", "queue", call.name, {"arguments": call.body["arguments"]}))


async def delete_queue(call: ApiCall) -> None:
    asked = {"if-unused": call.query["if_unused"], "if-empty": call.query["if_empty"]}
    await call.session.quick.ask("DELETE", "queue", call.name, asked)
    forget_rows(call.session, "queue", "binding")


async def purge_queue(call: ApiCall) -> Any:
    found = await call.session.long.ask("PURGE", "queue", call.name)
    forget_rows(call.session, "queue")
    return plain(found)


async def move_messages(call: ApiCall) -> Any:
    asked = {"to": call.body["target"], "create": call.body["create"]}
    if call.body["count"]:
        asked["count"] = call.body["count"]
    found = await call.session.long.ask("MOVE", "queue", call.name, asked)
    forget_rows(call.session, "queue")
    return plain(found)


QUEUE_ENDPOINTS = (
    Endpoint(
        "GET", "/queues", "List queues", list_queues, result="list",
        query={**LIST_QUERY, "internal": Field("boolean", "Include the broker's own queues.", default=False)},
    ),
    Endpoint(
        "POST", "/queues", "Create a queue", create_queue, status=201,
        body={
            "name": Field("string", "The name.", required=True),
            "durable": Field("boolean", "Whether it survives a restart.", default=True),
            "arguments": ARGUMENTS,
        },
    ),
    Endpoint("GET", "/queues/{name}", "Show a queue with its bindings and links", read_queue),
    Endpoint("PATCH", "/queues/{name}", "Change arguments of a queue", update_queue, body={"arguments": ARGUMENTS}),
    Endpoint(
        "DELETE", "/queues/{name}", "Delete a queue with its messages", delete_queue, status=204,
        query={
            "if_unused": Field("boolean", "Refuse if it has consumers.", default=False),
            "if_empty": Field("boolean", "Refuse if it has messages.", default=False),
        },
    ),
    Endpoint("POST", "/queues/{name}/purge", "Remove all messages of a queue", purge_queue),
    Endpoint(
        "POST", "/queues/{name}/move", "Move messages to another address", move_messages,
        body={
            "target": Field("string", "The address.", required=True),
            "count": Field("integer", "The number of messages; 0 for all.", default=0),
            "create": Field("boolean", "Let the broker create the target, if `--auto-create` permits.", default=False),
        },
    ),
)  # fmt: skip
