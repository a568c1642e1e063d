"""The transactions of all clients, by connection and by xid. Core only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import count, groupby
from operator import itemgetter
from weakref import ref

from ...amqp.native.proton_ffi import RELEASED
from ...amqp.ports import Outcome
from ...base.errors import StoreError
from ..kernel.context import CoreContext
from ..messages.entry import Entry
from ..nodes.replication_port import Members
from .context import Claimant, Controller, TransactionContext, TransactionLimits
from .dead_letters import Returns
from .staging import ROLLBACK, TIMEOUT, UNKNOWN_ID
from .transaction import ClientTransaction
from .transaction_state import UNDONE, TransactionState
from .transactional_acquisition import AcquiringLink

MOST_FAILURES = 1000


class Transactions:
    """The open transactions, and those whose end was not reported to their clients yet."""

    def __init__(self, core: CoreContext, returns: Returns, members: Members, limits: TransactionLimits) -> None:
        self.limits = limits
        self.taken: dict[Entry, Claimant] = {}
        """Messages whose outcomes depend on transactions, by receiver, or that are not settled after one."""
        self.by_xid: dict[bytes, ClientTransaction] = {}
        """The distributed ones that are not over."""
        self.failures: dict[bytes, str] = {}
        """The reasons of the last distributed ones that were rolled back, for their coordinators."""
        self.under_way: dict[Claimant, None] = {}
        """Transactions that all members of a cluster are to apply."""
        self._core = core
        self._context = TransactionContext(core, returns, members, limits, self.taken, self.under_way, self._ended)
        self.are_ordered = members.shares_queues
        """Members of a cluster do them, in one order."""
        self._controllers: dict[object, Controller[ClientTransaction]] = {}
        self._ids = count(1)
        self._start = os.urandom(4)  # so that an ID of an earlier run is not mistaken for another transaction

    def declare(self, connection: object, xid: bytes) -> ClientTransaction:
        """Declare a transaction, distributed if it has an *xid*. Raises `StoreError` if there are too many."""
        controller = self._controllers.setdefault(connection, Controller())
        most = self.limits.per_connection
        if len(controller.transactions) >= most:
            raise StoreError("declare", f"a connection may have {most} transactions", "discharge one first")
        txn_id = self._start + next(self._ids).to_bytes(8)
        transaction = ClientTransaction(self._context, controller, txn_id)
        if xid:
            transaction.staging.inner = self._core.store.transactions.begin(self._core.clock.wall_us(), xid=xid)
            self.by_xid[xid] = transaction
        controller.transactions[transaction.id] = transaction
        if self.limits.timeout_s:
            self._core.scheduler.after(self.limits.timeout_s, self._expire, ref(transaction))
        return transaction

    def find(self, connection: object, txn_id: bytes) -> ClientTransaction:
        """Return the transaction of that ID on *connection*; a failed one if it does not exist."""
        controller = self._controllers.get(connection)
        found = controller.transactions.get(txn_id) if controller is not None else None
        if found is None or found.is_discharged:
            found = self.without_connection(txn_id)
            found.state = TransactionState.ROLLED_BACK
            found.failure = (UNKNOWN_ID, f"there is no transaction {txn_id[:32].hex()} on this connection")
        return found

    def without_connection(self, txn_id: bytes = b"") -> ClientTransaction:
        """Make a transaction that no connection has."""
        return ClientTransaction(self._context, Controller(), txn_id)

    def _ended(self, xid: bytes, transaction: ClientTransaction) -> None:
        """Handle that a distributed transaction was committed or rolled back."""
        if self.by_xid.get(xid) is transaction:
            del self.by_xid[xid]
            if transaction.failure is not None and transaction.state in UNDONE:
                self.failures[xid] = transaction.failure[1]
                if len(self.failures) > MOST_FAILURES:
                    del self.failures[next(iter(self.failures))]

    def open(self) -> Iterator[tuple[object, ClientTransaction]]:
        """Return the transactions that are neither over nor prepared, with their connections."""
        for connection, controller in self._controllers.items():
            for transaction in controller.transactions.values():
                if transaction.is_open:
                    yield connection, transaction

    def connection_closed(self, connection: object) -> None:
        controller = self._controllers.pop(connection, None)
        if controller is not None:
            for transaction in list(controller.transactions.values()):
                transaction.roll_back(ROLLBACK, "its connection was closed")

    def roll_back_all(self, reason: str) -> None:
        """Roll back all open transactions: all clients are being disconnected."""
        for _, transaction in [*self.open()]:
            transaction.roll_back(ROLLBACK, reason)

    def lost(self) -> None:
        """Handle that the cluster is lost: no result of submitted transactions will arrive."""
        under_way = [*self.under_way]
        self.under_way.clear()  # in place: the transactions of the next membership are entered there, too
        for transaction in under_way:
            transaction.lost()

    def _expire(self, which: ref[ClientTransaction]) -> None:
        transaction = which()
        if transaction is not None and transaction.is_open:
            reason = f"it took longer than {self.limits.timeout_s:g} s and was rolled back"
            transaction.roll_back(TIMEOUT, reason)

    def take(self, connection: object, consumer: AcquiringLink, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """Record a client's outcomes, which apply if their transactions are committed."""
        for txn_id, run in groupby(provisional, itemgetter(0)):
            transaction = self.find(connection, txn_id)
            outcomes = [outcome for _, outcome in run]
            if self.taken:
                outcomes = [outcome for outcome in outcomes if self._is_open(transaction, outcome)]
            transaction.take(consumer, consumer.queue, outcomes)
            failure = transaction.failure
            if failure is not None and failure[0] == UNKNOWN_ID and any(one.delivery is not None for one in outcomes):
                consumer.terminal.failure(*failure)

    def _is_open(self, transaction: ClientTransaction, outcome: Outcome) -> bool:
        """Return whether no other transaction settled the message; an open one that did fails with *transaction*."""
        other = self.taken.get(outcome.tag)
        if other is None or other is transaction:
            return True
        if other.id == transaction.id and other.repeats(outcome):  # it is discharged, and waits for its coordinator
            return False
        if other.recalls(outcome.tag):
            return False
        if other.is_committed:
            if outcome.delivery is None:
                other.left(outcome.tag)
            return False
        if other.is_prepared:
            other.left(outcome.tag)
            transaction.fail("it acquired a message that a transaction in doubt has acquired")
            return False
        for one in (other, transaction):
            one.fail("a message was acquired in two transactions")
        return True

    def outside(self, consumer: AcquiringLink, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Outcomes outside of transactions: those that no transaction has decided on.

        One for a message that an open transaction takes rolls that back.
        """
        free: list[Outcome] = []
        for outcome in outcomes:
            holder = self.taken.get(outcome.tag)
            if holder is not None and outcome.delivery is None and holder.repeats(outcome):
                continue
            if holder is not None and holder.has_acquired(outcome.tag) and not outcome.state:  # released unseen
                holder.forget(outcome.tag)
                holder = None
            if holder is not None and not holder.is_committed and not holder.is_prepared and outcome.state:
                holder.fail("a message that it acquired was settled outside of it")
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
