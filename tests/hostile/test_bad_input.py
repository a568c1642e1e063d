"""Tests that invalid input closes its connection with the correct error, and affects no other connection."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.harness.process import DEADLINE_S, BrokerProcess, broker

AMQP = b"AMQP\x00\x01\x00\x00"
SASL = b"AMQP\x03\x01\x00\x00"


def frame(body: bytes, *, kind: int = 0, offset: int = 2) -> bytes:
    return struct.pack(">IBBH", 8 + len(body), offset, kind, 0) + body


OPEN = frame(b"\x00\x53\x10\xc0\x04\x01\xa1\x01x")
BEGIN = frame(b"\x00\x53\x11\xc0\x0b\x04\x40\x43\x70\x00\x00\x10\x00\x52\xff")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(tmp_path_factory.mktemp("hostile") / "data") as started:
        yield started


def say(running: BrokerProcess, data: bytes) -> bytes:
    """Send *data*, and return everything that the broker sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=DEADLINE_S) as sock:
        sock.sendall(data)
        answer = b""
        try:
            while more := sock.recv(65536):
                answer += more
        except ConnectionResetError:
            pass
        return answer


def assert_others_never_noticed(running: BrokerProcess) -> None:
    assert running.process.poll() is None
    connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
    connection.create_sender("others").send(Message(body="still here", durable=True))
    assert connection.create_receiver("others").receive(timeout=DEADLINE_S).body == "still here"
    connection.close()


@pytest.mark.parametrize(
    "header",
    [b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x00", b"\x16\x03\x01\x02\x00\x01\x00\x01"],
)
def test_a_wrong_protocol_header_is_answered_with_the_right_one(running: BrokerProcess, header: bytes) -> None:
    assert say(running, header) == AMQP
    assert_others_never_noticed(running)


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        pytest.param(frame(b"\x00\x53\x77\xc0\x01\x00"), b"amqp:decode-error", id="unknown performative"),
        pytest.param(frame(b"no performative at all"), b"amqp:decode-error", id="not even a described value"),
        pytest.param(frame(b"\x00\x53\x11\x41"), b"amqp:decode-error", id="a performative that is no list"),
        pytest.param(frame(b"\x00\x53\x77\xc0\x01\x00", kind=7), b"amqp:decode-error", id="unknown frame type"),
        pytest.param(struct.pack(">IBBH", 4, 2, 0, 0), b"amqp:connection:framing-error", id="smaller than its head"),
        pytest.param(frame(b"", offset=1), b"amqp:connection:framing-error", id="data offset inside the head"),
        pytest.param(frame(b"", offset=200), b"amqp:connection:framing-error", id="data offset beyond the end"),
        pytest.param(struct.pack(">IBBH", 10 << 20, 2, 0, 0) + bytes(64), b"framing-error", id="larger than allowed"),
        pytest.param(frame(b"\x00\x53\x14\xc0\x03\x02\x43\x43"), b"amqp:not-allowed", id="transfer without a session"),
        pytest.param(BEGIN + frame(b"\x00\x53\x14\xc0\x03\x02\x43\x43"), b"amqp:", id="transfer without a link"),
    ],
)
def test_a_broken_frame_closes_its_connection_with_an_error(
    running: BrokerProcess, data: bytes, condition: bytes
) -> None:
    answer = say(running, AMQP + OPEN + data)
    assert condition in answer
    assert b"\x00\x53\x18" in answer, "a close performative"
    assert_others_never_noticed(running)


def test_half_a_frame_and_a_vanished_client_are_no_harm(running: BrokerProcess) -> None:
    for data in (b"AM", AMQP, AMQP + OPEN, AMQP + OPEN + struct.pack(">IBBH", 100, 2, 0, 0) + b"half", SASL + b"\0"):
        with socket.create_connection(("127.0.0.1", running.port), timeout=DEADLINE_S) as sock:
            sock.sendall(data)
    assert_others_never_noticed(running)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">IBBH", 1 << 30, 2, 1, 0), id="a frame of 1 GiB"),
        pytest.param(struct.pack(">IBBH", 600, 2, 1, 0) + bytes(592), id="a frame above 512 bytes"),
        pytest.param(frame(b"\x00\x53\x41\xd0\xff\xff\xff\xff\xff\xff\xff\xff", kind=1), id="a list of 4 GiB"),
        pytest.param(frame(b"\x00\x53\x41\xc0\x09\x01\xa3\x05PLAIN", kind=1), id="a mechanism not offered"),
        pytest.param(frame(b"\x00\x53\x42\xc0\x02\x01\x40", kind=1), id="a response to no challenge"),
        pytest.param(OPEN, id="AMQP before authentication"),
    ],
)
def test_broken_sasl_ends_that_connection_only(running: BrokerProcess, data: bytes) -> None:  # A8, A9, A11
    answer = say(running, SASL + data)
    assert answer.startswith(SASL)
    assert AMQP not in answer
    assert_others_never_noticed(running)


def test_random_bytes_never_end_the_broker(running: BrokerProcess) -> None:
    chance = random.Random(20261121)
    valid = AMQP + OPEN + BEGIN + frame(b"\x00\x53\x12\xc0\x0c\x05\xa1\x01l\x43\x42\x40\x40")
    for _ in range(300):
        data = bytearray(valid)
        for _ in range(chance.randrange(1, 8)):
            data[chance.randrange(8, len(data))] = chance.randrange(256)
        with socket.create_connection(("127.0.0.1", running.port), timeout=DEADLINE_S) as sock:
            sock.sendall(data[: chance.randrange(8, len(data) + 1)])
            with suppress(OSError):  # the broker may have closed the connection
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass
    assert_others_never_noticed(running)


def test_a_message_above_the_limit_closes_its_link_only(tmp_path: Path) -> None:
    with broker(tmp_path / "data", "--max-message-size", "100000") as running:
        connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
        sender = connection.create_sender("small")
        with pytest.raises(Exception, match="message-size-exceeded"):
            sender.send(Message(body=bytes(200_000), durable=True))
        connection.create_sender("small", name="again").send(Message(body=bytes(90_000), durable=True))
        assert len(connection.create_receiver("small").receive(timeout=DEADLINE_S).body) == 90_000
        connection.close()
