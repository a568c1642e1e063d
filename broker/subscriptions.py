"""Subscriptions: queues that are made for clients which receive from an exchange. Core only.

| who subscribes | the queue's name | it lasts |
|---|---|---|
| one link | `subscription-` and a UUID | as long as the link |
| a durable link | `subscription:container:name` | until the client closes the link, not just detaches it |
| links that share it (`shared`) | `subscription:container:shared:name` | as long as these links, or as above |
| those of any container (also `global`) | `subscription::shared:name` | likewise |

Where clients log in, their user stands before the container, as in `user@container`. *name* is the link's, up to a
`|`: clients that have several links on one subscription tell them apart by what follows. A durable one is bound anew
when its topic, key or filters change, and what was on it goes, as JMS says. It goes with an exchange that does not last
(a temporary topic), also if that went with the broker. One that lasts can be deleted and made anew: the subscription is
bound to it when its client comes. Without a source (a null one) a client asks
what there was under its link's name, to close it: that is how it unsubscribes. There are no capabilities then, so what
clients of any container share is looked for where `|global` follows the name: JMS clients without an id of their own
call all such links so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote
from uuid import uuid4

from ..amqp import filters
from ..amqp.codec import Malformed
from ..amqp.link import Terminus
from ..base.errors import CairnError, StoreError
from ..channel.words import DriverEnd, Open, TerminalEnd
from .access import RECEIVE
from .conditions import NOT_FROM, SELECTOR
from .consumer import Consumer
from .exchange import Exchange
from .nodes import MAX_NAME_BYTES, PREDECLARED
from .places import ExchangePlace
from .queue import Queue
from .selector import Selector
from .takers import Selecting, Taker

if TYPE_CHECKING:
    from .broker import Broker

PREFIX = "subscription"
NAME_PREFIX = f"{PREFIX}:"
"""Of the names of those that are found again: none is made on first use."""
SUBSCRIPTION = "x-subscription"
"""The argument of a durable subscription's queue: what it is of, as `_Asked.terms` tells it."""
GOES_WITH = "x-goes-with"
"""The argument of a durable subscription to an exchange that does not last: its name."""
GLOBAL = "global"
"""The capability of those of any container, and what follows the name of their links where no capabilities are told."""


class _Asked(NamedTuple):
    """A subscription that a client asks for."""

    place: ExchangePlace
    key: str
    arguments: Mapping[str, Any]
    """Of its binding."""
    applied: bytes
    """The filters that are, as the client is told."""
    durable: bool
    shared: bool
    queue: str
    made: bool
    """The topic was made for it: the client is told of its name, and it goes with the link."""

    @property
    def terms(self) -> dict[str, Any]:
        return {"exchange": self.place.exchange.name, "key": self.key, **self.arguments}


