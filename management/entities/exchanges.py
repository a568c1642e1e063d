"""Exchanges, and the bindings from them to queues."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from ...amqp.codec import sections
from ...base.texts import counted
from ...broker.nodes.access_control import CREATE, DELETE, MANAGE, MONITOR, RECEIVE, SEND
from ...broker.nodes.exchanges import SELECTOR, TYPES, BoundQueue, Exchange, way_through
from ...broker.nodes.registry import PREDECLARED, NodeRegistry
from ...broker.selector.background_compiler import Compiler
from ...broker.selector.compiler import SelectorError
from ..protocol.call import Call
from ..protocol.entity import Attribute, Named, Operation, Type, boolean, number, string
from ..protocol.request import (
    BAD_REQUEST,
    CONFLICT,
    CREATED,
    FORBIDDEN,
    NOT_FOUND,
    Refusal,
    arguments,
    flag,
    only,
    shown,
    text,
)


class ExchangeType(Named):
    name = "exchange"
    meaning = "An exchange."

    def __init__(self, nodes: NodeRegistry) -> None:
        self._nodes = nodes
        super().__init__(
            self._nodes.exchanges,
            (
                string("exchange-type", "`direct`, `fanout`, `topic` or `headers`.", lambda e: e.type),
                boolean("durable", "Whether it survives a restart of the broker.",
                        lambda e: bool(e.exchange_id) or e.name in PREDECLARED),
                Attribute("map", "arguments", "The arguments given at creation.", lambda e: e.arguments),
                string("alternate-exchange", "The exchange for unroutable messages; empty for none.",
                       lambda e: e.alternate),
                number("bindings", "Bindings from the exchange.", lambda e: e.binding_count),
                number("producers", "Links that send to the exchange.", lambda e: len(e.producers)),
                number("routed", "Messages routed to at least one queue.", lambda e: e.routed),
                number("unroutable", "Messages that matched no queue.", lambda e: e.unrouted),
            ),
            (
                Operation(
                    "CREATE", ("exchange-type", "durable", "arguments", "dry-run"),
                    "Creates the exchange, by default `direct` and durable. 409 if it exists with other properties. "
                    "With `dry-run` it is only checked.",
                    self._create,
                ),
                Operation(
                    "DELETE", ("if-unused",),
                    "Deletes the exchange with its bindings. 409 if it has bindings (`if-unused`).",
                    self._delete,
                ),
                Operation(
                    "ROUTE", ("key", "application-properties"),
                    "Returns the `queues` that a message with these properties would reach, and the `exchange` that "
                    "routes it: this one, or an alternate. Queues that the caller may not monitor are omitted.",
                    self._route,
                ),
            ),
        )  # fmt: skip

    def _route(self, call: Call) -> None:
        asked = call.asked()
        exchange: Exchange = self.wanted(call, MONITOR)
        properties = arguments(asked, "application-properties")
        content = sections.application_properties_section(properties) if properties else b""
        by, queues = way_through(self._nodes.exchanges, exchange, text(asked, "key", ""), content)
        visible = [queue.name for queue in queues if not call.denial_reason(MONITOR, queue.name)]
        call.answer({"exchange": by.name, "queues": visible})

    def _create(self, call: Call) -> None:
        asked = call.asked()
        kind, durable = text(asked, "exchange-type", "direct"), flag(asked, "durable", True)
        settings = arguments(asked)
        name = self.new_name(call, CREATE)
        if kind not in TYPES:
            raise Refusal(BAD_REQUEST, f"unknown type {shown(kind)}; there are {', '.join(TYPES)}")
        only(settings, "alternate-exchange", "replicated", *[key for key in settings if key.startswith("x-")])
        if alternate := text(settings, "alternate-exchange", ""):
            call.check(SEND, alternate)
        flag(settings, "replicated", True)
        there = self.find(name)
        if there is not None:
            if (there.type, self.attributes["durable"].read(there), there.arguments) != (kind, durable, settings):
                reason = f"the exchange {shown(name)} already exists with other attributes; delete it first"
                raise Refusal(CONFLICT, reason)
            call.answer(self.map_of(there))
        elif name in self._nodes.queues:
            raise Refusal(CONFLICT, "the name is in use by a queue; use another name")
        elif flag(asked, "dry-run", False):
            call.answer({})
        elif not durable:
            call.answer(self.map_of(self._nodes.add_exchange(name, kind, settings)), CREATED)
        else:
            self._nodes.create_exchange(name, kind, settings, call.then_answer(self.map_of, CREATED))

    def _delete(self, call: Call) -> None:
        asked = call.asked()
        exchange: Exchange = self.wanted(call, DELETE)
        if flag(asked, "if-unused", False) and exchange.binding_count:
            reason = f"has {counted(exchange.binding_count, 'binding')}; remove them, or leave out if-unused"
            raise Refusal(CONFLICT, f"the exchange {shown(exchange.name)} {reason}")
        self._nodes.delete_exchange(exchange, call.then_answer())


class _Bound(NamedTuple):
    """A binding, and where it begins."""

    exchange: Exchange
    queue: BoundQueue
    key: str


class BindingType(Type):
    name = "binding"
    meaning = "A binding. Its name is exchange, queue and key, each percent-encoded, separated by slashes."

    def __init__(self, nodes: NodeRegistry, compiler: Compiler) -> None:
        self._nodes = nodes
        self._compiler = compiler
        super().__init__(
            (
                string("exchange", "The exchange.", lambda b: b.exchange.name),
                string("queue", "The queue.", lambda b: b.queue.name),
                string("key", "The binding key; empty if the exchange's type needs none.", lambda b: b.key),
                Attribute("map", "arguments", "The conditions besides the key.", self._arguments),
                boolean("durable", "Whether it survives a restart of the broker.",
                        lambda b: bool(b.queue.queue_id and b.exchange.exchange_id)),
            ),
            (
                Operation(
                    "CREATE", ("exchange", "queue", "key", "arguments"),
                    "Creates the binding; no name is required. 409 if it exists with other arguments.", self._create,
                ),
                Operation("UPDATE", ("arguments",), "Replaces the arguments.", self._update),
                Operation("DELETE", (), "Deletes the binding.", self._delete),
            ),
        )  # fmt: skip

    def all(self) -> list[Any]:
        return [
            _Bound(exchange, binding.queue, binding.key)
            for exchange in self._nodes.exchanges.values()
            for binding in exchange.bindings()
        ]

    def find(self, name: str) -> _Bound | None:
        exchange, queue, key = _parts(name)
        found = self._nodes.exchanges.get(exchange), self._nodes.queues.get(queue)
        if found[0] is None or found[1] is None or found[0].binding(found[1], key) is None:
            return None
        return _Bound(found[0], found[1], key)

    def name_of(self, entity: _Bound) -> str:
        return "/".join(quote(part, safe="") for part in (entity.exchange.name, entity.queue.name, entity.key))

    def is_there(self, entity: _Bound) -> bool:
        return not entity.exchange.is_deleted and entity.exchange.binding(entity.queue, entity.key) is not None

    def resource_of(self, entity: _Bound) -> str:
        return entity.exchange.name

    def resource_named(self, name: str) -> str:
        return _parts(name)[0]

    def _arguments(self, entity: _Bound) -> Any:
        binding = entity.exchange.binding(entity.queue, entity.key)
        return {} if binding is None else binding.arguments

    def _create(self, call: Call) -> None:
        asked = call.asked()
        key, settings = text(asked, "key", ""), arguments(asked)
        if "\0" in key:
            raise Refusal(BAD_REQUEST, "the key has a NUL in it")
        exchange, queue = self._ends(call, text(asked, "exchange"), text(asked, "queue"))
        bound = _Bound(exchange, queue, key)
        call.subject = self.name_of(bound)
        if self.is_there(bound):
            if self._arguments(bound) != settings:
                reason = f"the binding {shown(self.name_of(bound))} already exists with other arguments; use UPDATE"
                raise Refusal(CONFLICT, reason)
            call.answer(self.map_of(bound))
        else:
            self._bind(call, bound, settings, CREATED)

    def _bind(self, call: Call, bound: _Bound, settings: dict[str, Any], status: int = 0) -> None:
        """Bind when the selector, if there is one, is compiled."""

        def compiled(found: object) -> None:
            if isinstance(found, SelectorError):
                raise found
            exchange, queue = self._ends(call, bound.exchange.name, bound.queue.name)
            bound_now = call.then_answer(lambda _: self.map_of(bound), status)
            self._nodes.bind(exchange, queue, bound.key, settings, bound_now)

        text = settings.get(SELECTOR)
        if not isinstance(text, str):
            compiled(None)
        elif too_long := self._compiler.too_long(text):
            raise Refusal(BAD_REQUEST, too_long)
        else:
            attach = call.link.attach
            self._compiler.compile(text, attach.user or attach.connection, call.then(compiled))

    def _ends(self, call: Call, exchange_name: str, queue_name: str) -> tuple[Exchange, BoundQueue]:
        """Return exchange and queue of a binding. Checks both: the binder lets the queue receive from the exchange."""
        call.check(MANAGE, queue_name)
        call.check(RECEIVE, exchange_name)
        exchange, queue = self._nodes.exchanges.get(exchange_name), self._nodes.queues.get(queue_name)
        if exchange is None:
            raise Refusal(NOT_FOUND, f"there is no exchange {shown(exchange_name)}; create it first")
        if exchange.private and exchange.owner is not call.link.attach.connection:
            raise Refusal(FORBIDDEN, f"{shown(exchange_name)} belongs to another connection")
        if queue is None or queue.is_deleting:
            raise Refusal(NOT_FOUND, f"there is no queue {shown(queue_name)}; create it first")
        if queue_name.startswith("$"):
            raise Refusal(BAD_REQUEST, f"{shown(queue_name)} is the broker's own; use another queue")
        return exchange, queue

    def _update(self, call: Call) -> None:
        bound: _Bound = self.wanted(call, MONITOR)
        asked = call.asked()
        self._ends(call, bound.exchange.name, bound.queue.name)
        self._bind(call, bound, arguments(asked))

    def _delete(self, call: Call) -> None:
        bound: _Bound = self.wanted(call, MONITOR)
        call.check(MANAGE, bound.queue.name)
        self._nodes.unbind(bound.exchange, bound.queue, bound.key, call.then_answer())


def _parts(name: str) -> tuple[str, str, str]:
    parts = name.split("/")
    if len(parts) != 3:
        raise Refusal(BAD_REQUEST, "the name of a binding is exchange/queue/key, each in percent-encoding")
    return unquote(parts[0]), unquote(parts[1]), unquote(parts[2])
