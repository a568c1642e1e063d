"""Links to and from exchanges. Core only."""

from __future__ import annotations

from ...amqp.ports import Open, TerminalEnd
from ..nodes.targets import ExchangeTarget
from .context import LinkContext
from .enqueue import Enqueuer
from .exchange_route import ExchangeRoute
from .handlers import LinkHandlers, ResumableLinks
from .producer import Producer

MOST_RESUMING_CREDIT = 100
"""The credit of a sender on a resumable link to an exchange: messages that wait are held in memory with their tags."""


class ExchangeLinks:
    """Opens links to and from exchanges."""

    def __init__(self, links: LinkContext, resumable: ResumableLinks, credit: int) -> None:
        """*credit*: the credit of a sender to an exchange, in messages."""
        self._links = links
        self._resumable = resumable
        self._credit = credit

    def register(self, handlers: LinkHandlers) -> None:
        """Register the handler of links to and from exchanges."""
        handlers.targets[ExchangeTarget] = self.open

    def open(self, place: ExchangeTarget, attach: Open, terminal: TerminalEnd) -> None:
        """Open a link to or from an exchange, or refuse it."""
        links, made = self._links, attach.terminus.dynamic
        if attach.to_client:
            links.subscriptions.open(place, attach, terminal)
        elif attach.claims is not None and not links.members.shares_queues and not made:
            self._resumable.send_through(place, attach, terminal, min(self._credit, MOST_RESUMING_CREDIT))
        else:
            enqueuer = Enqueuer(links, terminal, attach.user)
            route = ExchangeRoute(links, enqueuer, place, attach.container, attach.user)
            driver = Producer(links, enqueuer, route, attach.user, vouches=links.vouches and not attach.relayed)
            if made:
                place.exchange.maker = driver
            credit = enqueuer.credit((), self._credit, replicated=True)
            terminal.opened(driver, place.exchange.name if made else None, credit)
