"""Link endpoints that outlast their links: what both kinds have in common, whoever sends (G12). Core only.

An end has a durable queue of its own, `$link:` and a digest of whose it is: user, container, link name and direction.
On it stands what is unsettled. It goes when the client closes the link, or does not come back in time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..channel.words import Claims, DriverEnd, Kept, TerminalEnd
from .queue import Queue

if TYPE_CHECKING:
    from .broker import Broker

STOLEN = ("amqp:link:stolen", "the client attached that link anew")
LINK = "x-link"
"""The argument of an end's queue: whose it is, and how long it is kept."""


class Keeper(DriverEnd, Protocol):
    """A driver whose link resumes."""

    terminal: TerminalEnd
    is_stolen: bool
    """The client has attached anew elsewhere: nothing that still comes here counts."""


class Ends(Protocol):
    """All of a broker's."""

    def drop(self, end: LinkEnd) -> None:
        """It is given up, and what is unsettled on it."""
        ...


Ready = Callable[[Kept | None], None]


class LinkEnd:
    """One of them, whether its link is there or not."""

    def __init__(self, broker: Broker, ends: Ends, queue: Queue) -> None:
        self.queue = queue
        self.queue_id = queue.queue_id
        self.about: dict[str, Any] = queue.arguments[LINK]
        self.driver: Keeper | None = None
        self.expires_s: int = self.about["expires-s"]
        """How long it is kept without a link; 0 for ever."""
        self._broker = broker
        self._ends = ends
        self._absences = 0
        self._is_given_up = False

    def attach(self, driver: Keeper, claims: Claims, ready: Ready) -> None:
        """The client is there (again); *ready* gets what is kept, or None if it has attached anew meanwhile."""
        self.steal()
        self.driver = driver
        self._absences += 1
        self._is_given_up = False
        self._attached(driver, claims, ready)

    def steal(self) -> None:
        """Take it away from the link that has it, if there is one."""
        if self.driver is not None:
            self.driver.is_stolen = True
            self.driver.terminal.failure(*STOLEN)
            self.driver = None

    def _attached(self, driver: Keeper, claims: Claims, ready: Ready) -> None:
        """Compare what the client *claims* with what is kept, once all of that is durable."""
        raise NotImplementedError

    def left(self, driver: Keeper, *, for_good: bool) -> None:
        """Its link has gone."""
        if self.driver is not driver:
            return
        self.driver = None
        if for_good or self._is_given_up:
            self._ends.drop(self)
        else:
            self.wait()

    def give_up(self) -> None:
        """Its client has attached the link without asking to resume it. Who still has it may go on."""
        self._is_given_up = True
        if self.driver is None:
            self._ends.drop(self)

    def wait(self) -> None:
        """Keep it for its time, unless the client comes back."""
        if self.expires_s:
            self._broker.timers.after(self.expires_s, self._expire, self._absences)

    def ended(self) -> None:
        """It is given up."""

    def _expire(self, absence: int) -> None:
        if self.driver is None and absence == self._absences:
            self._ends.drop(self)
