"""An AMQP 1.0 container that brokers connect to: proton's engine as a server, driven by the test's thread."""

from __future__ import annotations

import select
import socket
import time
from itertools import count
from typing import Any

from proton import Collector, Connection, Endpoint, Event, Link, Transport

from tests.harness.clients.peers import DEADLINE_S, Peer

_numbers = count(1)


class Far(Peer):
    """A server that controls each frame, as `Peer` does. `links`: attached by the broker, and not answered yet."""

    def __init__(self, *, mechanisms: str = "ANONYMOUS") -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self._mechanisms = mechanisms
        self._name = f"far-{next(_numbers)}"

    def accept(self) -> Far:
        """Wait until the broker has connected and opened the connection, and open it."""
        assert select.select([self.listener], [], [], DEADLINE_S)[0], "the broker did not connect"
        self.sock, _ = self.listener.accept()
        self.sock.setblocking(False)
        self.connection, self.transport = Connection(), Transport(Transport.SERVER)
        self.connection.container = self._name
        self.transport.sasl().allowed_mechs(self._mechanisms)
        self.received, self.detached, self._pieces = {}, set(), {}
        self.links: list[Any] = []
        self._collector = Collector()
        self.connection.collect(self._collector)
        self.transport.bind(self.connection)
        self.ended, self.bytes_in, self.ticking = False, 0, True
        self.wait(lambda: self.connection.state & Endpoint.REMOTE_ACTIVE, "the broker to open")
        self.connection.open()
        self._exchange()
        return self

    def _digest(self) -> None:
        while event := self._collector.peek():
            if event.type == Event.DELIVERY and event.link.is_receiver:
                self._take(event.link, event.delivery)
            elif event.type == Event.SESSION_REMOTE_OPEN:
                event.session.open()
            elif event.type == Event.LINK_REMOTE_OPEN:
                self.links.append(event.link)
            elif event.type in (Event.LINK_REMOTE_DETACH, Event.LINK_REMOTE_CLOSE):
                self.detached.add(event.link)
            self._collector.pop()

    def asked(self) -> Any:
        """Wait for the next link that the broker attaches, and return it."""
        self.wait(lambda: self.links, "a link to be asked for")
        return self.links.pop(0)

    def answer(self, link: Any, credit: int = 0) -> Any:
        """Attach *link* with the termini and modes that the broker requested; grant *credit*."""
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.snd_settle_mode, link.rcv_settle_mode = link.remote_snd_settle_mode, link.remote_rcv_settle_mode
        link.open()
        if credit:
            link.flow(credit)
        return link

    def close_all(self) -> None:
        self.listener.close()
        if hasattr(self, "sock"):
            self.cut()


def meanwhile(far: Far, peer: Peer, condition: Any, what: str = "") -> None:
    """Wait for a condition that requires progress of both connections."""

    def both() -> object:
        far._exchange()
        return condition()

    peer.wait(both, what)


def begin(peer: Peer, far: Far, address: str, *, sends: bool, credit: int = 0, **options: Any) -> tuple[Any, Any]:
    """Open a client's link; return it and the corresponding link of the other container, both attached."""
    link = (peer.session.sender if sends else peer.session.receiver)(options.get("name", f"link-{time.monotonic_ns()}"))
    (link.target if sends else link.source).address = address
    if "second" in options:
        link.rcv_settle_mode = Link.RCV_SECOND
    link.open()
    meanwhile(far, peer, lambda: far.links, "the link to be asked for")
    there = far.answer(far.asked(), credit)
    meanwhile(far, peer, lambda: not link.state & Endpoint.REMOTE_UNINIT, "the answer")
    return link, there
