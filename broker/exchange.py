"""Exchanges: which queues a message goes to, by its key or its properties. Core only.

Four types, as AMQP 0-10 named them: *direct* (the key as it is), *topic* (words between dots, where a binding may say
`*` for any one word and `#` for any number of them), *fanout* (everything) and *headers* (application properties).
What a key leads to is looked up once and remembered until a binding changes, so a message costs one look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..amqp import sections
from ..amqp.codec import Malformed
from ..base.errors import StoreError
from .queue import Queue
from .topics import Topics

REMEMBERED_KEYS = 4096
MAX_KEY_CHARACTERS = 255
"""Of a key, and of a pattern: matching takes time in proportion to both."""
MOST_HOPS = 8
"""From one alternate exchange to the next: they may lead in a circle."""
Driver = Any
Condition = Callable[[bytes], bool]
"""Whether a message is one that a binding wants: a selector, say. It gets the first piece of a long one."""


class Binding(NamedTuple):
    """That a queue gets what matches a key."""

    queue: Queue
    key: str
    arguments: Mapping[str, Any] = {}
    condition: Condition | None = None
    not_from: str = ""
    """The container whose messages are not wanted: a subscription with `no-local`."""


class Route(NamedTuple):
    """Where a key leads."""

    queues: tuple[Queue, ...]
    """Those that get every message of that key, each once."""
    asking: tuple[Binding, ...]
    """Bindings of other queues, which ask for more than the key."""

    def wanted(self, content: bytes, container: str) -> tuple[Queue, ...]:
        """The queues that get this message, from the client of that container."""
        if not self.asking:
            return self.queues
        asking = (
            binding.queue
            for binding in self.asking
            if not (binding.not_from and binding.not_from == container)
            and (binding.condition is None or binding.condition(content))
        )
        return (*self.queues, *dict.fromkeys(asking))


NOWHERE = Route((), ())


class Exchange:
    """A direct exchange, and what all of them have in common."""

    type = "direct"
    needs_key = True
    """Whether a binding without a key makes no sense."""
    unroutable = "released"
    """The outcome of a message that no queue gets. Of subscribers there may be none: what is for them is accepted."""

    def __init__(self, name: str, exchange_id: int, arguments: Mapping[str, Any]) -> None:
        self.name = name
        self.exchange_id = exchange_id
        """The wiring's id; 0 for one that is not durable, or has not been written yet."""
        self.arguments = arguments
        self.alternate: str = str(arguments.get("alternate-exchange", ""))
        """The exchange that gets what no queue of this one gets."""
        self.replicated: bool = arguments.get("replicated") is not False
        """Whether all members of a cluster have it, if it lasts."""
        self.gone = False
        self.owner: object = None
        """The connection it goes away with."""
        self.maker: object = None
        """The driver it goes away with, if it was made for one channel."""
        self.private = False
        """Only its owner may subscribe to it."""
        self.producers: dict[Driver, None] = {}
        self.routed = 0
        """Messages that at least one queue got."""
        self.unrouted = 0
        self._bindings: dict[tuple[Queue, str], Binding] = {}
        self._routes: dict[str, Route] = {}

    def check_key(self, key: str) -> None:
        """Raises `StoreError` for a key that can't match anything."""
        if self.needs_key and not key:
            raise StoreError(f"exchange {self.name!r}", f"a binding to a {self.type} exchange needs a key")
        if len(key) > MAX_KEY_CHARACTERS:
            raise StoreError(
                f"exchange {self.name!r}",
                f"a binding's key has {len(key)} characters",
                f"choose one of up to {MAX_KEY_CHARACTERS}",
            )

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Raises `StoreError` for a binding's arguments that say nothing here: before they are written anywhere."""

    def bindings(self) -> list[Binding]:
        return list(self._bindings.values())

    @property
    def binding_count(self) -> int:
        return len(self._bindings)

    def binding(self, queue: Queue, key: str) -> Binding | None:
        """The binding of *queue* by that key, None if there is none."""
        return self._bindings.get((queue, key))

    def bind(self, binding: Binding) -> None:
        """There is one binding for each queue and key: the same one again takes its place. Raises `StoreError`."""
        binding.queue.bindings += (binding.queue, binding.key) not in self._bindings
        self._bindings[binding.queue, binding.key] = binding
        self._routes.clear()

    def unbind(self, queue: Queue, key: str) -> Binding | None:
        """Take a binding away; it, if there was one."""
        self._routes.clear()
        found = self._bindings.pop((queue, key), None)
        queue.bindings -= found is not None
        return found

    def end(self) -> None:
        """The exchange is gone, and its bindings with it."""
        self.gone = True
        for binding in self._bindings.values():
            binding.queue.bindings -= 1

    def forget(self, queue: Queue) -> list[Binding]:
        """Take all bindings of *queue* away."""
        keys = [key for bound, key in self._bindings if bound is queue]
        return [found for key in keys if (found := self.unbind(queue, key)) is not None]

    def route(self, key: str) -> Route:
        """Where *key* leads: nowhere, if it is too long and counts."""
        route = self._routes.get(key)
        if route is None:
            if len(key) > MAX_KEY_CHARACTERS:
                return NOWHERE if self.needs_key else self.route("")
            if len(self._routes) >= REMEMBERED_KEYS:
                self._routes.clear()
            route = self._routes[key] = _route(self._match(key))
        return route

    def _match(self, key: str) -> list[Binding]:
        return [binding for binding in self._bindings.values() if binding.key == key]


