"""The overview of a broker."""

from __future__ import annotations

from typing import Any

from ...amqp.client.plain_values import plain
from .endpoint import ApiCall, Endpoint
from .lists import rows_of

TOTALS = ("messages", "ready", "unsettled", "held-bytes", "consumers", "put", "taken", "dead-lettered", "expired")


async def overview(call: ApiCall) -> Any:
    session = call.session
    broker = plain(await session.quick.ask("READ", "broker", "broker"))
    store = plain(await session.quick.ask("READ", "store", "store"))
    queues = await rows_of(session, "queue", ("name", *TOTALS))
    totals = {key: sum(row[key] or 0 for row in queues) for key in TOTALS}
    return {"broker": broker, "store": store, "totals": {**totals, "queues": len(queues)}}


OVERVIEW_ENDPOINTS = (Endpoint("GET", "/overview", "Show the broker, its store, totals and rates", overview),)
