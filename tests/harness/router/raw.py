"""Frames as bytes, for input that no client library sends, and the broker's answers to them."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from cairnmq.amqp.codec import decode, encode
from cairnmq.amqp.codec.types import Array, Described, Symbol, Ubyte, Uint, Ushort

AMQP = b"AMQP\x00\x01\x00\x00"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SOURCE, TARGET = 0x28, 0x29
NAMES = ["open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close"]
DEADLINE_S = 180.0


class Frame(NamedTuple):
    """A frame: a performative and its payload."""

    name: str
    channel: int
    fields: list[Any]
    payload: bytes = b""

    @property
    def error(self) -> str:
        """The condition of a detach, end or close frame; empty if it has none."""
        place = {"detach": 2, "end": 0, "close": 0}[self.name]
        if len(self.fields) <= place or self.fields[place] is None:
            return ""
        return str(self.fields[place].value[0])


def frame(code: int, *fields: Any, channel: int = 0, payload: bytes = b"") -> bytes:
    body = encode.described(code, encode.value(list(fields))) + payload
    return struct.pack(">IBBH", 8 + len(body), 2, 0, channel) + body


def opening(container: str = "raw", *, channel_max: int = 65535, max_frame: int = 65536, **properties: Any) -> bytes:
    return frame(OPEN, container, None, Uint(max_frame), Ushort(channel_max))


def begin(channel: int = 0, window: int = 2048) -> bytes:
    return frame(BEGIN, None, Uint(0), Uint(window), Uint(window), channel=channel)


def attach(name: str, handle: int, address: str, *, receives: bool = False, channel: int = 0) -> bytes:
    source, target = (address, None) if receives else (None, address)
    fields = (
        name, Uint(handle), receives, Ubyte(2), Ubyte(0),
        Described(Uint(SOURCE), [source]), Described(Uint(TARGET), [target]), None, None, Uint(0),
    )  # fmt: skip
    return frame(ATTACH, *fields, channel=channel)


def transfer(
    handle: int,
    number: int | None,
    payload: bytes = b"",
    *,
    more: bool = False,
    settled: bool = False,
    channel: int = 0,
) -> bytes:
    tag = None if number is None else number.to_bytes(4)
    id_ = None if number is None else Uint(number)
    return frame(TRANSFER, Uint(handle), id_, tag, Uint(0), settled, more, channel=channel, payload=payload)


class Raw:
    """A connection whose bytes the test chooses."""

    def __init__(self, port: int, *said: bytes) -> None:
        self._start(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S), *said)

    def _start(self, sock: socket.socket, *said: bytes) -> None:
        self.sock = sock
        self._held = b""
        self.longest_bytes = 0
        """The size of the longest frame received."""
        self.ended = False
        self.say(AMQP, *said)
        while len(self._held) < 8 and self._read():
            pass
        assert self._held[:8] == AMQP
        self._held = self._held[8:]

    def say(self, *said: bytes) -> None:
        self.sock.sendall(b"".join(said))

    def hear(self) -> Frame | None:
        """Return the next frame that is not a heartbeat; None at the end of the connection."""
        while True:
            size = int.from_bytes(self._held[:4]) if len(self._held) >= 4 else 0
            if size and len(self._held) >= size:
                raw, self._held = self._held[:size], self._held[size:]
                self.longest_bytes = max(self.longest_bytes, size)
                if size > 8:
                    return _parse(raw)
            elif not self._read():
                return None

    def until(self, name: str, **wanted: Any) -> Frame:
        """Read up to the next frame with this *name* (and *channel*, if given), and return it."""
        deadline_s = time.monotonic() + DEADLINE_S
        last: Frame | None = None
        while time.monotonic() < deadline_s:
            found = self.hear()
            assert found is not None, f"the connection ended before a {name} came; the last frame was {last}"
            last = found
            if found.name == name and wanted.get("channel", found.channel) == found.channel:
                return found
        raise TimeoutError(name)

    def rest(self) -> list[Frame]:
        """Return all frames up to the end of the connection."""
        found = []
        while (one := self.hear()) is not None:
            found.append(one)
        return found

    def _read(self) -> bool:
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            data = b""
        self._held += data
        self.ended = self.ended or not data
        return bool(data)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *error: object) -> None:
        self.sock.close()


class RawServer(Raw):
    """A connection that a broker opens without SASL, accepted by the test."""

    def __init__(self, listener: socket.socket, *said: bytes) -> None:
        listener.settimeout(DEADLINE_S)
        sock, _ = listener.accept()
        sock.settimeout(DEADLINE_S)
        self._start(sock, *said)


def _parse(raw: bytes) -> Frame:
    found, end = decode.value(raw, raw[4] * 4)
    assert isinstance(found, Described)
    return Frame(NAMES[int(found.descriptor) - OPEN], int.from_bytes(raw[6:8]), found.value, raw[end:])


def symbols(*names: str) -> Array:
    return Array(0xB3, [Symbol(name) for name in names])


Say = Callable[..., Raw]
"""The type of the fixture `say`, which opens a connection and a session, and sends the given frames.

Options: `session` (bytes of the begin frame), `port`, `container`.
"""
