"""Producers by where their messages go: to one queue, through an exchange, or where each message says itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..amqp import header
from ..amqp.codec import Malformed
from ..channel.words import Delivery, Fragment, TerminalEnd
from .access import SEND
from .direct import Direct
from .direct_sender import DirectSender
from .exchange import MAX_KEY_CHARACTERS, MOST_HOPS, Exchange, way_through
from .passing import NO_TRANSACTIONS
from .places import ExchangePlace, Place
from .producer import Producer
from .queue import Queue
from .recording import Queues

if TYPE_CHECKING:
    from .broker import Broker
    from .transaction import Transaction


class QueueProducer(Producer):
    """Sends to one queue."""

    def __init__(self, broker: Broker, terminal: TerminalEnd, queue: Queue, user: str = "") -> None:
        super().__init__(broker, terminal, user)
        self._queue = queue
        self._queues = (queue,)
        queue.producers[self] = None

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        super().close(returned, lost, for_good)
        self._queue.producers.pop(self, None)
        self._broker.driver_closed(self, self._queue, for_good=for_good)

    def _accept(self, fragments: list[Fragment]) -> None:
        if self._queue.going:
            self._reject_gone([fragment[0] for fragment in fragments], f"the queue {self._queue.name!r}")
        else:
            self._put(self._queues, fragments)

    def _queues_of(self, start: bytes) -> Queues | None:
        return None if self._queue.going else self._queues


class RoutingProducer(Producer):
    """What the others have in common: messages that go through an exchange."""

    def __init__(self, broker: Broker, terminal: TerminalEnd, container: str, user: str = "") -> None:
        super().__init__(broker, terminal, user)
        self._container = container
        self._asked: Exchange
        """Of the long message that is arriving: what it goes through, after all alternates."""

    def _route_all(self, exchange: Exchange, key: str, fragments: Sequence[Fragment], hops: int = 0) -> None:
        """Messages of one key."""
        if len(key) > MAX_KEY_CHARACTERS:
            deliveries = [delivery for delivery, _, _ in fragments]
            why = f"a key has up to {MAX_KEY_CHARACTERS} characters, this one has {len(key)}"
            self.terminal.reject(deliveries, len(deliveries), "amqp:invalid-field", why)
            return
        route = exchange.route(key)
        if not route.asking:
            self._put_on(exchange, key, route.queues, fragments, hops)
            return
        for fragment in fragments:
            self._put_on(exchange, key, route.wanted(fragment[1], self._container), (fragment,), hops)

    def _put_on(
        self, exchange: Exchange, key: str, queues: Queues, fragments: Sequence[Fragment], hops: int
    ) -> None:
        queues = tuple([queue for queue in queues if not queue.going])
        if queues:
            exchange.routed += len(fragments)
            self._put(queues, fragments)
            return
        alternate = self._broker.nodes.exchanges.get(exchange.alternate)
        if alternate is not None and hops < MOST_HOPS:
            self._route_all(alternate, key, fragments, hops + 1)
            return
        self._put_unwanted(exchange, fragments)

    def _put_unwanted(self, exchange: Exchange, fragments: Sequence[Fragment]) -> None:
        """No queue gets these, nor by an alternate."""
        exchange.unrouted += len(fragments)
        if exchange.unroutable == "accepted":
            self._put_nowhere(fragments)
        else:
            deliveries = [delivery for delivery, _, _ in fragments]
            self._hand_back(deliveries, exchange.name)

    def _hand_back(self, deliveries: Sequence[Delivery], exchange: str) -> None:
        if self._transaction is None:
            self.terminal.hand_back(deliveries, len(deliveries))
        else:  # in a transaction hardly any client looks for that, and a commit would lose them
            why = f"the exchange {exchange!r} has no queue for it"
            self._reject(deliveries, len(deliveries), "amqp:not-found", why)

    def _queues_through(self, exchange: Exchange, key: str, start: bytes) -> Queues:
        self._asked, queues = way_through(self._broker.nodes.exchanges, exchange, key, start, self._container)
        return queues

    def _finish_unwanted(self, delivery: Delivery, flags: int) -> None:
        self._put_unwanted(self._asked, ((delivery, b"", flags),))


class ExchangeProducer(RoutingProducer):
    """Sends through one exchange: with the key of its address, or each message's subject if that has none."""

    def __init__(
        self, broker: Broker, terminal: TerminalEnd, place: ExchangePlace, container: str, user: str = ""
    ) -> None:
        super().__init__(broker, terminal, container, user)
        self._exchange = place.exchange
        self._key = place.key
        place.exchange.producers[self] = None

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        super().close(returned, lost, for_good)
        self._exchange.producers.pop(self, None)
        self._broker.maker_closed(self, self._exchange)

    def _accept(self, fragments: list[Fragment]) -> None:
        if self._exchange.gone:
            self._reject_gone([fragment[0] for fragment in fragments], f"the exchange {self._exchange.name!r}")
        elif self._key or not self._exchange.needs_key:
            self._route_all(self._exchange, self._key, fragments)
        else:
            self._route_by_subject(fragments)

    def _route_by_subject(self, fragments: list[Fragment]) -> None:
        """Runs of messages with the same subject go together."""
        run: list[Fragment] = []
        run_key = ""
        for fragment in fragments:
            try:
                key = header.subject_of(fragment[1])
            except Malformed as error:
                self._reject((fragment[0],), 1, "amqp:decode-error", str(error))
                continue
            if run and key != run_key:
                self._route_all(self._exchange, run_key, run)
                run = []
            run.append(fragment)
            run_key = key
        if run:
            self._route_all(self._exchange, run_key, run)

    def _queues_of(self, start: bytes) -> Queues | None:
        try:
            key = self._key or (header.subject_of(start) if self._exchange.needs_key else "")
        except Malformed:
            return None
        return self._queues_through(self._exchange, key, start)


