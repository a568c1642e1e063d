"""A client on the AMQP layer of Azure's Python libraries; test_failover.py describes its commands and output.

The layer reconnects to the same address, which is disabled here: the program creates a new client for the next
address that the broker announced, and sends unconfirmed messages again.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from importlib import import_module
from typing import Any

NAME = "azure.servicebus._pyamqp"
layer, constants, errors, messages, sasl = (
    import_module(name) for name in (NAME, *(f"{NAME}.{part}" for part in ("constants", "error", "message", "sasl")))
)  # may be missing when types are checked

KEPT = 10
WINDOW = 20


def say(text: str) -> None:
    print(text, flush=True)


class Anonymous:
    auth_type = "SASL"
    sasl = sasl.SASLAnonymousCredential()


class Client:
    kind: Any

    def __init__(self, address: str, count: int, place: str) -> None:
        self.address, self.count = address, count
        self.places = self.first = [place]
        self.opened = self.attempts = 0

    def connected(self, **options: Any) -> Any:
        place = self.places[self.attempts % len(self.places)]
        self.attempts += 1
        client = self.kind(
            place, self.address, auth=Anonymous(), use_tls=False, transport_type=constants.TransportType.Amqp,
            receive_settle_mode=constants.ReceiverSettleMode.First, retry_policy=errors.RetryPolicy(retry_total=0),
            idle_timeout=20, **options,
        )  # fmt: skip
        client.open()
        while not client.client_ready():
            client.do_work()
        self.opened += 1
        told = (client._connection._remote_properties or {}).get(b"failover-server-list", [])
        others = [f"{one[b'network-host'].decode()}:{one[b'port']}" for one in told]
        say(f"open {len(others)}")
        if others:
            self.places = [*self.first, *others]
        return client


class Sender(Client):
    kind = layer.SendClient
    number = 0

    def work(self) -> None:
        client = self.connected()
        while self.number < self.count:
            while self.opened == 1 and self.number == self.count // 2:
                client.do_work()  # until the connection ends
            header, properties = messages.Header(durable=True), messages.Properties(message_id=self.number)
            client.send_message(messages.Message(header=header, properties=properties, data=[b"x" * 100]))
            self.number += 1
            if self.number % 100 == 0:
                say(f"at {self.number}")
        client.close()


class Receiver(Client):
    kind = layer.ReceiveClient

    def __init__(self, address: str, count: int, place: str) -> None:
        super().__init__(address, count, place)
        self.got: set[int] = set()

    def work(self) -> None:
        client = self.connected(link_credit=WINDOW)
        kept: deque[tuple[int, bytes]] = deque()
        while len(self.got) < self.count or kept:
            client.do_work()
            while not client._received_messages.empty():
                frame, message = client._received_messages.get_nowait()
                number, header = message.properties.message_id, message.header
                first = header.first_acquirer and not header.delivery_count
                say(f"got {number} {'first' if first else 'again'}")
                self.got.add(number)
                kept.append((frame[1], frame[2]))
            while len(kept) > (0 if len(self.got) == self.count else KEPT):
                client.settle_messages(*kept.popleft(), "accepted")
        client.close()


def main() -> None:
    verb, address, count, place = sys.argv[1:]
    client = (Sender if verb == "send" else Receiver)(address, int(count), place)
    while True:
        try:
            client.work()
            return
        except (errors.AMQPException, OSError) as error:
            print(f"connecting again: {error!r}", file=sys.stderr)
            time.sleep(0.05)


if __name__ == "__main__":
    main()
