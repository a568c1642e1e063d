"""Histories of rates, and server-sent events.

The broker is sampled for each user with an open page: every `SAMPLE_S`, or less often if that takes more than a tenth
of the time. Samples are kept in a ring of `KEPT` entries.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ...amqp.client.plain_values import plain
from ..session.errors import LIMIT, ApiError
from ..session.sessions import BrowserSession
from .endpoint import ApiCall, Endpoint
from .lists import QUEUE_ATTRIBUTES, rows_of
from .logs import LogTail
from .sync_latency import SyncLatency

SAMPLE_S = 5.0
KEPT = 720
FORECAST_SAMPLES = 60
MOST_QUEUES = 32
"""Queues of a user with a history of rates; the one that was not requested for longest is dropped."""
MOST_STREAMS = 4
MOST_STREAMS_OF_ALL = 128
"""Half of the connections: the others are for requests."""
TOTALS = (
    "messages", "ready", "unsettled", "held-bytes", "consumers", "enqueued", "dequeued", "dead-lettered", "expired"
)  # fmt: skip
_COUNTERS = ("enqueued", "dequeued")
_QUEUE_SAMPLE = ("messages", "ready", "unsettled", "consumers")


class Ring:
    """Samples of one queue or of the broker, with rates per second since the previous sample."""

    def __init__(self) -> None:
        self.samples: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._last: tuple[float, dict[str, Any]] | None = None

    def add(self, found: dict[str, Any], more: dict[str, Any]) -> None:
        now_s = time.monotonic()
        rates: dict[str, float] = {}
        if self._last is not None and now_s > self._last[0]:
            before_s, before = self._last
            for key in _COUNTERS:
                rates[key] = round(max(0, found[key] - before[key]) / (now_s - before_s), 3)
        self._last = now_s, {key: found[key] for key in _COUNTERS}
        values = {key: found[key] for key in _QUEUE_SAMPLE}
        self.samples.append(
            {"time": int(time.time() * 1000), **values, **dict.fromkeys(_COUNTERS, 0.0), **rates, **more}
        )


class Monitor:
    """The samples for one user."""

    def __init__(self) -> None:
        self.broker = Ring()
        self.queues: dict[str, Ring] = {}
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

    def ring_of(self, queue: str) -> Ring:
        """Return the ring of *queue*, which is sampled from now on."""
        ring = self.queues.pop(queue, None) or Ring()
        self.queues[queue] = ring
        if len(self.queues) > MOST_QUEUES:
            del self.queues[next(iter(self.queues))]
        return ring

    async def _sample(self, session: BrowserSession) -> dict[str, Any]:
        client = session.quick
        broker = plain(await client.ask("READ", "broker", "broker"))
        store = plain(await client.ask("READ", "store", "store"))
        rows = await rows_of(session, "queue", QUEUE_ATTRIBUTES)
        totals = {key: sum(row[key] or 0 for row in rows) for key in TOTALS}
        free = store.get("journal-disk-free-bytes")
        self.broker.add(totals, {"free_bytes": free, "fsync_ms": self._syncs.add(store)})
        by_name = {row["name"]: row for row in rows}
        for name, ring in list(self.queues.items()):
            if name in by_name:
                ring.add(by_name[name], {})
        return {
            "broker": broker,
            "store": store,
            "totals": {**totals, "queues": len(rows)},
            "alarms": [{"reason": text} for text in broker["alarms"]],
            "disk": {"free_bytes": free, "full_in_s": full_in_s(self.broker.samples)},
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
    return {**found, "samples": list(monitor.broker.samples)}


async def queue_rates(call: ApiCall) -> Any:
    monitor = monitor_of(call.session)
    await call.session.quick.ask("READ", "queue", call.name)
    ring = monitor.ring_of(call.name)
    await monitor.overview(call.session)
    return {"items": list(ring.samples), "interval_s": SAMPLE_S}


class EventStreams:
    """The stream of events of each open page."""

    def __init__(self, logs: LogTail, is_open: Callable[[BrowserSession], bool]) -> None:
        """*is_open* returns whether a session still exists; a stream ends with its session."""
        self._logs = logs
        self._is_open = is_open
        self._count = 0

    async def open(self, call: ApiCall) -> Any:
        session = call.session
        if session.streams >= MOST_STREAMS:
            raise ApiError(429, LIMIT, f"this session has {MOST_STREAMS} streams of events; close one of them", 30)
        if self._count >= MOST_STREAMS_OF_ALL:
            raise ApiError(429, LIMIT, f"the console has {MOST_STREAMS_OF_ALL} streams of events; try again later", 30)
        self._note(session, 1)
        return _EventResponse(self._events(session), partial(self._note, session, -1))

    def _note(self, session: BrowserSession, change: int) -> None:
        session.streams += change
        self._count += change

    async def _events(self, session: BrowserSession) -> AsyncIterator[bytes]:
        monitor = monitor_of(session)
        log_at = self._logs.end()
        may_read_logs = await self._logs.may_read(session)
        yield b"retry: 3000\n\n"
        while self._is_open(session):
            try:
                found = await monitor.overview(session)
                samples = list(monitor.broker.samples)[-1:]
                yield _event("overview", {**found, "samples": samples})
                yield _event("queues", {name: list(ring.samples)[-1:] for name, ring in monitor.queues.items()})
            except ApiError as error:
                yield _event("unavailable", {"text": error.text})
            if may_read_logs:
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


MONITOR_ENDPOINTS = (
    Endpoint("GET", "/overview", "Show the broker, its store, totals and rates", overview),
    Endpoint("GET", "/queues/{name}/rates", "Show the history of the rates of a queue", queue_rates),
)
