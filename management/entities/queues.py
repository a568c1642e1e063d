"""Queues, and the templates of those that are made on first use."""

from __future__ import annotations

from functools import partial
from math import isnan, nan
from typing import Any

from ...base.errors import StoreError
from ...base.texts import counted
from ...broker.contents.policy import CHANGEABLE, policy_of
from ...broker.kernel.connections import Connections
from ...broker.nodes.access_control import BROWSE, CONFIGURE, CREATE, DELETE, MANAGE, RECEIVE, SEND
from ...broker.nodes.registry import NodeRegistry
from ...broker.nodes.resolver import Resolver
from ...broker.queues.queue import Queue
from ...broker.users.user_accounts import OWNER, UserAccounts
from ..protocol.call import Call
from ..protocol.entity import Attribute, Listed, Named, Operation, boolean, number, string
from ..protocol.request import BAD_REQUEST, CONFLICT, CREATED, FORBIDDEN, Refusal, arguments, flag, shown
from ..samples.sampler import Sampler, state_of


class QueueType(Named):
    name = "queue"
    meaning = "A queue; includes queues created on first use and queues of a single link."

    def __init__(
        self, nodes: NodeRegistry, resolver: Resolver, connections: Connections, users: UserAccounts, sampler: Sampler
    ) -> None:
        self._nodes = nodes
        self._resolver = resolver
        self._connections = connections
        self._users = users
        self._sampler = sampler
        super().__init__(
            nodes.queues,
            (
                boolean("durable", "Whether it survives a restart of the broker.", lambda q: bool(q.queue_id)),
                Attribute("map", "arguments", "The arguments (limits and policies).", lambda q: q.arguments),
                number("messages", "All messages on the queue.", lambda q: q.messages),
                number("ready", "Messages available to consumers.", lambda q: q.depth),
                number("unsettled", "Messages that consumers hold, or that wait for requeueing or for durability.",
                       lambda q: max(0, q.messages - q.depth)),
                number("backlog", "Ready messages that are only on disk.", lambda q: q.contents.backlog.stored),
                number("held-bytes", "Memory used by the queue's messages.", lambda q: q.memory.held_bytes),
                number("consumers", "Consuming links.", lambda q: q.taker_count),
                number("browsers", "Browsing links.", lambda q: len(q.browsers) - len(q.selecting)),
                number("producers", "Links that send directly to the queue.", lambda q: len(q.producers)),
                number("bindings", "Bindings to the queue.", lambda q: q.bindings),
                number("enqueued", "Messages enqueued since the broker started.", lambda q: q.enqueued),
                number("dequeued", "Messages dequeued since the broker started.", lambda q: q.taken),
                number("dead-lettered", "Dequeued messages that were rejected or exceeded the delivery limit.",
                       lambda q: q.dead_lettered),
                number("expired", "Dequeued messages that expired.", lambda q: q.expired),
                number("enqueue-rate", "Messages enqueued per second; null before the second sample.",
                       lambda q: self._rate(q, "enqueue_rate")),
                number("dequeue-rate", "Messages dequeued per second; null before the second sample.",
                       lambda q: self._rate(q, "dequeue_rate")),
                string("state", "`paused`, `full`, `no consumers` (of ready messages), `growing` (more ready messages "
                       "in each of three samples), or `normal`.", lambda q: state_of(q, sampler.sample_of(q))),
                string("silent-consumer", "The last consumer that lost messages because it sent no heartbeats, if "
                       "any.", lambda q: q.silence),
                string("connection", "The identity of the connection that the queue is deleted with, if any.",
                       self._connection),
            ),
            (
                Operation(
                    "CREATE", ("durable", "arguments", "dry-run"),
                    "Creates the queue, durable unless `durable` is false. 409 if it exists with other properties. "
                    "With `dry-run` it is only checked.",
                    self._create,
                ),
                Operation(
                    "UPDATE", ("arguments",),
                    "Changes these arguments at once (null removes one): " + ", ".join(f"`{n}`" for n in CHANGEABLE)
                    + ", and `x-*`.", self._update,
                ),
                Operation(
                    "DELETE", ("if-unused", "if-empty"),
                    "Deletes the queue with its messages. 409 if it has consumers (`if-unused`) or messages "
                    "(`if-empty`).",
                    self._delete,
                ),
                Operation(
                    "PURGE", (), "Removes all messages except those that consumers or transactions hold; `purged` "
                    "is their number.", self._purge,
                ),
            ),
        )  # fmt: skip

    def find(self, name: str) -> Queue | None:
        queue = self.by_name.get(name)
        return None if queue is None or queue.is_deleting else queue

    def is_there(self, entity: Queue) -> bool:
        return not entity.is_deleting

    def is_internal(self, entity: Queue) -> bool:
        return entity.name.startswith("$")

    def wanted(self, call: Call, operation: str) -> Queue:
        """Return the named queue; only its own connection may read from a private queue (A14)."""
        queue: Queue = super().wanted(call, operation)
        if operation in (BROWSE, RECEIVE) and queue.private and queue.owner is not call.link.attach.connection:
            raise Refusal(FORBIDDEN, f"{shown(queue.name)} belongs to another connection")
        return queue

    def _rate(self, queue: Queue, name: str) -> float | None:
        sample = self._sampler.sample_of(queue)
        rate: float = nan if sample is None else getattr(sample, name)
        return None if isnan(rate) else round(rate, 3)

    def _connection(self, queue: Queue) -> str | None:
        connection = self._connections.by_end.get(queue.owner)
        return None if connection is None else connection.identity

    def _create(self, call: Call) -> None:
        asked = call.asked()
        durable, settings = flag(asked, "durable", True), arguments(asked)
        name = self.new_name(call, CREATE)
        check_policy(call, name, settings)
        check_owner(call, settings)
        user = call.link.attach.user
        there = self.find(name)
        if there is not None:
            self._same(call, there, durable, settings)
        elif name in self._nodes.exchanges:
            raise Refusal(CONFLICT, "the name is in use by an exchange; use another name")
        elif flag(asked, "dry-run", False):
            call.answer({})
        elif not durable:
            denial = self._users.of(user).queue_denial()
            if denial is not None:
                raise denial
            owned = self._users.owned(settings, user)
            call.answer(self.map_of(self._nodes.add_queue(name, owned)), CREATED)
        else:
            self._resolver.create_queue(user, name, settings, call.then(partial(self._made, call, settings)))

    def _made(self, call: Call, settings: dict[str, Any], made: Queue | Exception) -> None:
        if isinstance(made, Exception):
            call.failed(made)
        elif not is_as_asked(made, settings):  # another request has created it meanwhile
            self._same(call, made, True, settings)
        else:
            call.answer(self.map_of(made), CREATED)

    def _same(self, call: Call, there: Queue, durable: bool, settings: dict[str, Any]) -> None:
        if bool(there.queue_id) != durable or not is_as_asked(there, settings):
            name = shown(there.name)
            reason = f"the queue {name} already exists with other attributes; use UPDATE, or delete it first"
            raise Refusal(CONFLICT, reason)
        call.answer(self.map_of(there))

    def _update(self, call: Call) -> None:
        asked = call.asked()
        queue: Queue = self.wanted(call, MANAGE)
        if queue.name.startswith("$"):
            raise Refusal(BAD_REQUEST, f"{shown(queue.name)} is the broker's own; use another queue")
        changes = arguments(asked)
        check_owner(call, changes)
        kept = {name: value for name, value in {**queue.arguments, **changes}.items() if value is not None}
        check_policy(call, queue.name, kept)
        self._nodes.change_queue(queue, changes, call.then_answer(lambda _: self.map_of(queue)))

    def _delete(self, call: Call) -> None:
        asked = call.asked()
        queue: Queue = self.wanted(call, DELETE)
        if flag(asked, "if-unused", False) and queue.taker_count:
            reason = f"has {counted(queue.taker_count, 'consumer')}; close them, or leave out if-unused"
            raise Refusal(CONFLICT, f"the queue {shown(queue.name)} {reason}")
        if flag(asked, "if-empty", False) and queue.messages:
            reason = f"has {counted(queue.messages, 'message')}; purge it, or leave out if-empty"
            raise Refusal(CONFLICT, f"the queue {shown(queue.name)} {reason}")
        call.messages = queue.messages
        self._nodes.delete_queue(queue, call.then_answer())

    def _purge(self, call: Call) -> None:
        call.asked()
        queue: Queue = self.wanted(call, MANAGE)

        def purged(count: int) -> dict[str, int]:
            call.messages = count
            return {"purged": count}

        queue.order.purge(call.then_answer(purged), call.link.attach.user)


