"""Subscriptions: queues that are created for clients which receive from an exchange. Core only.

| subscriber | name of the queue | lifetime |
|---|---|---|
| one link | `subscription-` and a UUID | that of the link |
| a durable link | `subscription:container:name` | until the client closes the link, not just detaches it |
| links that share it (`shared`) | `subscription:container:shared:name` | that of these links, or as above |
| those of any container (also `global`) | `subscription::shared:name` | likewise |

If clients log in, their user precedes the container, as in `user@container`. *name* is the link's name up to a `|`,
which separates several links of a client on one subscription. A durable subscription is bound again when its topic, key
or filters change, and its messages are dropped, as JMS requires. It is deleted with a transient exchange (a temporary
topic), also if the broker's end deleted that. A durable exchange can be deleted and created again: the subscription is
bound to it when its client returns.

Without a source (a null one) a client asks for the subscription of its link's name, to close it: that is how it
unsubscribes. Capabilities are missing then, so a subscription of clients of any container is looked up if `|global`
follows the name: JMS clients without an ID of their own name all such links so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote
from uuid import uuid4

from ...amqp.codec import filters
from ...amqp.codec.primitives import Malformed
from ...amqp.links.values import Terminus
from ...amqp.ports import DriverEnd, Open, TerminalEnd
from ...base.callbacks import ignore
from ...base.errors import CairnError, StoreError
from ..contents.ports import FilteringConsumer, QueueConsumer
from ..queues.queue import Queue
from ..selector.compiler import selector
from ..users.user_accounts import UserAccounts
from .access_control import RECEIVE
from .addresses import SUBSCRIPTION_PREFIX
from .exchanges import NOT_FROM, SELECTOR, BoundQueue, Exchange
from .registry import MAX_NAME_BYTES, PREDECLARED, NodeRegistry
from .resolver import Resolver
from .targets import ExchangeTarget

PREFIX = "subscription"
SUBSCRIPTION = "x-subscription"
"""The argument of a durable subscription's queue: its terms, as `_Asked.terms` returns them."""
GOES_WITH = "x-goes-with"
"""The argument of a durable subscription to an exchange that does not last: its name."""
GLOBAL = "global"
"""The capability for clients of any container, and the suffix of their link names where no capabilities are sent."""


class _Asked(NamedTuple):
    """A subscription that a client requests."""

    place: ExchangeTarget
    key: str
    arguments: Mapping[str, Any]
    """The arguments of its binding."""
    applied: bytes
    """The applied filters, in the answer to the client."""
    durable: bool
    shared: bool
    queue: str
    made: bool
    """True if the topic was created for it: the answer contains its name, and it is deleted with the link."""

    @property
    def terms(self) -> dict[str, Any]:
        return {"exchange": self.place.exchange.name, "key": self.key, **self.arguments}


class MakeConsumer(Protocol):
    """Makes the consumer of a link, which is not open yet."""

    def __call__(self, terminal: TerminalEnd, queue: Queue, *, presettled: bool, user: str) -> DriverEnd: ...


OpenResumable = Callable[[Open, TerminalEnd, Queue, bytes], None]
"""Opens a link that can be resumed to a queue; the bytes are the filters that are applied."""


