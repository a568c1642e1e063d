"""Links to and from queues and exchanges: selects the driver of each of them, by the client's request. Core only."""

from __future__ import annotations

from functools import partial

from ..amqp.ports import DriverEnd, Open, TerminalEnd
from .contents.ports import FilteringConsumer, QueueConsumer
from .kernel.connections import Connections
from .links.browser import Browser
from .links.consumer import Consumer
from .links.context import LinkContext
from .links.enqueue import Enqueuer
from .links.exchange_route import ExchangeRoute
from .links.filtered_consumer import FilteredBrowser, FilteredConsumer, asked_for
from .links.handlers import LinkHandlers
from .links.producer import Producer, QueueRoute
from .nodes import lifetimes
from .nodes.targets import ExchangeTarget
from .queues.queue import Queue
from .resume.endpoint import STOLEN
from .resume.registry import LinkEndpoints

MOST_RESUMING_CREDIT = 100
"""The credit of a sender on a resumable link to an exchange: messages that wait are held in memory with their tags."""


class NodeLinks:
    """Opens links to and from queues and exchanges; some of them were made for their link."""

    def __init__(self, links: LinkContext, connections: Connections, endpoints: LinkEndpoints, credit: int) -> None:
        """*credit*: the credit of a sender, in messages."""
        self._links = links
        self._connections = connections
        self._endpoints = endpoints
        self._credit = credit

    def register(self, handlers: LinkHandlers) -> None:
        """Register the handlers of links to and from queues and exchanges."""
        handlers.targets[Queue] = self._open_queue
        handlers.targets[ExchangeTarget] = self._open_exchange

    def _open_queue(self, queue: Queue, attach: Open, terminal: TerminalEnd) -> None:
        """Open a link to or from a queue, or refuse it."""
        if queue.is_deleted:  # it was made and deleted before a cluster had answered
            terminal.failure("amqp:not-found", f"the queue {queue.name!r} was deleted")
            return
        if attach.to_client and (refusal := self._refusal(queue, attach)):
            terminal.failure(*refusal)
            return
        queue.was_linked = True
        is_browser = attach.to_client and attach.terminus.browse
        resumes = attach.claims is not None and queue.queue_id and not (queue.replicated or is_browser)
        driver: DriverEnd
        applied, credit = b"", 0
        if not attach.to_client:
            enqueuer = Enqueuer(self._links, terminal, attach)
            make_route = partial(QueueRoute, enqueuer, queue)
            if resumes:
                self._endpoints.open_from(enqueuer, make_route, (queue,), self._credit)
                return
            driver = Producer(enqueuer, make_route())
            credit = enqueuer.credit((queue,), self._credit)
        elif resumes:
            selector, applied = asked_for(attach.terminus.filters)
            self._endpoints.open_to(attach, terminal, queue, applied, selector)
            return
        else:
            driver, applied = self._receiver(queue, attach, terminal)
            if not is_browser:
                queue.order.consuming()
        if attach.terminus.dynamic and queue.policy.auto_delete == lifetimes.CLOSE:
            queue.maker = driver
        terminal.opened(driver, queue.name if attach.terminus.dynamic else None, credit, filters=applied)

    def _open_exchange(self, place: ExchangeTarget, attach: Open, terminal: TerminalEnd) -> None:
        """Open a link to or from an exchange, or refuse it."""
        links, is_made = self._links, attach.terminus.dynamic
        if attach.to_client:
            links.subscriptions.open(place, attach, terminal)
            return
        enqueuer = Enqueuer(links, terminal, attach)
        make_route = partial(ExchangeRoute, enqueuer, place)
        if attach.claims is not None and not links.members.shares_queues and not is_made:
            self._endpoints.open_from(enqueuer, make_route, (), min(self._credit, MOST_RESUMING_CREDIT))
            return
        driver = Producer(enqueuer, make_route())
        if is_made:
            place.exchange.maker = driver
        credit = enqueuer.credit((), self._credit, replicated=True)
        terminal.opened(driver, place.exchange.name if is_made else None, credit)

    def _refusal(self, queue: Queue, attach: Open) -> tuple[str, str] | None:
        """Return the error for a receiver that the queue can't have; None if it can."""
        if attach.terminus.browse:
            return None
        if queue.policy.exclusive and not self._take_over(queue, attach):
            return "amqp:resource-locked", f"the queue {queue.name!r} has a consumer, and may have only one"
        if attach.terminus.filters and queue.policy.assigns:
            return "amqp:not-implemented", f"the queue {queue.name!r} does not support selectors"
        return None

    def _take_over(self, queue: Queue, attach: Open) -> bool:
        """Make a client the only consumer, if there is no other, or if it attaches its own link again.

        Clients detect a lost connection before the broker does.
        """
        there: list[QueueConsumer | FilteringConsumer] = [*queue.consumers, *queue.selecting]
        if any(not self._connections.is_same(consumer.terminal, attach) for consumer in there):
            return False
        if queue.order.has_other_consumers():
            return False
        for consumer in there:
            consumer.terminal.failure(*STOLEN)
        return True

    def _receiver(self, queue: Queue, attach: Open, terminal: TerminalEnd) -> tuple[DriverEnd, bytes]:
        """Return a driver that acquires or browses messages, and the filters that it applies."""
        links = self._links
        selector, applied = asked_for(attach.terminus.filters)
        if selector is None:
            if attach.terminus.browse:
                return Browser(links.core, terminal, queue, attach.user), applied
            return Consumer(links, terminal, queue, presettled=attach.presettled, user=attach.user), applied
        if attach.terminus.browse:
            return FilteredBrowser(links.core, terminal, queue, selector, attach.user), applied
        consumer = FilteredConsumer(
            links, terminal, queue, presettled=attach.presettled, selector=selector, user=attach.user
        )
        return consumer, applied
