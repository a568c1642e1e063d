"""Endpoints of users: their use of the broker, and the accounts of its users file.

The console derives the verifier of a new password, so that the broker never receives it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ...base.accounts.credentials import make
from ...base.accounts.users import invalid_name_reason, verifier
from ..session.errors import CONFLICT, INVALID, NOT_IMPLEMENTED, ApiError
from ..session.sessions import BrowserSession
from .endpoint import LIST_QUERY, ApiCall, Endpoint, Field
from .lists import forget_rows, page_of, rows_of

MOST_NAMES = 10_000
NAMES_AT_ONCE = 1000
NO_FILE = "the broker has no users file: start it with --users-file"
PASSWORD = Field("string", "The password.", required=True, most=1024)
_ACCOUNTS = {
    "type": "object",
    "properties": {
        "can_change": {"type": "boolean", "description": "Whether the session can add, change and remove users."},
        "denial_reason": {"type": ["string", "null"], "description": "Why it cannot; null if it can."},
    },
    "required": ["can_change", "denial_reason"],
}
_USERS = {
    "allOf": [
        {"$ref": "#/components/schemas/List"},
        {"type": "object", "properties": {"accounts": _ACCOUNTS}, "required": ["accounts"]},
    ]
}


async def list_users(call: ApiCall) -> Any:
    rows = await rows_of(call.session, "user")
    try:
        accounts = await _accounts(call.session)
    except ApiError as error:
        if error.status not in (403, 409, 501):
            raise
        return {**page_of(rows, call.query), "accounts": {"can_change": False, "denial_reason": error.text}}
    used = {row["name"] for row in rows}
    known = set(accounts)
    found = [{**row, "has-account": row["name"] in known} for row in rows]
    unused: dict[str, Any] = {"connections": 0, "links": 0, "queues": 0, "durable-bytes": 0, "blocked": ""}
    found += [
        {"name": name, "identity": name, "type": "user", **unused, "has-account": True}
        for name in accounts
        if name not in used
    ]
    return {**page_of(found, call.query), "accounts": {"can_change": True, "denial_reason": None}}


async def _accounts(session: BrowserSession) -> list[str]:
    """Return the names of up to `MOST_NAMES` accounts. Raises `ApiError` if the user may not change them."""
    found: list[str] = []
    while len(found) < MOST_NAMES:
        asked = {"after": found[-1] if found else "", "count": NAMES_AT_ONCE}
        names = (await _asked(session, "ACCOUNTS", "accounts", asked))["names"]
        found += names
        if len(names) < NAMES_AT_ONCE:
            break
    return found


async def create_user(call: ApiCall) -> Any:
    name = call.body["name"]
    if reason := invalid_name_reason(name):
        raise ApiError(400, INVALID, f"name: {reason}", field="name")
    try:
        await _change(call, "CREATE", name, await _verified(call.body["password"]))
    except ApiError as error:
        if error.status == 409 and name in await _accounts(call.session):
            raise ApiError(409, CONFLICT, error.text, field="name") from error
        raise
    return {"name": name}


async def change_password(call: ApiCall) -> None:
    await _change(call, "UPDATE", call.name, await _verified(call.body["password"]))
    if call.name == call.session.user:
        call.session.use_password(call.body["password"])
        await call.session.close()  # the broker closes connections that logged in with the old one


async def remove_user(call: ApiCall) -> Any:
    found = await _change(call, "DELETE", call.name)
    forget_rows(call.session, "connection", "link")
    return {"closed": (found or {}).get("closed", 0)}


async def _verified(password: str) -> dict[str, Any]:
    try:
        return {"verifier": verifier(await asyncio.to_thread(make, password))}
    except ValueError as error:
        raise ApiError(400, INVALID, f"password: {error}", field="password") from error


async def _change(call: ApiCall, operation: str, name: str, body: dict[str, Any] | None = None) -> Any:
    found = await _asked(call.session, operation, name, body)
    forget_rows(call.session, "user")
    return found


async def _asked(session: BrowserSession, operation: str, name: str, body: dict[str, Any] | None) -> Any:
    try:
        return await session.quick.ask(operation, "user", name, body)
    except ApiError as error:
        if error.status != 501:
            raise
        raise ApiError(501, NOT_IMPLEMENTED, NO_FILE) from error


USER_ENDPOINTS = (
    Endpoint(
        "GET", "/users", "List users with connections, queues or an account", list_users, LIST_QUERY, schema=_USERS
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
