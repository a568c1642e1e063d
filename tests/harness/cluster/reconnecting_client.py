"""A client that relies on proton's reconnection for failover: it sends messages, and resends unconfirmed ones.

    python -m tests.harness.cluster.reconnecting_client QUEUE COUNT HOST:PORT...

With one address it also uses the other members from the failover list in the broker's open frame.
It prints `at N` for each hundred confirmed messages, and `got N` when it has received all N messages.
"""

from __future__ import annotations

import sys
from typing import Any

from proton import Message, symbol
from proton._reactor import Urls
from proton.handlers import MessagingHandler
from proton.reactor import Container

DELAYS_S = (0, *[0.2] * 600)
STEP_S = 0.02
WINDOW = 20


class Reconnecting(MessagingHandler):  # type: ignore[misc]
    def __init__(self, queue: str, count: int, places: list[str]) -> None:
        super().__init__(prefetch=50)
        self.queue, self.count, self.places = queue, count, places
        self.numbers = iter(range(count))
        self.again: list[int] = []
        self.unconfirmed: set[int] = set()
        self.confirmed: set[int] = set()
        self.got: set[int] = set()
        self.receiver: Any = None

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = event.container.connect(
            urls=[f"amqp://{place}" for place in self.places],
            reconnect=DELAYS_S, heartbeat=10, allowed_mechs="ANONYMOUS",
        )  # fmt: skip
        self.sender = event.container.create_sender(self.connection, self.queue)
        event.container.schedule(STEP_S, self)

    def on_connection_opened(self, event: Any) -> None:
        told = (event.connection.remote_properties or {}).get(symbol("failover-server-list"), [])
        others = [f"{one[symbol('network-host')]}:{int(one[symbol('port')])}" for one in told]
        if len(self.places) == 1 and others:  # proton does not use the list itself
            event.connection._overrides.address = Urls([f"amqp://{place}" for place in (*self.places, *others)])

    def on_connection_remote_close(self, event: Any) -> None:
        """Close the transport when a member closes the connection: proton reconnects only after that."""
        event.transport.close_tail()
        event.transport.close_head()

    on_connection_error = on_link_error = on_session_error = lambda self, event: None  # as above

    def on_transport_closed(self, event: Any) -> None:
        """Queue the unconfirmed messages for sending again; proton reopens the links."""
        self.again += sorted(self.unconfirmed)
        self.unconfirmed.clear()

    def on_timer_task(self, event: Any) -> None:
        room = min(self.sender.credit, WINDOW - len(self.unconfirmed))
        for _ in range(max(0, room)):
            number = self.again.pop(0) if self.again else next(self.numbers, None)
            if number is None:
                break
            self.unconfirmed.add(number)
            self.sender.send(Message(id=number, body="x" * 100, durable=True), tag=str(number))
        if len(self.confirmed) == self.count and self.receiver is None:
            self.receiver = event.container.create_receiver(self.connection, self.queue)
        event.container.schedule(STEP_S, self)

    def on_accepted(self, event: Any) -> None:
        if not event.link.is_sender:
            return
        number = int(event.delivery.tag)
        self.unconfirmed.discard(number)
        self.confirmed.add(number)
        if not len(self.confirmed) % 100:
            print(f"at {len(self.confirmed)}", flush=True)

    def on_message(self, event: Any) -> None:
        self.got.add(event.message.id)
        if len(self.got) == self.count:
            print(f"got {len(self.got)}", flush=True)
            self.container.stop()


def main() -> None:
    queue, count, *places = sys.argv[1:]
    Container(Reconnecting(queue, int(count), places)).run()


if __name__ == "__main__":
    main()
