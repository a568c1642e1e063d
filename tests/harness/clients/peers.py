"""Clients for the tests.

`Peer` controls every frame: it runs proton's engine over a socket in the test's own thread, so that a test can grant
one credit, drain a link or cut the connection. The high-level clients, proton's blocking API and its MessagingHandler,
are used unchanged; `Handling` runs a handler until a condition holds.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, NamedTuple

from proton import Collector, Connection, Delivery, Endpoint, Event, Link, Message, Terminus, Transport
from proton.handlers import MessagingHandler
from proton.reactor import Container

DEADLINE_S = 180.0
_names = count(1)


class Received(NamedTuple):
    """A complete received message."""

    delivery: Any
    content: bytes
    message: Any

    @property
    def body(self) -> Any:
        return self.message.body

    def settle(self, state: int = 0, *, failed: bool = False, undeliverable: bool = False) -> None:
        """Settle the message, with the outcome *state* unless it is 0."""
        if state:
            self.delivery.local.failed = failed
            self.delivery.local.undeliverable = undeliverable
            self.delivery.update(state)
        self.delivery.settle()

    def accept(self) -> None:
        self.settle(Delivery.ACCEPTED)


class Peer:
    """One connection of a client."""

    def __init__(
        self,
        port: int,
        *,
        max_frame_bytes: int = 0,
        idle_timeout_s: float = 0,
        sasl: bool = False,
        container: str = "",
        host: str = "127.0.0.1",
    ) -> None:
        self.connection = Connection()
        self.connection.container = container or f"peer-{next(_names)}"
        self.transport = Transport()
        self.received: dict[Any, list[Received]] = {}
        self.detached: set[Any] = set()
        """Links that the broker detached or closed."""
        self._pieces: dict[Any, bytearray] = {}
        self._collector = Collector()
        self.connection.collect(self._collector)
        if max_frame_bytes:
            self.transport.max_frame_size = max_frame_bytes
        if idle_timeout_s:
            self.transport.idle_timeout = idle_timeout_s
        if sasl:
            self.transport.sasl().allowed_mechs("ANONYMOUS")
        self.transport.bind(self.connection)
        self.sock = socket.create_connection((host, port))
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ended = False
        self.bytes_in = 0
        self.ticking = True
        self.connection.open()
        self.session = self.new_session()
        self.wait(lambda: self.connection.state & Endpoint.REMOTE_ACTIVE, "the connection to open")

    # ---- bytes ----------------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], object], what: str = "", timeout_s: float = DEADLINE_S) -> None:
        """Exchange bytes with the broker until *condition* holds."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._exchange()
            if condition():
                return
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"{what or 'what was waited for'} did not happen within {timeout_s} s")
            if self.ended:
                reason = self.connection.remote_condition or self.transport.condition
                raise ConnectionError(f"the broker closed the socket: {reason}")
            writing = [self.sock] if self.transport.pending() > 0 else []
            select.select([self.sock], writing, [], min(left_s, 0.05))

    def stall(self) -> None:
        """Send all pending output, then leave the input unread; wait until some has arrived."""
        self._write()
        assert select.select([self.sock], [], [], DEADLINE_S)[0]

    def settle_down(self) -> None:
        """Wait until the broker has processed everything sent: open and close a session, as it answers in order."""
        session = self.new_session()
        self.wait(lambda: session.state & Endpoint.REMOTE_ACTIVE)
        session.close()
        self.wait(lambda: session.state & Endpoint.REMOTE_CLOSED)

    def cut(self) -> None:
        """Break the connection without a close frame."""
        self.sock.close()
        self.ended = True

    def close(self) -> None:
        """Close the connection, and wait for the broker to close it."""
        if self.ended:
            return
        self.connection.close()
        self.wait(lambda: self.connection.state & Endpoint.REMOTE_CLOSED or self.ended, "the connection to close")
        self.cut()

    def _exchange(self) -> None:
        while True:
            moved = self._write() + self._read()
            self._digest()
            if not moved:
                return

    def _write(self) -> int:
        if self.ticking:
            self.transport.tick(time.monotonic())
        done = 0
        while not self.ended and (pending := self.transport.pending()) > 0:
            try:
                sent = self.sock.send(self.transport.peek(min(pending, 1 << 18)))
            except BlockingIOError:
                break
            except OSError:
                self.ended = True
                break
            self.transport.pop(sent)
            done += sent
        return done

    def _read(self) -> int:
        if self.ended:
            return 0
        capacity = self.transport.capacity()
        try:
            data = self.sock.recv(max(capacity, 1))
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return 0
        self.bytes_in += len(data)
        if capacity > 0:  # otherwise the broker has closed the connection, and only the end of input can follow
            self.transport.push(data)
        return len(data)

    def _digest(self) -> None:
        while event := self._collector.peek():
            if event.type == Event.DELIVERY and event.link.is_receiver:
                self._take(event.link, event.delivery)
            elif event.type in (Event.LINK_REMOTE_DETACH, Event.LINK_REMOTE_CLOSE):
                self.detached.add(event.link)
            self._collector.pop()

    def _take(self, link: Any, delivery: Any) -> None:
        if not delivery.readable and not delivery.aborted:
            return
        if delivery.aborted:
            self._pieces.pop(link, None)
            link.advance()
            delivery.settle()
            return
        content = self._pieces.setdefault(link, bytearray())
        while data := link.recv(max(delivery.pending, 1)):
            content += data
        if delivery.partial:
            return
        del self._pieces[link]
        link.advance()
        message = Message()
        if content:
            message.decode(bytes(content))
            if isinstance(message.body, memoryview):  # its memory is freed with the message
                message.body = bytes(message.body)
        self.received.setdefault(link, []).append(Received(delivery, bytes(content), message))

    # ---- links ----------------------------------------------------------------------------------------------------

    def new_session(self, *, window_bytes: int = 0) -> Any:
        """Open a session. *window_bytes*: the capacity of its incoming window; it requires `max_frame_bytes`."""
        session = self.connection.session()
        if window_bytes:
            session.incoming_capacity = window_bytes
        session.open()
        return session

    def attach(
        self, link: Any, address: str | None, *, dynamic: bool = False, copy: bool = False, settled: bool = False
    ) -> Any:
        """Attach *link* and wait for the answer; the broker may have refused the link."""
        terminus = link.target if link.is_sender else link.source
        if address is not None:
            terminus.address = address
        terminus.dynamic = dynamic
        if copy:
            terminus.distribution_mode = Terminus.DIST_MODE_COPY
        if settled:
            link.snd_settle_mode = Link.SND_SETTLED
        link.open()
        self.wait(lambda: not link.state & Endpoint.REMOTE_UNINIT, f"the link to {address!r} to attach")
        return link

    def sender(self, address: str | None, *, settled: bool = False, session: Any = None, name: str = "") -> Any:
        link = self.attach((session or self.session).sender(name or f"s{next(_names)}"), address, settled=settled)
        self.wait(lambda: link.credit > 0, f"credit for {address!r}")
        return link

    def receiver(
        self,
        address: str | None,
        credit: int = 0,
        *,
        settled: bool = False,
        copy: bool = False,
        session: Any = None,
        name: str = "",
    ) -> Any:
        link = (session or self.session).receiver(name or f"r{next(_names)}")
        self.attach(link, address, settled=settled, copy=copy)
        if credit:
            link.flow(credit)
        return link

    def refusal(self, link: Any) -> str:
        """Wait until the broker closes the link, and return the name of its error condition."""
        self.wait(lambda: link.state & Endpoint.REMOTE_CLOSED, "the link to be refused")
        assert link.remote_condition is not None
        return str(link.remote_condition.name)

    def detach(self, link: Any, *, close: bool = True) -> None:
        if close:
            link.close()
        else:
            link.detach()
        self.wait(lambda: link in self.detached, "the link to be detached")

    # ---- messages -------------------------------------------------------------------------------------------------

    def put(self, link: Any, bodies: Iterable[Any], *, durable: bool = True) -> None:
        """Send messages with these bodies; check that all are accepted."""
        self.send(link, *(Message(body=body, durable=durable) for body in bodies))

    def send(self, link: Any, *messages: Any) -> list[Any]:
        """Send messages, or raw bytes, and wait until all are settled; check that all are accepted."""
        deliveries = [self.post(link, message) for message in messages]
        self.wait(lambda: all(delivery.settled for delivery in deliveries), "all messages to be settled")
        assert link.snd_settle_mode == Link.SND_SETTLED or {d.remote_state for d in deliveries} <= {Delivery.ACCEPTED}
        return deliveries

    def post(self, link: Any, message: Any, *, settled: bool = False) -> Any:
        """Send a message when there is credit, without waiting for its outcome."""
        self.wait(lambda: link.credit > 0, "credit")
        if isinstance(message, bytes):
            delivery = link.delivery(link.delivery_tag())
            link.stream(message)
            link.advance()
        else:
            delivery = link.send(message)
        if settled:
            delivery.settle()
        return delivery

    def take(self, link: Any, number: int = 1) -> list[Received]:
        """Wait for *number* messages that were not taken yet, and return them."""
        inbox = self.received.setdefault(link, [])
        self.wait(lambda: len(inbox) >= number, f"{number} messages on a link (there are {len(inbox)})")
        taken, inbox[:] = inbox[:number], inbox[number:]
        return taken

    def arrived(self, *links: Any) -> list[Received]:
        """Return the messages that have arrived on these links, without waiting."""
        taken = [received for link in links for received in self.received.get(link, ())]
        for link in links:
            self.received[link] = []
        return taken

    def drain(self, link: Any, credit: int = 0) -> list[Received]:
        """Drain the link, with *credit* more than it has; return all messages that arrived."""
        link.drain(credit)
        self.wait(lambda: not link.draining() and link not in self._pieces, "the drain to be answered")
        return self.arrived(link)