class Subscriptions:
    """Creates subscriptions, finds existing ones, and ends them."""

    _make_consumer: MakeConsumer
    _open_resumable: OpenResumable

    def __init__(self, users: UserAccounts, nodes: NodeRegistry, resolver: Resolver) -> None:
        """Call `connect` before the first link."""
        self._users = users
        self._nodes = nodes
        self._resolver = resolver

    def connect(self, make_consumer: MakeConsumer, open_resumable: OpenResumable) -> None:
        """Set the functions that open links to subscriptions, which are built later."""
        self._make_consumer = make_consumer
        self._open_resumable = open_resumable

    def open(self, place: ExchangeTarget, attach: Open, terminal: TerminalEnd) -> None:
        """Open a channel on which a client receives from an exchange."""
        try:
            asked = _asked(place, attach)
        except (CairnError, Malformed) as error:
            terminal.failure("amqp:invalid-field", str(error))
            return
        queue = self._nodes.queues.get(asked.queue)
        if queue is None or queue.is_deleting:
            self._make(asked, attach, terminal)
        elif _terms_of(queue) is None:
            terminal.failure("amqp:not-allowed", f"the queue {asked.queue!r} is not a subscription; use another name")
        elif queue.arguments[SUBSCRIPTION] == asked.terms:
            if place.exchange.binding(queue, asked.key) is None:  # the exchange was deleted and created again
                self._bind(queue, asked, attach, terminal)
            else:
                self._attach(queue, asked, attach, terminal)
        elif queue.consumers or queue.selecting:
            terminal.failure("amqp:resource-locked", "others share that subscription on other terms; use another name")
        else:
            again = self._resolver.or_refuse(terminal, lambda _: self._make(asked, attach, terminal))
            self._nodes.delete_queue(queue, again)

    def find(self, attach: Open, terminal: TerminalEnd) -> None:
        """Answer a client that asks by its link's name for its subscription, mostly to end it: it cannot use it."""
        found = self._found(attach)
        if found is None:
            terminal.failure("amqp:not-found", f"there is no subscription {attach.link_name!r}; check the container ID")
            return
        queue, address = found
        if reason := self._resolver.denial_reason(attach.user, RECEIVE, address):
            terminal.failure("amqp:unauthorized-access", reason)
        elif queue.consumers:
            reason = f"the subscription {attach.link_name!r} is in use: close its consumers, then unsubscribe"
            terminal.failure("amqp:resource-locked", reason)
        else:
            source = Terminus(address=address, durability=2, expiry="never", capabilities=("topic",))
            consumer = self._make_consumer(terminal, queue, presettled=attach.presettled, user=attach.user)
            terminal.opened(consumer, None, 0, found=source)

    def denial_reason(self, attach: Open) -> str:
        """Return why a client may not resume the subscription that its link without a source names; empty if it may."""
        found = self._found(attach)
        return "" if found is None else self._resolver.denial_reason(attach.user, RECEIVE, found[1])

    def _found(self, attach: Open) -> tuple[Queue, str] | None:
        """Return the subscription that a link without a source names, and the address of its exchange and key."""
        names = [_durable_name(attach, shared=shared) for shared in (False, True)]
        if attach.link_name.partition("|")[2] == GLOBAL:
            names.append(_name("", attach, shared=True))
        queues = self._nodes.queues
        there = (queue for name in names if (queue := queues.get(name)) is not None and not queue.is_deleting)
        for queue in there:
            terms = _terms_of(queue)
            if terms is not None:
                return queue, terms["exchange"] + (f"/{terms['key']}" if terms["key"] else "")
        return None

    def channel_closed(self, driver: DriverEnd, queue: Queue, *, for_good: bool) -> None:
        """Note a closed link of a subscription; *for_good* deletes a durable one, unless other links share it."""
        exchange = self._nodes.exchanges.get(_topic(queue))
        if exchange is not None:
            self._nodes.maker_closed(driver, exchange)
        if (
            SUBSCRIPTION in queue.arguments
            and not queue.consumers
            and not queue.is_deleting
            and (for_good or not queue.queue_id)
        ):
            self._nodes.delete_queue(queue, ignore, "it was unsubscribed")

    def exchange_deleted(self, exchange: Exchange) -> None:
        """Delete the subscriptions that depend on the deleted *exchange*."""
        for queue in {binding.queue: None for binding in exchange.bindings()}:
            if queue.arguments.get(GOES_WITH) == exchange.name:
                self._nodes.drop_queue(queue.name, ignore, "it went with its topic")

    def forget_orphans(self) -> None:
        """Delete subscriptions to exchanges that did not survive a restart."""
        for queue in [queue for queue in self._nodes.queues.values() if GOES_WITH in queue.arguments]:
            self._nodes.delete_queue(queue, ignore, "its topic did not last")

    def _make(self, asked: _Asked, attach: Open, terminal: TerminalEnd) -> None:
        arguments: dict[str, Any] = {SUBSCRIPTION: asked.terms}

        def bind(queue: Queue) -> None:
            self._bind(queue, asked, attach, terminal)

        made = self._resolver.or_refuse(terminal, bind)
        if asked.durable:
            exchange = asked.place.exchange
            if not (exchange.exchange_id or exchange.name in PREDECLARED):
                arguments |= {GOES_WITH: exchange.name, "replicated": False}
            self._resolver.create_queue(attach.user, asked.queue, arguments, made)
        else:
            denial = self._users.of(attach.user).queue_denial()
            owned = self._users.owned(arguments, attach.user)
            made(self._nodes.add_queue(asked.queue, owned) if denial is None else denial)

    def _bind(self, queue: Queue, asked: _Asked, attach: Open, terminal: TerminalEnd) -> None:
        self._nodes.bind(
            asked.place.exchange,
            queue,
            asked.key,
            asked.arguments,
            lambda error: self._bound(error, queue, asked, attach, terminal),
        )

    def _bound(self, error: object, queue: Queue, asked: _Asked, attach: Open, terminal: TerminalEnd) -> None:
        exchange = asked.place.exchange
        if isinstance(error, CairnError) or exchange.is_deleted:
            if not queue.messages:
                self._nodes.delete_queue(queue, ignore)
            if isinstance(error, CairnError):
                terminal.failure(*self._resolver.creation_failure(error))
            else:
                terminal.failure("amqp:resource-deleted", f"the exchange {exchange.name!r} was deleted")
        else:
            self._attach(queue, asked, attach, terminal)

    def _attach(self, queue: Queue, asked: _Asked, attach: Open, terminal: TerminalEnd) -> None:
        exchange = asked.place.exchange
        if queue.consumers and not asked.shared:
            for taker in list(queue.consumers):  # a client that has not detected that its old link is closed
                taker.terminal.failure("amqp:link:stolen", "the subscription was attached to anew")
        if attach.claims is not None and asked.durable:
            self._open_resumable(attach, terminal, queue, asked.applied)
            return
        consumer = self._make_consumer(terminal, queue, presettled=attach.presettled, user=attach.user)
        if asked.made:
            exchange.maker = consumer
        terminal.opened(consumer, exchange.name if asked.made else None, 0, filters=asked.applied)


