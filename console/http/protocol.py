"""Deadlines for slow clients: the head of a request must be complete in time, also if it arrives in small pieces."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""The time for the head of a request, from the connection or from the first byte."""
MOST_CONNECTIONS = 256
MOST_HEAD_BYTES = 32 << 10


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for each head and a limit of connections."""

    head_s = HEAD_S
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
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
