"""Transactions on queues with policies, and the same operations without a transaction."""

from __future__ import annotations

from typing import Any

from proton import Message

from cairnmq.amqp.ports import Outcome
from tests.harness.broker.declarations import declare, discharge
from tests.harness.broker.policies import Policed
from tests.harness.broker.world import FakeTerminal


class Transacting(Policed):
    """A broker in memory whose queues have policies, and a client with transactions on one connection."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = object()
        self.control = self.world.open(to_client=False, connection=self.connection, coordinator=True, address=None)

    def ask(self, request: bytes) -> str:
        self.number += 1
        self.world.send(self.control, (self.number, request, 0))
        return self.control.rejected.get(self.number, "")

    def declare(self, xid: bytes = b"") -> bytes:
        assert self.ask(declare(xid)) == ""
        return self.control.declared_ids[-1]

    def discharge(self, txn_id: bytes, *, fail: bool = False) -> str:
        return self.ask(discharge(txn_id, fail=fail))

    def post(self, txn_id: bytes, address: str, body: Any, *, durable: bool = True, **fields: Any) -> str:
        """Send a message in a transaction; return its provisional outcome."""
        if address not in self.senders:
            self.senders[address] = self.world.open(to_client=False, address=address)
        terminal = self.senders[address]
        self.number += 1
        message = bytes(Message(body=body, durable=durable, **fields).encode())
        self.world.do(terminal.driver.receive_in, self.connection, txn_id, [(self.number, message, 0)])
        if self.number in terminal.rejected:
            return terminal.rejected[self.number]
        assert terminal.accepted_in[-1] == (txn_id, self.number)
        return "accepted"

    def retire(self, txn_id: bytes, taker: FakeTerminal, number: int, state: int) -> None:
        outcome = Outcome(None, taker.forwarded[number][0], state)
        self.world.do(taker.driver.outcomes_in, self.connection, [(txn_id, outcome)])
