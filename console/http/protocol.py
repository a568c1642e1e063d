"""Deadlines for slow clients.

| client | deadline |
|---|---|
| sends the head of a request, in one piece or in many | complete after `HEAD_S` |
| reads a response | the unsent bytes are fewer after each `SEND_S`, also while the connection is being closed |

A connection that misses its deadline is ended without a message in the log.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .connections import Connections
from .listener import Listener

HEAD_S = 10.0
"""From the connection or from the first byte."""
SEND_S = 30.0
MOST_HEAD_BYTES = 32 << 10
READ_BYTES = 64 << 10
"""The most bytes that are read, and kept, before a request is answered; asyncio reads 256 KiB at a time."""


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for each head and each response, and a place among the open connections."""

    head_s, send_s = HEAD_S, SEND_S
    _deadline: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None

    def __init__(self, connections: Connections, listener: Listener, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._places = connections
        self._listener = listener

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._listener.end_handshake(transport.get_extra_info("socket").fileno())
        if not self._places.admit(self):
            transport.abort()
            return
        transport.max_size = READ_BYTES
        self._deadline = self.loop.call_later(self.head_s, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        self.cycle.body.clear()  # of a request that was refused before it was complete
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._places.wrote(self)
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        if self._sending is not None:
            self._sending.cancel()
        self._places.discard(self)
        super().connection_lost(exc)

    def unsent_bytes(self) -> int:
        return int(self.transport.get_write_buffer_size())

    def abort(self) -> None:
        self.transport.abort()

    def _watch(self) -> None:
        """Begin the deadlines that the state of the connection requires, and end the others."""
        is_partial = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if not is_partial:
            self._end_deadline()
        elif self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.head_s, self.transport.abort)
        if self._sending is None and (unsent := self.unsent_bytes()):
            self._sending = self.loop.call_later(self.send_s, self._check_sent, unsent)
        is_served = self.cycle is not None and not (self.cycle.response_complete or self.cycle.more_body)
        self._places.note(self, waits=not is_served or self.flow.write_paused)

    def _check_sent(self, before: int) -> None:
        self._sending = None
        if self.unsent_bytes() >= before:
            self.transport.abort()
        else:
            self._watch()

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