class Subscriptions:
    """Makes them, finds them again, and ends them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def open(self, place: ExchangePlace, wish: Open, terminal: TerminalEnd) -> None:
        """A channel on which a client receives from an exchange."""
        try:
            asked = _asked(place, wish)
        except (CairnError, Malformed) as error:
            terminal.failure("amqp:invalid-field", str(error))
            return
        queue = self._broker.nodes.queues.get(asked.queue)
        if queue is None or queue.going:
            self._make(asked, wish, terminal)
        elif _terms_of(queue) is None:
            terminal.failure("amqp:not-allowed", f"the queue {asked.queue!r} is no subscription")
        elif queue.arguments[SUBSCRIPTION] == asked.terms:
            if place.exchange.binding(queue, asked.key) is None:  # the exchange was deleted, and made anew
                self._bind(queue, asked, wish, terminal)
            else:
                self._attach(queue, asked, wish, terminal)
        elif queue.consumers or queue.selecting:
            terminal.failure("amqp:resource-locked", "others share that subscription, on other terms")
        else:
            self._broker.nodes.delete_queue(queue, lambda error: self._again(error, asked, wish, terminal))

    def find(self, wish: Open, terminal: TerminalEnd) -> None:
        """A client asks by its link's name what it had subscribed to, mostly to give it up: so nobody may use it."""
        found = self._found(wish)
        if found is None:
            terminal.failure("amqp:not-found", f"there is no subscription {wish.link_name!r}")
            return
        queue, address = found
        if why := self._broker.why_not(wish.user, RECEIVE, address):
            terminal.failure("amqp:unauthorized-access", why)
        elif queue.consumers:
            why = f"the subscription {wish.link_name!r} is in use: close its consumers, then unsubscribe"
            terminal.failure("amqp:resource-locked", why)
        else:
            source = Terminus(address=address, durability=2, expiry="never", capabilities=("topic",))
            consumer = Consumer(self._broker, terminal, queue, presettled=wish.presettled)
            terminal.opened(consumer, None, 0, found=source)

    def why_not(self, wish: Open) -> str:
        """Why a client may no longer have the link on which it asked what it had subscribed to; empty if it may."""
        found = self._found(wish)
        return "" if found is None else self._broker.why_not(wish.user, RECEIVE, found[1])

    def _found(self, wish: Open) -> tuple[Queue, str] | None:
        """What a link without a source is about, by its name, and the address of that."""
        names = [_durable_name(wish, shared=shared) for shared in (False, True)]
        if wish.link_name.partition("|")[2] == GLOBAL:
            names.append(_name("", wish, shared=True))
        queues = self._broker.nodes.queues
        there = (queue for name in names if (queue := queues.get(name)) is not None and not queue.going)
        for queue in there:
            terms = _terms_of(queue)
            if terms is not None:
                return queue, terms["exchange"] + (f"/{terms['key']}" if terms["key"] else "")
        return None

    def channel_closed(self, driver: DriverEnd, queue: Queue, *, for_good: bool) -> None:
        """A link on it is gone: with *for_good* the client gives a durable one up, if nobody shares it."""
        exchange = self._broker.nodes.exchanges.get(_topic(queue))
        if exchange is not None:
            self._broker.maker_closed(driver, exchange)
        if SUBSCRIPTION in queue.arguments and not queue.consumers and not queue.going and (
            for_good or not queue.queue_id
        ):
            self._broker.nodes.delete_queue(queue, _ignore, "it was unsubscribed")

    def exchange_gone(self, exchange: Exchange) -> None:
        """What could not outlive *exchange* goes with it."""
        for queue in {binding.queue: None for binding in exchange.bindings()}:
            if queue.arguments.get(GOES_WITH) == exchange.name:
                self._broker.nodes.delete_queue(queue, _ignore, "it went with its topic")

    def forget_orphans(self) -> None:
        """After a start: what was subscribed to exchanges that did not last goes, as these have."""
        for queue in [queue for queue in self._broker.nodes.queues.values() if GOES_WITH in queue.arguments]:
            self._broker.nodes.delete_queue(queue, _ignore, "its topic did not last")

    # ---- making one -----------------------------------------------------------------------------------------------

    def _again(self, error: object, asked: _Asked, wish: Open, terminal: TerminalEnd) -> None:
        if isinstance(error, Exception):
            terminal.failure(*self._broker.why_not_made(error))
        else:
            self._make(asked, wish, terminal)

    def _make(self, asked: _Asked, wish: Open, terminal: TerminalEnd) -> None:
        arguments: dict[str, Any] = {SUBSCRIPTION: asked.terms}
        if asked.durable:
            exchange = asked.place.exchange
            if not (exchange.exchange_id or exchange.name in PREDECLARED):
                arguments |= {GOES_WITH: exchange.name, "replicated": False}
            self._broker.nodes.create_queue(
                asked.queue, arguments, lambda queue: self._bind(queue, asked, wish, terminal)
            )
        else:
            self._bind(self._broker.nodes.add_queue(asked.queue, arguments), asked, wish, terminal)

    def _bind(self, queue: Queue | Exception, asked: _Asked, wish: Open, terminal: TerminalEnd) -> None:
        if isinstance(queue, Exception):
            terminal.failure(*self._broker.why_not_made(queue))
            return
        self._broker.nodes.bind(
            asked.place.exchange,
            queue,
            asked.key,
            asked.arguments,
            lambda error: self._bound(error, queue, asked, wish, terminal),
        )

    def _bound(
        self, error: object, queue: Queue, asked: _Asked, wish: Open, terminal: TerminalEnd
    ) -> None:
        exchange = asked.place.exchange
        if isinstance(error, CairnError) or exchange.gone:
            if not queue.messages:
                self._broker.nodes.delete_queue(queue, _ignore)
            if isinstance(error, CairnError):
                terminal.failure(*self._broker.why_not_made(error))
            else:
                terminal.failure("amqp:resource-deleted", f"the exchange {exchange.name!r} is gone")
        else:
            self._attach(queue, asked, wish, terminal)

    def _attach(self, queue: Queue, asked: _Asked, wish: Open, terminal: TerminalEnd) -> None:
        exchange = asked.place.exchange
        if queue.consumers and not asked.shared:
            for taker in list(queue.consumers):  # the same client, which has not noticed that its old link is gone
                taker.terminal.failure("amqp:link:stolen", "the subscription was attached to anew")
        if wish.claims is not None and asked.durable:
            self._broker.suspended.open_to(wish, terminal, queue, asked.applied)
            return
        consumer = Consumer(self._broker, terminal, queue, presettled=wish.presettled)
        if asked.made:
            exchange.maker = consumer
        terminal.opened(consumer, exchange.name if asked.made else None, 0, filters=asked.applied)