class AnonymousProducer(RoutingProducer):
    """Sends to wherever each message's `to` says (the anonymous relay).

    Messages keep their order: while a queue is being made for one, those behind it wait.
    """

    def __init__(self, broker: Broker, terminal: TerminalEnd, container: str, user: str = "") -> None:
        super().__init__(broker, terminal, container, user)
        self._held: deque[Fragment] = deque()
        self._held_in: dict[Delivery, Transaction] = {}
        """The transactions that some of them are for."""
        self._asking = False
        """The broker is asked for the place of the first message held."""
        self._routing = False
        self._direct: DirectSender | None = None

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        super().close(returned, lost, for_good)
        if self._direct is not None:
            self._direct.closed = True

    def _accept(self, fragments: list[Fragment]) -> None:
        self._held.extend(fragments)
        if self._transaction is not None:
            self._held_in.update(dict.fromkeys([delivery for delivery, _, _ in fragments], self._transaction))
            self._transaction.asking += len(fragments)
        self._route()

    def _route(self) -> None:
        self._routing = True
        given = self._transaction
        while self._held and not self._asking:
            try:
                address, capabilities = header.addressed(self._held[0][1])
            except Malformed as error:
                self._refuse_first("amqp:decode-error", str(error))
                continue
            if address is None:
                self._refuse_first("amqp:not-found", "the message names no queue in its `to`")
                continue
            self._asking = True
            self._broker.find(address, self._found, capabilities, user=self._user)
        self._routing = False
        self._transaction = given

    def _found(self, found: Place | Exception) -> None:
        self._asking = False
        if isinstance(found, Queue):
            self._put((found,), (self._take_first(),))
            self._told()
        elif isinstance(found, ExchangePlace):
            fragment = self._take_first()
            try:
                self._route_all(found.exchange, found.key_for(fragment[1]), (fragment,))
            except Malformed as error:
                self._reject((fragment[0],), 1, "amqp:decode-error", str(error))
            self._told()
        elif isinstance(found, Direct):
            self._pass_on(found, self._take_first())
            self._told()
        elif isinstance(found, LookupError):
            self._hand_on_first(str(found.args[0]))
        else:
            self._refuse_first(*self._broker.why_not_made(found))
        if not self._routing:  # the answer took its time
            self._route()

    def _hand_on_first(self, why: str) -> None:
        """There is no such queue; there may be an endpoint."""
        endpoint = self._broker.endpoints.get(header.address_of(self._held[0][1]) or "")
        if endpoint is None:
            self._refuse_first("amqp:not-found", why)
            return
        fragment = self._take_first()
        if self._transaction is None:
            endpoint.post((fragment,), self.terminal)
        else:
            self._reject((fragment[0],), 1, "amqp:not-allowed", "requests take part in no transaction")
        self._told()

    def _pass_on(self, place: Direct, fragment: Fragment) -> None:
        if self._transaction is not None:
            self._reject((fragment[0],), 1, "amqp:not-implemented", NO_TRANSACTIONS)
            return
        if self._direct is None:
            self._direct = DirectSender(self._broker)
            self._direct.terminal = self.terminal
        if place.ways:
            self._broker.direct.hold(place)
        self._direct.put(place, (fragment,))

    def _refuse_first(self, condition: str, why: str) -> None:
        self._reject((self._take_first()[0],), 1, condition, why)
        self._told()

    def _take_first(self) -> Fragment:
        """The first message held, and the transaction that it is for; `_told` when it was answered."""
        fragment = self._held.popleft()
        self._transaction = self._held_in.pop(fragment[0], None) if self._held_in else None
        return fragment

    def _told(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.asked()

    def _queues_of(self, start: bytes) -> Queues | None:
        if self._held:
            return None
        try:
            address, capabilities = header.addressed(start)
            place = self._broker.place_of(address or "", capabilities)
            if place is not None and self._broker.why_not(self._user, SEND, place.name):
                return None  # refused when it is complete
            if isinstance(place, ExchangePlace):
                return self._queues_through(place.exchange, place.key_for(start), start)
        except Malformed:
            return None
        return None if place is None or isinstance(place, Direct) or place.going else (place,)
