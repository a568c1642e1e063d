"""A client over a real socket whose frames the test controls completely."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from proton import Message
from scramp import ScramClient

from cairnmq.amqp.codec.primitives import Malformed, descriptor, read_list

DEADLINE_S = 180.0
AMQP = b"AMQP\x00\x01\x00\x00"
SASL = b"AMQP\x03\x01\x00\x00"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = range(0x40, 0x45)


def frame(body: bytes, *, kind: int = 0, channel: int = 0) -> bytes:
    return struct.pack(">IBBH", 8 + len(body), 2, kind, channel) + body


def performative(code: int, *fields: bytes) -> bytes:
    content = b"".join(fields)
    return b"\x00\x53" + bytes((code,)) + b"\xd0" + struct.pack(">II", len(content) + 4, len(fields)) + content


def binary(data: bytes) -> bytes:
    return b"\xb0" + len(data).to_bytes(4) + data


def string(text: str) -> bytes:
    return b"\xa1" + bytes((len(text),)) + text.encode()


def symbol(text: str) -> bytes:
    return b"\xa3" + bytes((len(text),)) + text.encode()


def uint(number: int) -> bytes:
    return b"\x70" + number.to_bytes(4)


NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"


def source(address: str) -> bytes:
    return performative(0x28, string(address))


def target(address: str) -> bytes:
    return performative(0x29, string(address))


def attach(name: str, handle: int, address: str, *, sends: bool) -> bytes:
    """Return the attach of a sender to *address*, or of a receiver from it."""
    ends = (source("me"), target(address)) if sends else (source(address), target("me"))
    count = (NULL, NULL, uint(0)) if sends else ()
    return performative(ATTACH, string(name), uint(handle), FALSE if sends else TRUE, NULL, NULL, *ends, *count)


def flow(handle: int, credit: int, *, echo: bool = False) -> bytes:
    """Return a flow performative of a receiver."""
    window = (uint(0), uint(1 << 20), uint(0), uint(1 << 20))
    return performative(FLOW, *window, uint(handle), uint(0), uint(credit), uint(0), FALSE, TRUE if echo else FALSE)


def transfer(number: int, payload: bytes, *, handle: int = 0, more: bool = False) -> bytes:
    tag = binary(number.to_bytes(4))
    head = performative(TRANSFER, uint(handle), uint(number), tag, uint(0), FALSE, TRUE if more else FALSE)
    return head + payload


def message(body: str = "a stone", **properties: object) -> bytes:
    return bytes(Message(body=body, **properties).encode())


class Wire:
    """A connection that sends immediately, and reads answers frame by frame."""

    def __init__(self, port: int, *, context: ssl.SSLContext | None = None, source: str = "127.0.0.1") -> None:
        sock = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S, source_address=(source, 0))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.bytes_in = 0
        if context is not None:
            self.secure(context)

    def secure(self, context: ssl.SSLContext) -> None:
        """Begin TLS."""
        self.sock = context.wrap_socket(self.sock, server_hostname="localhost")

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def say(self, *performatives: bytes, channel: int = 0) -> None:
        self.send(b"".join(frame(body, channel=channel) for body in performatives))

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise EOFError(data)
            data += more
        self.bytes_in += size
        return data

    def next(self) -> tuple[int, list[object], bytes]:
        """Return the code, fields and body of the next frame, without heartbeats; no fields if some are described."""
        while True:
            size = int.from_bytes(self.read(4))
            body = self.read(size - 4)[4:]
            if body:
                code, at = descriptor(body, 0)
                try:
                    return code, list(read_list(body, at)[0]), body
                except Malformed:
                    return code, [], body

    def until(self, code: int) -> tuple[list[object], bytes]:
        """Read up to the next frame with this *code*; return its fields and body."""
        while True:
            found, fields, body = self.next()
            if found == code:
                return fields, body
            assert found != CLOSE, body

    def rest(self) -> bytes:
        """Return all bytes until the broker ends the connection."""
        data = b""
        try:
            while more := self.sock.recv(65536):
                data += more
        except (ConnectionResetError, ssl.SSLEOFError):
            pass
        return data

    # ---- negotiation ----------------------------------------------------------------------------------------------

    def sasl(self) -> bytes:
        """Begin the SASL layer; return the body of the frame with the offered mechanisms."""
        self.send(SASL)
        assert self.read(8) == SASL
        return self.until(MECHANISMS)[1]

    def init(self, mechanism: str, response: bytes | None) -> None:
        self.send(frame(performative(INIT, symbol(mechanism), NULL if response is None else binary(response)), kind=1))

    def respond(self, response: bytes) -> None:
        self.send(frame(performative(RESPONSE, binary(response)), kind=1))

    def outcome(self) -> int:
        fields, _ = self.until(OUTCOME)
        code = fields[0]
        assert isinstance(code, int)
        return code

    def plain(self, user: str, password: str, acting: str = "") -> int:
        self.sasl()
        self.init("PLAIN", f"{acting}\0{user}\0{password}".encode())
        return self.outcome()

    def scram(self, user: str, password: str) -> int:
        """Log in with SCRAM, and verify the broker's proof that it knows the password; return the outcome code."""
        self.sasl()
        client = ScramClient(["SCRAM-SHA-256"], user, password)
        self.init("SCRAM-SHA-256", client.get_client_first().encode())
        code, fields, _ = self.next()
        assert code == CHALLENGE
        assert isinstance(fields[0], bytes)
        client.set_server_first(fields[0].decode())
        self.respond(client.get_client_final().encode())
        fields, _ = self.until(OUTCOME)
        if fields[0] == 0:
            assert isinstance(fields[1], bytes)
            client.set_server_final(fields[1].decode())
        assert isinstance(fields[0], int)
        return fields[0]

    def open(self) -> Wire:
        """Open the AMQP layer, and a session with a large window."""
        self.send(AMQP)
        assert self.read(8) == AMQP
        self.say(performative(OPEN, string("raw")), performative(BEGIN, NULL, uint(0), uint(1 << 20), uint(1 << 20)))
        self.until(BEGIN)
        return self

    def attach(self, name: str, handle: int, address: str, *, sends: bool) -> None:
        self.say(attach(name, handle, address, sends=sends))
        self.until(ATTACH)
        if sends:
            self.credit()

    def credit(self) -> None:
        """Wait until a link receives credit; flows of the session alone are skipped."""
        while len(self.until(FLOW)[0]) < 7:
            pass


@contextmanager
def wired(port: int, *, context: ssl.SSLContext | None = None) -> Iterator[Wire]:
    wire = Wire(port, context=context)
    try:
        yield wire
    finally:
        wire.sock.close()
