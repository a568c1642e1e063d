"""The nodes of a broker in a cluster: all members apply changes of replicated ones, in the order of events.

When a change of the wiring comes back, each member applies it in its own SQL, and later events wait for that, so that a
queue exists before its first message arrives (D58, D66). Nodes that only one member has (transient ones, and those with
`replicated` false) change immediately, as without a cluster (D67). Replicated queues cannot be bound to such an
exchange if it is durable: a state transfer replaces them with all their bindings.

A client names a node on one member, which may not know that another member has a node of its own with that name. When
all members create a node, a transient node of that name makes room. A durable one does not: its member cannot have the
replicated node, so its membership ends with `NameConflict`. Core only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...base.callbacks import ignore
from ...base.errors import StoreError
from ...broker.contents.policy import Policy, policy_of
from ...broker.nodes.exchanges import BoundQueue, Exchange
from ...broker.nodes.registry import PREDECLARED, Arguments, Done, MakeQueue, NodeDeleted, NodeRegistry, check_type
from ...broker.queues.queue import Queue
from ...store.contract.interface import MessageStore
from ..kernel.broadcaster import Broadcaster
from ..kernel.local_messages import NOTHING

Answered = Callable[[Any], None]
Renew = Callable[[Queue], Queue]
"""Makes a replicated queue empty again."""
_OF_QUEUES = ("queue", "no-queue", "new-arguments", "binding", "no-binding")
MOST_REMEMBERED = 1 << 16
_OWN = "it is local to each member"
_OTHERS = "this member receives the state of the others"


class NameConflict(StoreError):
    """A replicated node has the name of a durable node, or of a copy, that only this member has."""

    def __init__(self, name: str, kind: str) -> None:
        """*kind*: queue, exchange or federated-queue."""
        super().__init__(
            f"{'exchange' if kind == 'exchange' else 'queue'} {name!r}",
            "the cluster has a node of that name, and this one is local to this member",
            "start this broker without a cluster, move its messages away if needed, and delete it there: "
            f"cairnmq ctl {kind}s delete {name}",
        )  # fmt: skip


class ClusterNodes(NodeRegistry):
    def __init__(
        self,
        broadcaster: Broadcaster,
        store: MessageStore,
        post: Callable[..., None],
        make_queue: MakeQueue,
        removed: NodeDeleted,
    ) -> None:
        self._broadcaster = broadcaster
        self._making_own: dict[str, str] = {}
        """The names and kinds of local nodes that are being created: requests for such a name get that node."""
        super().__init__(store, post, make_queue, removed)

    def order(self, about: dict[str, Any], done: Answered) -> None:
        """Has all members apply the change *about*; *done* gets the result here, and nothing outside of the group."""
        self._broadcaster.send_control("change", NOTHING._replace(answered=done), change=about)

    def set_template(self, pattern: str, arguments: Arguments, done: Done[None]) -> None:
        self.order({"do": "template", "name": pattern, "arguments": {**arguments}}, done)

    def delete_template(self, pattern: str, done: Done[None]) -> None:
        self.order({"do": "no-template", "name": pattern}, done)

    def create_queue(self, name: str, arguments: Arguments, done: Done[Queue]) -> None:
        there = self.queues.get(name)
        try:
            ordered = is_replicated(name, policy_of(name, arguments))
            if there is None:
                self.check_free(name)
        except Exception as error:
            done(error)
            return
        if not ordered:
            self._making_own[name] = "queue"
            super().create_queue(name, arguments, partial(self._made_own, name, done))
        elif (there is not None and not there.is_deleting) or name in self._making_own:
            super().create_queue(name, arguments, done)
        else:
            self.order({"do": "queue", "name": name, "arguments": {**arguments}}, done)

    def _made_own(self, name: str, done: Done[Any], made: Any) -> None:
        self._making_own.pop(name, None)
        done(made)

    def change_queue(self, queue: Queue, changes: Arguments, done: Done[None]) -> None:
        if not queue.replicated:
            super().change_queue(queue, changes, done)
            return
        self.order({"do": "new-arguments", "queue": queue.name, "changes": {**changes}}, done)

    def delete_queue(self, queue: Queue, done: Done[None], reason: str = "it was deleted") -> None:
        if queue.replicated:
            self.order({"do": "no-queue", "name": queue.name, "why": reason}, done)
        else:
            super().delete_queue(queue, done, reason)

    def create_exchange(self, name: str, kind: str, arguments: Arguments, done: Done[Exchange]) -> None:
        there = self.exchanges.get(name)
        if (there is not None and _is_own(there)) or name in self._making_own:
            super().create_exchange(name, kind, arguments, done)
            return
        if there is None and arguments.get("replicated") is False:
            self._making_own[name] = "exchange"
            super().create_exchange(name, kind, arguments, partial(self._made_own, name, done))
            return
        try:
            if there is None:
                self.check_free(name)
        except StoreError as error:
            done(error)
            return
        about = {"do": "exchange", "name": name, "type": kind, "arguments": {**arguments}}
        self.order(about, done)

    def delete_exchange(self, exchange: Exchange, done: Done[None], reason: str = "it was deleted") -> None:
        if exchange.exchange_id and not _is_own(exchange):
            self.order({"do": "no-exchange", "name": exchange.name, "why": reason}, done)
        else:
            super().delete_exchange(exchange, done, reason)

    def bind(self, exchange: Exchange, queue: BoundQueue, key: str, arguments: Arguments, done: Done[None]) -> None:
        if self._is_ordered(exchange, queue):
            about = {"do": "binding", "exchange": exchange.name, "queue": queue.name, "key": key}
            self.order({**about, "arguments": {**arguments}}, done)
        elif queue.replicated and exchange.exchange_id:
            reason = f"it is local to this member, and queue {queue.name!r} is replicated"
            done(StoreError(f"exchange {exchange.name!r}", reason, "bind the queue to a replicated exchange"))
        else:
            super().bind(exchange, queue, key, arguments, done)

    def unbind(self, exchange: Exchange, queue: BoundQueue, key: str, done: Done[None]) -> None:
        if self._is_ordered(exchange, queue):
            about = {"do": "no-binding", "exchange": exchange.name, "queue": queue.name, "key": key}
            self.order(about, done)
        else:
            super().unbind(exchange, queue, key, done)

    def _is_ordered(self, exchange: Exchange, queue: BoundQueue) -> bool:
        return queue.replicated and not _is_own(exchange)

    def do(self, about: dict[str, Any], done: Answered) -> None:
        """Applies a change that all members apply; a node that is already deleted, or already exists, is no error.

        Changes never apply to local nodes of other members, such as all queues whose names begin with $.
        """
        what, name = about["do"], about.get("name", "")
        if (queue_name := str(about.get("queue", name))).startswith("$") and what in _OF_QUEUES:
            done(StoreError(f"queue {queue_name!r}", _OWN))
            return
        if what in ("queue", "exchange"):
            self._make(about, done)
            return
        exchange, queue = self.exchanges.get(about.get("exchange", name)), self.queues.get(about.get("queue", name))
        if queue is not None and not queue.replicated:
            queue = None  # the node was deleted meanwhile
        if exchange is not None and _is_own(exchange):
            exchange = None
        self._apply(about, queue, exchange, done)

    def _apply(self, about: dict[str, Any], queue: Queue | None, exchange: Exchange | None, done: Answered) -> None:
        """Applies a change to the replicated nodes that it names, None if they are deleted, on this member only."""
        what = about["do"]
        if what == "template":
            super().set_template(about["name"], about["arguments"], done)
        elif what == "no-template":
            super().delete_template(about["name"], done)
        elif what == "new-arguments" and queue is None:
            done(StoreError(f"queue {about['queue']!r}", "it was deleted"))
        elif what == "new-arguments" and queue is not None:
            super().change_queue(queue, about["changes"], done)
        elif what == "no-queue" and queue is not None:
            super().delete_queue(queue, done, about["why"])
        elif what == "no-exchange" and exchange is not None:
            super().delete_exchange(exchange, done, about["why"])
        elif what == "binding" and queue is not None and exchange is not None:
            super().bind(exchange, queue, about["key"], about["arguments"], done)
        elif what == "no-binding" and queue is not None and exchange is not None:
            super().unbind(exchange, queue, about["key"], done)
        else:
            done(None)

    def _make(self, about: dict[str, Any], done: Answered) -> None:
        """Creates a queue or an exchange; a local node of that name makes room, or raises `NameConflict`."""
        name, arguments = about["name"], about["arguments"]
        queue, exchange = self.queues.get(name), self.exchanges.get(name)
        if queue is not None and not queue.replicated and queue.is_deleting:
            queue.when_deleted.append(partial(self._make, about, done))
            return
        is_queue = about["do"] == "queue"
        try:
            if is_queue and not is_replicated(name, policy_of(name, arguments)):
                raise StoreError(f"queue {name!r}", _OWN)
            if not is_queue:
                check_type(name, about["type"])
                if arguments.get("replicated") is False:
                    raise StoreError(f"exchange {name!r}", _OWN)
        except Exception as error:
            done(error)
            return
        reason = "the cluster has a node of that name"
        if queue is not None and not queue.queue_id:
            super().delete_queue(queue, ignore, reason)  # the deletion of a transient node cannot fail
        if exchange is not None and not exchange.exchange_id and _is_own(exchange):
            super().delete_exchange(exchange, ignore, reason)

        def made(result: Any) -> None:
            kind = self._taken_by(name)
            done(NameConflict(name, kind) if kind else result)

        if is_queue:
            super().create_queue(name, arguments, made)
        else:
            super().create_exchange(name, about["type"], arguments, made)

    def _taken_by(self, name: str) -> str:
        """Returns the kind of this member's own durable node of that name; empty if it has none."""
        queue, exchange = self.queues.get(name), self.exchanges.get(name)
        if name in self.copies:
            return "federated-queue"
        if queue is not None and not queue.replicated:
            return "queue"
        return "exchange" if exchange is not None and _is_own(exchange) else self._making_own.get(name, "")

    def snapshot(self, replicated: list[Queue]) -> list[dict[str, Any]]:
        """Returns the changes that create these nodes, for a member that has none of them."""
        ordered = set(replicated)
        found: list[dict[str, Any]] = [
            {"do": "template", "name": name, "arguments": {**arguments}} for name, arguments in self.templates.items()
        ]
        found += [{"do": "queue", "name": queue.name, "arguments": {**queue.arguments}} for queue in replicated]
        for exchange in self._replicated_exchanges():
            about = {"do": "exchange", "name": exchange.name, "type": exchange.type}
            found.append({**about, "arguments": {**exchange.arguments}})
        for exchange in self.exchanges.values():
            for binding in exchange.bindings():
                if binding.queue in ordered and not _is_own(exchange):
                    about = {"do": "binding", "exchange": exchange.name, "queue": binding.queue.name}
                    found.append({**about, "key": binding.key, "arguments": {**binding.arguments}})
        return found

    def has_own_wiring(self) -> bool:
        """Return whether this member has replicated queues, replicated exchanges or policies."""
        return any(queue.replicated for queue in self.queues.values()) or bool(
            self._replicated_exchanges() or self.templates
        )

    def like(self, wiring: list[dict[str, Any]]) -> list[Queue]:
        """Returns the replicated queues whose present state equals that of *wiring*, a snapshot."""
        made = {change["name"]: change["arguments"] for change in wiring if change["do"] == "queue"}
        return [
            queue for queue in self.queues.values()
            if queue.replicated and not queue.is_deleting and made.get(queue.name) == {**queue.arguments}
        ]  # fmt: skip

    def outdated(self, wiring: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns the changes that delete all nodes that differ from *wiring*, a snapshot."""
        alike = {*self.like(wiring)}
        found: list[dict[str, Any]] = [
            {"do": "no-queue", "name": queue.name, "why": _OTHERS}
            for queue in self.queues.values()
            if queue.replicated and queue not in alike
        ]
        bound = [change for change in wiring if change["do"] == "binding"]
        for exchange in self.exchanges.values():
            for binding in exchange.bindings():
                about = {"exchange": exchange.name, "queue": binding.queue.name, "key": binding.key}
                made = {"do": "binding", **about, "arguments": {**binding.arguments}}
                if binding.queue in alike and not _is_own(exchange) and made not in bound:
                    found.append({"do": "no-binding", **about})
        found += self._left_over(wiring)
        return [*found, *[{"do": "no-template", "name": name} for name in self.templates]]

    def _left_over(self, wiring: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns the changes that delete exchanges that *wiring* does not create."""
        made = {change["name"]: change for change in wiring if change["do"] == "exchange"}
        return [
            {"do": "no-exchange", "name": one.name, "why": _OTHERS}
            for one in self._replicated_exchanges()
            if one.name not in made
            or (one.type, {**one.arguments}) != (made[one.name]["type"], made[one.name]["arguments"])
        ]

    def _replicated_exchanges(self) -> list[Exchange]:
        """Returns the replicated exchanges that clients made."""
        return [
            one for one in self.exchanges.values()
            if one.exchange_id and not _is_own(one) and one.name not in PREDECLARED
        ]  # fmt: skip


def is_replicated(name: str, policy: Policy) -> bool:
    """Returns whether a durable queue of that name and policy is replicated; raises `StoreError` if it can't be."""
    if name.startswith("$") or not policy.replicated:
        return False
    if policy.duplicate_window > MOST_REMEMBERED:
        raise StoreError(
            f"queue {name!r}",
            f"`duplicate-window` exceeds the limit of {MOST_REMEMBERED} message-ids for a replicated queue",
            "reduce `duplicate-window`, or set `replicated` to false",
        )
    return True


def _is_own(exchange: Exchange) -> bool:
    """Returns whether only this member has the exchange: it is transient, or was declared so."""
    return exchange.name not in PREDECLARED and not (exchange.exchange_id and exchange.replicated)
