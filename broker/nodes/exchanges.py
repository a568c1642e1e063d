"""Exchanges: the queues that a message is routed to, by its key or its properties. Core only.

The types of AMQP 0-10: *direct* (equal keys), *topic* (words between dots, where a binding may have `*` for any one
word and `#` for any number of words), *fanout* (all messages) and *headers* (application properties).

The route of a key is looked up once and cached until a binding changes, so a message costs one lookup. The selectors of
subscriptions are applied within a budget for each message; the rest is left to `late_selection`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ...amqp.codec.primitives import Malformed
from ...base.errors import StoreError
from ..contents.ports import FilteringConsumer, LateSelector, QueueConsumer
from ..queues.ends import TargetQueue
from ..selector.compiler import Parts, Selector, selector
from ..selector.properties import Budget, OverBudget
from .topic_trie import Topics

REMEMBERED_KEYS = 4096
REMEMBERED_QUEUES = 1 << 18
"""The maximum number of queues in all remembered routes, as a wide route takes as much memory as many keys."""
MAX_KEY_CHARACTERS = 255
"""The maximum length of a key, and of a pattern: matching takes time in proportion to both."""
MOST_HOPS = 8
"""The maximum number of hops from one alternate exchange to the next, which may form a circle."""
Driver = Any
MOST_STEPS = 2_000_000
"""The maximum cost of the conditions of subscriptions for one message in its publisher's turn, in nanosecond steps."""
METERED_STEPS = 20_000
"""The cost of a condition up to which it is not measured."""
MOST_BOUND_STEPS = 64
"""The maximum cost of the selectors of an exchange's bindings, without subscriptions, for each character of a message.

It is in steps of a nanosecond: the selectors are applied in the publisher's turn. A LIKE pattern with `%` before and
behind has 4 steps."""
SELECTOR = "x-selector"
"""The argument of a binding for the selector that messages must match."""
NOT_FROM = "x-not-from"
"""The argument of a binding for the AMQP container ID whose messages are excluded."""


class BoundQueue(TargetQueue, Protocol):
    """A queue that an exchange leads to."""

    arguments: Mapping[str, Any]
    bindings: int
    consumers: list[QueueConsumer]
    late_selector: LateSelector | None
    selecting: list[FilteringConsumer]


class Binding(NamedTuple):
    """A binding, by which a queue gets the messages that match a key."""

    queue: BoundQueue
    key: str
    arguments: Mapping[str, Any] = {}
    condition: Selector | HeadersCondition | None = None
    not_from: str = ""
    """The AMQP container ID whose messages are excluded, for a subscription with `no-local`."""


class Route(NamedTuple):
    """The queues that a key leads to."""

    queues: tuple[BoundQueue, ...]
    """Queues that get every message of the key, each once."""
    conditional: tuple[Binding, ...]
    """Bindings of other queues, with conditions beyond the key."""

    def wanted(self, content: bytes, container: str) -> tuple[BoundQueue, ...]:
        """Return the queues that get a message from the client with AMQP container ID *container*."""
        if not self.conditional:
            return self.queues
        parts, left = Parts(content), MOST_STEPS
        found = dict.fromkeys(self.queues)
        for binding in self.conditional:
            condition, queue = binding.condition, binding.queue
            if binding.not_from and binding.not_from == container:
                continue
            if condition is None:
                found[queue] = None
                continue
            left -= condition.least_steps
            most = condition.most_steps(len(content))
            if queue.late_selector is None or condition.text != queue.late_selector.text:
                if condition.takes(parts, None):
                    found[queue] = None
                continue
            budget = Budget(left) if most > METERED_STEPS else None
            try:
                if left >= 0:
                    if condition.takes(parts, budget):
                        found[queue] = None
                    left -= most if budget is None else left - budget.steps
                    continue
            except OverBudget:
                left = 0  # the less expensive ones come first
            queue.late_selector.is_needed = True
            found[queue] = None
        return tuple(found)


NOWHERE = Route((), ())


