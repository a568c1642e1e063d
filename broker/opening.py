"""Links that are attached: which driver serves each of them, by what its address means and what the client wishes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from ..amqp.codec import Malformed
from ..channel.words import DriverEnd, Open, TerminalEnd
from . import lifetimes
from .access import CREATE, RECEIVE, SEND
from .addresses import is_topic
from .browser import Browser
from .consumer import Consumer
from .coordinator import CREDIT, Coordinator
from .direct import Direct
from .direct_receiver import DirectReceiver
from .direct_sender import DirectProducer
from .finding import DYNAMIC_PREFIX, operation_of
from .link_end import STOLEN
from .places import ExchangePlace, Place
from .queue import Queue
from .remembering import RememberingExchangeProducer, RememberingQueueProducer
from .selecting import SelectingBrowser, SelectingConsumer, asked_for
from .selector import SelectorError
from .senders import AnonymousProducer, ExchangeProducer, QueueProducer
from .streams import STREAM

if TYPE_CHECKING:
    from .broker import Broker
    from .takers import Selecting, Taker


class Opening:
    """Of one broker. On the core only."""

    def __init__(self, broker: Broker, credit: int) -> None:
        """*credit*: of a sender, in messages."""
        self._broker = broker
        self._credit = credit

    def open(self, wish: Open, terminal: TerminalEnd) -> None:
        """Find out what *wish* is about, perhaps later, and answer *terminal* with a driver, or why there is none."""
        broker = self._broker
        terminus = wish.terminus
        broker.connections.link_came(wish, terminal)
        if broker.acquisitions is not None:
            broker.acquisitions.link_came(wish, terminal)
        why_not = "" if broker.cluster is None else broker.cluster.why_not_serving()
        if why_not:
            terminal.failure("amqp:connection:forced", why_not)
            return
        if wish.claims is None:
            broker.suspended.give_up(wish)
        if terminus.coordinator and not wish.to_client:
            terminal.opened(Coordinator(broker, terminal, wish.connection), None, CREDIT)
            return
        if wish.attach is not None and broker.link_routes.take(wish, terminal):
            return
        try:
            asked_for(terminus.filters)
            lifetimes.asked_for(terminus.properties)
        except (Malformed, SelectorError) as error:
            terminal.failure("amqp:invalid-field", str(error))
            return
        endpoint = broker.endpoints.get(terminus.address or "")
        if terminus.dynamic:
            name = f"{DYNAMIC_PREFIX}{uuid4()}"
            if why := broker.why_not(wish.user, CREATE, name):
                terminal.failure("amqp:unauthorized-access", why)
            elif not is_topic(terminus.capabilities):
                self._open_on(broker.make_dynamic(name, wish), wish, terminal, made=True)
            elif lifetimes.asked_for(terminus.properties) == lifetimes.CLOSE:
                self._open_through(broker.make_topic(name, wish), wish, terminal)
            else:
                terminal.failure("amqp:not-implemented", "a topic that is made for a link goes with it")
        elif terminus.address is None:
            if wish.to_client and terminus.absent:
                broker.subscriptions.find(wish, terminal)
            elif wish.to_client:
                terminal.failure("amqp:invalid-field", "a source needs an address, or to be dynamic")
            else:
                producer = AnonymousProducer(broker, terminal, wish.container, wish.user)
                terminal.opened(producer, None, broker.credit(terminal, self._credit, replicated=True))
        elif endpoint is not None:
            if why := broker.why_not(wish.user, RECEIVE if wish.to_client else SEND, terminus.address):
                terminal.failure("amqp:unauthorized-access", why)
            else:
                endpoint.open(wish, terminal)
        elif terminus.address.startswith(STREAM):
            broker.streams.open(wish, terminal)
        else:
            broker.find(
                terminus.address,
                lambda found: self._answer(found, wish, terminal),
                terminus.capabilities,
                user=wish.user,
                operation=operation_of(wish),
                connection=wish.connection,
            )

    def _answer(self, found: Place | Exception, wish: Open, terminal: TerminalEnd) -> None:
        if isinstance(found, Queue) and found.gone:  # it was made and deleted before a cluster had answered
            terminal.failure("amqp:not-found", f"the queue {found.name!r} is gone")
        elif isinstance(found, Queue):
            self._open_on(found, wish, terminal)
        elif isinstance(found, ExchangePlace):
            self._open_through(found, wish, terminal)
        elif isinstance(found, Direct):
            self._open_direct(found, wish, terminal)
        elif isinstance(found, LookupError):
            terminal.failure("amqp:not-found", str(found.args[0]))
        else:
            terminal.failure(*self._broker.why_not_made(found))

    def open_at(self, place: Queue | ExchangePlace, wish: Open, terminal: TerminalEnd) -> None:
        """A link of the broker's own, which may do everything."""
        broker = self._broker
        if broker.acquisitions is not None:
            broker.acquisitions.link_came(wish, terminal)
        if isinstance(place, Queue):
            self._open_on(place, wish, terminal)
        else:
            self._open_through(place, wish, terminal)

    def _open_on(self, queue: Queue, wish: Open, terminal: TerminalEnd, made: bool = False) -> None:
        broker = self._broker
        driver: DriverEnd
        filters = b""
        if not wish.to_client and wish.claims is not None and queue.queue_id and not (made or queue.replicated):
            queue.was_linked = True
            make = partial(RememberingQueueProducer, broker, terminal, queue, wish.user)
            broker.suspended.open_from(wish, terminal, make, lambda: self._credit_on(queue, terminal))
            return
        if not wish.to_client:
            driver = QueueProducer(broker, terminal, queue, wish.user)
            driver.vouches = broker.vouch and not wish.relayed
        elif queue.policy.exclusive and not wish.terminus.browse and not self._take_over(queue, wish):
            terminal.failure("amqp:resource-locked", f"the queue {queue.name!r} has a consumer, and may have only one")
            return
        elif wish.terminus.filters and not wish.terminus.browse and queue.policy.assigns:
            terminal.failure("amqp:not-implemented", f"the queue {queue.name!r} says who gets what: nobody can select")
            return
        elif wish.claims is not None and queue.queue_id and not (made or queue.replicated or wish.terminus.browse):
            queue.was_linked = True
            selector, filters = asked_for(wish.terminus.filters)
            broker.suspended.open_to(wish, terminal, queue, filters, selector)
            return
        else:
            driver, filters = self._receiver(queue, wish, terminal)
            if queue.replicated and broker.cluster is not None and not wish.terminus.browse:
                broker.cluster.consuming(queue)
        queue.was_linked = True
        if made and queue.policy.auto_delete == lifetimes.CLOSE:
            queue.maker = driver
        credit = 0 if wish.to_client else self._credit_on(queue, terminal)
        terminal.opened(driver, queue.name if made else None, credit, filters=filters)

    def _take_over(self, queue: Queue, wish: Open) -> bool:
        """Have a client be the only consumer, if it can be: nobody else is, or its own link that it attaches anew.

        Clients notice before the broker that a connection is gone.
        """
        broker = self._broker
        there: list[Taker | Selecting] = [*queue.consumers, *queue.selecting]
        if any(not broker.connections.is_same(consumer.terminal, wish) for consumer in there):
            return False
        if queue.replicated and broker.cluster is not None and broker.cluster.is_taken(queue):
            return False
        for consumer in there:
            consumer.terminal.failure(*STOLEN)
        return True

    def _credit_on(self, queue: Queue, terminal: TerminalEnd) -> int:
        """What a new sender to *queue* gets."""
        credit = self._credit if queue.gate is None else queue.gate.credit(terminal, self._credit)
        return self._broker.credit(terminal, credit, replicated=queue.replicated) if queue.queue_id else credit

    def _receiver(self, queue: Queue, wish: Open, terminal: TerminalEnd) -> tuple[DriverEnd, bytes]:
        """A driver that takes or looks at messages, and the filters that it applies."""
        broker = self._broker
        selector, filters = asked_for(wish.terminus.filters)
        if selector is None:
            if wish.terminus.browse:
                return Browser(broker, terminal, queue), filters
            return Consumer(broker, terminal, queue, presettled=wish.presettled), filters
        if wish.terminus.browse:
            return SelectingBrowser(broker, terminal, queue, selector), filters
        return SelectingConsumer(broker, terminal, queue, presettled=wish.presettled, selector=selector), filters

    def _open_through(self, place: ExchangePlace, wish: Open, terminal: TerminalEnd) -> None:
        broker = self._broker
        lasts = wish.claims is not None and broker.cluster is None and not wish.terminus.dynamic
        if not wish.to_client and lasts:
            make = partial(RememberingExchangeProducer, broker, terminal, place, wish.container, wish.user)
            broker.suspended.open_from(wish, terminal, make, lambda: broker.credit(terminal, self._credit))
        elif not wish.to_client:
            driver = ExchangeProducer(broker, terminal, place, wish.container, wish.user)
            driver.vouches = broker.vouch and not wish.relayed
            made = wish.terminus.dynamic
            if made:
                place.exchange.maker = driver
            credit = broker.credit(terminal, self._credit, replicated=True)
            terminal.opened(driver, place.exchange.name if made else None, credit)
        else:
            broker.subscriptions.open(place, wish, terminal)

    def _open_direct(self, place: Direct, wish: Open, terminal: TerminalEnd) -> None:
        broker = self._broker
        if not wish.to_client:
            sender = DirectProducer(broker, terminal, place, wish.user, self._credit)
            terminal.opened(sender, None, sender.first_credit)
        elif wish.terminus.browse or asked_for(wish.terminus.filters)[0] is not None:
            why = f"at {place.name!r} nothing is stored, so there is nothing to browse, and nothing to select from"
            terminal.failure("amqp:not-implemented", why)
        else:
            receiver = DirectReceiver(broker, terminal, place, presettled=wish.presettled)
            terminal.opened(receiver, None, 0)
            receiver.join()
