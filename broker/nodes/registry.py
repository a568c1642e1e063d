"""The registry of nodes: queues, exchanges and the bindings between them, in memory and in SQL. Core only.

Durable changes are written first and applied afterwards: *done* gets the result on the core, or the error that left
everything unchanged. SQL does one call after the other, in the order of the requests. The exchanges of `PREDECLARED`
always exist; each is written with its first durable binding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypeVar

from ...base.callbacks import ignore
from ...base.errors import CairnError, StoreError
from ...store.contract.interface import MessageStore
from ...store.contract.wiring_rows import BindingRow, ExchangeRow, QueueRow
from ..contents.internal_queues import InternalQueue
from ..contents.policy import CHANGEABLE, policy_of
from ..queues.deduplication import drop_memory, make_memory
from ..queues.queue import Queue
from ..queues.queue_lifetime import LifetimeEvent
from .exchanges import MOST_BOUND_STEPS, NOT_FROM, TYPES, Binding, BoundQueue, Exchange, condition_of
from .stored_nodes import ignored, is_copy, valid_arguments

PREDECLARED = {"amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic", "amq.match": "headers"}
MAX_NAME_BYTES = 1024
TEMPLATE = "template:"
"""The prefix of configurations with the arguments of queues that are created on first use; a pattern follows."""
Arguments = Mapping[str, Any]
_Found = TypeVar("_Found")
Done = Callable[[_Found | Exception], None]


class CopyLocked(StoreError):
    """The name is that of a copy, which cannot be used before it is promoted."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"queue {name!r}", "it follows a queue of another site, and is locked",
            f"use that one, or promote the copy: cairnmq ctl federated-queues promote {name}",
        )  # fmt: skip


MakeQueue = Callable[[str, int, Arguments], Queue]
"""Makes the queue of a name, an ID and arguments."""
NodeDeleted = Callable[[Queue | Exchange, str], None]
"""The callback for a node that was deleted, with the reason."""
RenewQueue = Callable[[Queue], Queue]
"""Replaces a durable queue by an empty one without bindings."""


