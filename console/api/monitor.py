"""Samples of the broker and its queues, and server-sent events.

The broker takes the samples, whether a page is open or not (`SAMPLES` of management). The console reads those that it
does not have yet for each user with an open page, every `SAMPLE_S`, or less often if that takes more than a tenth of
the time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from math import isnan
from typing import Any

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ...amqp.client.plain_values import plain
from ..session.errors import LIMIT, ApiError
from ..session.sessions import KEPT_FOR_MANAGERS, BrowserSession
from .access import Confirm
from .endpoint import ApiCall, Endpoint, Field
from .logs import LogTail
from .sync_latency import SyncLatency

SAMPLE_S = 5.0
KEPT = 720
FORECAST_SAMPLES = 60
MOST_STREAMS = 4
MOST_STREAMS_OF_ALL = 128
"""Half of the connections: the others are for requests."""
_NAMES = {
    "enqueue-rate": "enqueued", "dequeue-rate": "dequeued", "disk-free-bytes": "free_bytes", "sync-ms": "fsync_ms"
}  # fmt: skip
"""Names of the columns in samples, as far as the broker has others."""


async def samples_of(session: BrowserSession, type: str, name: str, span: str, after: int) -> dict[str, Any]:
    """Return the samples of an entity behind the number *after*; missing ones are left out."""
    found = plain(await session.quick.ask("SAMPLES", type, name, {"span": span, "after": after}))
    first, interval_s = found["number"], found["interval-seconds"]
    names = [_NAMES.get(column, column) for column in found["samples"]]
    items = []
    for number, row in enumerate(zip(*found["samples"].values(), strict=True), first):
        if not isnan(row[0]):
            values = {key: _figure(value) for key, value in zip(names, row, strict=True)}
            items.append({"number": number, "time": int(number * interval_s * 1000), **values})
    return {"items": items, "interval_s": interval_s, "first": first, "totals": found.get("totals")}


def _figure(value: float) -> float | int | None:
    if isnan(value):
        return None
    return int(value) if value.is_integer() else round(value, 3)


class Monitor:
    """The samples for one user."""

    def __init__(self) -> None:
        self.samples: deque[dict[str, Any]] = deque(maxlen=KEPT)
        """The last hour of the broker."""
        self.latest: dict[str, Any] = {}
        self._syncs = SyncLatency()
        self._sampled_s = -1e9
        self._took_s = 0.0
        self._lock = asyncio.Lock()

    async def overview(self, session: BrowserSession) -> dict[str, Any]:
        """Return the present overview; it may be as old as a sample."""
        async with self._lock:
            now_s = time.monotonic()
            if now_s - self._sampled_s >= max(1.0, 10 * self._took_s) or not self.latest:
                self.latest = await self._sample(session)
                self._sampled_s = time.monotonic()
                self._took_s = self._sampled_s - now_s
        return self.latest

    async def _sample(self, session: BrowserSession) -> dict[str, Any]:
        client = session.quick
        broker = plain(await client.ask("READ", "broker", "broker"))
        store = plain(await client.ask("READ", "store", "store"))
        after = self.samples[-1]["number"] if self.samples else 0
        found = await samples_of(session, "broker", "broker", "hour", after)
        if found["first"] <= after:  # the clock of the broker was set back
            self.samples.clear()
            found = await samples_of(session, "broker", "broker", "hour", 0)
        self.samples.extend(found["items"])
        totals = dict(found["totals"])
        totals["unsettled"] = max(0, totals.get("messages", 0) - totals.get("ready", 0))
        self._syncs.add(store)
        free = self.samples[-1]["free_bytes"] if self.samples else store.get("journal-disk-free-bytes")
        return {
            "broker": broker,
            "store": store,
            "totals": totals,
            "alarms": [{"reason": text} for text in broker["alarms"]],
            "disk": {"free_bytes": free, "full_in_s": full_in_s(self.samples)},
            "fsync": self._syncs.latest,
        }


def full_in_s(samples: Iterable[Mapping[str, Any]]) -> float | None:
    """Return in how many seconds the disk is full at the rate of the last samples; None if it does not fill up."""
    known = [one for one in samples if one["free_bytes"] is not None][-FORECAST_SAMPLES:]
    if len(known) < 3:
        return None
    first, last = known[0], known[-1]
    seconds = (last["time"] - first["time"]) / 1000
    shrunk = first["free_bytes"] - last["free_bytes"]
    return round(last["free_bytes"] / (shrunk / seconds)) if shrunk > 0 and seconds > 0 else None


def monitor_of(session: BrowserSession) -> Monitor:
    found: Monitor = session.caches.setdefault("monitor", Monitor())
    return found


async def overview(call: ApiCall) -> Any:
    monitor = monitor_of(call.session)
    found = await monitor.overview(call.session)
    if call.query["span"] == "hour":
        return {**found, "samples": list(monitor.samples), "interval_s": SAMPLE_S}
    past = await samples_of(call.session, "broker", "broker", call.query["span"], 0)
    return {**found, "samples": past["items"], "interval_s": past["interval_s"]}


async def queue_rates(call: ApiCall) -> Any:
    found = await samples_of(call.session, "queue", call.name, call.query["span"], call.query["after"])
    return {"items": found["items"], "interval_s": found["interval_s"]}


class EventStreams:
    """The stream of events of each open page."""

    def __init__(self, logs: LogTail, confirm: Confirm) -> None:
        """*confirm*: see `Sessions.confirm`; a stream ends with its session."""
        self._logs = logs
        self._confirm = confirm
        self._count = 0

    async def open(self, call: ApiCall) -> Any:
        session = call.session
        if session.streams >= MOST_STREAMS:
            raise ApiError(429, LIMIT, f"this session has {MOST_STREAMS} streams of events; close one of them", 30)
        if self._count >= MOST_STREAMS_OF_ALL + (KEPT_FOR_MANAGERS if session.rights.is_manager else 0):
            raise ApiError(429, LIMIT, f"the console has {MOST_STREAMS_OF_ALL} streams of events; try again later", 30)
        self._note(session, 1)
        return _EventResponse(self._events(session), partial(self._note, session, -1))

    def _note(self, session: BrowserSession, change: int) -> None:
        session.streams += change
        self._count += change

    async def _events(self, session: BrowserSession) -> AsyncIterator[bytes]:
        monitor = monitor_of(session)
        log_at = self._logs.end()
        yield b"retry: 3000\n\n"
        while not session.is_closed:
            try:
                await self._confirm(session)
                found = await monitor.overview(session)
                yield _event("overview", {**found, "samples": list(monitor.samples)[-1:]})
            except ApiError as error:
                yield _event("unavailable", {"text": error.text})
            if not session.is_closed and await self._logs.may_read(session):
                lines, log_at = await asyncio.to_thread(self._logs.after, log_at)
                if lines:
                    yield _event("log", {"items": lines})
            await asyncio.sleep(SAMPLE_S)


class _EventResponse(StreamingResponse):
    """A stream of events; *on_end* is called at its end, however it ends."""

    def __init__(self, events: AsyncIterator[bytes], on_end: Callable[[], None]) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(events, 200, headers, "text/event-stream")
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


def _event(name: str, value: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(value))


SPAN = Field(
    "string", "The last hour with a sample each 5 s, or the last day with one each minute.", default="hour",
    choices=("hour", "day"),
)  # fmt: skip
MONITOR_ENDPOINTS = (
    Endpoint("GET", "/overview", "Show the broker, its store, totals and rates", overview, query={"span": SPAN}),
    Endpoint(
        "GET", "/queues/{name}/rates", "Show the history of the rates of a queue", queue_rates,
        query={"span": SPAN, "after": Field("integer", "The number of the last known sample.", default=0)},
    ),
)  # fmt: skip