def is_as_asked(queue: Queue, settings: dict[str, Any]) -> bool:
    """Return whether a queue has the arguments *settings*; its owner is ignored if they do not name one."""
    owner = {OWNER: queue.arguments[OWNER]} if OWNER in queue.arguments else {}
    return {**queue.arguments} == {**owner, **settings}


def check_owner(call: Call, settings: dict[str, Any]) -> None:
    """Raises `Refusal` for an owner that the caller may not name: to name one takes the right to manage the broker."""
    if OWNER in settings:
        call.check(MANAGE, "")
        if not isinstance(settings[OWNER], str | None):
            raise Refusal(BAD_REQUEST, f"{OWNER} must be the name of a user")


def check_policy(call: Call, name: str, settings: dict[str, Any]) -> None:
    """Raises `Refusal` for arguments that are none, or that send messages where the caller may not (A13)."""
    try:
        policy = policy_of(name, settings)
    except StoreError as error:
        raise Refusal(BAD_REQUEST, str(error)) from error
    for address in (policy.dead_letter_address, policy.expiry_address):
        if address:
            call.check_address(SEND, address)


class TemplateType(Listed):
    name = "template"
    is_named_by_pattern = True
    meaning = "Arguments for queues created on first use. The name is a pattern; later templates override earlier ones."

    def __init__(self, nodes: NodeRegistry) -> None:
        self._nodes = nodes
        super().__init__(
            lambda: nodes.templates,
            (
                Attribute("map", "arguments", "The arguments of a queue that matches.",
                          lambda pattern: self._nodes.templates.get(pattern, {})),
            ),
            (
                Operation("CREATE", ("arguments", "dry-run"), "Creates the template. 409 if it exists with other "
                          "arguments. With `dry-run` it is only checked.", self._create),
                Operation("UPDATE", ("arguments",), "Replaces the arguments; existing queues keep theirs.",
                          self._update),
                self.deletion("Deletes the template.", nodes.delete_template),
            ),
        )  # fmt: skip

    def name_of(self, entity: str) -> str:
        return entity

    def _settings(self, call: Call) -> dict[str, Any]:
        settings = arguments(call.asked())
        check_policy(call, call.name(), settings)
        check_owner(call, settings)
        return settings

    def _create(self, call: Call) -> None:
        name, settings = self.new_name(call, CONFIGURE), self._settings(call)
        if flag(call.asked(), "dry-run", False):
            call.answer({})
        elif self.find(name) is None:
            self._nodes.set_template(name, settings, call.then_answer(lambda _: self.map_of(name), CREATED))
        elif self._nodes.templates[name] != settings:
            raise Refusal(CONFLICT, f"the template {shown(name)} already exists with other arguments; use UPDATE")
        else:
            call.answer(self.map_of(name))

    def _update(self, call: Call) -> None:
        name = self.wanted(call, CONFIGURE)
        self._nodes.set_template(name, self._settings(call), call.then_answer(lambda _: self.map_of(name)))
