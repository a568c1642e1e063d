"""The listening socket of the HTTP server."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

MOST_HANDSHAKES = 256
"""More than the event loop accepts in the turns until a connection without TLS is made."""


class Listener(socket.socket):
    """A listening socket that bounds the handshakes of TLS: one more ends the oldest one. Event loop only.

    The event loop reports connections after their handshakes only. Until then, they have no protocol that ends them.
    """

    def __init__(self, fileno: int, most: int = MOST_HANDSHAKES) -> None:
        super().__init__(fileno=fileno)
        self._most = most
        self._handshakes: dict[int, socket.socket] = {}
        """Accepted sockets by their numbers; some are closed already, and have no number of their own."""

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, address = super().accept()
        number = accepted.fileno()
        self.end_handshake(number)
        self._handshakes[number] = accepted
        if len(self._handshakes) > self._most:
            oldest = self._handshakes.pop(next(iter(self._handshakes)))
            with suppress(OSError):  # it is closed
                oldest.shutdown(socket.SHUT_RDWR)
        return accepted, address

    def end_handshake(self, number: int) -> None:
        """Note that the socket with this number has a protocol."""
        self._handshakes.pop(number, None)
