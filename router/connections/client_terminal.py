"""The worker's side of a connection that the broker opens to another container.

A terminal as any other, but for its beginning: it logs in instead of letting in, and opens before it is answered. On
such a connection only the broker attaches links.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...amqp.connector_target import Target
from ...amqp.links.attach import Attach, said_by_peer
from ...amqp.links.credit import grant
from ...amqp.links.events import Event, EventKind
from ...amqp.links.link import Link
from ...amqp.ports import Delivery, DriverEnd, RoutedEnd
from ...amqp.sasl.client_handshake import ClientHandshake
from .channel_end import ChannelEnd, LinkHost
from .terminal import Terminal, TerminalContext

Answered = Callable[[Attach], None]
_ITS_OWN_FAULT = ("amqp:decode-error", "amqp:link:message-size-exceeded")


class OutwardChannelEnd(ChannelEnd):
    """The worker's end of a channel that the broker has asked another container for (`amqp.ports.AttachedEnd`).

    `opened` answers no attach, and `reject` may redirect.
    """

    def __init__(self, host: LinkHost, link: Link) -> None:
        super().__init__(host, link)
        self.on_refusal: Callable[[int], None] | None = None

    def reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, description: str) -> None:
        if self.on_refusal is None or condition in _ITS_OWN_FAULT:
            super().reject(deliveries, credit, condition, description)
        else:
            self.hand_back(deliveries, 0)
            self.on_refusal(credit)

    def _do_opened(self, driver: DriverEnd, address: str | None, credit: int, *_: Any) -> None:
        """Connect the open link with *driver*."""
        if not self._take(driver):
            return
        if self._link.sender:
            self._host.request(self._link)
        else:
            grant(self._link, credit)


class ClientTerminal(Terminal):
    """A connection to a target, without its socket."""

    dials = True

    def __init__(
        self,
        context: TerminalContext,
        target: Target,
        *,
        wake: Callable[[Terminal], None],
        over: Callable[[], None],
    ) -> None:
        """*over* is called once, on the worker, when the connection is."""
        super().__init__(context, target.place, wake=wake)
        self._target = target
        self._over = over
        self._open_properties = context.admission.properties
        self._answered: dict[Link, Answered] = {}
        """Callbacks that wait for the answer to an attach, by link."""
        self._front = None
        if target.sasl:
            self._front = front = ClientHandshake(target.identity, target.called, secure=target.tls)
            self._prelude = front.greeting
        else:
            self._begin_amqp()

    def _begin_amqp(self) -> None:
        self.endpoints.open_to(self._target.called, self._open_properties)

    def _open(self) -> None:
        """Handle that the other container has answered the open."""
        self.core.post(self._drivers.connected, self._target.name, self)

    def _attach(self, link: Link) -> None:
        self.endpoints.close_link(link, "amqp:not-allowed", "on this connection only its opener attaches links")

    def _on_event(self, event: Event) -> None:
        link = event.link
        if event.kind is not EventKind.ANSWERED or link is None:
            super()._on_event(event)
        elif not link.closed and link in self._answered:
            self.core.post(self._answered.pop(link), said_by_peer(link))
            if link.sender:
                self.request(link)

    def give_up(self) -> None:
        if not self.closed:
            super().give_up()
            self.core.post(self._drivers.disconnected, self._target.name, self, self.reason or "the connection broke")
            self._over()

    # ---- on the core ----------------------------------------------------------------------------------------------

    def attach(
        self, asked: Attach, driver: DriverEnd, answered: Answered, *, sends: bool, priority: int = 4
    ) -> OutwardChannelEnd:
        link = Link(None, None, asked.name, sender=sends)
        link.priority = priority
        channel = link.channel = OutwardChannelEnd(self, link)
        channel.driver = driver
        self.note(self._do_attach, link, channel, asked, answered)
        return channel

    # ---- on the worker --------------------------------------------------------------------------------------------

    def _do_attach(self, link: Link, channel: ChannelEnd, asked: Attach, answered: Answered) -> None:
        driver = channel.driver
        assert driver is not None
        if self.closed:
            link.lose()
            self.core.post(driver.close, (), True, False)
            return
        self._channels[link] = channel
        self._answered[link] = answered
        if isinstance(driver, RoutedEnd):
            channel.follow(driver)
        self.endpoints.attach(link, asked)

    def _detached(self, link: Link, lost: bool, for_good: bool) -> None:
        self._answered.pop(link, None)
        super()._detached(link, lost, for_good)
