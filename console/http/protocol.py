"""Deadlines for slow clients: the head of a request must be complete in time, also if it arrives in small pieces."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""The time for the head of a request, from the connection or from the first byte."""
MOST_CONNECTIONS = 256
"""One more ends the oldest connection that waits for its client: has no request, or an incomplete one."""
MOST_HEAD_BYTES = 32 << 10


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for each head and a limit of connections."""

    head_s = HEAD_S
    _deadline: asyncio.TimerHandle | None = None
    _begun_s = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begun_s = self.loop.time()
        if not self._has_room():
            transport.abort()
            return
        self._deadline = self.loop.call_later(self.head_s, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        super().connection_lost(exc)

    def _has_room(self) -> bool:
        """Return whether there are fewer connections than the limit, if need be after the end of another one."""
        others = [one for one in self.connections if one is not self and not one.transport.is_closing()]
        if len(others) < MOST_CONNECTIONS:
            return True
        waiting = [one for one in others if isinstance(one, TimedProtocol) and one._waits_for_client]
        if waiting:
            min(waiting, key=lambda one: one._begun_s).transport.abort()
        return bool(waiting)

    @property
    def _waits_for_client(self) -> bool:
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _watch(self) -> None:
        """Begin a deadline if a part of a head has arrived; end it when the head is complete."""
        is_partial = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if not is_partial:
            self._end_deadline()
        elif self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.head_s, self.transport.abort)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
