"""Endpoints of exchanges, bindings, and the publication of test messages."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from ...amqp.client.plain_values import plain
from ...amqp.codec import encode, sections
from ...amqp.codec.types import Symbol
from ..session.errors import INVALID, ApiError
from .endpoint import LIST_QUERY, ApiCall, Endpoint, Field
from .lists import forget_rows, page_of, rows_of

MOST_PUBLISHED_BYTES = 512 << 10
ARGUMENTS = Field("object", "The arguments.", default={})
MESSAGE = {
    "body": Field("string", "The body: a text, or base64.", default=""),
    "encoding": Field("string", "The encoding of the body.", default="text", choices=("text", "base64")),
    "key": Field("string", "The routing key, sent as the subject.", default=""),
    "properties": Field("object", "Texts: `message-id`, `correlation-id`, `subject`, `reply-to`.", default={}),
    "application_properties": Field("object", "Texts, numbers and booleans by name.", default={}),
    "content_type": Field("string", "The content type; empty for none.", default=""),
    "durable": Field("boolean", "Whether the message survives a restart of the broker.", default=True),
}
_PROPERTIES = ("message-id", "subject", "reply-to", "correlation-id")


async def list_exchanges(call: ApiCall) -> Any:
    return page_of(await rows_of(call.session, "exchange"), call.query)


async def create_exchange(call: ApiCall) -> Any:
    asked = {key: call.body[key] for key in ("exchange-type", "durable", "arguments")}
    made = await call.session.quick.ask("CREATE", "exchange", call.body["name"], asked)
    forget_rows(call.session, "exchange")
    return plain(made)


async def read_exchange(call: ApiCall) -> Any:
    return plain(await call.session.quick.ask("READ", "exchange", call.name))


async def delete_exchange(call: ApiCall) -> None:
    await call.session.quick.ask("DELETE", "exchange", call.name, {"if-unused": call.query["if_unused"]})
    forget_rows(call.session, "exchange", "binding")


async def reach(call: ApiCall) -> Any:
    """Return the queues that a message with this key would reach."""
    pairs = [pair.partition("=") for pair in call.query["properties"].split(",") if pair.strip()]
    given = {name.strip(): value.strip() for name, _, value in pairs}
    asked = {"key": call.query["key"], "application-properties": given}
    found = await call.session.quick.ask("ROUTE", "exchange", call.name, asked)
    return {"items": plain(found["queues"]), "exchange": found["exchange"]}


async def publish_to_exchange(call: ApiCall) -> Any:
    await call.session.quick.ask("READ", "exchange", call.name)
    return await _publish(call)


async def publish_to_queue(call: ApiCall) -> Any:
    await call.session.quick.ask("READ", "queue", call.name)
    return await _publish(call)


async def _publish(call: ApiCall) -> Any:
    given = call.body
    body: bytes = given["body"].encode()
    if given["encoding"] == "base64":
        try:
            body = base64.b64decode(given["body"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise ApiError(400, INVALID, f"body: it is not base64: {error}; leave out encoding for text") from error
    if len(body) > MOST_PUBLISHED_BYTES:
        raise ApiError(413, INVALID, f"body: it has more than {MOST_PUBLISHED_BYTES >> 10} KiB; shorten it")
    application = given["application_properties"]
    if not all(isinstance(value, str | int | float | bool) for value in application.values()):
        raise ApiError(400, INVALID, "application_properties: values must be texts, numbers or booleans")
    message = b"\x00\x53\x70\xc0\x02\x01" + encode.boolean(given["durable"])
    message += encode.described(0x73, encode.value(_properties(call)))
    if application:
        message += sections.application_properties_section(application)
    message += encode.described(0x75, encode.binary(body))
    await call.session.quick.publish(message)
    forget_rows(call.session, "queue")
    return {"outcome": "accepted"}


def _properties(call: ApiCall) -> list[Any]:
    """Return the fields of the properties section: to, subject and those of the body."""
    given = call.body["properties"]
    for name, value in given.items():
        if name not in _PROPERTIES or not isinstance(value, str):
            raise ApiError(400, INVALID, f"properties: texts are expected, by the names {', '.join(_PROPERTIES)}")
    values = [given.get(name) or None for name in _PROPERTIES]
    kind = call.body["content_type"]
    if not kind.isascii():
        text = "content_type: ASCII characters are expected, such as text/plain"
        raise ApiError(400, INVALID, text, field="content_type")
    message_id, subject, reply_to, correlation_id = values
    fields = [message_id, None, call.name, call.body["key"] or subject, reply_to, correlation_id]
    return [*fields, Symbol(kind)] if kind else fields


async def list_bindings(call: ApiCall) -> Any:
    rows = await rows_of(call.session, "binding")
    for key in ("exchange", "queue"):
        if call.query[key]:
            rows = [row for row in rows if row[key] == call.query[key]]
    query = {key: value for key, value in call.query.items() if key not in ("exchange", "queue")}
    return page_of(rows, query, ("exchange", "queue", "key"))


async def create_binding(call: ApiCall) -> Any:
    made = await call.session.quick.ask("CREATE", "binding", None, dict(call.body))
    forget_rows(call.session, "exchange", "binding", "queue")
    return plain(made)


async def delete_binding(call: ApiCall) -> None:
    await call.session.quick.ask("DELETE", "binding", call.path["id"])
    forget_rows(call.session, "exchange", "binding", "queue")


EXCHANGE_ENDPOINTS = (
    Endpoint("GET", "/exchanges", "List exchanges", list_exchanges, LIST_QUERY, result="list"),
    Endpoint(
        "POST", "/exchanges", "Create an exchange", create_exchange, status=201,
        body={
            "name": Field("string", "The name.", required=True),
            "exchange-type": Field(
                "string", "The type.", default="direct", choices=("direct", "fanout", "topic", "headers")
            ),
            "durable": Field("boolean", "Whether it survives a restart.", default=True),
            "arguments": ARGUMENTS,
        },
    ),
    Endpoint("GET", "/exchanges/{name}", "Show an exchange", read_exchange),
    Endpoint(
        "DELETE", "/exchanges/{name}", "Delete an exchange with its bindings", delete_exchange, status=204,
        query={"if_unused": Field("boolean", "Refuse if it has bindings.", default=False)},
    ),
    Endpoint(
        "GET", "/exchanges/{name}/reach", "Show the queues that a message would reach", reach,
        query={
            "key": Field("string", "The routing key.", default=""),
            "properties": Field("string", "Application properties: `name=value`, separated by commas.", default=""),
            "any": Field("integer", "Not used.", default=0),
        },
    ),
    Endpoint("POST", "/exchanges/{name}/publish", "Publish a message", publish_to_exchange, body=MESSAGE),
    Endpoint("POST", "/queues/{name}/publish", "Publish a message to a queue", publish_to_queue, body=MESSAGE),
    Endpoint(
        "GET", "/bindings", "List bindings", list_bindings, result="list",
        query={
            **LIST_QUERY,
            "exchange": Field("string", "Only bindings from this exchange.", default=""),
            "queue": Field("string", "Only bindings to this queue.", default=""),
        },
    ),
    Endpoint(
        "POST", "/bindings", "Bind a queue to an exchange", create_binding, status=201,
        body={
            "exchange": Field("string", "The exchange.", required=True),
            "queue": Field("string", "The queue.", required=True),
            "key": Field("string", "The binding key.", default=""),
            "arguments": ARGUMENTS,
        },
    ),
    Endpoint("DELETE", "/bindings/{id}", "Delete a binding, by its identity", delete_binding, status=204),
)  # fmt: skip
