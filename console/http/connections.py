"""Open connections of the HTTP server, and bounds on them.

| bound | connection that is ended |
|---|---|
| `MOST_CONNECTIONS` | the one that has waited longest for its client |
| `MOST_UNSENT_BYTES` of responses that clients have not read | the one with the most unsent bytes, except the newest |

A connection waits for its client while it has no request, an incomplete one, or a response that the client does not
read. If all connections have requests that the server works on, a new one is ended.
"""

from __future__ import annotations

from typing import Protocol

MOST_CONNECTIONS = 256
MOST_UNSENT_BYTES = 16 << 20


class Connection(Protocol):
    """A connection of a client."""

    def unsent_bytes(self) -> int: ...

    def abort(self) -> None: ...


class Connections:
    """The connections that are not closed yet. Event loop only. Each step takes constant time, except in `wrote`."""

    def __init__(self, most: int = MOST_CONNECTIONS, most_unsent_bytes: int = MOST_UNSENT_BYTES) -> None:
        self._most = most
        self._most_unsent_bytes = most_unsent_bytes
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}
        """The connections that wait for their clients, those first that have waited longest."""

    def admit(self, new: Connection) -> bool:
        """Return whether *new* may stay, if need be after the end of another connection."""
        if len(self._open) >= self._most:
            if not self._waiting:
                return False
            self._end(next(iter(self._waiting)))
        self._open.add(new)
        self._waiting[new] = None
        return True

    def note(self, connection: Connection, *, waits: bool) -> None:
        """Note whether *connection* waits for its client."""
        if not waits:
            self._waiting.pop(connection, None)
        elif connection in self._open:
            self._waiting.setdefault(connection)

    def wrote(self, connection: Connection) -> None:
        """Bound the unsent bytes of all connections; called when the client of *connection* does not read."""
        unsent = {one: one.unsent_bytes() for one in self._open}
        others = sorted(self._open - {connection}, key=unsent.__getitem__)
        total = sum(unsent.values())
        while total > self._most_unsent_bytes and others:
            total -= unsent[others[-1]]
            self._end(others.pop())

    def discard(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def _end(self, connection: Connection) -> None:
        self.discard(connection)
        connection.abort()
