"""A client process of a kill run: `python -m tests.kill.client ROLE NAME SEED NOTEBOOK QUEUE...`

Roles: `sender` and `receiver` go on until standard input ends; `drain` empties the queues once and ends. Commands come
on standard input, a line each:

    connect PORT LIFE [FLOOD]   the broker is there, in its LIFE-th process; a sender begins with FLOOD small messages

Every byte goes through python-qpid-proton's engine. The loop around it is our own, because events must be written down
between reading what the broker said and sending what it makes us do.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from random import Random
from typing import Any

from proton import Collector, Connection, Delivery, Event, Link, Transport, TransportException

from .history import Answered, Confirmed, Ended, Got, Notebook, Refused, Sent, Settled, Trouble
from .message import decode, encode

RELAYED = "relayed"
"""The queue that senders reach through the anonymous relay."""
FORCED = "amqp:connection:forced"
_WRITE = select.EPOLLOUT


class Wire:
    """One connection: a socket, and proton's engine behind it."""

    def __init__(self, port: int, life: int, name: str) -> None:
        self.life = life
        self.ended = False
        self.writing = False
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self.connection = Connection()
        self.connection.container = name
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.transport = Transport()
        self.transport.sasl().allowed_mechs("ANONYMOUS")
        self.transport.bind(self.connection)
        self.connection.open()
        self.session = self.connection.session()
        self.session.open()

    def read(self) -> None:
        try:
            data = self.sock.recv(256 << 10)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        try:
            if not data:
                self.transport.close_tail()
            while data:
                size = min(self.transport.capacity(), len(data))
                if size <= 0:
                    break
                self.transport.push(data[:size])
                data = data[size:]
        except TransportException:
            pass  # an event tells

    def write(self) -> None:
        self.writing = False
        try:
            while (pending := self.transport.pending()) > 0:
                self.transport.pop(self.sock.send(self.transport.peek(min(pending, 1 << 20))))
        except (BlockingIOError, InterruptedError):
            self.writing = True
        except (OSError, TransportException):
            with suppress(TransportException):
                self.transport.close_head()


class Client:
    """The loop, and what the roles have in common."""

    def __init__(self, name: str, seed: str, notebook: Notebook, queues: list[str]) -> None:
        self.name = name
        self.random = Random(f"{seed}/{name}")
        self.notebook = notebook
        self.queues = queues
        self.done = False
        self.wire: Wire | None = None
        self._epoll = select.epoll()
        self._wires: dict[int, Wire] = {}

    # ---- for a role to fill in

    def connected(self, wire: Wire, flood: int) -> None:
        raise NotImplementedError

    def on_delivery(self, wire: Wire, delivery: Any) -> None:
        raise NotImplementedError

    def on_flow(self, link: Any) -> None:
        pass

    def turn(self, wire: Wire) -> None:
        """Something may have changed: do what there is to do."""

    # ---- the loop

    def run(self) -> None:
        os.set_blocking(0, False)
        self._epoll.register(0, select.EPOLLIN)
        commands = b""
        while not self.done:
            for fd, mask in self._epoll.poll():
                if fd:
                    if fd in self._wires and mask & ~_WRITE:
                        self._wires[fd].read()
                    continue
                data = os.read(0, 4096)
                if not data:
                    return
                *lines, commands = (commands + data).split(b"\n")
                for line in lines:
                    _, port, life, *flood = line.decode().split()
                    self.connect(int(port), int(life), int(flood[0]) if flood else 0)
            for wire in list(self._wires.values()):
                self._digest(wire)
            if self.wire is not None and not self.wire.ended:
                self.turn(self.wire)
            self.notebook.flush()  # before the bytes leave
            for wire in list(self._wires.values()):
                self._send(wire)

    def connect(self, port: int, life: int, flood: int = 0) -> None:
        try:
            wire = self.wire = Wire(port, life, self.name)
        except OSError:
            return  # killed already: there will be another command
        self._wires[wire.sock.fileno()] = wire
        self._epoll.register(wire.sock.fileno(), select.EPOLLIN)
        self.connected(wire, flood)

    def drop(self, wire: Wire) -> None:
        """Close the socket, with no word of goodbye."""
        del self._wires[wire.sock.fileno()]
        self._epoll.unregister(wire.sock.fileno())
        wire.sock.close()
        wire.ended = True

    def trouble(self, wire: Wire, text: str) -> None:
        self.notebook.note(Trouble(self.name, wire.life, time.monotonic_ns(), text))

    def _digest(self, wire: Wire) -> None:
        collector = wire.collector
        while (event := collector.peek()) is not None:
            kind = event.type
            if kind == Event.DELIVERY:
                self.on_delivery(wire, event.delivery)
            elif kind == Event.LINK_FLOW:
                self.on_flow(event.link)
            elif kind in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH):
                if not event.link.state & event.link.LOCAL_CLOSED:
                    self.trouble(wire, f"link {event.link.name} closed: {event.link.remote_condition}")
                    event.link.close()
            elif kind == Event.CONNECTION_REMOTE_CLOSE:
                condition = event.connection.remote_condition
                self.trouble(wire, f"connection closed: {condition and condition.name}")
                event.connection.close()
            elif kind in (Event.TRANSPORT_ERROR, Event.TRANSPORT_TAIL_CLOSED, Event.TRANSPORT_CLOSED):
                wire.ended = True
            collector.pop()

    def _send(self, wire: Wire) -> None:
        was_writing = wire.writing
        wire.write()
        if wire.ended:
            self.drop(wire)
        elif wire.writing != was_writing:
            self._epoll.modify(wire.sock.fileno(), select.EPOLLIN | (_WRITE if wire.writing else 0))


