"""Questions to the broker about what the user of a session may do.

The broker's rules decide. The console asks before it shows something that is not from the broker itself: histories,
logs and options.
"""

from __future__ import annotations

import time
from typing import Any

from ..session.errors import DENIED, ApiError
from ..session.sessions import BrowserSession

FRESH_S = 10.0
"""Seconds that an answer of the broker is used."""


async def denial(session: BrowserSession, operation: str, name: str) -> str:
    """Return why the user may not do *operation* on *name*; empty if it is allowed."""
    known: dict[tuple[str, str], tuple[float, str]] = session.caches.setdefault("access", {})
    now_s = time.monotonic()
    at_s, text = known.get((operation, name), (-1e9, ""))
    if now_s - at_s < FRESH_S:
        return text
    found: Any = await session.quick.ask("ACCESS", "broker", "broker", {"on": name})
    rows = {row["operation"]: row for row in found["operations"]}
    text = str(rows[operation]["reason"])
    if len(known) > 256:
        known.clear()
    known[operation, name] = now_s, text
    return text


async def may_manage(session: BrowserSession) -> bool:
    """Return whether the user is an administrator: may manage the broker."""
    try:
        return not await denial(session, "manage", "")
    except ApiError:
        return False


async def require_manager(session: BrowserSession) -> None:
    """Raises `ApiError` unless the user may manage the broker."""
    await require(session, "manage", "")


async def require(session: BrowserSession, operation: str, name: str) -> None:
    """Raises `ApiError` unless the user may do *operation* on *name*; an empty name is the broker."""
    if text := await denial(session, operation, name):
        raise ApiError(403, DENIED, text)
