"""Tests of what clients of AMQP 0-9-1 may send, and may not: each is answered, and no one ends the broker."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from pamqp import base, commands, frame

from cairnmq.amqp091 import frames
from cairnmq.amqp091.frames import PROTOCOL_HEADER, Frame, FrameReader, read_method
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.process import DEADLINE_S

StartBroker = Callable[..., RunningBroker]


class Client:
    """A client that sends any bytes."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.settimeout(DEADLINE_S)
        self._reader = FrameReader()
        self._reader.most_bytes = 1 << 20

    def say(self, *parts: bytes) -> Client:
        self.sock.sendall(b"".join(parts))
        return self

    def next(self) -> Frame | None:
        """Return the next frame; None at the end of the connection."""
        while (found := self._reader.next()) is None:
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._reader.feed(data)
        return found

    def until(self, *kinds: type) -> object:
        """Return the next method of one of these kinds; other frames are discarded. None at the end."""
        while (found := self.next()) is not None:
            if found.type == frames.METHOD and isinstance(method := read_method(found.payload), kinds):
                return method
        return None

    def log_in(self, response: str = "\0guest\0guest", host: str = "/") -> Client:
        self.say(PROTOCOL_HEADER)
        assert self.until(commands.Connection.Start) is not None
        self.say(method(commands.Connection.StartOk({}, "PLAIN", response, "en_US"), 0))
        assert self.until(commands.Connection.Tune) is not None
        self.say(method(commands.Connection.TuneOk(100, 131_072, 0), 0), method(commands.Connection.Open(host), 0))
        return self

    def open(self) -> Client:
        """Log in, and open channel 1."""
        self.log_in()
        assert self.until(commands.Connection.OpenOk) is not None
        self.say(method(commands.Channel.Open(), 1))
        assert self.until(commands.Channel.OpenOk) is not None
        return self


def method(of: base.Frame, channel: int = 1) -> bytes:
    return frame.marshal(of, channel)


PUBLISH = method(commands.Basic.Publish(0, "", "q"))
HEADER = frames.write_frame(frames.HEADER, 1, struct.pack(">HHQH", 60, 0, 3, 0))
BODY = frames.write_frame(frames.BODY, 1, b"abc")


@pytest.fixture
def port(start_broker: StartBroker) -> int:
    return start_broker(amqp091=True).port


@pytest.fixture
def client(port: int) -> Iterator[Client]:
    one = Client(port)
    yield one
    one.sock.close()
    other = Client(port).open()
    other.say(method(commands.Connection.Close(200, "", 0, 0), 0))
    assert other.until(commands.Connection.CloseOk) is not None, "the broker serves others"
    other.sock.close()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (frames.write_frame(frames.METHOD, 1, b"\0"), 502),
        (frames.write_frame(frames.METHOD, 1, b"\0\x63\0\1"), 540),
        (frames.write_frame(frames.METHOD, 1, b"\0\x32\0\x0a"), 502),
        (frames.write_frame(frames.METHOD, 7, b"\0\x3c\0\x28" + bytes(5)), 504),
        (frames.write_frame(9, 1, b""), 501),
        (frames.write_frame(frames.HEARTBEAT, 1, b""), 501),
        (frames.write_frame(frames.BODY, 0, b"x"), 501),
        (b"\1\0\1\xff\xff\xff\xff", 501),
        (b"\1\0\1\0\0\0\4\0\x3c\0\x28\0", 501),
        (HEADER, 505),
        (BODY, 505),
        (PUBLISH + PUBLISH, 505),
        (PUBLISH + BODY, 505),
        (PUBLISH + HEADER + frames.write_frame(frames.BODY, 1, b"abcd"), 505),
        (PUBLISH + frames.write_frame(frames.HEADER, 1, b"x"), 502),
        (PUBLISH + HEADER + method(commands.Basic.Qos()), 505),
        (method(commands.Basic.Publish(0, "", "q", False, True)), 540),
        (method(commands.Channel.Open()), 504),
        (method(commands.Connection.Open("/"), 0), 503),
        (method(commands.Tx.Select()), 540),
        (method(commands.Channel.Open(), 2048), 504),
    ],
    ids=range(21),
)
def test_what_is_wrong_closes_the_connection_with_a_code(client: Client, said: bytes, code: int) -> None:
    close = client.open().say(said).until(commands.Connection.Close)
    assert isinstance(close, commands.Connection.Close)
    assert close.reply_code == code
    assert client.next() is None


