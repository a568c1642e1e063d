"""Routes through exchanges: routing takes its share of a step, and messages beyond it are held. Core only."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ...amqp.codec import header
from ...amqp.codec.primitives import Malformed
from ...amqp.ports import Delivery, DriverEnd, Fragment
from ..kernel.dispatch_turns import AT_ONCE, owner_of
from ..nodes.exchanges import MAX_KEY_CHARACTERS, MOST_HOPS, Exchange, way_through
from ..nodes.targets import ExchangeTarget
from ..transactions.transaction import ClientTransaction
from .enqueue import Enqueuer, Queues

FREE_UNITS = 1024
"""The number of messages times queues that a batch may reach without a check of the clock: the size of a batch."""
PORTION_UNITS = 64
"""The number of messages times queues between two later checks of the clock for one batch."""


class RoutedMessages:
    """The messages of one link on their way through exchanges; a route decides through which."""

    def __init__(self, enqueuer: Enqueuer) -> None:
        self._links = enqueuer.links
        self._core = enqueuer.links.core
        self._enqueuer = enqueuer
        self._terminal = enqueuer.terminal
        self._container = enqueuer.attach.container
        self._user = enqueuer.attach.user
        self._driver: DriverEnd
        """The driver of the link, once that is closed."""
        self._long_exchange: Exchange
        """The exchange of the long message that is arriving: the last one in its chain of alternates."""
        self._held: deque[Fragment] = deque()
        """Messages that wait for a later step, or for their target to be found."""
        self._held_in: dict[Delivery, ClientTransaction] = {}
        """The transactions that some of them are for."""
        self._units = 0
        """The number of messages times queues that may still be routed before the next check of the clock."""
        self._is_put_off = self._holds_link = False

    def is_behind(self) -> bool:
        """Return whether messages wait for a later step, or the next one would."""
        return bool(self._held) or self._awaits_dispatch() or not self._core.background.has_time()

    def close(self, driver: DriverEnd) -> None:
        self._driver = driver
        if not self._held:
            self._leave()

    def _leave(self) -> None:
        """Leave the exchange: the link is closed, and all its messages have been routed."""

    def _hold(self, fragments: Sequence[Fragment]) -> None:
        """Hold *fragments* behind those that wait."""
        self._held.extend(fragments)
        if self._enqueuer.transaction is not None:
            self._held_in.update(dict.fromkeys([delivery for delivery, _, _ in fragments], self._enqueuer.transaction))
            self._enqueuer.transaction.pending += len(fragments)

    def _take_first(self) -> Fragment:
        """Take the first held message, and its transaction; `_end_first` ends that."""
        fragment = self._held.popleft()
        self._enqueuer.transaction = self._held_in.pop(fragment[0], None) if self._held_in else None
        return fragment

    def _end_first(self) -> None:
        """Leave the transaction of the first held message, which was routed or rejected."""
        transaction, self._enqueuer.transaction = self._enqueuer.transaction, None
        if transaction is not None:
            transaction.end_pending()

    def _has_time(self) -> bool:
        return (self._units > 0 or self._core.background.has_time()) and not self._awaits_dispatch()

    def _awaits_dispatch(self) -> bool:
        """Return whether a message for many queues is still being dispatched: the next one would only add to them."""
        account, turns = self._enqueuer.account, self._core.dispatch_turns
        step = account.wide_step
        if account.wide_owners and turns.step != step:
            account.wide_owners = {owner for owner in account.wide_owners if turns.has_waiting(owner, step)}
        return bool(account.wide_owners)

    def _share(self, exchange: Exchange, key: str, most: int) -> int:
        """Return how many of *most* messages of one key to route before the next check of the clock; at least one."""
        width = 0
        for _ in range(MOST_HOPS):
            if not exchange.remembers(key):
                self._units = 0
                self._core.background.has_time()  # messages pass from here on
            route = exchange.route(key)
            if route.conditional:  # conditions may take long
                self._units = 0
                return 1
            width = len(route.queues)
            alternate = self._links.nodes.exchanges.get(exchange.alternate)
            if width or alternate is None:
                break
            exchange = alternate
        width = max(1, width)
        many = max(1, min(most, max(self._units, PORTION_UNITS) // width))
        self._units -= many * width
        return many

    def _put_off(self) -> None:
        """Route held messages in a later step."""
        if not self._is_put_off:
            self._is_put_off = True
            self._hold_link()
            self._core.background.put_off(self._continue, self._user)

    def _hold_link(self) -> None:
        """Stop reading the link, or its connection, while messages wait."""
        if not self._holds_link:
            self._holds_link = True
            self._terminal.hold(for_routing=True)

    def _continue(self) -> None:
        self._is_put_off = False
        self._units = 1  # the first one is for this step
        self._route_held()
        self._end_wait()

    def _end_wait(self) -> None:
        """Read the link again if no message waits any more."""
        if not self._held:
            if self._enqueuer.is_closed:
                self._leave()
            if self._holds_link:
                self._holds_link = False
                self._terminal.go_on(for_routing=True)

    def _route_held(self) -> None:
        """Route messages that are held, as long as there is time, and put the others off."""
        raise NotImplementedError

    def _route_all(self, exchange: Exchange, key: str, fragments: Sequence[Fragment], hops: int = 0) -> None:
        """Route messages of one key."""
        if len(key) > MAX_KEY_CHARACTERS:
            deliveries = [delivery for delivery, _, _ in fragments]
            reason = f"a key has up to {MAX_KEY_CHARACTERS} characters, this one has {len(key)}"
            self._terminal.reject(deliveries, len(deliveries), "amqp:invalid-field", reason)
            return
        route = exchange.route(key)
        if not route.conditional:
            self._put_on(exchange, key, route.queues, fragments, hops)
            return
        for fragment in fragments:
            self._put_on(exchange, key, route.wanted(fragment[1], self._container), (fragment,), hops)

    def _put_on(self, exchange: Exchange, key: str, queues: Queues, fragments: Sequence[Fragment], hops: int) -> None:
        queues = tuple([queue for queue in queues if not queue.is_deleting])
        if queues and (reason := self._enqueuer.account.fan_out_denial(len(queues))):
            self._enqueuer.refuse((), [delivery for delivery, _, _ in fragments], reason)
            return
        if queues:
            exchange.routed += len(fragments)
            if len(queues) > AT_ONCE and self._enqueuer.transaction is None:
                account = self._enqueuer.account
                account.wide_owners = {owner_of(queue) for queue in queues}
                account.wide_step = self._core.dispatch_turns.step
            self._enqueuer.enqueue(queues, fragments)
            return
        alternate = self._links.nodes.exchanges.get(exchange.alternate)
        if alternate is not None and hops < MOST_HOPS:
            self._route_all(alternate, key, fragments, hops + 1)
            return
        self._put_unwanted(exchange, fragments)

    def _put_unwanted(self, exchange: Exchange, fragments: Sequence[Fragment]) -> None:
        """Handle messages that no queue gets, neither through an alternate exchange."""
        exchange.unrouted += len(fragments)
        deliveries = [delivery for delivery, _, _ in fragments]
        if exchange.unroutable == "accepted":
            self._enqueuer.accept_unrouted(fragments)
        elif self._enqueuer.transaction is None:
            self._terminal.hand_back(deliveries, len(deliveries))
        else:  # in a transaction almost no client checks for that, and a commit would lose them
            reason = f"the exchange {exchange.name!r} has no queue for it"
            self._enqueuer.reject(deliveries, len(deliveries), "amqp:not-found", reason)

    def _queues_through(self, exchange: Exchange, key: str, start: bytes) -> Queues:
        self._long_exchange, queues = way_through(self._links.nodes.exchanges, exchange, key, start, self._container)
        return queues

    def finish_unrouted(self, delivery: Delivery, flags: int) -> None:
        self._put_unwanted(self._long_exchange, ((delivery, b"", flags),))


class ExchangeRoute(RoutedMessages):
    """The route through one exchange: with the key of its address, or each message's subject if that has none."""

    def __init__(self, enqueuer: Enqueuer, place: ExchangeTarget) -> None:
        super().__init__(enqueuer)
        self._exchange = place.exchange
        self._key = place.key
        place.exchange.producers[enqueuer] = None

    def _leave(self) -> None:
        self._exchange.producers.pop(self._enqueuer, None)
        self._links.nodes.maker_closed(self._driver, self._exchange)

    def send(self, fragments: Sequence[Fragment]) -> None:
        if self._held:
            self._hold(fragments)
            return
        self._units = FREE_UNITS
        self._route(fragments)
        if self._held:
            self._put_off()

    def _route_held(self) -> None:
        while self._held:
            if not self._has_time():
                self._put_off()
                return
            self._units = max(self._units, 1)  # otherwise this message would be held again, behind the others
            self._route([self._take_first()])
            self._end_first()

    def _route(self, fragments: Sequence[Fragment]) -> None:
        """Route *fragments*, and hold those for which the step has no time."""
        if self._exchange.is_deleted:
            deliveries = [fragment[0] for fragment in fragments]
            self._enqueuer.reject_deleted(deliveries, f"the exchange {self._exchange.name!r}")
        elif self._key or not self._exchange.needs_key:
            self._route_run(self._key, fragments)
        else:
            self._route_by_subject(fragments)

    def _route_run(self, key: str, fragments: Sequence[Fragment]) -> None:
        """Route messages of one key in portions."""
        done, count = 0, len(fragments)
        while done < count:
            if not self._has_time():  # nor will there be for the next run
                self._hold(fragments[done:])
                return
            many = self._share(self._exchange, key, count - done)
            self._route_all(self._exchange, key, fragments if many == count else fragments[done : done + many])
            done += many

    def _route_by_subject(self, fragments: Sequence[Fragment]) -> None:
        """Group consecutive messages with the same subject."""
        run: list[Fragment] = []
        run_key = ""
        for fragment in fragments:
            try:
                key = header.subject_of(fragment[1])
            except Malformed as error:
                self._enqueuer.reject((fragment[0],), 1, "amqp:decode-error", str(error))
                continue
            if run and key != run_key:
                self._route_run(run_key, run)
                run = []
            run.append(fragment)
            run_key = key
        if run:
            self._route_run(run_key, run)

    def queues_of(self, start: bytes) -> Queues | None:
        try:
            key = self._key or (header.subject_of(start) if self._exchange.needs_key else "")
        except Malformed:
            return None
        return None if self._held else self._queues_through(self._exchange, key, start)
