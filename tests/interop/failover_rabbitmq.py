"""A client on RabbitMQ's Python library; test_failover.py describes its commands and output.

The library reconnects only after a close by the broker, and then opens a consumer twice; its
`consumer.run` does not detect a broken connection. This is disabled: the program waits itself, and after a lost
connection it connects to the first address that accepts it. The product's name is not checked
(docs/decisions/0025-interop.md).
"""

from __future__ import annotations

import sys
import time
from collections import deque
from importlib import import_module
from typing import Any

library: Any = import_module("rabbitmq_amqp_python_client")  # may be missing when types are checked
proton: Any = import_module("rabbitmq_amqp_python_client.qpid.proton")
symbol = proton.symbol

KEPT = 10
WINDOW = 20


def say(text: str) -> None:
    print(text, flush=True)


class Client:
    def __init__(self, address: str, count: int, places: list[str]) -> None:
        self.address, self.count, self.places = address, count, places
        self.opened = 0

    def connected(self) -> Any:
        uris = [f"amqp://guest:guest@{place}/" for place in self.places]
        once = library.RecoveryConfiguration(active_recovery=False)
        connection = library.Environment(uris=uris, recovery_configuration=once).connection()
        connection.dial()
        self.opened += 1
        told = (connection._conn.conn.remote_properties or {}).get(symbol("failover-server-list"), [])
        others = [f"{one[symbol('network-host')]}:{int(one[symbol('port')])}" for one in told]
        say(f"open {len(others)}")
        if others:  # the connected member comes last, as it is stopped later
            self.places = [*others, *self.places[:1]]
        return connection


class Sender(Client):
    number = 0

    def work(self) -> None:
        connection = self.connected()
        publisher = connection.publisher(destination=self.address)
        while self.number < self.count:
            if self.opened == 1 and self.number == self.count // 2:
                connection._conn.wait(lambda: False, timeout=None)  # until the connection ends
            publisher.publish(library.Message(id=self.number, body=b"x" * 100, inferred=True))
            self.number += 1
            if self.number % 100 == 0:
                say(f"at {self.number}")
        connection.close()


_Handler: Any = library.AMQPMessagingHandler


class Handler(_Handler):  # type: ignore[misc]
    def __init__(self, client: Receiver) -> None:
        super().__init__()
        self.client = client
        self.kept: deque[Any] = deque()

    def on_amqp_message(self, event: Any) -> None:
        client, message = self.client, event.message
        first = message.first_acquirer and not message.delivery_count
        say(f"got {message.id} {'first' if first else 'again'}")
        client.got.add(message.id)
        self.kept.append(event.delivery)
        done = len(client.got) == client.count
        while len(self.kept) > (0 if done else KEPT):
            delivery = self.kept.popleft()
            delivery.update(delivery.ACCEPTED)
            delivery.settle()


class Receiver(Client):
    def __init__(self, address: str, count: int, places: list[str]) -> None:
        super().__init__(address, count, places)
        self.got: set[int] = set()

    def work(self) -> None:
        connection = self.connected()
        connection.consumer(self.address, message_handler=Handler(self), credit=WINDOW)
        connection._conn.wait(lambda: len(self.got) == self.count, timeout=None)
        connection.close()


def main() -> None:
    verb, address, count, *places = sys.argv[1:]
    connections = import_module("rabbitmq_amqp_python_client.connection").Connection
    connections._validate_server_properties = lambda self: None
    client = (Sender if verb == "send" else Receiver)(address, int(count), places)
    while True:
        try:
            client.work()
            return
        except proton.ProtonException as error:
            print(f"connecting again: {error!r}", file=sys.stderr)
            time.sleep(0.05)


if __name__ == "__main__":
    main()
