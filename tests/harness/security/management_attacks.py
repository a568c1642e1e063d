"""Attacks by management requests about long queues. See `isolation`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from proton import Message

from cairnmq.amqp.codec.decode import read_items
from cairnmq.amqp.codec.primitives import descriptor
from tests.harness.security.isolation import Address, Case, Proceed
from tests.harness.security.wire import DISPOSITION, TRANSFER, flow, transfer

LENGTH = 40_000
"""The number of messages on a long queue: sending more would take longer than the attack."""


UNCONFIRMED = 500
"""The largest number of messages in flight, which is less than the credit."""


class Evil:
    """A connection that fills queues and sends management requests."""

    def __init__(self, at: Address) -> None:
        self.wire = at.log_in("evil")
        self._handles = count(10)
        self._sent = count()
        self.wire.attach("requests", 0, "$management", sends=True)
        self.wire.attach("answers", 1, "$management", sends=False)
        self.wire.say(flow(1, 1 << 20))

    def ask(self, operation: str, name: str, body: Mapping[str, Any]) -> None:
        properties = {"operation": operation, "type": "queue", "name": name}
        self.wire.say(transfer(next(self._sent), bytes(Message(properties=properties, body=body).encode()), handle=0))

    def answered(self, proceed: Proceed, count: int = 1) -> None:
        """Wait for *count* answers."""
        while count and proceed():
            code, fields, _ = self.wire.next()
            count -= code == TRANSFER and not (len(fields) > 5 and fields[5] is True)

    def fill(self, name: str, length: int = LENGTH, *, durable: bool = False, body: bytes | None = None) -> None:
        handle, sent, confirmed = next(self._handles), 0, 0
        self.wire.attach(name, handle, name, sends=True)
        content = bytes(Message(durable=durable, body=body).encode())
        while confirmed < length:
            many = min(length, confirmed + UNCONFIRMED) - sent
            if many > 0:
                self.wire.say(*[transfer(next(self._sent), content, handle=handle) for _ in range(many)])
                sent += many
            code, _, body = self.wire.next()
            fields: list[Any] = read_items(body, descriptor(body, 0)[1])
            if code == DISPOSITION:
                first, last = fields[1:3]
                confirmed += (first if last is None else last) - first + 1


def peeks(at: Address, proceed: Proceed) -> None:
    """Request pages from the middle of a long sorted queue, 8 at a time."""
    evil = Evil(at)
    evil.ask("CREATE", "evil.sorted", {"durable": False, "arguments": {"priorities": True}})
    evil.answered(lambda: True)
    evil.fill("evil.sorted")
    while proceed():
        for _ in range(8):
            evil.ask("PEEK", "evil.sorted", {"after": 1, "count": 1000, "body-bytes": 1000})
        evil.answered(proceed, 8)


def moves(at: Address, proceed: Proceed) -> None:
    """Move a long queue back and forth."""
    evil = Evil(at)
    evil.fill("evil.here", durable=True)
    evil.fill("evil.there", 1, durable=True)
    names = "evil.here", "evil.there"
    while proceed():
        evil.ask("MOVE", names[0], {"to": names[1]})
        evil.answered(proceed)
        names = names[1], names[0]


def purges(at: Address, proceed: Proceed) -> None:
    """Purge long queues one after the other, and fill them again."""
    evil = Evil(at)
    names = [f"evil.long.{number}" for number in range(4)]
    for name in names:
        evil.fill(name, LENGTH // 4)
    while proceed():
        for name in names:
            evil.ask("PURGE", name, {})
        evil.answered(proceed, len(names))
        for name in names:
            evil.fill(name, LENGTH // 16)


CASES = (
    Case("PEEKs at a long sorted queue", peeks, finding="61"),
    Case("MOVEs of a long queue", moves, finding="61"),
    Case("PURGEs of long queues", purges, finding="61"),
)
