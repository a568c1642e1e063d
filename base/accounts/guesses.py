"""Counts recent failed logins, and delays the next login of the same address or name."""

from __future__ import annotations

import threading
from collections import OrderedDict

from ..clock import Clock
from .trusted_logins import TrustedLogins

FREE_FAILURES = 5
"""Failures that cost nothing: users mistype."""
FIRST_DELAY_S, MOST_DELAY_S = 0.1, 4.0
"""The delay after the first failure beyond these, which doubles with each, and the longest one."""
MOST_TRUSTED_DELAY_S = 0.1
"""The maximum delay for a user whose login has succeeded from this address."""
MOST_DELAY_ELSEWHERE_S = 0.5
"""The maximum delay at an address without failures, of a name that failed at others."""
MOST_FIRST_DELAY_S = 1.0
"""The maximum delay of a name without failures, at an address with those of others."""
FORGET_S = 60.0
"""A failure counts until there was none for so long."""
MOST_ENTRIES = 10_000
"""Addresses and names that are kept; those that failed least recently are forgotten."""

_Key = tuple[str, str]


class Guesses:
    """Counts failures by address and by name. Any thread.

    A name that has logged in from an address before waits there only for failures of that name, and not long. So
    neither others behind the same address translation lock it out, nor guesses at it from elsewhere. A name that has
    not waits little, too, unless both have failed. Guesses are limited by the delay at their addresses.
    """

    def __init__(self, clock: Clock, trusted: TrustedLogins | None = None) -> None:
        """*trusted*: the logins that succeeded earlier."""
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: OrderedDict[_Key, tuple[int, float]] = OrderedDict()
        """The number of failures by address or name, and the time of the last one."""
        self._trusted = TrustedLogins() if trusted is None else trusted

    def failed(self, address: str, name: str) -> None:
        """Record a failed login, with a wrong name or password."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            for key in _keys(address, name):
                self._failures[key] = self._count(key, now_s) + 1, now_s
                self._failures.move_to_end(key)
            while len(self._failures) > MOST_ENTRIES:
                self._failures.popitem(last=False)

    def succeeded(self, address: str, name: str) -> bool:
        """Record a successful login. Earlier failures still count: an attacker may have an account of its own.

        Return whether `save` has something to write.
        """
        return self._trusted.add(address, name)

    def save(self) -> None:
        """Write the successful logins that are new to their file."""
        self._trusted.save()

    def is_trusted(self, address: str, name: str) -> bool:
        """Return whether user *name* has logged in from *address*."""
        return (address, name) in self._trusted

    def delay_s(self, address: str, name: str) -> float:
        """Return the seconds that a login which begins now has to wait."""
        now_s = self._clock.monotonic_s()
        is_trusted = (address, name) in self._trusted
        with self._lock:
            here, of_name = (self._count(key, now_s) for key in _keys(address, name))
        if is_trusted or here < FREE_FAILURES:
            count, most_s = of_name, MOST_TRUSTED_DELAY_S if is_trusted else MOST_DELAY_ELSEWHERE_S
        else:
            count, most_s = max(here, of_name), MOST_DELAY_S if of_name else MOST_FIRST_DELAY_S
        if count < FREE_FAILURES:
            return 0.0
        return float(min(most_s, FIRST_DELAY_S * 2 ** min(count - FREE_FAILURES, 16)))

    def _count(self, key: _Key, now_s: float) -> int:
        count, last_s = self._failures.get(key, (0, now_s))
        return count if now_s - last_s < FORGET_S else 0


def _keys(address: str, name: str) -> tuple[_Key, _Key]:
    return ("address", address), ("name", name)
