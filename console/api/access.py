"""Questions to the broker about what the user of a session may do.

The broker's rules decide, and are asked again while a stream or a question to the history lasts. The console asks
before it shows something that is not from the broker itself: histories, logs and options.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from typing import Any

from ...base.accounts.users import ANONYMOUS
from ..session.errors import DENIED, ApiError
from ..session.sessions import CONFIRM_S, BrowserSession

FRESH_S = CONFIRM_S
"""Seconds that an answer of the broker is used."""


PATIENCE_S, RETRY_S = 30.0, 0.5
"""Seconds that questions outlast the last confirmation by the broker, and between attempts."""
Confirm = Callable[[BrowserSession], Awaitable[None]]
"""`Sessions.confirm`."""


async def while_allowed(check: Callable[[], Awaitable[None]], begin: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Return the result of the coroutine of *begin*, which is cancelled if *check* raises `ApiError`.

    *check* is called before it, again every `FRESH_S`, and before the result is returned. While the broker is not
    available, it is repeated for `PATIENCE_S`, and no result is returned.
    """
    await check()
    confirmed_s = time.monotonic()
    work = asyncio.create_task(begin())
    try:
        while True:
            await asyncio.wait((work,), timeout=FRESH_S)
            is_done = work.done()
            try:
                await check()
            except ApiError as error:
                if error.status != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() - confirmed_s > PATIENCE_S:
                    raise
                await asyncio.sleep(RETRY_S)
                continue
            confirmed_s = time.monotonic()
            if is_done:
                return work.result()
    finally:
        work.cancel()
        await asyncio.wait((work,))


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


async def require_browser(session: BrowserSession) -> None:
    """Raises `ApiError` unless the rules let the user browse some queue."""
    if not session.rights.may_browse:
        raise ApiError(403, DENIED, f"{session.user or ANONYMOUS!r} may not browse any queue")


async def require_manager(session: BrowserSession) -> None:
    """Raises `ApiError` unless the user may manage the broker."""
    await require(session, "manage", "")


async def require(session: BrowserSession, operation: str, name: str) -> None:
    """Raises `ApiError` unless the user may do *operation* on *name*; an empty name is the broker."""
    if text := await denial(session, operation, name):
        raise ApiError(403, DENIED, text)
