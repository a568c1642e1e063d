"""Heartbeats and time-outs of the connections of a worker."""

from __future__ import annotations

import logging

from ...base.clock import Clock
from .orderly_end import OrderlyEnd
from .socket_table import SocketTable
from .worker_socket import WorkerSocket

log = logging.getLogger(__name__)

TICK_S = 1.0
"""The interval at which heartbeats and time-outs are checked; shorter if a client requested it."""
SHORTEST_TICK_S = 0.05
MOST_PATIENCE = 2
"""The factor of `patience_s` within which a client has to open its connection, silent or not."""


class Heartbeats:
    """Sends heartbeats, and closes connections that are silent for too long; the worker's thread only."""

    def __init__(self, sockets: SocketTable, end: OrderlyEnd, clock: Clock) -> None:
        self._sockets = sockets
        self._end = end
        self._clock = clock
        self.due_s = 0.0
        """The time of the next check."""

    def run(self, now_s: float) -> None:
        """Check all connections."""
        due_s = [self._check(held, now_s) for held in list(self._sockets.by_fd.values())]
        self.due_s = max(min(due_s, default=now_s + TICK_S), now_s + SHORTEST_TICK_S)

    def begin(self, held: WorkerSocket) -> None:
        """Include the heartbeat interval of a connection that opened."""
        self.due_s = min(self.due_s, self._check(held, self._clock.monotonic_s()))

    def _check(self, held: WorkerSocket, now_s: float) -> float:
        """Check one connection; return the time of its next check."""
        terminal = held.terminal
        if terminal.closed:
            self._end.check(held, now_s)
            return now_s + TICK_S
        if terminal.is_checked:
            held.opened_s = held.heard_s = now_s  # the time that the check of a login takes is not the client's
        if terminal.is_opening and (
            now_s - held.heard_s > terminal.patience_s or now_s - held.opened_s > MOST_PATIENCE * terminal.patience_s
        ):
            text = "%s: closed: the client opened no connection, and was silent for %.0f s"
            log.info(text, terminal.name, now_s - held.heard_s)
            self._sockets.close(held)
            return now_s + TICK_S
        due_ms = terminal.tick(int(now_s * 1000))
        return min(now_s + TICK_S, due_ms / 1000) if due_ms else now_s + TICK_S
