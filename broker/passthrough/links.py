"""Links to and from addresses that messages pass through, and links of the anonymous relay. Core only."""

from __future__ import annotations

from collections.abc import Mapping

from ...amqp.codec import filters
from ...amqp.ports import Open, TerminalEnd
from ..links.context import LinkContext
from ..links.enqueue import Enqueuer
from ..links.handlers import LinkHandlers
from ..links.producer import Producer
from ..nodes.targets import Endpoint
from .address import PassthroughAddress, PassthroughTable
from .anonymous_route import AnonymousRoute
from .receiver import PassthroughReceiver
from .sender import PassthroughProducer


class PassthroughLinks:
    """Opens links to and from addresses that messages pass through."""

    def __init__(
        self, links: LinkContext, addresses: PassthroughTable, endpoints: Mapping[str, Endpoint], credit: int
    ) -> None:
        """*credit*: the credit of a sender to a passthrough address, in messages."""
        self._links = links
        self._addresses = addresses
        self._endpoints = endpoints
        self._credit = credit

    def register(self, handlers: LinkHandlers) -> None:
        """Register the handlers of links to and from these addresses, and of links without one."""
        handlers.relay = self.open_relay
        handlers.targets[PassthroughAddress] = self.open

    def open(self, place: PassthroughAddress, attach: Open, terminal: TerminalEnd) -> None:
        """Open a link to or from an address, or refuse it."""
        links = self._links
        if not attach.to_client:
            sender = PassthroughProducer(links, self._addresses, terminal, place, user=attach.user, credit=self._credit)
            terminal.opened(sender, None, sender.first_credit)
        elif attach.terminus.browse or filters.parse(attach.terminus.filters).selector is not None:
            reason = f"at {place.name!r} nothing is stored, so there is nothing to browse or to select; use a queue"
            terminal.failure("amqp:not-implemented", reason)
        else:
            receiver = PassthroughReceiver(
                links, self._addresses, terminal, place, presettled=attach.presettled, user=attach.user
            )
            terminal.opened(receiver, None, 0)
            receiver.join()

    def open_relay(self, attach: Open, terminal: TerminalEnd) -> None:
        """Open a link whose messages name their targets."""
        enqueuer = Enqueuer(self._links, terminal, attach)
        producer = Producer(enqueuer, AnonymousRoute(enqueuer, self._addresses, self._endpoints))
        terminal.opened(producer, None, enqueuer.credit((), self._credit, replicated=True))
