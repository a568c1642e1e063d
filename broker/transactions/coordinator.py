"""Coordinators: drivers of channels on which a client begins and ends transactions (AMQP 1.0 part 4). Core only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...amqp.codec.primitives import Malformed
from ...amqp.codec.transaction_types import Declare, Discharge, read_request
from ...amqp.ports import ABORTED, MORE, SETTLED, Delivery, Fragment, Open, TerminalEnd
from ..kernel.idle_driver import IdleDriver
from .registry import Transactions
from .staging import CAN_FAIL, ROLLBACK
from .transaction import ClientTransaction
from .transaction_state import TransactionEvent

MAX_REQUEST_BYTES = 64 << 10
CREDIT = 100
"""Requests that a client may have under way."""
_NOT_DISTRIBUTED = "in a cluster there are no distributed transactions: declare a local one, without a global id"


class Coordinator(IdleDriver):
    """Declares and discharges transactions. Open ones are rolled back when the channel closes."""

    def __init__(self, transactions: Transactions, terminal: TerminalEnd, connection: object) -> None:
        self.terminal = terminal
        self._transactions = transactions
        self._connection = connection
        self._declared: dict[bytes, ClientTransaction] = {}
        self._request = b""
        self._closed = False

    def receive(self, fragments: Sequence[Fragment]) -> None:
        for delivery, data, flags in fragments:
            if self._closed:
                return
            if flags & SETTLED:
                self._fail("amqp:invalid-field", "requests to a coordinator are sent unsettled: they have an answer")
                return
            self._request += data
            if len(self._request) > MAX_REQUEST_BYTES:
                self._fail("amqp:link:message-size-exceeded", f"a request has up to {MAX_REQUEST_BYTES} bytes")
            elif flags & ABORTED:
                self._request = b""
                self.terminal.release((delivery,), 1)
            elif not flags & MORE:
                request, self._request = self._request, b""
                self._answer(delivery, request)

    def receive_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        self._fail("amqp:not-allowed", "requests to a coordinator are in no transaction")

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._closed = True
        declared, self._declared = self._declared, {}
        for transaction in declared.values():
            transaction.roll_back(ROLLBACK, "the link to its coordinator was closed")
            transaction.handle(TransactionEvent.DISCHARGED)

    def _fail(self, condition: str, reason: str) -> None:
        self._closed = True
        self.terminal.failure(condition, reason)

    def _reject(self, delivery: Delivery, condition: str, reason: str) -> None:
        self.terminal.refuse_relayed(delivery, condition, reason, is_settled=False)

    def _answer(self, delivery: Delivery, message: bytes) -> None:
        try:
            request = read_request(message)
        except Malformed as error:
            self._reject(delivery, "amqp:decode-error", str(error))
            return
        if isinstance(request, Declare):
            self._declare(delivery, request)
        else:
            self._discharge(delivery, request)

    def _refuse(self, delivery: Delivery, transaction: ClientTransaction) -> None:
        assert transaction.failure is not None
        self._reject(delivery, *transaction.failure)

    def _declare(self, delivery: Delivery, request: Declare) -> None:
        if request.global_id and self._transactions.are_ordered:
            self._reject(delivery, "amqp:not-implemented", _NOT_DISTRIBUTED)
            return
        try:
            transaction = self._transactions.declare(self._connection, request.global_id)
        except CAN_FAIL as error:
            self._reject(delivery, ROLLBACK, str(error))
            return
        self._declared[transaction.id] = transaction
        self.terminal.declared(delivery, transaction.id, 1)

    def _discharge(self, delivery: Delivery, request: Discharge) -> None:
        transaction = self._transactions.find(self._connection, request.txn_id)
        self._declared.pop(transaction.id, None)
        if transaction.partial and not transaction.pending:  # otherwise the rest of the message may wait here
            self._fail_partial(transaction)
            return
        is_known = not transaction.is_discharged
        if request.fail and is_known:
            transaction.roll_back(ROLLBACK, "it was rolled back by its client")
        transaction.handle(TransactionEvent.DISCHARGED)
        if not request.fail:
            transaction.find_moves()
        if request.fail and is_known:
            self.terminal.confirm((delivery,), 1)
        elif transaction.pending:
            transaction.when_complete = lambda: self._commit(delivery, transaction)
        else:
            self._commit(delivery, transaction)

    def _fail_partial(self, transaction: ClientTransaction) -> None:
        """Roll back a transaction with a message that has not arrived completely, and close the link with the error."""
        transaction.roll_back(ROLLBACK, "it was discharged before a message in it had arrived completely")
        transaction.handle(TransactionEvent.DISCHARGED)
        assert transaction.failure is not None
        self._fail(*transaction.failure)

    def _commit(self, delivery: Delivery, transaction: ClientTransaction) -> None:
        if transaction.partial:
            self._fail_partial(transaction)
        elif transaction.failure is not None:
            self._refuse(delivery, transaction)
        elif transaction.xid:  # the coordinator that prepares it commits it
            self.terminal.confirm((delivery,), 1)
        else:
            try:
                transaction.commit(
                    lambda: self.terminal.confirm((delivery,), 1), lambda: self._refuse(delivery, transaction)
                )
            except CAN_FAIL as error:
                transaction.roll_back(ROLLBACK, str(error))
                self._reject(delivery, ROLLBACK, str(error))


def open_coordinator(transactions: Transactions, attach: Open, terminal: TerminalEnd) -> bool:
    """Open a link to the coordinator; return False for other links."""
    is_one = attach.terminus.coordinator and not attach.to_client
    if is_one:
        terminal.opened(Coordinator(transactions, terminal, attach.connection), None, CREDIT)
    return is_one
