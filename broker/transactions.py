"""The transactions of all clients, by connection and by xid. Core only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from ..amqp.proton import RELEASED
from ..base.errors import StoreError
from ..channel.words import Outcome
from .entry import Entry
from .ordered import OrderedTransaction
from .transaction import ROLLBACK, TIMEOUT, UNKNOWN_ID, Transaction

if TYPE_CHECKING:
    from .broker import Broker
    from .consumer import Consumer
    from .queue import Queue


class TransactionLimits(NamedTuple):
    """What clients may have open."""

    timeout_s: float = 0.0
    """A transaction that was not discharged by then is rolled back; 0 for never."""
    per_connection: int = 1000
    size_bytes: int = 256 << 20
    """Of the open transactions of a connection together: contents, and `ENTRY_BYTES` for each operation."""


class Controller:
    """The transactions of one connection."""

    def __init__(self) -> None:
        self.transactions: dict[bytes, Transaction] = {}
        self.size_bytes = 0


class Transactions:
    """All of them that are not over, and those whose clients have not been told that they are."""

    def __init__(self, broker: Broker, limits: TransactionLimits) -> None:
        self.broker = broker
        self.limits = limits
        self.taken: dict[Entry, Transaction] = {}
        """Messages whose outcomes depend on a transaction, or were decided by one and are not settled yet."""
        self.by_xid: dict[bytes, Transaction] = {}
        """The distributed ones that are not over."""
        self.under_way: dict[OrderedTransaction, None] = {}
        """Those that all members of a cluster are to do."""
        self._controllers: dict[object, Controller] = {}
        self._ids = count(1)
        self._start = os.urandom(4)  # so that an id of a former life is not taken for another one's

    def declare(self, connection: object, xid: bytes) -> Transaction:
        """A new transaction, distributed if it has an *xid*. Raises `StoreError` if there are too many."""
        controller = self._controllers.setdefault(connection, Controller())
        most = self.limits.per_connection
        if len(controller.transactions) >= most:
            raise StoreError("declare", f"a connection may have {most} transactions")
        make = Transaction if self.broker.cluster is None else OrderedTransaction
        transaction = make(self, controller, self._start + next(self._ids).to_bytes(8))
        if xid:
            transaction.inner = self.broker.store.transactions.begin(self.broker.clock.wall_us(), xid=xid)
            self.by_xid[xid] = transaction
        controller.transactions[transaction.id] = transaction
        if self.limits.timeout_s:
            self.broker.timers.after(self.limits.timeout_s, self._expire, ref(transaction))
        return transaction

    def find(self, connection: object, txn_id: bytes) -> Transaction:
        """The transaction that the client of *connection* knows by that id; one that has failed if there is none."""
        controller = self._controllers.get(connection)
        found = controller.transactions.get(txn_id) if controller is not None else None
        if found is None or found.is_discharged:
            found = Transaction(self, Controller(), txn_id)
            found.failure = (UNKNOWN_ID, f"there is no transaction {txn_id[:32].hex()} on this connection")
        return found

    def discharged(self, transaction: Transaction) -> None:
        """Its client works on it no more. It is still its connection's if it is distributed and not over."""
        transaction.is_discharged = True
        transaction.stop_acquiring()
        if transaction.failure is not None:
            transaction.controller.transactions.pop(transaction.id, None)

    def over(self, transaction: Transaction) -> None:
        """It was committed or rolled back. Its client may still ask for it until it has discharged it."""
        if transaction.inner is not None and self.by_xid.get(transaction.inner.xid) is transaction:
            del self.by_xid[transaction.inner.xid]
        if transaction.is_discharged:
            transaction.controller.transactions.pop(transaction.id, None)

    def prepared(self, transaction: Transaction) -> None:
        """It is no connection's any more."""
        transaction.keep_acquired()
        transaction.controller.transactions.pop(transaction.id, None)
        transaction.controller.size_bytes -= transaction.size_bytes
        transaction.controller = Controller()
        transaction.controller.size_bytes = transaction.size_bytes

    def open(self) -> Iterator[tuple[object, Transaction]]:
        """Those that are neither over nor prepared, and whose they are."""
        for connection, controller in self._controllers.items():
            for transaction in controller.transactions.values():
                if transaction.is_open:
                    yield connection, transaction

    def connection_closed(self, connection: object) -> None:
        controller = self._controllers.pop(connection, None)
        if controller is not None:
            for transaction in list(controller.transactions.values()):
                transaction.roll_back(ROLLBACK, "its connection is gone")

    def roll_back_all(self, why: str) -> None:
        """Those that are open: all clients are sent away."""
        for _, transaction in [*self.open()]:
            transaction.roll_back(ROLLBACK, why)

    def lost(self) -> None:
        """The cluster is lost: nothing more is heard of what it was to do."""
        under_way, self.under_way = self.under_way, {}
        for transaction in under_way:
            transaction.lost()

    def _expire(self, which: ref[Transaction]) -> None:
        transaction = which()
        if transaction is not None and transaction.is_open:
            why = f"it took longer than {self.limits.timeout_s:g} s and was rolled back"
            transaction.roll_back(TIMEOUT, why)

    # ---- for consumers --------------------------------------------------------------------------------------------

    def take(
        self, connection: object, consumer: Consumer, queue: Queue, provisional: Sequence[tuple[bytes, Outcome]]
    ) -> None:
        """A client told what is to become of messages if transactions are committed."""
        for txn_id, run in groupby(provisional, itemgetter(0)):
            transaction = self.find(connection, txn_id)
            outcomes = [outcome for _, outcome in run]
            if self.taken:
                outcomes = [outcome for outcome in outcomes if self._is_open(transaction, outcome)]
            transaction.take(consumer, queue, outcomes)
            failure = transaction.failure
            if failure is not None and failure[0] == UNKNOWN_ID and any(one.delivery is not None for one in outcomes):
                consumer.terminal.failure(*failure)

    def _is_open(self, transaction: Transaction, outcome: Outcome) -> bool:
        """Whether no other transaction has decided on it; one that is about to is rolled back, as is *transaction*."""
        other = self.taken.get(outcome.tag)
        if other is None or other is transaction:
            return True
        if other.recalls(outcome.tag):
            return False
        if other.is_committed:
            if outcome.delivery is None:
                other.left(outcome.tag)
            return False
        if other.is_prepared:
            other.left(outcome.tag)
            transaction.fail("a message was taken in it that one in doubt has taken")
            return False
        for one in (other, transaction):
            one.fail("a message was taken in two transactions")
        return True

    def outside(self, consumer: Consumer, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Outcomes outside of transactions: those that no transaction has decided on.

        One for a message that an open transaction takes rolls that back.
        """
        free: list[Outcome] = []
        for outcome in outcomes:
            holder = self.taken.get(outcome.tag)
            if holder is not None and holder.has_acquired(outcome.tag) and not outcome.state:  # let go unseen
                holder.forget(outcome.tag)
                holder = None
            if holder is not None and not holder.is_committed and not holder.is_prepared and outcome.state:
                holder.fail("a message that was taken in it was given an outcome outside of it")
                if holder.recalls(outcome.tag):
                    if outcome.delivery is not None:
                        consumer.terminal.settle([(outcome.delivery, RELEASED)])
                    continue
                holder = None
            if holder is None:
                free.append(outcome)
                continue
            if not holder.is_committed:
                holder.left(outcome.tag)
            if outcome.delivery is not None:
                consumer.terminal.settle([(outcome.delivery, outcome.state)])
        return free

    def settled(self, entries: Iterable[Entry]) -> None:
        """Nothing more is heard of these."""
        for entry in entries:
            self.taken.pop(entry, None)
