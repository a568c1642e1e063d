"""Endpoints of users: their use of the broker, and the accounts of its users file.

The console derives the verifier of a new password, so that the broker never receives it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ...base.accounts.credentials import make
from ...base.accounts.users import verifier
from ..session.errors import INVALID, NOT_IMPLEMENTED, ApiError
from ..session.sessions import BrowserSession
from .endpoint import LIST_QUERY, ApiCall, Endpoint, Field
from .lists import forget_rows, page_of, rows_of

MOST_NAMES = 10_000
NAMES_AT_ONCE = 1000
PASSWORD = Field("string", "The password.", required=True, most=1024)


async def list_users(call: ApiCall) -> Any:
    rows = await rows_of(call.session, "user")
    accounts = await _accounts(call.session)
    if accounts is None:
        return page_of(rows, call.query)
    used = {row["name"] for row in rows}
    known = set(accounts)
    found = [{**row, "has-account": row["name"] in known} for row in rows]
    unused: dict[str, Any] = {"connections": 0, "links": 0, "queues": 0, "durable-bytes": 0, "blocked": ""}
    found += [
        {"name": name, "identity": name, "type": "user", **unused, "has-account": True}
        for name in accounts
        if name not in used
    ]
    return page_of(found, call.query)


async def _accounts(session: BrowserSession) -> list[str] | None:
    """Return the names of up to `MOST_NAMES` accounts; None if there are none that the user may list."""
    found: list[str] = []
    try:
        while len(found) < MOST_NAMES:
            asked = {"after": found[-1] if found else "", "count": NAMES_AT_ONCE}
            names = (await session.quick.ask("ACCOUNTS", "user", "accounts", asked))["names"]
            found += names
            if len(names) < NAMES_AT_ONCE:
                break
    except ApiError as error:
        if error.status in (403, 409, 501):
            return None
        raise
    return found


async def create_user(call: ApiCall) -> Any:
    await _ask(call, "CREATE", call.body["name"], await _verified(call.body["password"]))
    return {"name": call.body["name"]}


async def change_password(call: ApiCall) -> None:
    await _ask(call, "UPDATE", call.name, await _verified(call.body["password"]))


async def remove_user(call: ApiCall) -> Any:
    found = await _ask(call, "DELETE", call.name)
    forget_rows(call.session, "connection", "link")
    return {"closed": (found or {}).get("gone", 0)}


async def _verified(password: str) -> dict[str, Any]:
    try:
        return {"verifier": verifier(await asyncio.to_thread(make, password))}
    except ValueError as error:
        raise ApiError(400, INVALID, f"password: {error}") from error


async def _ask(call: ApiCall, operation: str, name: str, body: dict[str, Any] | None = None) -> Any:
    try:
        found = await call.session.quick.ask(operation, "user", name, body)
    except ApiError as error:
        if error.status != 501:
            raise
        text = "the broker has no users file: start it with --users-file"
        raise ApiError(501, NOT_IMPLEMENTED, text) from error
    forget_rows(call.session, "user")
    return found


USER_ENDPOINTS = (
    Endpoint(
        "GET", "/users", "List users with connections, queues or an account", list_users, LIST_QUERY, result="list"
    ),
    Endpoint(
        "POST", "/users", "Add a user to the users file", create_user, status=201,
        body={"name": Field("string", "The name.", required=True, most=255), "password": PASSWORD},
    ),
    Endpoint(
        "PATCH", "/users/{name}", "Change the password of a user", change_password, status=204,
        body={"password": PASSWORD},
    ),
    Endpoint("DELETE", "/users/{name}", "Remove a user, and close its connections", remove_user),
)  # fmt: skip
