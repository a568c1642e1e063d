"""The share of each user in the input that a worker reads in one turn, and so in the work of the core.

The input of one turn is one step of the core, so a user with many connections would dominate each step. While several
users send, all connections of one user together read at most the user's quantum in a turn; skipped connections come
first in the next one. Nothing is lost: unread input waits in the socket.
"""

from __future__ import annotations

from collections.abc import Callable

QUANTUM_BYTES = 256 << 10
"""Bytes per turn of a user with a share of 1: as many as one connection may read."""


class UserShares:
    """The users' shares of reading in one worker; its thread only."""

    def __init__(self, weight_of: Callable[[str], int]) -> None:
        """*weight_of*: the share of a user."""
        self._weight_of = weight_of
        self._weights: dict[str, int] = {}
        self._spent: dict[str, int] = {}
        self._others: set[str] = set()
        """Users that have read in the previous turn."""
        self.sole_user: str | None = None
        """The only user that reads: it has no limit, and its reads are not counted. None while there are others.

        As long as it is set, no turn needs to begin, and `room` detects another user.
        """

    def begin_turn(self) -> None:
        """Begin a turn: each user has a full quantum again. The only user of two turns is the sole user."""
        spent = self._spent
        if len(spent) == 1 and self._others <= spent.keys():
            self.sole_user = next(iter(spent))
        self._others = {*spent}
        spent.clear()

    def refresh(self) -> None:
        """Ask for the weights again: the quotas may have changed."""
        self._weights.clear()

    def room(self, user: str) -> int | None:
        """Return the bytes that *user* may still read in this turn; None for any number, while no other user sends."""
        if self.sole_user is not None and user != self.sole_user:
            self._others.add(self.sole_user)
            self.sole_user = None
        if not (self._others | self._spent.keys()) - {user}:
            return None
        weight = self._weights.get(user)
        if weight is None:
            weight = self._weights[user] = self._weight_of(user)
        return max(0, weight * QUANTUM_BYTES - self._spent.get(user, 0))

    def wants(self, user: str) -> None:
        """Record that a connection of *user* was skipped."""
        self._spent.setdefault(user, 0)

    def spend(self, user: str, size_bytes: int) -> None:
        """Count bytes that a connection of *user* has read."""
        self._spent[user] = self._spent.get(user, 0) + size_bytes
