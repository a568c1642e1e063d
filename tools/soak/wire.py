"""The settings of a client of a soak, and its connection: a socket, and proton's engine behind it."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import NamedTuple

from proton import Collector, Connection, Transport, TransportException


class Settings(NamedTuple):
    """The settings of a client."""

    role: str
    name: str
    seed: str
    notebook: str
    queues: list[str]
    host: str = "127.0.0.1"
    user: str = ""
    password: str = ""
    address: str = "{name}"
    """The template of a queue's address."""
    plain: bool = False
    """For brokers that re-encode messages, and support only a part of AMQP: messages are simple and compared by
    content, no message is modified, and no receiver uses settle mode second."""
    durable: bool = True
    per_transaction: int = 0
    rate_per_s: float = 0.0
    """The rate of this client, if it sends; 0: unlimited."""
    max_body_bytes: int = 300_000
    quiet_s: float = 0.0
    """The time without a message after which a drain ends; 0: it ends when the broker reports an empty queue."""

    def address_of(self, queue: str) -> str:
        return self.address.format(name=queue)


class Wire:
    """One connection: a socket, and proton's engine behind it."""

    def __init__(self, settings: Settings, port: int, life: int) -> None:
        self.port, self.life = port, life
        self.ended = False
        self.writing = False
        self.sock = socket.create_connection((settings.host, port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self.connection = Connection()
        self.connection.container = settings.name
        if settings.user:
            self.connection.user, self.connection.password = settings.user, settings.password
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.transport = Transport()
        sasl = self.transport.sasl()
        sasl.allow_insecure_mechs = True  # the killed broker is on this machine
        if not settings.user:
            sasl.allowed_mechs("ANONYMOUS")
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
        with suppress(TransportException):  # an event reports it
            if not data:
                self.transport.close_tail()
            while data:
                size = min(self.transport.capacity(), len(data))
                if size <= 0:
                    break
                self.transport.push(data[:size])
                data = data[size:]

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