class Handling(MessagingHandler):  # type: ignore[misc]
    """A client on proton's callback API: *setup* creates its links, and it runs until `done` returns True."""

    def __init__(self, setup: Callable[[Any, Any], None], done: Callable[[Handling], bool], **options: Any) -> None:
        super().__init__(**options)
        self.messages: list[Any] = []
        self.outcomes: list[int] = []
        self.to_send: list[Any] = []
        self.error: Any = None
        self._setup, self._done = setup, done

    def run(self, port: int, timeout_s: float = DEADLINE_S, **options: Any) -> Handling:
        container = Container(self)
        self._url, self._options = f"127.0.0.1:{port}", options
        container.timeout = 0.05
        container.start()
        deadline_s = time.monotonic() + timeout_s
        while container.process():
            assert time.monotonic() < deadline_s, f"got {len(self.messages)} messages, {len(self.outcomes)} outcomes"
        container.stop()
        container.process()
        return self

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self._url, reconnect=False, **self._options)
        self._setup(event.container, self.connection)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self.to_send:
            event.sender.send(self.to_send.pop(0))
        self.look()

    def on_message(self, event: Any) -> None:
        self.messages.append(event.message)
        self.look()

    def on_accepted(self, event: Any) -> None:
        self.outcomes.append(event.delivery.remote_state)
        self.look()

    def on_rejected(self, event: Any) -> None:
        self.on_accepted(event)

    def on_link_error(self, event: Any) -> None:
        self.error = event.link.remote_condition
        event.connection.close()

    def look(self) -> None:
        if self._done(self):
            self.connection.close()