class FanoutExchange(Exchange):
    """Every queue that is bound gets everything."""

    type = "fanout"
    needs_key = False
    unroutable = "accepted"

    def _match(self, key: str) -> list[Binding]:
        return list(self._bindings.values())


class TopicExchange(Exchange):
    """Keys are words with dots between them."""

    type = "topic"
    unroutable = "accepted"

    def __init__(self, name: str, exchange_id: int, arguments: Mapping[str, Any]) -> None:
        super().__init__(name, exchange_id, arguments)
        self._topics: Topics[Binding] = Topics()

    def bind(self, binding: Binding) -> None:
        self.unbind(binding.queue, binding.key)
        super().bind(binding)
        self._topics.add(binding.key, binding)

    def unbind(self, queue: Queue, key: str) -> Binding | None:
        found = super().unbind(queue, key)
        if found is not None:
            self._topics.remove(key, found)
        return found

    def _match(self, key: str) -> list[Binding]:
        return self._topics.match(key)


class HeadersExchange(Exchange):
    """A binding's arguments are compared with a message's application properties.

    `x-match` says whether `all` of them (the default) or `any` must be there with the same value; an argument without a
    value (None) matches any. Other arguments that begin with `x-` do not count.
    """

    type = "headers"
    needs_key = False
    unroutable = "accepted"

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        mode = arguments.get("x-match", "all")
        if mode not in ("all", "any"):
            raise StoreError(f"exchange {self.name!r}", f"x-match is {mode!r}", "say all or any")

    def bind(self, binding: Binding) -> None:
        mode = binding.arguments.get("x-match", "all")
        wanted = {name: value for name, value in binding.arguments.items() if not name.startswith("x-")}
        condition = binding.condition
        super().bind(binding._replace(condition=_headers_condition(wanted, mode == "all", condition)))

    def _match(self, key: str) -> list[Binding]:
        return list(self._bindings.values())


TYPES: dict[str, type[Exchange]] = {
    kind.type: kind for kind in (Exchange, FanoutExchange, TopicExchange, HeadersExchange)
}


def queues_through(
    exchanges: Mapping[str, Exchange], exchange: Exchange, key: str, content: bytes, container: str = ""
) -> tuple[Queue, ...]:
    """The queues that get a message from *container* through *exchange*, or else through its alternate, and so on.

    *exchanges*: all there are, by name. No queue that is just going is among them.
    """
    return way_through(exchanges, exchange, key, content, container)[1]


def way_through(
    exchanges: Mapping[str, Exchange], exchange: Exchange, key: str, content: bytes, container: str = ""
) -> tuple[Exchange, tuple[Queue, ...]]:
    """The same, and the exchange that they are of: where there are none, the last one that was asked."""
    for _ in range(MOST_HOPS):
        queues = _queues_at(exchange, key, content, container)
        alternate = exchanges.get(exchange.alternate)
        if queues or alternate is None:
            return exchange, queues
        exchange = alternate
    return exchange, _queues_at(exchange, key, content, container)


def _queues_at(exchange: Exchange, key: str, content: bytes, container: str) -> tuple[Queue, ...]:
    return tuple([queue for queue in exchange.route(key).wanted(content, container) if not queue.going])


def _route(bindings: list[Binding]) -> Route:
    free = dict.fromkeys(
        binding.queue for binding in bindings if binding.condition is None and not binding.not_from
    )
    return Route(tuple(free), tuple([binding for binding in bindings if binding.queue not in free]))


def _headers_condition(wanted: Mapping[str, Any], all_of_them: bool, also: Condition | None) -> Condition:
    def condition(content: bytes) -> bool:
        try:
            there = sections.application_properties(
                content, sections.find(content, sections.APPLICATION_PROPERTIES)
            )
        except Malformed:
            return False
        matches = (name in there and (value is None or _equal(there[name], value)) for name, value in wanted.items())
        return (all(matches) if all_of_them else any(matches)) and (also is None or also(content))

    return condition


def _equal(one: object, other: object) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and one == other
