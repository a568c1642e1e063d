"""Clients of a soak that send or receive in transactions.

Each has one transaction at a time: declare, some messages, discharge. About every eighth one is rolled back. Their
records identify the messages that belong to one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from proton import Delivery, Described, Message, Terminus, ulong

from ...amqp.frames.performatives import DECLARE, DECLARED, DISCHARGE, TRANSACTIONAL
from ...amqp.native.proton_ffi import lib
from .history import Answered, Asked, Confirmed, Decided, Settled
from .receiver import SoakReceiver
from .sender import Sender
from .wire import Settings, Wire

_ROLLED_BACK = 0.12


class Control:
    """A link to the coordinator, one request at a time."""

    def __init__(self, wire: Wire) -> None:
        self.link = wire.session.sender("control")
        self.link.target.type = Terminus.COORDINATOR
        self.link.open()
        self._then: Callable[[Any], None] | None = None
        self._waiting: bytes = b""

    @property
    def busy(self) -> bool:
        return self._then is not None

    def ask(self, then: Callable[[Any], None], descriptor: int, *fields: Any) -> None:
        """*then* is called with the delivery when it has its outcome."""
        self._then = then
        self._waiting = Message(body=Described(ulong(descriptor), [*fields])).encode()
        self.turn()

    def turn(self) -> None:
        if self._waiting and self.link.credit > 0:
            self.link.delivery("ask")
            self.link.stream(self._waiting)
            self.link.advance()
            self._waiting = b""

    def answered(self, delivery: Any) -> None:
        then, self._then = self._then, None
        delivery.settle()
        if then is not None:
            then(delivery)


class _Transacting:
    """The common part of senders and receivers that use transactions."""

    def begin(self, client: Any, wire: Wire) -> None:
        self.control = Control(wire)
        self.txn_id = b""
        self.name = ""
        self._client = client
        self._wire = wire
        self._count = getattr(self, "_count", 0)

    def declare(self) -> None:
        self.control.ask(self._declared, DECLARE, None)

    def _declared(self, delivery: Any) -> None:
        if delivery.remote_state != DECLARED:
            self._client.trouble(self._wire, f"declare: {delivery.remote_state} {delivery.remote.condition}")
            return
        self._count += 1
        self.txn_id = bytes(delivery.remote.data[0])
        self.name = f"{self._client.name}/{self._count}"

    def discharge(self, then: Callable[[bool], None]) -> None:
        """*then* is called with True if the transaction was committed."""
        client, name = self._client, self.name
        commit = bool(client.random.random() >= _ROLLED_BACK)
        client.notebook.note(Asked(name, time.monotonic_ns(), commit))

        def answered(delivery: Any) -> None:
            if delivery.remote_state == Delivery.ACCEPTED:
                client.notebook.note(Decided(name, time.monotonic_ns(), commit))
                then(commit)
            else:  # a commit that can't be done is rolled back
                client.notebook.note(Decided(name, time.monotonic_ns(), False))
                client.trouble(self._wire, f"discharge: {delivery.remote.condition}")
                then(False)
            self.txn_id = b""

        self.control.ask(answered, DISCHARGE, self.txn_id, not commit)

    def mark(self, delivery: Any, *outcome: Any) -> None:
        """Have it belong to the transaction."""
        lib.pn_data_clear(lib.pn_disposition_data(lib.pn_delivery_local(delivery._impl)))  # of what was said before
        delivery.local.data = [self.txn_id, *outcome]
        delivery.update(TRANSACTIONAL)


class TransactionSender(Sender):
    """Spreads the messages of a transaction over all queues."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._txn = _Transacting()
        self._open: list[Any] = []
        self._left = 0

    def connected(self, wire: Wire, flood: int) -> None:
        super().connected(wire, 0)
        self._txn.begin(self, wire)
        self._open = []
        self._left = 0

    def turn(self, wire: Wire) -> None:
        txn = self._txn
        txn.control.turn()
        if txn.control.busy:
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
        if delivery.link == self._txn.control.link:
            self._txn.control.answered(delivery)
        elif delivery.updated and delivery.remote_state != TRANSACTIONAL:
            super().on_delivery(wire, delivery)

    def _ended(self, committed: bool) -> None:
        at = time.monotonic_ns()
        for delivery in self._open:
            if committed:
                self.notebook.note(Confirmed(delivery.message, at))
                self.confirmed += 1
                self.confirmed_bytes += delivery.size_bytes
            delivery.settle()
            self._unsettled[delivery.link] -= 1


class TransactionReceiver(SoakReceiver):
    """Takes what it has in hand with a transaction, as soon as that is enough."""

    manners = ()

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.held_most = 1 << 30
        self._txn = _Transacting()
        self._open: list[Any] = []

    def connected(self, wire: Wire, flood: int) -> None:
        super().connected(wire, flood)
        self._txn.begin(self, wire)
        self._open = []

    def attach(self, wire: Wire, queue: str) -> Any:
        link = super().attach(wire, queue)
        link.to_go = 1 << 30  # replacing a link would release the messages in the transaction
        return link

    def turn(self, wire: Wire) -> None:
        super().turn(wire)
        if wire is not self.wire:
            return  # it was dropped just now
        txn = self._txn
        txn.control.turn()
        if txn.control.busy:
            return
        if not txn.txn_id:
            if len(self._held) >= self.settings.per_transaction:
                txn.declare()
            return
        self._open, self._held = self._held, []
        at = time.monotonic_ns()
        for delivery in self._open:
            where = delivery.held, delivery.link.queue, delivery.link.session_name, wire.life
            self.notebook.note(Answered(*where, at, "taken", txn.name))
            txn.mark(delivery, Described(ulong(int(Delivery.ACCEPTED)), []))
        txn.discharge(self._ended)

    def on_delivery(self, wire: Wire, delivery: Any) -> None:
        if delivery.link == self._txn.control.link:
            self._txn.control.answered(delivery)
        elif delivery.readable:
            super().on_delivery(wire, delivery)

    def _ended(self, committed: bool) -> None:
        wire = self.wire
        assert wire is not None
        at = time.monotonic_ns()
        for delivery in self._open:
            if committed:
                where = delivery.held, delivery.link.queue, delivery.link.session_name, wire.life
                self.notebook.note(Settled(*where, at))
                self.taken += 1
                self.taken_bytes += delivery.size_bytes
                delivery.settle()
            else:
                self._held.append(delivery)
        self._open = []