class Exchange:
    """A direct exchange, and the base of all exchanges."""

    type = "direct"
    needs_key = True
    """Bindings must have a key."""
    unroutable = "released"
    """The outcome of a message that no queue gets; exchanges for subscribers, of which none may exist, accept it."""

    def __init__(self, name: str, exchange_id: int, arguments: Mapping[str, Any]) -> None:
        self.name = name
        self.exchange_id = exchange_id
        """The wiring's id; 0 for an exchange that is not durable, or has not been written yet."""
        self.arguments = arguments
        self.alternate: str = str(arguments.get("alternate-exchange", ""))
        """The exchange that gets messages that no queue of this one gets."""
        self.replicated: bool = arguments.get("replicated") is not False
        """All members of a cluster have the exchange, if it is durable."""
        self.is_deleted = False
        self.owner: object = None
        """The connection with which the exchange is deleted."""
        self.maker: object = None
        """The driver with which the exchange is deleted, if it was created for one link."""
        self.private = False
        """True if only its owner may subscribe to it."""
        self.producers: dict[Driver, None] = {}
        self.routed = 0
        """Messages that at least one queue got."""
        self.unrouted = 0
        self._bindings: dict[tuple[BoundQueue, str], Binding] = {}
        self._routes: dict[str, Route] = {}
        self._remembered = 0
        """The number of queues in all remembered routes."""

    def check_key(self, key: str) -> None:
        """Raise `StoreError` for a key that can't match anything."""
        if self.needs_key and not key:
            raise StoreError(f"exchange {self.name!r}", f"a binding to a {self.type} exchange needs a key")
        if len(key) > MAX_KEY_CHARACTERS:
            raise StoreError(
                f"exchange {self.name!r}",
                f"a binding's key has {len(key)} characters",
                f"choose one of up to {MAX_KEY_CHARACTERS}",
            )

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Raise `StoreError` for invalid arguments of a binding, before they are written."""

    def bindings(self) -> list[Binding]:
        return list(self._bindings.values())

    @property
    def binding_count(self) -> int:
        return len(self._bindings)

    def binding(self, queue: BoundQueue, key: str) -> Binding | None:
        """Return the binding of *queue* by *key*, or None."""
        return self._bindings.get((queue, key))

    def bind(self, binding: Binding) -> None:
        """Add a binding, or replace the one of the same queue and key. Raise `StoreError`."""
        binding.queue.bindings += (binding.queue, binding.key) not in self._bindings
        self._bindings[binding.queue, binding.key] = binding
        self._forget_routes()

    def unbind(self, queue: BoundQueue, key: str) -> Binding | None:
        """Remove and return a binding, or return None if it does not exist."""
        self._forget_routes()
        found = self._bindings.pop((queue, key), None)
        queue.bindings -= found is not None
        return found

    def end(self) -> None:
        """Delete the exchange with its bindings."""
        self.is_deleted = True
        for binding in self._bindings.values():
            binding.queue.bindings -= 1

    def forget(self, queue: BoundQueue) -> list[Binding]:
        """Remove and return all bindings of *queue*."""
        keys = [key for bound, key in self._bindings if bound is queue]
        return [found for key in keys if (found := self.unbind(queue, key)) is not None]

    def route(self, key: str) -> Route:
        """Return the route of *key*; a key that is needed and too long leads nowhere."""
        route = self._routes.get(key)
        if route is None:
            if len(key) > MAX_KEY_CHARACTERS:
                return NOWHERE if self.needs_key else self.route("")
            if len(self._routes) >= REMEMBERED_KEYS or self._remembered > REMEMBERED_QUEUES:
                self._forget_routes()
            route = self._routes[key] = _route(self._match(key))
            self._remembered += len(route.queues) + len(route.conditional)
        return route

    def remembers(self, key: str) -> bool:
        """Return whether `route` needs only a lookup."""
        return key in self._routes

    def _forget_routes(self) -> None:
        self._routes.clear()
        self._remembered = 0

    def _match(self, key: str) -> list[Binding]:
        return [binding for binding in self._bindings.values() if binding.key == key]


class FanoutExchange(Exchange):
    """An exchange whose bound queues all get every message."""

    type = "fanout"
    needs_key = False
    unroutable = "accepted"

    def _match(self, key: str) -> list[Binding]:
        return list(self._bindings.values())


class TopicExchange(Exchange):
    """An exchange whose keys are words with dots between them."""

    type = "topic"
    unroutable = "accepted"

    def __init__(self, name: str, exchange_id: int, arguments: Mapping[str, Any]) -> None:
        super().__init__(name, exchange_id, arguments)
        self._topics: Topics[Binding] = Topics()

    def bind(self, binding: Binding) -> None:
        self.unbind(binding.queue, binding.key)
        super().bind(binding)
        self._topics.add(binding.key, binding)

    def unbind(self, queue: BoundQueue, key: str) -> Binding | None:
        found = super().unbind(queue, key)
        if found is not None:
            self._topics.remove(key, found)
        return found

    def _match(self, key: str) -> list[Binding]:
        return self._topics.match(key)


class HeadersExchange(FanoutExchange):
    """A fanout exchange that compares a binding's arguments with a message's application properties.

    `x-match` selects whether `all` of them (the default) or `any` must exist with the same value; an argument without a
    value (None) matches any. Other arguments that begin with `x-` do not count.
    """

    type = "headers"

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        mode = arguments.get("x-match", "all")
        if mode not in ("all", "any"):
            raise StoreError(f"exchange {self.name!r}", f"x-match is {mode!r}", "use all or any")

    def bind(self, binding: Binding) -> None:
        mode = binding.arguments.get("x-match", "all")
        wanted = {name: value for name, value in binding.arguments.items() if not name.startswith("x-")}
        condition = binding.condition
        if wanted or mode != "all":
            assert not isinstance(condition, HeadersCondition)
            condition = HeadersCondition(wanted, mode == "all", condition)
        super().bind(binding._replace(condition=condition))


TYPES: dict[str, type[Exchange]] = {
    kind.type: kind for kind in (Exchange, FanoutExchange, TopicExchange, HeadersExchange)
}


def way_through(
    exchanges: Mapping[str, Exchange], exchange: Exchange, key: str, content: bytes, container: str = ""
) -> tuple[Exchange, tuple[BoundQueue, ...]]:
    """Return the exchange that routes a message from *container*, or the last one tried, and the queues that get it.

    *exchanges*: all exchanges by name. Queues that are being deleted are left out.
    """
    for _ in range(MOST_HOPS):
        queues = _queues_at(exchange, key, content, container)
        alternate = exchanges.get(exchange.alternate)
        if queues or alternate is None:
            return exchange, queues
        exchange = alternate
    return exchange, _queues_at(exchange, key, content, container)


def _queues_at(exchange: Exchange, key: str, content: bytes, container: str) -> tuple[BoundQueue, ...]:
    return tuple([queue for queue in exchange.route(key).wanted(content, container) if not queue.is_deleting])


def condition_of(arguments: Mapping[str, Any]) -> Selector | None:
    """Return the condition of a binding. Raise `StoreError` or `SelectorError` for an invalid selector."""
    text = arguments.get(SELECTOR)
    if text is None:
        return None
    if not isinstance(text, str):
        raise StoreError("binding", f"{SELECTOR} is {text!r}", "give a string")
    return selector(text)


def _route(bindings: list[Binding]) -> Route:
    free = dict.fromkeys(binding.queue for binding in bindings if binding.condition is None and not binding.not_from)
    conditional = [binding for binding in bindings if binding.queue not in free]
    # the cheapest ones first
    conditional.sort(key=lambda one: 0 if one.condition is None else one.condition.most_steps(1))
    return Route(tuple(free), tuple(conditional))


class HeadersCondition:
    """Matches bindings; the cost depends on the message's number of properties, not on the number of arguments."""

    text = ""

    def __init__(self, wanted: Mapping[str, Any], all_of_them: bool, also: Selector | None) -> None:
        """*also*: a further condition that the message has to meet."""
        self._wanted = wanted
        self._all_of_them = all_of_them
        self._also = also
        self.least_steps = 2000 + (0 if also is None else also.least_steps)

    def most_steps(self, size_bytes: int) -> int:
        return 0 if self._also is None else self._also.most_steps(size_bytes)

    def takes(self, parts: Parts, budget: Budget | None) -> bool:
        try:
            there = parts.named
        except Malformed:
            return False
        wanted = self._wanted
        names = there.keys() & wanted.keys()  # iterate over the shorter one
        if self._all_of_them and len(names) < len(wanted):
            return False
        matches = (wanted[name] is None or _equal(there[name], wanted[name]) for name in names)
        found = all(matches) if self._all_of_them else any(matches)
        return found and (self._also is None or self._also.takes(parts, budget))


def _equal(one: object, other: object) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and one == other
