"""A receiver of messages that are accepted when their processing is done, for `cairnmq receive`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from os import getpid
from socket import gethostname
from typing import NamedTuple

from ...amqp.client.links import Receiver
from ...amqp.client.login import BrokerLogin
from ...amqp.client.loop import Loop
from ...amqp.client.management import await_true
from ...amqp.client.wire import Wire
from ...amqp.frames import performatives as p

MOST_CREDIT = 100
_LOOK_MS = 200


class ReceivedMessage(NamedTuple):
    """An encoded message, and the ID of its delivery."""

    delivery_id: int
    content: bytes


class _Link(Receiver):
    """A receiving link that keeps messages until they are taken."""

    def __init__(self, wire: Wire, address: str) -> None:
        super().__init__(wire, f"cairnmq-receive@{gethostname()}-{getpid()}", address, lambda _: None)
        self.received: deque[ReceivedMessage] = deque()
        self.unaccepted = 0
        """Deliveries that the broker has not settled."""

    def came(self, delivery_id: int, message: bytes, settled: bool) -> None:
        self.took(1)
        self.received.append(ReceivedMessage(delivery_id, message))


class MessageReceiver:
    """Messages of one address. A message that was not accepted returns to its queue when the receiver is closed."""

    def __init__(self, where: BrokerLogin, address: str) -> None:
        """Connect, and attach the link. Raises `BrokerError`."""
        self._address = address
        self._wire = Wire(where, f"cairnmq-receive@{gethostname()}-{getpid()}")
        self._loop = Loop(self._wire)
        self._link = _Link(self._wire, address)
        self._wire.attach(self._link)
        try:
            await_true(self._wire, self._loop, f"link to {address}", lambda: self._link.attached)
        except BaseException:
            self.close()
            raise

    def messages(self, most: int | None, *, waits: bool) -> Iterator[ReceivedMessage]:
        """Yield up to *most* messages. *waits*: wait for more; otherwise end when the broker has sent what it has.

        A message is accepted when the next one is requested. Raises `BrokerError`.
        """
        link, count = self._link, 0
        link.drains = not waits
        while most is None or count < most:
            if not link.received and not link.credit:
                left = MOST_CREDIT if most is None else min(MOST_CREDIT, most - count)
                link.allow(left)
            while not link.received and link.credit:
                self._loop.turn(_LOOK_MS)
            if not link.received:
                return
            message = link.received.popleft()
            count += 1
            yield message
            self._accept(message)

    def close(self) -> None:
        """Close the connection after everything that was accepted is transmitted."""
        self._wire.close()

    def _accept(self, message: ReceivedMessage) -> None:
        self._wire.send_frames(p.disposition(message.delivery_id, message.delivery_id, True))
        self._wire.write()