class Sender(Client):
    """Sends each message once, whatever becomes of it; numbers go on from connection to connection."""

    def __init__(self, name: str, seed: str, notebook: Notebook, queues: list[str]) -> None:
        super().__init__(name, seed, notebook, queues)
        self._numbers = dict.fromkeys(queues, 0)
        self._unsettled: dict[Any, int] = {}
        self._links: list[tuple[str, Any]] = []
        self._window = self._budget = self._flood = 0

    def connected(self, wire: Wire, flood: int) -> None:
        random = self.random
        self._unsettled, self._links, self._flood = {}, [], flood
        # for a while so many are under way at once, then few: the broker is never idle, its queues never run over
        self._window = 1000 if flood else random.choice((2, 8, 64, 1000))
        self._budget = flood or random.randrange(50, 800)
        for queue in self.queues:
            link = wire.session.sender(f"{self.name}>{queue}")
            if queue != RELAYED:
                link.target.address = queue
            link.open()
            self._unsettled[link] = 0
            self._links.append((queue, link))

    def turn(self, wire: Wire) -> None:
        self.random.shuffle(self._links)
        for queue, link in self._links:
            window = self._window if self._budget > 0 else 2
            # a batch at a time, so that answers are read in between
            room = min(link.credit, window - self._unsettled[link], 40)
            for _ in range(room):
                self._send_one(wire, queue, link)

    def _send_one(self, wire: Wire, queue: str, link: Any) -> None:
        random = self.random
        number = self._numbers[queue] = self._numbers[queue] + 1
        message = f"{self.name}:{queue}:{number}"
        if self._flood or random.random() < 0.75:
            size = random.randrange(300)
        elif random.random() < 0.93:
            size = random.randrange(300, 20_000)
        else:
            size = random.randrange(20_000, 300_000)
        to = queue if queue == RELAYED else None
        raw, digest = encode(message, random.randbytes(size), to, random)
        delivery = link.delivery(f"{number}")
        delivery.message = message
        self.notebook.note(Sent(message, queue, self.name, number, wire.life, time.monotonic_ns(), digest))
        link.stream(raw)
        link.advance()
        self._unsettled[link] += 1
        self._budget -= 1

    def on_delivery(self, wire: Wire, delivery: Any) -> None:
        if not delivery.updated:
            return
        at = time.monotonic_ns()
        if delivery.remote_state == Delivery.ACCEPTED:
            self.notebook.note(Confirmed(delivery.message, at))
        else:
            self.notebook.note(Refused(delivery.message, at, int(delivery.remote_state)))
        link = delivery.link
        delivery.settle()
        if link in self._unsettled:
            self._unsettled[link] -= 1


