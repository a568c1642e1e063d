"""Link endpoints that outlast their links: the common part of producers and consumers (G12). Core only.

An endpoint has a durable queue of its own, `$link:` and a digest of user, container, link name and direction. Its
messages are the unsettled deliveries. It is deleted when the client closes the link, or does not return in time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from ...amqp.ports import Claims, DriverEnd, KeptLink, TerminalEnd
from ...base.errors import StoreError
from ..contents.internal_queues import InternalQueue
from ..kernel.context import CoreContext
from ..queues.ends import TargetQueue
from .endpoint_states import DROPPED, TABLE, WAITING, EndpointEvent

STOLEN = ("amqp:link:stolen", "the client attached that link anew")
LINK = "x-link"
"""The argument of an endpoint's queue: its owner, and the time for which it is kept."""


class LinkQueue(InternalQueue, TargetQueue, Protocol):
    """The queue of an endpoint, which has its unsettled deliveries."""


class ResumableDriver(DriverEnd, Protocol):
    """A driver whose link resumes."""

    terminal: TerminalEnd
    is_stolen: bool
    """True if the client has attached again elsewhere: further events of this link are ignored."""


Ready = Callable[[KeptLink | None], None]


class LinkEndpoint:
    """A link endpoint that outlasts its link."""

    def __init__(self, core: CoreContext, drop: Callable[[LinkEndpoint], None], queue: LinkQueue) -> None:
        """*drop*: deletes an endpoint and its unsettled deliveries."""
        self.queue = queue
        self.queue_id = queue.queue_id
        self.about: dict[str, Any] = queue.arguments[LINK]
        self.driver: ResumableDriver | None = None
        self.expires_s: int = self.about["expires-s"]
        """Seconds for which the end is kept without a link; 0 for ever."""
        self._core = core
        self._drop = drop
        self._absences = 0
        self._state = WAITING
        """A state of `endpoint_states`."""

    def attach(self, driver: ResumableDriver, claims: Claims, ready: Ready) -> None:
        """Attach the client; *ready* gets the kept state, or None if the client attached again meanwhile."""
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
        """Compare the client's *claims* with the kept state, once all of it is durable."""
        raise NotImplementedError

    def left(self, driver: ResumableDriver, *, for_good: bool) -> None:
        """Detach the endpoint from its link."""
        if self.driver is not driver:
            return
        self.driver = None
        self._handle(EndpointEvent.CLOSE if for_good else EndpointEvent.DETACH)

    def give_up(self) -> None:
        """Handle that the client attached the link without resuming it. A link that uses the endpoint continues."""
        self._handle(EndpointEvent.GIVE_UP)

    def wait(self) -> None:
        """Keep the endpoint for its time, unless the client returns."""
        if self.expires_s:
            self._core.scheduler.after(self.expires_s, self._expire, self._absences)

    def dequeue(self, message_id: int) -> None:
        """Remove a message from the endpoint's own queue; 0 for none."""
        if message_id and not self.queue.is_deleting:
            with suppress(StoreError):  # the queue was purged by a client
                self._core.store.dequeue(message_id, self.queue_id, self._core.clock.wall_us())

    def ended(self) -> None:
        """Handle that the endpoint is deleted."""

    def _expire(self, absence: int) -> None:
        if absence == self._absences:
            self._handle(EndpointEvent.EXPIRE)

    def _handle(self, event: EndpointEvent) -> None:
        """Enter the next state of the endpoint, and do its action."""
        entered = TABLE.get((self._state, event), self._state)
        if entered == self._state:
            return
        self._state = entered
        if entered == WAITING:
            self.wait()
        elif entered == DROPPED:
            self._drop(self)
