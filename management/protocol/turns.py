"""Requests of management, taken in turns: those of one connection use bounded time and memory. Core only.

A request runs at once if no other request of its connection waits and the step has time for background work; else it
waits for a later step. A connection has at most

* `MOST_RUNNING` requests that are begun and not answered,
* `MOST_REQUESTS` and `MOST_REQUEST_BYTES` of waiting requests; more are rejected,
* `MOST_WAITING_BYTES` of responses that wait for credit; beyond that no request begins, and new ones are rejected.

All connections together have `MOST_WAITING_OF_ALL_BYTES` of responses. Beyond that a connection with more than
`FREE_WAITING_BYTES` of its own is treated as if it exceeded its limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ...broker.scheduling.background import BackgroundWork

MOST_RUNNING = 8
MOST_REQUESTS = 1024
MOST_REQUEST_BYTES = 4 << 20
MOST_WAITING_BYTES = 8 << 20
MOST_WAITING_OF_ALL_BYTES = 64 << 20
FREE_WAITING_BYTES = 64 << 10

Begin = Callable[[], None]


class Turns:
    """The requests of all connections."""

    def __init__(self, background: BackgroundWork) -> None:
        self.background = background
        self.waiting_bytes = 0
        """Bytes of responses that wait for credit, of all connections."""
        self._requesters: dict[object, Requester] = {}

    def of(self, connection: object, user: str) -> Requester:
        """Return the requests of one connection; call it for each use."""
        found = self._requesters.get(connection)
        if found is None:
            found = self._requesters[connection] = Requester(self, connection, user)
        return found

    def forget(self, requester: Requester) -> None:
        self._requesters.pop(requester.connection, None)


class Requester:
    """The requests of one connection."""

    def __init__(self, turns: Turns, connection: object, user: str) -> None:
        self.connection = connection
        self._turns = turns
        self._user = user
        self._pending: deque[tuple[int, Begin]] = deque()
        self._pending_bytes = 0
        self._running = 0
        self._waiting_bytes = 0
        self._is_scheduled = False

    def refusal(self, size_bytes: int) -> str:
        """Return the reason to reject a request of that size now; empty to accept it."""
        if self._has_too_many_responses():
            return "too many responses wait for credit: give more credit, and ask again"
        if len(self._pending) >= MOST_REQUESTS or self._pending_bytes + size_bytes > MOST_REQUEST_BYTES:
            return f"{len(self._pending)} requests of this connection wait: send fewer at a time"
        return ""

    def submit(self, size_bytes: int, begin: Begin) -> None:
        """Have *begin* called in its turn; `ended` is to be called when the request is answered."""
        if not self._pending and self._may_begin() and self._turns.background.has_time():
            self._begin(begin)
        else:
            self._pending.append((size_bytes, begin))
            self._pending_bytes += size_bytes
            self._schedule()

    def ended(self) -> None:
        """End a request, which was answered."""
        self._running -= 1
        self._go_on()

    def note_waiting(self, change_bytes: int) -> None:
        """Add *change_bytes* of responses that wait for credit; negative if they were sent."""
        self._waiting_bytes += change_bytes
        self._turns.waiting_bytes += change_bytes
        if change_bytes <= 0:
            self._go_on()

    def _has_too_many_responses(self) -> bool:
        of_all = self._turns.waiting_bytes > MOST_WAITING_OF_ALL_BYTES
        return self._waiting_bytes > (FREE_WAITING_BYTES if of_all else MOST_WAITING_BYTES)

    def _may_begin(self) -> bool:
        return self._running < MOST_RUNNING and not self._has_too_many_responses()

    def _go_on(self) -> None:
        if self._pending:
            self._schedule()
        elif not self._running and not self._waiting_bytes:
            self._turns.forget(self)

    def _schedule(self) -> None:
        if not self._is_scheduled and self._may_begin():
            self._is_scheduled = True
            self._turns.background.put_off(self._next, self._user)

    def _next(self) -> None:
        self._is_scheduled = False
        if self._pending and self._may_begin():
            size_bytes, begin = self._pending.popleft()
            self._pending_bytes -= size_bytes
            self._begin(begin)
        self._go_on()

    def _begin(self, begin: Begin) -> None:
        self._running += 1
        begin()