class Receiver(Client):
    """Takes most of what it gets, gives some back, and holds on to some. Links come and go."""

    held_most = 20
    manners: tuple[tuple[float, str, Any], ...] = (
        (0.88, "taken", Delivery.ACCEPTED),
        (0.90, "taken", Delivery.REJECTED),
        (0.94, "returned", Delivery.RELEASED),
        (0.96, "returned", Delivery.MODIFIED),
    )
    """Shares of the outcomes; the rest is held."""

    def __init__(self, name: str, seed: str, notebook: Notebook, queues: list[str]) -> None:
        super().__init__(name, seed, notebook, queues)
        self._link_count = 0
        self._links: dict[str, Any] = {}
        self._held: list[Any] = []
        self._port = 0

    def connect(self, port: int, life: int, flood: int = 0) -> None:
        self._port = port
        super().connect(port, life)

    def connected(self, wire: Wire, flood: int) -> None:
        self._held = []
        self._links = {}
        for queue in self.queues:
            self.attach(wire, queue)

    def attach(self, wire: Wire, queue: str) -> Any:
        self._link_count += 1
        session = f"{self.name}/{wire.life}/{self._link_count}"
        link = wire.session.receiver(session)
        link.source.address = queue
        link.rcv_settle_mode = self.random.choice((Link.RCV_FIRST, Link.RCV_SECOND))
        link.queue = queue
        link.session_name = session
        link.over = False
        link.prefetch = self.random.choice((1, 5, 50, 200))
        link.to_go = self.random.randrange(50, 1500)  # so many messages and it is replaced by a new one
        link.open()
        link.flow(link.prefetch)
        self._links[queue] = link
        return link

    def on_delivery(self, wire: Wire, delivery: Any) -> None:
        link = delivery.link
        if link.over or delivery.aborted:
            return
        if delivery.readable:
            if not delivery.partial:
                raw = link.recv(delivery.pending) or b""
                link.advance()
                self._got(wire, link, delivery, raw)
        elif delivery.settled and getattr(delivery, "message", None) is not None:
            if delivery.remote_state == delivery.local_state:
                self.notebook.note(
                    Settled(delivery.message, link.queue, link.session_name, wire.life, time.monotonic_ns())
                )
            else:
                self.trouble(wire, f"{delivery.message}: {delivery.local_state} became {delivery.remote_state}")
            delivery.settle()

    def _got(self, wire: Wire, link: Any, delivery: Any, raw: bytes) -> None:
        message, digest, marked = decode(raw)
        link.to_go -= 1
        self.notebook.note(Got(message, link.queue, link.session_name, wire.life, time.monotonic_ns(), digest, marked))
        drawn = self.random.random()
        for share, outcome, state in self.manners:
            if drawn < share:
                self.answer(wire, link, delivery, message, outcome, state)
                return
        delivery.held = message
        self._held.append(delivery)
        if len(self._held) > self.held_most:
            late = self._held.pop(self.random.randrange(len(self._held)))
            if not late.link.over:
                self.answer(wire, late.link, late, late.held, "taken", Delivery.ACCEPTED)

    def answer(self, wire: Wire, link: Any, delivery: Any, message: str, outcome: str, state: Any) -> None:
        self.notebook.note(Answered(message, link.queue, link.session_name, wire.life, time.monotonic_ns(), outcome))
        if state == Delivery.MODIFIED:
            delivery.local.failed = self.random.random() < 0.7
            delivery.local.undeliverable = self.random.random() < 0.2
        delivery.update(state)
        if outcome == "returned" or link.rcv_settle_mode == Link.RCV_FIRST:
            delivery.settle()
        else:
            delivery.message = message

    def turn(self, wire: Wire) -> None:
        for queue, link in list(self._links.items()):
            if link.credit * 2 <= link.prefetch:
                link.flow(link.prefetch - link.credit)
            if link.to_go <= 0:
                self.detach(wire, link)
                self.attach(wire, queue)
        if self.random.random() < 0.0005:
            for link in self._links.values():
                self._end(wire, link, lost=True)
            self.notebook.flush()
            self.drop(wire)
            self.connect(self._port, wire.life)

    def detach(self, wire: Wire, link: Any) -> None:
        self._end(wire, link, lost=False)
        link.close()

    def _end(self, wire: Wire, link: Any, lost: bool) -> None:
        link.over = True
        self.notebook.note(Ended(link.queue, link.session_name, wire.life, time.monotonic_ns(), lost))


class Drain(Receiver):
    """Takes everything there is, queue after queue, and ends once the broker has confirmed that."""

    manners = ((1.0, "taken", Delivery.ACCEPTED),)

    def connected(self, wire: Wire, flood: int) -> None:
        self._left = list(self.queues)
        self._next(wire)

    def drop(self, wire: Wire) -> None:
        super().drop(wire)
        if not self.done:
            sys.exit("the connection was lost")

    def _next(self, wire: Wire) -> None:
        if not self._left:
            wire.connection.close()
            self.done = True
            return
        self._begin(wire, self._left.pop(0))

    def _begin(self, wire: Wire, queue: str) -> None:
        self._link_count += 1
        session = f"{self.name}/{wire.life}/{self._link_count}"
        self._link = link = wire.session.receiver(session)
        link.source.address = queue
        link.rcv_settle_mode = Link.RCV_SECOND
        link.queue, link.session_name, link.over, link.to_go = queue, session, False, 0
        link.open()
        self._round()

    def _round(self) -> None:
        self._fresh = 0
        self._link.drain(500)

    def _got(self, wire: Wire, link: Any, delivery: Any, raw: bytes) -> None:
        self._fresh += 1
        super()._got(wire, link, delivery, raw)

    def turn(self, wire: Wire) -> None:
        link = self._link
        if link.draining() or link.queued or not link.state & Link.REMOTE_ACTIVE:
            return
        if self._fresh:
            self._round()
        elif not link.unsettled:
            self.detach(wire, link)
            self._next(wire)


ROLES: dict[str, type[Client]] = {"sender": Sender, "receiver": Receiver, "drain": Drain}


def main(arguments: Iterable[str]) -> None:
    role, name, seed, notebook, *queues = arguments
    ROLES[role](name, seed, Notebook(notebook), queues).run()


if __name__ == "__main__":
    main(sys.argv[1:])
