"""The plain model that a store is compared with: lists and dicts, and what has to be left of them later.

Needs nothing but the interface. Of `conformance`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ..contract.owner import OwnedStore
from ..contract.transaction import Dequeue, Put, StoreTransaction, TxState

ADD, TAKE, NEW = "add", "take", "new"


class Op(NamedTuple):
    """An operation of a transaction: of a message there is, or of a *new* one with its content."""

    what: str
    message_id: int
    queue_id: int
    content: bytes = b""


class StoreMaker(Protocol):
    """Port of a store under test: one storage location, opened any number of times, once at a time."""

    keeps: bool
    """True if durable content survives reopening."""
    can_crash: bool
    """True if `crash` can be called."""

    def open(self) -> OwnedStore:
        """Open the store, as on a start: no thread runs yet."""

    def crash(self, store: OwnedStore) -> None:
        """End *store* as if its process were killed now; `open` comes next."""

    def remove(self) -> None:
        """Clean up; no store is open any more."""


class Lasting(NamedTuple):
    """Expected content after reopening, if everything done so far is durable."""

    on: dict[int, list[int]]
    """Queue id to messages in order; queues with any."""
    contents: dict[int, bytes]
    """The contents of messages on queues, and of messages that prepared transactions enqueue."""
    prepared: dict[bytes, list[Op]]
    decided: dict[bytes, bool]

    def with_contents(self, content_of: Callable[[int], bytes]) -> Lasting:
        """Return it with the contents of its messages."""
        there = {message_id for ids in self.on.values() for message_id in ids}
        there |= {op.message_id for ops in self.prepared.values() for op in ops if op.what == ADD}
        return self._replace(contents={one: content_of(one) for one in sorted(there)})


@dataclass(eq=False)
class Tx:
    """An open transaction, and its expected effects."""

    txn: StoreTransaction
    deadline_us: int
    ops: list[Op] = field(default_factory=list)


class Model:
    """Everything that should be true of a store."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        """Queue id to name."""
        self.on: dict[int, list[int]] = {}
        """Queue id to messages in order."""
        self.contents: dict[int, bytes] = {}
        self.growing: dict[int, bytes] = {}
        """Incomplete messages, with their content so far."""
        self.staged: set[int] = set()
        """Complete messages that were on no queue yet."""
        self.open: list[Tx] = []
        self.prepared: dict[bytes, list[Op]] = {}
        self.decided: dict[bytes, bool] = {}

    def ops(self) -> list[Op]:
        """Return the operations of all open and prepared transactions."""
        return [op for tx in self.open for op in tx.ops] + [op for ops in self.prepared.values() for op in ops]

    def pairs(self, what: str) -> set[tuple[int, int]]:
        """Messages and queues that transactions take or add."""
        return {(op.message_id, op.queue_id) for op in self.ops() if op.what == what}

    def places(self) -> list[tuple[int, int]]:
        return [(message_id, queue_id) for queue_id, ids in self.on.items() for message_id in ids]

    def bytes(self) -> dict[int, int]:
        """Return the size of the content on each queue, by queue ID."""
        return {queue_id: sum([len(self.contents[one]) for one in self.on[queue_id]]) for queue_id in self.names}

    def lasting(self) -> Lasting:
        on = {queue_id: list(ids) for queue_id, ids in self.on.items() if ids}
        prepared = {xid: list(ops) for xid, ops in self.prepared.items()}
        return Lasting(on, {}, prepared, dict(self.decided)).with_contents(self.contents.__getitem__)

    def opened_again(self, found: Lasting) -> None:
        """Only that is left."""
        self.on = {queue_id: list(found.on.get(queue_id, ())) for queue_id in self.names}
        self.contents = dict(found.contents)
        self.prepared = {xid: list(ops) for xid, ops in found.prepared.items()}
        self.decided = dict(found.decided)
        self.growing, self.staged, self.open = {}, set(), []

    def place(self, message_id: int, queue_id: int) -> None:
        self.staged.discard(message_id)
        self.on[queue_id].append(message_id)

    def take(self, message_id: int, queue_id: int) -> None:
        self.on[queue_id].remove(message_id)
        self.sweep()

    def purge(self, queue_id: int, keep: Collection[int]) -> None:
        locked = self.pairs(TAKE)
        self.on[queue_id] = [one for one in self.on[queue_id] if one in keep or (one, queue_id) in locked]
        self.sweep()

    def do(self, ops: Iterable[Op], made: Iterable[int]) -> None:
        """A transaction is committed, and *made* these messages, in order."""
        ids = iter(made)
        for op in ops:
            if op.what == NEW:
                message_id = next(ids)
                self.contents[message_id] = op.content
                self.place(message_id, op.queue_id)
            elif op.what == ADD:
                self.place(op.message_id, op.queue_id)
            else:
                self.on[op.queue_id].remove(op.message_id)
        self.sweep()

    def rolled_back(self, tx: Tx) -> None:
        """Roll *tx* back: messages that it would have enqueued are deleted if they are on no queue (checklist E45)."""
        self.open.remove(tx)
        self.staged -= {op.message_id for op in tx.ops if op.what == ADD}
        self.sweep()

    def sweep(self) -> None:
        """Delete the messages that are on no queue and that no transaction enqueues."""
        there = {message_id for ids in self.on.values() for message_id in ids} | self.staged
        there |= {op.message_id for op in self.ops() if op.what == ADD}
        self.contents = {one: content for one, content in self.contents.items() if one in there}


def without_queue(lasting: Lasting, queue_id: int) -> Lasting:
    """Return the expected content if that queue is being destroyed."""
    on = {one: ids for one, ids in lasting.on.items() if one != queue_id}
    return lasting._replace(on=on).with_contents(lasting.contents.__getitem__)


def arrangement(store: OwnedStore) -> Lasting:
    """Return the messages and transactions of *store* without contents. It need not be durable yet."""
    on = {queue_id: list(ids) for queue_id, ids in store.messages().items() if len(ids)}
    prepared: dict[bytes, list[Op]] = {}
    decided: dict[bytes, bool] = {}
    for txn in store.transactions.in_doubt():
        if txn.state is TxState.PREPARED:
            prepared[txn.xid] = [
                Op(TAKE if isinstance(one, Dequeue) else ADD, one.message_id, one.queue_id)
                for one in txn.operations if not isinstance(one, Put)
            ]  # fmt: skip
        else:
            decided[txn.xid] = txn.state is TxState.DECIDED_COMMIT
    return Lasting(on, {}, prepared, decided)


def observe(store: OwnedStore) -> Lasting:
    """Return the content of *store*, including message contents, which must be durable."""
    return arrangement(store).with_contents(lambda message_id: complete(store, message_id))


def complete(store: OwnedStore, message_id: int) -> bytes:
    """All of a message's content."""
    return b"".join(store.load_piece(message_id, number) for number in range(store.piece_count(message_id)))
