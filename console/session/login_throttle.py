"""Delays after failed logins, which grow with each failure.

| key | free failures | delay after the next ones |
|---|---|---|
| address and user | 2 | 1 s, 2 s, 4 s, ... 60 s |
| address | 20 | 1 s, 2 s, 4 s, ... 60 s |

The addresses of an IPv6 /64 count as one, since a client has all of them.

A login of the user ends the delay of the first key only. An attempt during a delay is refused without the broker. A key
is forgotten an hour after its last failure, or when `MOST_KEYS` newer ones exist.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from math import ceil

FREE_BY_USER = 2
FREE_BY_ADDRESS = 20
MOST_DELAY_S = 60.0
FORGET_S = 3600.0
MOST_KEYS = 4096


class LoginThrottle:
    """The recent failures by address and user."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str | None], tuple[int, float]] = {}
        """Number and time of the last one, in the order of time."""

    def wait_s(self, address: str, user: str) -> int:
        """Return the seconds until the next attempt may be made; 0 for now."""
        address = network_of(address)
        return max(self._wait_s((address, user), FREE_BY_USER), self._wait_s((address, None), FREE_BY_ADDRESS))

    def failed(self, address: str, user: str) -> None:
        address = network_of(address)
        now = self._clock()
        for key in ((address, user), (address, None)):
            count, last_s = self._failures.pop(key, (0, now))
            self._failures[key] = (1 if now - last_s > FORGET_S else count + 1, now)
        while len(self._failures) > MOST_KEYS:
            del self._failures[next(iter(self._failures))]

    def succeeded(self, address: str, user: str) -> None:
        self._failures.pop((network_of(address), user), None)

    def _wait_s(self, key: tuple[str, str | None], free: int) -> int:
        count, last_s = self._failures.get(key, (0, 0.0))
        if count <= free:
            return 0
        delay_s = min(MOST_DELAY_S, 2.0 ** min(count - free - 1, 10))
        return max(0, ceil(last_s + delay_s - self._clock()))


def network_of(address: str) -> str:
    """Return the /64 of an IPv6 address; other addresses as they are."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    return str(parsed.ipv4_mapped or IPv6Address(int(parsed) >> 64 << 64))