class NodeRegistry:
    """All queues and exchanges of one broker, by name."""

    def __init__(
        self, store: MessageStore, post: Callable[..., None], make_queue: MakeQueue, removed: NodeDeleted
    ) -> None:
        self.queues: dict[str, Queue] = {}
        self.exchanges: dict[str, Exchange] = {}
        self.templates: dict[str, Arguments] = {}
        """Patterns and their arguments, for queues created on first use: of several matches, later ones override."""
        self.copies: dict[str, QueueRow] = {}
        """Copies of queues of other sites, and the notes to them: their names are taken."""
        self.copied: dict[str, Sequence[int]] = {}
        """The messages on copies when the store was opened, for the federation, which takes them from here."""
        self._store = store
        self._post = post
        self._make_queue = make_queue
        self._removed = removed
        self._creating: dict[str, tuple[str, list[Done[Any]]]] = {}
        """The nodes that are being created: the type of an exchange, empty for a queue, and the requests for it."""
        self._changing: set[Queue] = set()

    def recover(self) -> None:
        """Make the nodes of the store. Nothing else is asked for before that."""
        store = self._store
        messages = store.messages()
        by_id: dict[int, Queue] = {}
        for row in store.queues():
            if is_copy(row):
                self.copies[row.name] = row
                self.copied[row.name] = messages.pop(row.id, ())
                continue
            arguments = valid_arguments(row.name, row.arguments)
            queue = self.queues[row.name] = by_id[row.id] = self._make_queue(row.name, row.id, arguments)
            if row.id in messages:
                queue.recovered(messages.pop(row.id))
        exchanges: dict[int, Exchange] = {}
        for name, kind in PREDECLARED.items():
            self.exchanges[name] = TYPES[kind](name, 0, {})
        for known in store.exchanges():
            try:
                self.exchanges[known.name] = exchanges[known.id] = _exchange(known)
            except StoreError as error:
                ignored(f"exchange {known.name!r}", error)
        for bound in store.bindings():
            if bound.exchange_id in exchanges and bound.queue_id in by_id:
                self._rebind(exchanges[bound.exchange_id], by_id[bound.queue_id], bound)
        for config in store.configs():
            if config.name.startswith(TEMPLATE):
                self.templates[config.name.removeprefix(TEMPLATE)] = valid_arguments(config.name, config.settings)

    def _rebind(self, exchange: Exchange, queue: Queue, row: BindingRow) -> None:
        """Bind a queue as the store has it."""
        try:
            exchange.check_key(row.key)
            exchange.check_arguments(row.arguments)
            exchange.bind(_binding(queue, row.key, row.arguments))
        except CairnError as error:
            ignored(f"the binding of {queue.name!r} to {exchange.name!r}", error)

    # ---- templates ------------------------------------------------------------------------------------------------

    def set_template(self, pattern: str, arguments: Arguments, done: Done[None]) -> None:
        """Keep a template, in place of one of that pattern."""
        change = partial(self.templates.__setitem__, pattern, arguments)
        self._store.create_config(TEMPLATE + pattern, arguments, behind_sql(self._post, done, change))

    def delete_template(self, pattern: str, done: Done[None]) -> None:
        """Delete a template; it is no error if it does not exist."""
        change = partial(self.templates.pop, pattern, None)
        self._store.destroy_config(TEMPLATE + pattern, behind_sql(self._post, done, change))

    # ---- queues ---------------------------------------------------------------------------------------------------

    def template_for(self, name: str) -> dict[str, Any]:
        """Return the arguments of a queue of that name that is created on first use."""
        arguments: dict[str, Any] = {}
        for pattern, settings in self.templates.items():
            if fnmatchcase(name, pattern):
                arguments.update(settings)
        return arguments

    def add_queue(self, name: str, arguments: Arguments) -> Queue:
        """Create a transient queue. Raises `StoreError` for bad arguments, or a name that is taken."""
        self._check_free_for_good(name)
        queue = self.queues[name] = self._make_queue(name, 0, arguments)
        return queue

    def create_queue(self, name: str, arguments: Arguments, done: Done[Queue]) -> None:
        """Create a durable queue, or return the existing one; if that is being deleted, wait for its end."""
        there = self.queues.get(name)
        if there is not None:
            if there.is_deleting:
                there.when_deleted.append(lambda: self.create_queue(name, arguments, done))
            else:
                done(there)
            return
        try:
            policy_of(name, arguments)
            self.check_free(name)
            is_first = self._is_first(name, "", done)
        except StoreError as error:
            done(error)
            return
        if not is_first:
            return
        write = partial(self._write_queue, name, arguments)
        make_memory(self, name, write) if policy_of(name, arguments).duplicate_window else write(None)

    def _write_queue(self, name: str, arguments: Arguments, memory: InternalQueue | Exception | None) -> None:
        if isinstance(memory, Exception):
            self._queue_made(name, memory)
        else:
            self._store.create_queue(name, lambda row: self._post(self._queue_made, name, row), arguments)

    def _queue_made(self, name: str, row: QueueRow | Exception) -> None:
        made: Queue | Exception
        if isinstance(row, Exception):
            made = row
            drop_memory(self, name)
        else:
            made = self.queues[name] = self._make_queue(name, row.id, row.arguments)
        for done in self._creating.pop(name)[1]:
            done(made)

    def adopt(self, row: QueueRow, ids: Sequence[int]) -> Queue:
        """Create a queue from a copy with these messages, which may have been delivered at the other site."""
        self.copies.pop(row.name, None)
        queue = self.queues[row.name] = self._make_queue(row.name, row.id, row.arguments)
        queue.contents.delivered_below = max(ids, default=0) + 1
        queue.begin_timing()
        queue.recovered(ids)
        return queue

    def change_queue(self, queue: Queue, changes: Arguments, done: Done[None]) -> None:
        """Change some of a queue's arguments, and remove those that are None: in SQL first, and then at once.

        Raise `StoreError` for unknown arguments, or for changes that are not allowed while the queue is in use.
        """
        arguments = {name: value for name, value in {**queue.arguments, **changes}.items() if value is not None}
        try:
            policy_of(queue.name, arguments)
            for name in changes:
                if name not in CHANGEABLE and not name.startswith("x-"):
                    remedy = "these may: " + ", ".join(CHANGEABLE)
                    raise StoreError(f"queue {queue.name!r}", f"{name} can't be changed after creation", remedy)
            if queue in self._changing:
                raise StoreError(f"queue {queue.name!r}", "it is just being changed", "try again")
        except StoreError as error:
            done(error)
            return
        if not queue.queue_id:
            queue.change(arguments)
            done(None)
            return
        self._changing.add(queue)
        self._store.change_queue(
            queue.queue_id, arguments, lambda error: self._post(self._changed, queue, arguments, done, error)
        )

    def _changed(self, queue: Queue, arguments: Arguments, done: Done[None], error: Exception | None) -> None:
        self._changing.discard(queue)
        if error is None and not queue.is_deleted:
            queue.change(arguments)
        done(error)

    def delete_queue(self, queue: Queue, done: Done[None], reason: str = "it was deleted") -> None:
        """Delete a queue, its bindings and messages. Raises `MessageLocked` if a prepared transaction concerns it."""
        if queue.is_deleted:
            done(None)
        elif queue.is_deleting:  # that may fail
            queue.when_deleted.append(partial(NodeRegistry.delete_queue, self, queue, done, reason))
        elif not queue.queue_id:
            self._drop_queue(queue, reason)
            done(None)
        else:
            try:
                self._store.transactions.check_deletion(queue.queue_id)
            except StoreError as error:
                done(error)
                return
            queue.change_lifetime(LifetimeEvent.DELETE)  # SQL may commit it before the core is notified
            self._store.begin_destroy_queue(
                queue.queue_id, lambda error: self._post(self._going, queue, reason, done, error)
            )

    def drop_queue(self, name: str, done: Done[None], reason: str = "it was deleted") -> None:
        """Delete the queue of that name, if it exists."""
        queue = self.queues.get(name)
        if queue is not None:
            self.delete_queue(queue, done, reason)

    def _going(self, queue: Queue, reason: str, done: Done[None], error: Exception | None) -> None:
        queue = self.queues[queue.name]  # it may have been renewed meanwhile
        if error is not None:
            queue.change_lifetime(LifetimeEvent.NOT_DELETED)
        else:
            self._drop_queue(queue, reason)
        done(error)
        waiting, queue.when_deleted = queue.when_deleted, []
        for action in waiting:
            action()

    def _drop_queue(self, queue: Queue, reason: str) -> None:
        self._forget(queue)
        self._removed(queue, reason)

    def _forget(self, queue: Queue) -> None:
        """Remove a queue from memory, with its bindings."""
        del self.queues[queue.name]
        for exchange in self.exchanges.values():
            exchange.forget(queue)

    def renew_queue(self, queue: Queue, renewed: Callable[[Queue], None]) -> Queue:
        """Replace a durable queue by an empty one without bindings, in memory only: the store keeps both.

        *renewed* releases the old one. If that is being deleted, the new one is deleted in its place.
        """
        was_deleting = queue.is_deleting
        self._forget(queue)
        renewed(queue)
        made = self.queues[queue.name] = self._make_queue(queue.name, queue.queue_id, queue.arguments)
        made.contents.delivered_below = 0
        if was_deleting:
            made.change_lifetime(LifetimeEvent.DELETE)
            made.when_deleted, queue.when_deleted = queue.when_deleted, []
        return made

    # ---- exchanges ------------------------------------------------------------------------------------------------

    def add_exchange(self, name: str, kind: str, arguments: Arguments) -> Exchange:
        """Create a transient exchange. Raises `StoreError` for bad arguments, or a name that is taken."""
        self._check_free_for_good(name)
        exchange = self.exchanges[name] = _exchange(ExchangeRow(0, name, kind, arguments))
        return exchange

    def create_exchange(self, name: str, kind: str, arguments: Arguments, done: Done[Exchange]) -> None:
        """Create a durable exchange, or return the existing one; `StoreError` if that has another type."""
        there = self.exchanges.get(name)
        try:
            if there is None:
                self.check_free(name)
                _exchange(ExchangeRow(0, name, kind, arguments))
                self._write_exchange(name, kind, arguments, done)
            elif there.type != kind:
                raise StoreError(f"exchange {name!r}", f"it already exists with type {there.type}", "delete it first")
        except StoreError as error:
            done(error)
            return
        if there is not None:
            done(there)

    def _write_exchange(self, name: str, kind: str, arguments: Arguments, done: Done[Exchange]) -> None:
        if self._is_first(name, kind, done):
            self._store.create_exchange(
                name, kind, lambda row: self._post(self._exchange_made, name, row), dict(arguments)
            )

    def _exchange_made(self, name: str, row: ExchangeRow | Exception) -> None:
        made: Exchange | Exception
        if isinstance(row, Exception):
            made = row
        else:
            there = self.exchanges.get(name)
            made = self.exchanges[name] = _exchange(row) if there is None else there
            made.exchange_id = row.id
        for done in self._creating.pop(name)[1]:
            done(made)

    def delete_exchange(self, exchange: Exchange, done: Done[None], reason: str = "it was deleted") -> None:
        """Delete an exchange and its bindings; `StoreError` for a predeclared one."""
        if exchange.name in PREDECLARED:
            done(StoreError(f"exchange {exchange.name!r}", "predeclared exchanges can't be deleted"))
        elif not exchange.exchange_id:
            self._drop_exchange(exchange, reason, done, None)
        else:
            self._store.destroy_exchange(
                exchange.exchange_id, lambda error: self._post(self._drop_exchange, exchange, reason, done, error)
            )

    def maker_closed(self, driver: object, exchange: Exchange) -> None:
        """Delete *exchange* if it was made for the link of *driver*, which is closed."""
        if exchange.maker is driver and not exchange.is_deleted:
            self.delete_exchange(exchange, ignore, "its link was closed")

    def _drop_exchange(self, exchange: Exchange, reason: str, done: Done[None], error: Exception | None) -> None:
        if error is None and not exchange.is_deleted:
            exchange.end()
            del self.exchanges[exchange.name]
            self._removed(exchange, reason)
        done(error)

    # ---- bindings -------------------------------------------------------------------------------------------------

    def bind(self, exchange: Exchange, queue: BoundQueue, key: str, arguments: Arguments, done: Done[None]) -> None:
        """Bind *queue* to an exchange with *key*; durable if both are."""
        try:
            exchange.check_key(key)
            exchange.check_arguments(arguments)
            binding = _binding(queue, key, arguments)
            if queue.late_selector is None:
                _check_steps(exchange, binding)
        except CairnError as error:
            done(error)
            return
        lasts = queue.queue_id and (exchange.exchange_id or exchange.name in PREDECLARED)
        if not lasts:
            exchange.bind(binding)
            done(None)
        elif exchange.exchange_id:
            row = BindingRow(exchange.exchange_id, queue.queue_id, key, dict(arguments))
            self._store.bind(row, behind_sql(self._post, done, partial(_bind, exchange, binding)))
        else:
            again = partial(self._written, queue=queue, key=key, arguments=arguments, done=done)
            self._write_exchange(exchange.name, exchange.type, {}, again)

    def _written(
        self, exchange: Exchange | Exception, *, queue: BoundQueue, key: str, arguments: Arguments, done: Done[None]
    ) -> None:
        """Bind to a predeclared exchange, which was written."""
        if isinstance(exchange, Exception):
            done(exchange)
        else:
            NodeRegistry.bind(self, exchange, queue, key, arguments, done)

    def unbind(self, exchange: Exchange, queue: BoundQueue, key: str, done: Done[None]) -> None:
        """Remove a binding; it is no error if it does not exist."""
        if exchange.exchange_id and queue.queue_id:
            row = BindingRow(exchange.exchange_id, queue.queue_id, key)
            self._store.unbind(row, behind_sql(self._post, done, partial(exchange.unbind, queue, key)))
        else:
            exchange.unbind(queue, key)
            done(None)

    def check_free(self, name: str) -> None:
        """Raises `StoreError` if the name is taken."""
        if name in self.copies:
            raise CopyLocked(name)
        if name in self.queues or name in self.exchanges:
            raise StoreError(f"node {name!r}", "there is one of that name", "choose another name, or delete that one")

    def _check_free_for_good(self, name: str) -> None:
        """Raises `StoreError` if the name is taken, or if a node of that name is being created."""
        self.check_free(name)
        if name in self._creating:
            raise _being_made(name)

    def _is_first(self, name: str, kind: str, done: Done[Any]) -> bool:
        """Add a request for a new node; return whether no other one waits. Raises `StoreError` for another type."""
        there, requests = self._creating.setdefault(name, (kind, []))
        if there != kind:
            raise _being_made(name)
        requests.append(done)
        return len(requests) == 1


