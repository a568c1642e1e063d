"""The anonymous relay: each message names its target, a queue, exchange, receiver or endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...amqp.codec import header
from ...amqp.codec.primitives import Malformed
from ...amqp.ports import SETTLED, DriverEnd, Fragment
from ..links.enqueue import Enqueuer, Queues
from ..links.exchange_route import FREE_UNITS, RoutedMessages
from ..nodes.access_control import SEND
from ..nodes.targets import AddressTarget, Endpoint, ExchangeTarget
from ..queues.queue import Queue
from .address import PassthroughAddress, PassthroughTable
from .delivery import NO_TRANSACTIONS
from .sender import PassthroughSender


class AnonymousRoute(RoutedMessages):
    """The route of messages that each name their target in `to` (the anonymous relay).

    Messages keep their order: while a queue is being made for one, those behind it wait.
    """

    def __init__(self, enqueuer: Enqueuer, addresses: PassthroughTable, endpoints: Mapping[str, Endpoint]) -> None:
        super().__init__(enqueuer)
        self._addresses = addresses
        self._endpoints = endpoints
        self._is_resolving = False
        """True while the target of the first held message is being found or created."""
        self._is_routing = False
        """True while `_route_held` runs: targets that are found at once continue there."""
        self._direct: PassthroughSender | None = None

    def close(self, driver: DriverEnd) -> None:
        super().close(driver)
        if self._direct is not None:
            self._direct.closed = True

    def send(self, fragments: Sequence[Fragment]) -> None:
        if not self._held:
            self._units = FREE_UNITS
        self._hold(fragments)
        self._route_held()
        if self._held:
            self._hold_link()

    def _route_held(self) -> None:
        if self._is_put_off:
            return
        self._is_routing = True
        given = self._enqueuer.transaction
        while self._held and not self._is_resolving:
            if not self._has_time():
                self._put_off()
                break
            self._units -= 1
            try:
                address, capabilities = header.addressed(self._held[0][1])
            except Malformed as error:
                self._refuse_first("amqp:decode-error", str(error))
                continue
            if address is None:
                self._refuse_first("amqp:not-found", "the message names no queue in its `to`")
                continue
            self._is_resolving = True
            self._links.resolver.find(address, self._found, capabilities, user=self._user)
        self._is_routing = False
        self._enqueuer.transaction = given

    def _found(self, found: AddressTarget | Exception) -> None:
        self._is_resolving = False
        if isinstance(found, Queue):
            self._enqueuer.enqueue((found,), (self._take_first(),))
            self._end_first()
        elif isinstance(found, ExchangeTarget):
            fragment = self._take_first()
            try:
                key = found.key_for(fragment[1])
                self._share(found.exchange, key, 1)
                self._route_all(found.exchange, key, (fragment,))
            except Malformed as error:
                self._refuse(fragment, "amqp:decode-error", str(error))
            self._end_first()
        elif isinstance(found, LookupError):
            self._hand_on_first(str(found.args[0]))
        elif isinstance(found, Exception):
            self._refuse_first(*self._links.resolver.creation_failure(found))
        else:
            assert isinstance(found, PassthroughAddress)
            self._pass_on(found, self._take_first())
            self._end_first()
        if not self._is_routing:  # the answer arrived later
            self._route_held()
            self._end_wait()

    def _hand_on_first(self, reason: str) -> None:
        """Try an endpoint of that name, since no such queue exists."""
        endpoint = self._endpoints.get(header.address_of(self._held[0][1]) or "")
        if endpoint is None:
            self._refuse_first("amqp:not-found", reason)
            return
        fragment = self._take_first()
        if self._enqueuer.transaction is None:
            endpoint.handle((fragment,), self._terminal)
        else:
            self._refuse(fragment, "amqp:not-allowed", "requests take part in no transaction")
        self._end_first()

    def _pass_on(self, place: PassthroughAddress, fragment: Fragment) -> None:
        if self._enqueuer.transaction is not None:
            self._refuse(fragment, "amqp:not-implemented", NO_TRANSACTIONS)
            return
        if self._direct is None:
            self._direct = PassthroughSender(self._core)
            self._direct.terminal = self._terminal
        if place.next_hops:
            self._addresses.hold(place)
        self._direct.forward_to(place, (fragment,))

    def _refuse_first(self, condition: str, reason: str) -> None:
        self._refuse(self._take_first(), condition, reason)
        self._end_first()

    def _refuse(self, fragment: Fragment, condition: str, reason: str) -> None:
        """Refuse a message that can't be routed; in a transaction it makes that fail."""
        delivery, _, flags = fragment
        transaction, txn_id = self._enqueuer.transaction, b""
        if transaction is not None:
            transaction.fail(reason)
            txn_id = transaction.id
        is_settled = bool(flags & SETTLED)
        self._terminal.refuse_relayed(delivery, condition, reason, is_settled=is_settled, txn_id=txn_id)

    def queues_of(self, start: bytes) -> Queues | None:
        if self._held:
            return None
        try:
            address, capabilities = header.addressed(start)
            place = self._links.resolver.place_of(address or "", capabilities)
            if place is not None and self._links.resolver.denial_reason(self._user, SEND, place.name):
                return None  # refused when it is complete
            if isinstance(place, ExchangeTarget):
                return self._queues_through(place.exchange, place.key_for(start), start)
        except Malformed:
            return None
        return (place,) if isinstance(place, Queue) and not place.is_deleting else None
