"""The orderly end of connections: a socket is closed after its client has read the close frame, or has had time for it.

Unread input would make the system discard the last output of a socket that is closed. So only its sending side is shut
down, and its input is discarded, until the client closes its side or a time limit passes.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from ...base.clock import Clock
from ..kernel.core import Core
from .socket_table import SocketTable
from .worker_socket import Conversation, WorkerSocket

GOODBYE_S = 2.0
"""The time limit in seconds for a client to answer when its connection is closed."""
LONGEST_GOODBYE_S = 10.0
"""The time limit in seconds if the client still sends: closing the socket would make it lose the close frame."""


class OrderlyEnd:
    """The end of single connections, and of all connections of a worker that stops; its thread only."""

    def __init__(
        self, sockets: SocketTable, core: Core, clock: Clock, wake: Callable[[Conversation], None]
    ) -> None:
        """*wake*: schedules the work of a terminal."""
        self._sockets = sockets
        self._core = core
        self._clock = clock
        self._wake = wake
        self._give_up_s = 0.0
        """The time at which a stopping worker closes the sockets that are left; 0 while it does not stop."""
        self._latest_give_up_s = 0.0
        """The last such time for clients that still send; 0 while they are answered."""

    def finish(self, held: WorkerSocket) -> None:
        """End a connection whose output was written: shut down its sending side."""
        if held.terminal.client_is_done():
            self._sockets.close(held)
            return
        with suppress(OSError):
            held.sock.shutdown(socket.SHUT_WR)
        held.ended = True
        self._sockets.update_events(held)

    def discard(self, held: WorkerSocket) -> None:
        """Note input of a closed connection: its client may not have read the close frame yet."""
        held.discards = True
        if self._latest_give_up_s:
            self._give_up_s = min(self._clock.monotonic_s() + GOODBYE_S, self._latest_give_up_s)

    def check(self, held: WorkerSocket, now_s: float) -> None:
        """Close the socket of a closed connection whose time is up. Called at each tick."""
        held.closed_s = held.closed_s or now_s
        if now_s - held.closed_s > (LONGEST_GOODBYE_S if held.discards else GOODBYE_S):
            self._sockets.close(held)
        held.discards = False

    @property
    def has_begun(self) -> bool:
        """Return whether the worker stops."""
        return self._give_up_s > 0

    def begin(self) -> None:
        """Close all connections of the worker; the caller must have the work of their terminals done.

        If the core has failed, nothing is answered any more: only clients that were sent a close frame get time.
        """
        self._give_up_s = self._clock.monotonic_s() + GOODBYE_S
        for held in list(self._sockets.by_fd.values()):
            if self._core.failed and not held.terminal.closed:
                self._sockets.close(held)
            elif not held.ended:
                held.terminal.shut_down()
                self._wake(held.terminal)

    def proceed(self) -> bool:
        """Close silent sockets when the time for their answers is up; return whether the time of all sockets is up.

        Input of the other clients is discarded until they read the close frame, or for a limited time. The caller must
        have the work of the terminals done.
        """
        now_s = self._clock.monotonic_s()
        if not self._sockets.by_fd or now_s < self._give_up_s:
            return False
        if self._latest_give_up_s:
            return True
        self._give_up_s, self._latest_give_up_s = now_s + GOODBYE_S, now_s + LONGEST_GOODBYE_S
        for held in list(self._sockets.by_fd.values()):
            if _is_silent(held.sock):
                self._sockets.close(held)
            else:
                held.terminal.give_up()
                self._wake(held.terminal)
        return False


def _is_silent(sock: socket.socket) -> bool:
    """Return whether nothing can be read from *sock*."""
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except OSError:
        return True