def behind_sql(post: Callable[..., None], done: Done[None], change: Callable[[], object]) -> Done[None]:
    """Return a callback for the store: on the core, do *change* if the wiring was written, then *done*."""

    def written(error: Exception | None) -> None:
        if error is None:
            change()
        done(error)

    return lambda error: post(written, error)


def _bind(exchange: Exchange, binding: Binding) -> None:
    if not (exchange.is_deleted or binding.queue.is_deleted):
        exchange.bind(binding)


def _being_made(name: str) -> StoreError:
    return StoreError(f"node {name!r}", "one of that name is just being made", "choose another name, or ask again")


def check_type(name: str, kind: str) -> None:
    """Raises `StoreError` if exchange *name* would be of no type that there is."""
    if kind not in TYPES:
        raise StoreError(f"exchange {name!r}", f"there is no type {kind!r}", "use one of " + ", ".join(TYPES))


def _exchange(row: ExchangeRow) -> Exchange:
    check_type(row.name, row.type)
    return TYPES[row.type](row.name, row.id, row.arguments)


def _check_steps(exchange: Exchange, binding: Binding) -> None:
    """Raises `StoreError` if the selectors that are applied in each publisher's turn would take too much."""
    added = 0 if binding.condition is None else binding.condition.most_steps(1)
    if not added:
        return
    others = [one for one in exchange.bindings() if (one.queue, one.key) != (binding.queue, binding.key)]
    conditions = [one.condition for one in others if one.condition is not None and one.queue.late_selector is None]
    there = sum(condition.most_steps(1) for condition in conditions)
    if there + added > MOST_BOUND_STEPS:
        raise StoreError(
            f"exchange {exchange.name!r}",
            f"the LIKE patterns of its bindings would take {there + added} steps per character, the limit is "
            f"{MOST_BOUND_STEPS}",
            "use fewer LIKE patterns, or a subscription",
        )


def _binding(queue: BoundQueue, key: str, arguments: Arguments) -> Binding:
    return Binding(queue, key, arguments, condition_of(arguments), str(arguments.get(NOT_FROM, "")))