def test_before_the_login_only_a_login_is_possible(client: Client) -> None:
    client.say(PROTOCOL_HEADER, method(commands.Channel.Open()))
    close = client.until(commands.Connection.Close)
    assert isinstance(close, commands.Connection.Close)
    assert close.reply_code == 504


def test_frames_before_the_login_are_small(client: Client) -> None:
    client.say(PROTOCOL_HEADER, b"\1\0\0" + (5000).to_bytes(4))
    close = client.until(commands.Connection.Close)
    assert isinstance(close, commands.Connection.Close)
    assert close.reply_code == 501


def test_the_header_comes_in_pieces(client: Client) -> None:
    for byte in PROTOCOL_HEADER:
        client.say(bytes((byte,)))
    assert client.until(commands.Connection.Start) is not None


@pytest.mark.parametrize("response", ["\0guest\0wrong", "\0anna\0guest", "", "\0\0", "x"])
def test_where_no_user_has_a_password_only_guests_log_in(client: Client, response: str) -> None:
    client.say(PROTOCOL_HEADER)
    assert client.until(commands.Connection.Start) is not None
    client.say(method(commands.Connection.StartOk({}, "PLAIN", response, "en_US"), 0))
    assert client.until(commands.Connection.Tune, commands.Connection.Close) is None


def test_other_virtual_hosts_are_refused(client: Client) -> None:
    close = client.log_in(host="other").until(commands.Connection.Close)
    assert isinstance(close, commands.Connection.Close)
    assert close.reply_code == 530


def test_without_the_option_the_header_of_amqp_1_0_answers(start_broker: StartBroker) -> None:
    sock = socket.create_connection(("127.0.0.1", start_broker().port))
    sock.settimeout(DEADLINE_S)
    sock.sendall(PROTOCOL_HEADER)
    assert sock.recv(8) == b"AMQP\0\1\0\0"
    sock.close()


def test_tables_of_declarations_are_bounded(client: Client) -> None:
    deep = b""
    for _ in range(3000):
        deep = b"\1tF" + len(deep).to_bytes(4) + deep
    arguments = len(deep).to_bytes(4) + deep
    payload = b"\0\x32\0\x0a\0\0\1q\0" + arguments
    close = client.open().say(frames.write_frame(frames.METHOD, 1, payload)).until(commands.Connection.Close)
    assert isinstance(close, commands.Connection.Close)
    assert close.reply_code == 502


def test_a_message_that_is_cut_off_is_dropped(client: Client, port: int) -> None:
    client.open().say(method(commands.Queue.Declare(0, "q")))
    assert client.until(commands.Queue.DeclareOk) is not None
    header = frames.write_frame(frames.HEADER, 1, struct.pack(">HHQH", 60, 0, 1 << 20, 0))
    client.say(PUBLISH, header, frames.write_frame(frames.BODY, 1, bytes(100_000)))
    client.sock.close()
    other = Client(port).open()
    other.say(method(commands.Queue.Declare(0, "q", True)))
    found = other.until(commands.Queue.DeclareOk)
    assert isinstance(found, commands.Queue.DeclareOk)
    assert found.message_count == 0
    other.sock.close()


def test_mandatory_messages_that_wait_are_bounded(client: Client) -> None:
    client.open().say(method(commands.Queue.Declare(0, "q")))
    assert client.until(commands.Queue.DeclareOk) is not None
    publish = method(commands.Basic.Publish(0, "", "q", True))
    client.say(publish, frames.write_frame(frames.HEADER, 1, struct.pack(">HHQH", 60, 0, 17 << 20, 0)))
    close = client.until(commands.Channel.Close)
    assert isinstance(close, commands.Channel.Close)
    assert close.reply_code == 506


def test_too_large_messages_close_the_channel(client: Client) -> None:
    client.open().say(PUBLISH, frames.write_frame(frames.HEADER, 1, struct.pack(">HHQH", 60, 0, 1 << 40, 0)))
    close = client.until(commands.Channel.Close)
    assert isinstance(close, commands.Channel.Close)
    assert close.reply_code == 406