def subscribers(exchange: Exchange) -> list[Taker | Selecting]:
    """Those who subscribed to *exchange*. Their queues may be bound to others, too, and others' to it."""
    queues = dict.fromkeys(binding.queue for binding in exchange.bindings() if _topic(binding.queue) == exchange.name)
    takers: list[Taker | Selecting] = []
    for queue in queues:
        takers += [*queue.consumers, *queue.selecting]
    return takers


def _terms_of(queue: Queue) -> Mapping[str, Any] | None:
    """What a queue is a subscription of; None if it is none: anybody may have made one of such a name."""
    terms = queue.arguments.get(SUBSCRIPTION)
    is_one = isinstance(terms, Mapping) and all(isinstance(terms.get(name), str) for name in ("exchange", "key"))
    return terms if is_one else None


def _topic(queue: Queue) -> str:
    """The name of the exchange that a queue is a subscription of; empty if it is none."""
    terms = _terms_of(queue)
    return "" if terms is None else str(terms["exchange"])


def _asked(place: ExchangePlace, wish: Open) -> _Asked:
    """Raises `Malformed`, or `CairnError` for a key that can't be."""
    terminus = wish.terminus
    asked = filters.parse(terminus.filters)
    key = place.key or ("#" if place.exchange.type == "topic" else "")
    place.exchange.check_key(key)
    arguments: dict[str, Any] = {}
    if asked.selector is not None:
        Selector(asked.selector)  # a bad one is known before anything is made
        arguments[SELECTOR] = asked.selector
    if asked.no_local and wish.container:
        arguments[NOT_FROM] = wish.container
    made = terminus.dynamic  # for this link: whatever its name, there is nothing to find again, or to share by it
    shared = "shared" in terminus.capabilities and not made
    durable = terminus.lasts and not made
    if durable or shared:
        queue = _durable_name(wish, shared=shared)
        if not durable:
            queue = f"{queue}:volatile"
    else:
        queue = f"{PREFIX}-{uuid4()}"
    if len(queue.encode()) > MAX_NAME_BYTES:
        raise StoreError("subscription", f"its name takes more than {MAX_NAME_BYTES} bytes", "shorten the link's name")
    applied = filters.accepted(asked, no_local=True)
    return _Asked(place, key, arguments, applied, durable, shared, queue, made)


def _durable_name(wish: Open, *, shared: bool) -> str:
    container = "" if GLOBAL in wish.terminus.capabilities else quote(wish.container, safe="")
    if wish.user and container:  # container ids are what clients say; users are who they are
        container = f"{quote(wish.user, safe='')}@{container}"
    return _name(container, wish, shared=shared)


def _name(container: str, wish: Open, *, shared: bool) -> str:
    name = quote(wish.link_name.partition("|")[0], safe="")
    return f"{NAME_PREFIX}{container}:{'shared:' if shared else ''}{name}"


def _ignore(result: object) -> None:
    """Nobody waits to hear how that went; the log tells what went wrong."""
