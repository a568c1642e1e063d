"""Work that ends when the client of its request disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.requests import ClientDisconnect, Request


async def until_disconnect(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of *work*, whose request has been read. Raises `ClientDisconnect`; *work* is cancelled then."""
    running = asyncio.create_task(work)
    left = asyncio.create_task(_disconnect(request))
    try:
        await asyncio.wait((running, left), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise ClientDisconnect
        return running.result()
    finally:
        running.cancel()
        left.cancel()
        await asyncio.wait((running, left))


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
