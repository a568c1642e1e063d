"""Link endpoints that outlast their links: what both kinds have in common, whoever sends (G12). Core only.

An end has a durable queue of its own, `$link:` and a digest of whose it is: user, container, link name and direction.
On it stands what is unsettled. It goes when the client closes the link, or does not come back in time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ...channel.ports import Claims, DriverEnd, KeptLink, TerminalEnd
from ..kernel.context import CoreContext
from ..links.queue_links import STOLEN
from ..queues.queue import Queue
from .endpoint_states import DROPPED, TABLE, WAITING, EndpointEvent

LINK = "x-link"
"""The argument of an end's queue: whose it is, and how long it is kept."""


class ResumableDriver(DriverEnd, Protocol):
    """A driver whose link resumes."""

    terminal: TerminalEnd
    is_stolen: bool
    """The client has attached anew elsewhere: nothing that still comes here counts."""


class EndpointOwner(Protocol):
    """The link endpoints of a broker."""

    def drop(self, end: LinkEndpoint) -> None:
        """Delete the endpoint and its unsettled deliveries."""


Ready = Callable[[KeptLink | None], None]


class LinkEndpoint:
    """A link endpoint that outlasts its link."""

    def __init__(self, core: CoreContext, ends: EndpointOwner, queue: Queue) -> None:
        self.queue = queue
        self.queue_id = queue.queue_id
        self.about: dict[str, Any] = queue.arguments[LINK]
        self.driver: ResumableDriver | None = None
        self.expires_s: int = self.about["expires-s"]
        """Seconds for which the end is kept without a link; 0 for ever."""
        self._core = core
        self._ends = ends
        self._absences = 0
        self._state = WAITING
        """A state of `endpoint_states`."""

    def attach(self, driver: ResumableDriver, claims: Claims, ready: Ready) -> None:
        """The client is there (again); *ready* gets what is kept, or None if it has attached anew meanwhile."""
        self.steal()
        self.driver = driver
        self._absences += 1
        self._handle(EndpointEvent.ATTACH)
        self._attached(driver, claims, ready)

    def steal(self) -> None:
        """Take it away from the link that has it, if there is one."""
        if self.driver is not None:
            self.driver.is_stolen = True
            self.driver.terminal.failure(*STOLEN)
            self.driver = None

    def _attached(self, driver: ResumableDriver, claims: Claims, ready: Ready) -> None:
        """Compare what the client *claims* with what is kept, once all of that is durable."""
        raise NotImplementedError

    def left(self, driver: ResumableDriver, *, for_good: bool) -> None:
        """Detach the endpoint from its link."""
        if self.driver is not driver:
            return
        self.driver = None
        self._handle(EndpointEvent.CLOSE if for_good else EndpointEvent.DETACH)

    def give_up(self) -> None:
        """Its client has attached the link without asking to resume it. Who still has it may go on."""
        self._handle(EndpointEvent.GIVE_UP)

    def wait(self) -> None:
        """Keep it for its time, unless the client comes back."""
        if self.expires_s:
            self._core.scheduler.after(self.expires_s, self._expire, self._absences)

    def ended(self) -> None:
        """Handle that the endpoint is deleted."""

    def _expire(self, absence: int) -> None:
        if absence == self._absences:
            self._handle(EndpointEvent.EXPIRE)

    def _handle(self, event: EndpointEvent) -> None:
        """Enter the next state, and do its action."""
        entered = TABLE.get((self._state, event), self._state)
        if entered == self._state:
            return
        self._state = entered
        if entered == WAITING:
            self.wait()
        elif entered == DROPPED:
            self._ends.drop(self)
