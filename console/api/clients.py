"""Endpoints of connections, links, transactions, access rules, and of other brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...amqp.client.plain_values import plain
from ..session.errors import ApiError
from .endpoint import LIST_QUERY, ApiCall, Endpoint, Field
from .lists import forget_rows, page_of, rows_of

REASON = {"reason": Field("string", "The reason, for the client.", default="closed by an operator")}


async def list_connections(call: ApiCall) -> Any:
    return page_of(await rows_of(call.session, "connection"), call.query, ("name", "container", "user"))


async def close_connection(call: ApiCall) -> None:
    await call.session.quick.ask("DELETE", "connection", call.path["id"], {"reason": call.query["reason"]})
    forget_rows(call.session, "connection", "link")


async def list_links(call: ApiCall) -> Any:
    rows = await rows_of(call.session, "link")
    for key in ("connection", "address"):
        if call.query[key]:
            rows = [row for row in rows if row[key] == call.query[key]]
    query = {key: value for key, value in call.query.items() if key not in ("connection", "address")}
    return page_of(rows, query, ("name", "address", "connection"))


async def close_link(call: ApiCall) -> None:
    await call.session.quick.ask("DELETE", "link", call.path["id"], {"reason": call.query["reason"]})
    forget_rows(call.session, "connection", "link")


async def list_transactions(call: ApiCall) -> Any:
    rows = await rows_of(call.session, "transaction")
    clients = {row["identity"]: row for row in await rows_of(call.session, "connection")} if rows else {}
    return page_of([{**row, "client": _client(clients.get(row["connection"]))} for row in rows], call.query)


def _client(connection: Mapping[str, Any] | None) -> str | None:
    """Return the name of a client for people: its container, and its address."""
    return None if connection is None else f"{connection['container'] or 'unnamed'} ({connection['name']})"


async def decide_transaction(call: ApiCall) -> Any:
    """Decide a prepared transaction without its coordinator."""
    asked = {"commit": call.body["commit"]}
    found = await call.session.quick.ask("DECIDE", "transaction", call.path["id"], asked)
    forget_rows(call.session, "transaction")
    return plain(found) or {}


async def forget_transaction(call: ApiCall) -> None:
    await call.session.quick.ask("FORGET", "transaction", call.path["id"])
    forget_rows(call.session, "transaction")


async def read_cluster(call: ApiCall) -> Any:
    try:
        found = plain(await call.session.quick.ask("READ", "cluster", "cluster"))
    except ApiError as error:
        if error.status != 404:
            raise
        return {"enabled": False, "members": []}
    states = found.pop("member-states", None) or []
    silent = max(0, len(states) - int(found.get("connected") or 0))
    return {"enabled": True, "members": states, "missing": silent, **{k: v for k, v in found.items() if k != "members"}}


async def read_federation(call: ApiCall) -> Any:
    types = {"federated_queues": "federated-queue", "downstreams": "downstream", "connectors": "connector"}
    types |= {"routers": "router", "link_routes": "link-route", "auto_links": "auto-link"}
    return {key: await rows_of(call.session, type) for key, type in types.items()}


async def read_access(call: ApiCall) -> Any:
    """Return what a user may do."""
    asked = {"user": call.query["user"]}
    if call.query["name"]:
        asked["on"] = call.query["name"]
    found = plain(await call.session.quick.ask("ACCESS", "broker", "broker", asked))
    may = [
        {
            "action": row["operation"], "resource": found["on"], "allowed": row["allowed"], "reason": row["reason"],
            "rule": None,
        }
        for row in found["operations"]
    ]  # fmt: skip
    return {"user": found["user"], "on": found["on"], "may": may}


CLIENT_ENDPOINTS = (
    Endpoint("GET", "/connections", "List connections", list_connections, LIST_QUERY, result="list"),
    Endpoint("DELETE", "/connections/{id}", "Close a connection", close_connection, REASON, status=204),
    Endpoint(
        "GET", "/links", "List links", list_links, result="list",
        query={
            **LIST_QUERY,
            "connection": Field("string", "Only links of this connection.", default=""),
            "address": Field("string", "Only links to this address.", default=""),
        },
    ),
    Endpoint("DELETE", "/links/{id}", "Close a link", close_link, REASON, status=204),
    Endpoint(
        "GET", "/transactions", "List transactions that are open or in doubt", list_transactions, LIST_QUERY,
        result="list",
    ),
    Endpoint(
        "POST", "/transactions/{id}/decide", "Decide a prepared transaction", decide_transaction,
        body={"commit": Field("boolean", "Commit it, or roll it back.", required=True)},
    ),
    Endpoint(
        "DELETE", "/transactions/{id}", "Forget the decision of a transaction", forget_transaction, status=204
    ),
    Endpoint(
        "GET", "/access", "Show what a user may do", read_access,
        query={
            "user": Field("string", "The user; empty for an anonymous client.", default=""),
            "name": Field("string", "Only operations on this name.", default=""),
        },
    ),
    Endpoint("GET", "/cluster", "Show the members of the cluster", read_cluster),
    Endpoint("GET", "/federation", "Show copies of queues, connectors and other brokers", read_federation),
)  # fmt: skip
