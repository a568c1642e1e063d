"""The limit of connections that are not authenticated yet."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

SILENT_S = 0.5
"""Seconds of silence after which a connection yields its place; a client that logs in is seldom silent for so long."""
MOST_OPENING_S = 10.0
"""Seconds after which it yields its place although it is not silent, or the broker checks its login."""

LOOK_S = 0.05
"""Seconds between two searches for a connection that yields: each may look at all of an address."""


class Openings:
    """The unauthenticated connections of one worker, by their addresses. Any thread.

    While all places are taken, a new connection waits in the backlog of the kernel, until a place is free, or until a
    connection of an address with the most of them yields. That is one that was silent for `SILENT_S`, or began
    `MOST_OPENING_S` ago. So a client that logs in at once is not closed, and strangers do not keep their places.
    """

    def __init__(self, most: int, is_checked: Callable[[Hashable], bool] = lambda one: False) -> None:
        """*is_checked*: whether a connection waits for the check of its login, so that its silence is not its own."""
        self._most = most
        self._is_checked = is_checked
        self._lock = threading.Lock()
        self._look_s = 0.0
        """The time before which no connection yields."""
        self._by_address: dict[str, OrderedDict[Hashable, float]] = {}
        """The connections of each address, with the times of their last input; the longest silent comes first."""
        self._entries: dict[Hashable, tuple[str, float]] = {}
        """The address of each connection, and the time of its beginning."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, one: Hashable) -> bool:
        return one in self._entries

    def has_place(self, coming: int, now_s: float) -> bool:
        """Return whether one more connection may be accepted, beside *coming* ones that will be added."""
        with self._lock:
            return len(self._entries) + coming < self._most or (not coming and self._yielding(now_s) is not None)

    def add(self, one: Hashable, address: str, now_s: float) -> Hashable | None:
        """Add a connection; return the one to close for it, if any."""
        with self._lock:
            yielding = self._yielding(now_s) if len(self._entries) >= self._most else None
            if yielding is not None:
                self._remove(yielding)
            self._entries[one] = address, now_s
            self._by_address.setdefault(address, OrderedDict())[one] = now_s
            return yielding

    def received(self, one: Hashable, now_s: float) -> None:
        """Note that a connection has sent something, or got an answer. No effect on connections that do not count."""
        with self._lock:
            entry = self._entries.get(one)
            if entry is not None:
                there = self._by_address[entry[0]]
                there[one] = now_s
                there.move_to_end(one)

    def remove(self, one: Hashable) -> None:
        """Stop counting a connection that is open or closed. No effect on others."""
        with self._lock:
            if one in self._entries:
                self._remove(one)

    def _remove(self, one: Hashable) -> None:
        address, _ = self._entries.pop(one)
        there = self._by_address[address]
        del there[one]
        if not there:
            del self._by_address[address]

    def _yielding(self, now_s: float) -> Hashable | None:
        """Return the connection that yields its place now; None without one, which is not looked up again at once."""
        if now_s < self._look_s:
            return None
        found = self._look(now_s)
        if found is None:
            self._look_s = now_s + LOOK_S
        return found

    def _look(self, now_s: float) -> Hashable | None:
        crowd = max(self._by_address.values(), key=len, default=OrderedDict[Hashable, float]())
        for one, heard_s in crowd.items():
            if now_s - heard_s >= SILENT_S and not self._is_checked(one):
                return one
            if now_s - self._entries[one][1] >= MOST_OPENING_S:
                return one
        return None
