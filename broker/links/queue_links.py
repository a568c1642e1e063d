"""Links to and from queues: selects the driver that serves each of them, by the client's request. Core only."""

from __future__ import annotations

from ...amqp.ports import DriverEnd, Open, TerminalEnd
from ..contents.ports import FilteringConsumer, QueueConsumer
from ..kernel.connections import Connections
from ..nodes import lifetimes
from ..queues.queue import Queue
from .browser import Browser
from .consumer import Consumer
from .context import LinkContext
from .enqueue import Enqueuer
from .filtered_consumer import FilteredBrowser, FilteredConsumer, asked_for
from .handlers import LinkHandlers, ResumableLinks
from .producer import Producer, QueueRoute

STOLEN = ("amqp:link:stolen", "the client attached that link anew")


class QueueLinks:
    """Opens links to and from queues."""

    def __init__(self, links: LinkContext, connections: Connections, resumable: ResumableLinks, credit: int) -> None:
        """*credit*: the credit of a sender to a queue, in messages."""
        self._links = links
        self._connections = connections
        self._resumable = resumable
        self._credit = credit

    def register(self, handlers: LinkHandlers) -> None:
        """Register the handler of links to and from queues."""
        handlers.targets[Queue] = self.open

    def open(self, queue: Queue, attach: Open, terminal: TerminalEnd) -> None:
        """Open a link to or from an existing queue, or refuse it."""
        if queue.is_deleted:  # it was made and deleted before a cluster had answered
            terminal.failure("amqp:not-found", f"the queue {queue.name!r} was deleted")
        elif attach.claims is not None and queue.queue_id and not (
            queue.replicated or (attach.to_client and attach.terminus.browse)
        ):
            self._open_resumable(queue, attach, terminal)
        elif attach.to_client and (refusal := self._refusal(queue, attach)):
            terminal.failure(*refusal)
        else:
            self._open(queue, attach, terminal, None)

    def open_made(self, queue: Queue, attach: Open, terminal: TerminalEnd) -> None:
        """Open the link that a queue was made for."""
        if attach.to_client and (refusal := self._refusal(queue, attach)):
            terminal.failure(*refusal)
        else:
            self._open(queue, attach, terminal, queue.name)

    def _open(self, queue: Queue, attach: Open, terminal: TerminalEnd, made: str | None) -> None:
        driver: DriverEnd
        applied, credit = b"", 0
        if attach.to_client:
            driver, applied = self._receiver(queue, attach, terminal)
            if not attach.terminus.browse:
                queue.order.consuming()
        else:
            links = self._links
            enqueuer = Enqueuer(links, terminal, attach.user)
            route = QueueRoute(links, enqueuer, queue)
            driver = Producer(links, enqueuer, route, attach.user, vouches=links.vouches and not attach.relayed)
            credit = enqueuer.credit((queue,), self._credit)
        queue.was_linked = True
        if made is not None and queue.policy.auto_delete == lifetimes.CLOSE:
            queue.maker = driver
        terminal.opened(driver, made, credit, filters=applied)

    def _open_resumable(self, queue: Queue, attach: Open, terminal: TerminalEnd) -> None:
        if not attach.to_client:
            queue.was_linked = True
            self._resumable.send_to_queue(queue, attach, terminal, self._credit)
        elif refusal := self._refusal(queue, attach):
            terminal.failure(*refusal)
        else:
            queue.was_linked = True
            selector, applied = asked_for(attach.terminus.filters)
            self._resumable.open_to(attach, terminal, queue, applied, selector)

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
