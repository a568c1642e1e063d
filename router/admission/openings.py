"""The limit of connections that are not authenticated yet."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable


class Openings:
    """The unauthenticated connections of one worker, by their addresses.

    Beyond the limit, the connection that was silent for longest is closed, among those of the address that has most. So
    a client that logs in at once is never closed, and neither is the only connection of its address.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_address: dict[str, OrderedDict[Hashable, None]] = {}
        self._address_of: dict[Hashable, str] = {}

    def __len__(self) -> int:
        return len(self._address_of)

    def __contains__(self, one: Hashable) -> bool:
        return one in self._address_of

    def add(self, one: Hashable, address: str) -> Hashable | None:
        """Add a connection; return the one to close for it, if any."""
        self._address_of[one] = address
        self._by_address.setdefault(address, OrderedDict())[one] = None
        if len(self._address_of) <= self._most:
            return None
        crowd = max(self._by_address.values(), key=len)
        oldest = next(iter(crowd))
        self.remove(oldest)
        return oldest

    def received(self, one: Hashable) -> None:
        """Note that a connection has sent something. No effect on connections that are not counted."""
        address = self._address_of.get(one)
        if address is not None:
            self._by_address[address].move_to_end(one)

    def remove(self, one: Hashable) -> None:
        """Stop counting a connection that is open or closed. No effect on others."""
        address = self._address_of.pop(one, None)
        if address is not None:
            there = self._by_address[address]
            del there[one]
            if not there:
                del self._by_address[address]
