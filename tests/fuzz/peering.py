"""Fuzzing of outgoing connections, including inter-router connections, whose peers send arbitrary bytes.

The seeds are two recorded conversations of two complete brokers: one over an inter-router connection, with passthrough
messages in both directions, and one over a connector, with routed client links and auto-links.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import cache
from typing import Any

from proton import Message

from cairnmq.amqp.connector_target import INTER_ROUTER, Target
from cairnmq.amqp.sasl.client import Identity
from cairnmq.amqp.sasl.client_handshake import ClientHandshake
from cairnmq.amqp.sasl.handshake import MAX_AHEAD_BYTES, Stage
from cairnmq.broker.outbound.auto_links import parse as parse_auto_link
from cairnmq.broker.outbound.link_routes import parse as parse_link_route
from cairnmq.router.connections.client_terminal import ClientTerminal

from .site import Client, Site

JOINED, FAR = "joined", "far"
_TARGETS = (
    Target(JOINED, "127.0.0.1", 1, sasl=False, role=INTER_ROUTER),
    Target(FAR, "127.0.0.1", 1, sasl=False),
)
_HERE, _THERE = (("out", "in"), ("far-out", "far-in"))
"""For each broker, the auto-link addresses to which its clients send and from which they receive."""
MECHANISMS, CHALLENGE, OUTCOME = 0x40, 0x42, 0x44
_NONCE = b"@the-client's-nonce@"


class _Lines:
    """A dialer that opens no connections, as the tests create the connections."""

    def dial(self, target: Target) -> None: ...

    def hang_up(self, name: str) -> None: ...


def _near() -> Site:
    """Return the broker that opens connections."""
    site = Site(container_id="near", anycast=("any.*",), multicast=("all.*",))
    site.broker.remote.link_routes.start((parse_link_route("far.*=far"),))
    site.broker.remote.auto_links.start((parse_auto_link("in:in@far:far-out"), parse_auto_link("out:out@far:far-in")))
    site.core.post(site.broker.remote.connectors.start, _Lines(), _TARGETS, "")
    site.core.run_all()
    return site


def _dial(site: Site, target: Target) -> ClientTerminal:
    """Return a new outgoing connection of *site* to *target* on which no bytes have been sent."""
    return ClientTerminal(site.context, target, wake=site.woken.append, over=lambda: None)


class _Clients:
    """Clients of one broker that send to and receive from all kinds of addresses."""

    def __init__(self, site: Site, sends_to: str, receives_from: str) -> None:
        self.client = Client(site)
        self.senders: list[Any] = []
        self.receivers: list[Any] = []
        for address in ("any.a", "all.a", "far.q", sends_to):
            sender = self.client.session.sender(f"to {address}")
            sender.target.address = address
            self.senders.append(sender)
        for address in ("any.a", "all.a", "far.q", receives_from):
            receiver = self.client.session.receiver(f"from {address}")
            receiver.source.address = address
            self.receivers.append(receiver)

    def attach(self) -> None:
        for link in (*self.senders, *self.receivers):
            link.open()
        for receiver in self.receivers:
            receiver.flow(20)
        self.client.talk()

    def send(self, number: int) -> None:
        for sender in self.senders:
            if sender.credit > 0:
                sender.delivery(f"{number}")
                sender.send(Message(body=b"x" * (30_000 * (number % 2)), durable=True, subject="s").encode())
                sender.advance()
        self.client.talk()

    def take(self) -> None:
        for receiver in self.receivers:
            while (delivery := receiver.current) is not None and not delivery.partial and delivery.readable:
                receiver.recv(delivery.pending)
                receiver.advance()
                delivery.update(delivery.ACCEPTED)
                delivery.settle()
        self.client.talk()


@cache
def conversations() -> tuple[tuple[tuple[bytes, ...], ...], tuple[tuple[bytes, ...], ...]]:
    """Return the frames of the accepting side and the frames of the opening side, for each target."""
    found = [_record(target) for target in _TARGETS]
    return tuple(one for one, _ in found), tuple(one for _, one in found)


def _record(target: Target) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    near, far = _near(), Site(container_id="far", anycast=("any.*",), multicast=("all.*",))
    here, there = _Clients(near, *_HERE), _Clients(far, *_THERE)
    dialled, answering = _dial(near, target), far.terminal()
    said_there, said_here = bytearray(), bytearray()

    def talk() -> None:
        """Exchange bytes until neither side sends any."""
        while True:
            before = len(said_here) + len(said_there)
            received = bytearray()
            near.settle_down(dialled, received.extend)
            said_here.extend(received)
            answering.receive(bytes(received))
            received = bytearray()
            far.settle_down(answering, received.extend)
            said_there.extend(received)
            dialled.receive(bytes(received))
            if len(said_here) + len(said_there) == before:
                return

    talk()
    for one in (here, there):
        one.attach()
    talk()
    for number in range(4):
        for one in (here, there):
            one.client.talk()
            one.send(number)
        talk()
        for one in (here, there):
            one.client.talk()
            one.take()
        talk()
    return tuple(_frames(bytes(said_there))), tuple(_frames(bytes(said_here)))


def _frames(data: bytes) -> Iterator[bytes]:
    yield data[:8]
    at = 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4])
        yield data[at : at + size]
        at += size


def peers() -> Generator[None, bytes, None]:
    """Fuzz incoming and outgoing connections; check that the broker does not fail and its counters stay correct."""
    site = _near()
    number = 0
    clients = _Clients(site, *_HERE)
    clients.attach()
    try:
        while True:
            data = yield
            number += 1
            if number % 3:
                _hear(site, _dial(site, _TARGETS[number % 2]), data, clients, (64 << 10, 900)[number % 2])
            else:
                site.converse(data, 5000)
            if number % 20 == 0:
                site.advance(40.0)
    finally:
        clients.client.leave()
        site.check_accounts()


def _hear(site: Site, terminal: ClientTerminal, data: bytes, clients: _Clients, piece_bytes: int) -> None:
    site.settle_down(terminal)
    for at in range(0, len(data), piece_bytes):
        terminal.receive(data[at : at + piece_bytes])
        site.settle_down(terminal)
        clients.client.talk()
        if terminal.finished():
            break
        clients.send(at)
        clients.take()
    site.hang_up(terminal)
    clients.client.talk()


# ---- SASL client --------------------------------------------------------------------------------------------------


@cache
def sasl_servers() -> tuple[tuple[bytes, ...], ...]:
    """Return the server frames of logins."""
    header = b"AMQP\x03\x01\x00\x00"
    salt = b"s=QUFBQUFBQUFBQUFBQUFBQQ==,i=4096"
    offers = [_said(MECHANISMS, b"\xf0" + _array(names)) for names in ((b"ANONYMOUS",), (b"PLAIN", b"SCRAM-SHA-256"))]
    welcome = _said(OUTCOME, b"\x50\x00")
    return (
        (header, offers[0], welcome, b"AMQP\x00\x01\x00\x00"),
        (header, _said(MECHANISMS, b"\xa3\x05PLAIN"), welcome),
        (header, offers[1], _said(OUTCOME, b"\x50\x01")),
        (
            header, offers[1], _said(CHALLENGE, _binary(b"r=" + _NONCE + b"more," + salt)),
            _said(CHALLENGE, _binary(b"v=QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=")), welcome,
        ),
        (
            header, offers[1], _said(CHALLENGE, _binary(b"r=" + _NONCE + b"more," + salt)),
            _said(OUTCOME, b"\x50\x00" + _binary(b"v=QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=")),
        ),
    )  # fmt: skip


def _array(names: tuple[bytes, ...]) -> bytes:
    items = b"".join(len(name).to_bytes(1) + name for name in names)
    return (len(items) + 5).to_bytes(4) + len(names).to_bytes(4) + b"\xa3" + items


def _binary(data: bytes) -> bytes:
    return b"\xa0" + len(data).to_bytes(1) + data


def _said(code: int, fields: bytes) -> bytes:
    count = 2 if code == OUTCOME and len(fields) > 2 else 1
    body = b"\x00\x53" + code.to_bytes(1) + b"\xc0" + (len(fields) + 1).to_bytes(1) + count.to_bytes(1) + fields
    return (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body


_IDENTITIES = (Identity("anna", "one stone"), Identity(), Identity("anna", "x", insecure=True), Identity("", "", True))


def client_front(data: bytes) -> None:
    """Fuzz the client login; check that no bytes pass before login and that the bytes held are bounded."""
    secure, proved = data[-1:] > b"\x80", False
    front = ClientHandshake(_IDENTITIES[len(data) % len(_IDENTITIES)], "there", secure=secure)
    for at in range(0, len(data), 100):
        piece = data[at : at + 100]
        if front._attempt is not None and _NONCE in piece:
            piece = piece.replace(_NONCE, front._attempt.first.rpartition(b"r=")[2])
        answer, rest = front.feed(piece)
        assert secure or b"one stone" not in answer, "a password goes out only where that was allowed, or through TLS"
        while front.check is not None and (at // 100 + len(data)) % 5:  # otherwise data arrives before the check ends
            proved = True
            _, rest = front.checked(front.check())
        assert not rest or front.stage is Stage.OPEN
        assert len(front._held) <= MAX_AHEAD_BYTES
        if front.stage in (Stage.OPEN, Stage.REFUSED):
            break
    if front.stage is Stage.OPEN and type(front._attempt).__name__ == "_Scram":
        assert proved, "a server that knows the password proves it"
