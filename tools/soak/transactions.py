"""Clients of a soak that send or receive in transactions.

Each has one transaction at a time: declare, some messages, discharge. About every eighth one is rolled back. Their
records identify the messages that belong to one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

from proton import Delivery, Described, Message, Terminus, ulong

from ...amqp.frames.performatives import DECLARE, DECLARED, DISCHARGE, TRANSACTIONAL
from ...amqp.native.proton_ffi import lib
from .client import SoakClient
from .history import Answered, Asked, Decided, Settled
from .receiver import SoakReceiver
from .sender import Sender
from .wire import Wire

_ROLLED_BACK = 0.12


class CurrentTransaction:
    """The transactions of a client on one connection: one at a time, and one request to the coordinator at a time."""

    _numbers = count(1)
    """The numbers of the transactions on all connections of the process."""

    def __init__(self, client: SoakClient, wire: Wire) -> None:
        self.txn_id = b""
        """The transaction ID of the coordinator; empty without a transaction."""
        self.name = ""
        self._client = client
        self._wire = wire
        self._then: Callable[[Any], None] | None = None
        self._request = b""
        self._link = wire.session.sender("control")
        self._link.target.type = Terminus.COORDINATOR
        self._link.open()

    def turn(self) -> bool:
        """Send a request that waits for credit; return whether none is under way."""
        if self._request and self._link.credit > 0:
            self._link.delivery("ask")
            self._link.stream(self._request)
            self._link.advance()
            self._request = b""
        return self._then is None

    def has_answer(self, delivery: Any) -> bool:
        """Return whether *delivery* is a request, which is processed then."""
        if delivery.link != self._link:
            return False
        then, self._then = self._then, None
        delivery.settle()
        if then is not None:
            then(delivery)
        return True

    def declare(self) -> None:
        self._ask(self._declared, DECLARE, None)

    def discharge(self, then: Callable[[bool], None]) -> None:
        """*then* is called with True if the transaction was committed."""
        client, name = self._client, self.name
        commit = bool(client.random.random() >= _ROLLED_BACK)
        client.notebook.note(Asked(name, time.monotonic_ns(), commit))

        def answered(delivery: Any) -> None:
            is_done = delivery.remote_state == Delivery.ACCEPTED
            is_committed = is_done and commit  # a commit that can't be done is rolled back
            client.notebook.note(Decided(name, time.monotonic_ns(), is_committed))
            if not is_done:
                client.trouble(self._wire, f"discharge: {delivery.remote.condition}")
            then(is_committed)
            self.txn_id = b""

        self._ask(answered, DISCHARGE, self.txn_id, not commit)

    def mark(self, delivery: Any, *outcome: Any) -> None:
        """Have it belong to the transaction."""
        lib.pn_data_clear(lib.pn_disposition_data(lib.pn_delivery_local(delivery._impl)))  # of what was said before
        delivery.local.data = [self.txn_id, *outcome]
        delivery.update(TRANSACTIONAL)

    def _ask(self, then: Callable[[Any], None], descriptor: int, *fields: Any) -> None:
        """*then* is called with the delivery when it has its outcome."""
        self._then = then
        self._request = Message(body=Described(ulong(descriptor), [*fields])).encode()
        self.turn()

    def _declared(self, delivery: Any) -> None:
        if delivery.remote_state != DECLARED:
            self._client.trouble(self._wire, f"declare: {delivery.remote_state} {delivery.remote.condition}")
            return
        self.txn_id = bytes(delivery.remote.data[0])
        self.name = f"{self._client.name}/{next(self._numbers)}"


class TransactionSender(Sender):
    """Spreads the messages of a transaction over all queues."""

    def connected(self, wire: Wire, flood: int) -> None:
        super().connected(wire, 0)
        self._txn = CurrentTransaction(self, wire)
        self._open: list[Any] = []
        self._left = 0

    def turn(self, wire: Wire) -> None:
        txn = self._txn
        if not txn.turn():
            return
        if not txn.txn_id:
            if self.allowed() >= 1:
                self._left = self.random.randint(1, 2 * self.settings.per_transaction - 1)
                self._open = []
                txn.declare()
            return
        if self._left:
            for queue, link in self.random.sample(self._links, len(self._links)):
                if link.credit > 0 and self._left:
                    self._open.append(self._send_one(wire, queue, link, txn.name))
                    self._left -= 1
        elif all(delivery.settled for delivery in self._open):
            txn.discharge(self._ended)

    def stream(self, link: Any, delivery: Any, raw: bytes) -> None:
        self._txn.mark(delivery)
        super().stream(link, delivery, raw)

    def on_delivery(self, wire: Wire, delivery: Any) -> None:
        if not self._txn.has_answer(delivery) and delivery.updated and delivery.remote_state != TRANSACTIONAL:
            super().on_delivery(wire, delivery)

    def _ended(self, committed: bool) -> None:
        for delivery in self._open:
            if committed:
                self.count_confirmed(delivery)
            delivery.settle()
            self._unsettled[delivery.link] -= 1


class TransactionReceiver(SoakReceiver):
    """Takes what it has in hand with a transaction, as soon as that is enough."""

    held_most = 1 << 30
    manners = ()

    def connected(self, wire: Wire, flood: int) -> None:
        super().connected(wire, flood)
        self._txn = CurrentTransaction(self, wire)
        self._open: list[Any] = []

    def attach(self, wire: Wire, queue: str) -> Any:
        link = super().attach(wire, queue)
        link.to_go = 1 << 30  # replacing a link would release the messages in the transaction
        return link

    def turn(self, wire: Wire) -> None:
        super().turn(wire)
        if wire is not self.wire:
            return  # it was dropped just now
        txn = self._txn
        if not txn.turn():
            return
        if not txn.txn_id:
            if len(self._held) >= self.settings.per_transaction:
                txn.declare()
            return
        self._open, self._held = self._held, []
        for delivery in self._open:
            self.note(Answered, wire, delivery.link, delivery.held, "taken", txn.name)
            txn.mark(delivery, Described(ulong(int(Delivery.ACCEPTED)), []))
        txn.discharge(self._ended)

    def on_delivery(self, wire: Wire, delivery: Any) -> None:
        if not self._txn.has_answer(delivery) and delivery.readable:
            super().on_delivery(wire, delivery)

    def _ended(self, committed: bool) -> None:
        wire = self.wire
        assert wire is not None
        for delivery in self._open:
            if committed:
                self.note(Settled, wire, delivery.link, delivery.held)
                self.taken += 1
                self.taken_bytes += delivery.size_bytes
                delivery.settle()
            else:
                self._held.append(delivery)
        self._open = []
