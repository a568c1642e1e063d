"""The turns of logins: which of them are checked, and how many at a time. Any thread.

Checking a password takes milliseconds, on purpose, so one thread does it for all clients, and another one looks up
users, so that SCRAM waits for no hash. Addresses take turns; the addresses of an IPv6 /64 count as one. After failures
the next login of the same address or name is delayed, each time for longer (`Guesses`). The number of waiting logins is
limited, and clients that have left free their places.
"""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Clock
from .clerks import Clerk, Job
from .guesses import Guesses
from .networks import network_of
from .trusted_logins import TrustedLogins


class LoginTurns:
    """The logins of one door."""

    def __init__(
        self,
        clock: Clock,
        most_waiting: int,
        name: str = "cairnmq",
        *,
        most_delayed: int = 0,
        trusted_path: str = "",
    ) -> None:
        """*most_waiting*: the number of waiting logins; *most_delayed* ones may wait besides, 0 for as many.

        *name*: of threads. *trusted_path*: the file of `TrustedLogins`; empty for none.
        """
        self._guesses = Guesses(clock, TrustedLogins(trusted_path))
        self._hashes, self._lookups = [
            Clerk(f"{name}-{of}", most_waiting, most_delayed or most_waiting) for of in ("login", "lookup")
        ]

    def submit(
        self, host: str, user: str, job: Job, wanted: Callable[[], bool], refused: Job, *, is_hash: bool = True,
        may_delay: bool = True,
    ) -> bool:  # fmt: skip
        """Have *job* done in its turn; return False if too many logins wait. *host*: the address without a port.

        *refused* is called if the login has to yield to others later; see `Clerk.submit`.
        """
        address = network_of(host)
        is_trusted = self._guesses.is_trusted(address, user)
        owner = f"{address} {user}" if is_trusted else address
        clerk = self._hashes if is_hash else self._lookups
        delay_s = self._guesses.delay_s(address, user) if user and may_delay else 0.0
        return clerk.submit(owner, job, delay_s, is_trusted=is_trusted, is_wanted=wanted, refused=refused)

    def failed(self, host: str, user: str) -> None:
        """Count a failure against the address and the name."""
        self._guesses.failed(network_of(host), user)

    def succeeded(self, host: str, user: str) -> None:
        """Trust *user* at this address from now on."""
        if self._guesses.succeeded(network_of(host), user):
            self._lookups.submit("trusted logins", self._guesses.save, is_trusted=True)  # if refused, with the next one

    def stop(self) -> None:
        """End the threads; waiting jobs are not done."""
        self._hashes.stop()
        self._lookups.stop()
        self._guesses.save()