def subscribers(exchange: Exchange) -> list[QueueConsumer | FilteringConsumer]:
    """Return the consumers that subscribed to *exchange*.

    Their queues may be bound to other exchanges, too, and queues of other subscriptions to this one.
    """
    queues = dict.fromkeys(binding.queue for binding in exchange.bindings() if _topic(binding.queue) == exchange.name)
    takers: list[QueueConsumer | FilteringConsumer] = []
    for queue in queues:
        takers += [*queue.consumers, *queue.selecting]
    return takers


def _terms_of(queue: BoundQueue) -> Mapping[str, Any] | None:
    """Return the terms of the subscription that a queue is; None if it is none, as its name alone does not prove it."""
    terms = queue.arguments.get(SUBSCRIPTION)
    is_one = isinstance(terms, Mapping) and all(isinstance(terms.get(name), str) for name in ("exchange", "key"))
    return terms if is_one else None


def selector_of(queue: BoundQueue) -> str | None:
    """Return the selector of the subscription that a queue is; None if it has none, or is not a subscription."""
    text = (_terms_of(queue) or {}).get(SELECTOR)
    return text if isinstance(text, str) else None


def _topic(queue: BoundQueue) -> str:
    """Return the name of the exchange that a queue is a subscription of; empty if it is not a subscription."""
    terms = _terms_of(queue)
    return "" if terms is None else str(terms["exchange"])


def _asked(place: ExchangeTarget, attach: Open) -> _Asked:
    """Raises `Malformed`, or `CairnError` for a key that can't be."""
    terminus = attach.terminus
    asked = filters.parse(terminus.filters)
    key = place.key or ("#" if place.exchange.type == "topic" else "")
    place.exchange.check_key(key)
    arguments: dict[str, Any] = {}
    if asked.selector is not None:
        selector(asked.selector)  # an invalid one is detected before anything is created
        arguments[SELECTOR] = asked.selector
    if asked.no_local and attach.container:
        arguments[NOT_FROM] = attach.container
    made = terminus.dynamic  # for this link: with any name, there is nothing to find again, or to share
    shared = "shared" in terminus.capabilities and not made
    durable = terminus.lasts and not made
    if durable or shared:
        queue = _durable_name(attach, shared=shared)
        if not durable:
            queue = f"{queue}:volatile"
    else:
        queue = f"{PREFIX}-{uuid4()}"
    if len(queue.encode()) > MAX_NAME_BYTES:
        raise StoreError("subscription", f"its name takes more than {MAX_NAME_BYTES} bytes", "shorten the link's name")
    applied = filters.accepted(asked, no_local=True)
    return _Asked(place, key, arguments, applied, durable, shared, queue, made)


def _durable_name(attach: Open, *, shared: bool) -> str:
    container = "" if GLOBAL in attach.terminus.capabilities else quote(attach.container, safe="")
    if attach.user and GLOBAL not in attach.terminus.capabilities:  # clients choose their IDs, also an empty one
        container = f"{quote(attach.user, safe='')}@{container}"
    return _name(container, attach, shared=shared)


def _name(container: str, attach: Open, *, shared: bool) -> str:
    name = quote(attach.link_name.partition("|")[0], safe="")
    return f"{SUBSCRIPTION_PREFIX}{container}:{'shared:' if shared else ''}{name}"
