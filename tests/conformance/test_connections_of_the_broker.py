"""Tests that forbidden frames from a peer that the broker connects to close only the endpoint they concern."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from cairnmq.amqp.codec.types import Described, Ubyte, Uint, Ushort
from tests.clients.conftest import StartBroker, start_broker
from tests.harness.router import raw
from tests.harness.router.raw import Frame, RawServer, attach, begin, frame, opening, transfer

__all__ = ["start_broker"]
CREDIT = 6
"""Index of link-credit in the fields of a flow."""
BODY = b"\x00\x53\x77\x43"


@pytest.fixture
def listener(start_broker: StartBroker) -> Iterator[socket.socket]:
    """Yield a listening socket to which a broker connects to receive messages from a node by an auto-link."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        url = f"amqp://127.0.0.1:{found.getsockname()[1]}?name=there&sasl=no"
        start_broker(connect_to=(url,), auto_links=("in:inbox@there:node",))
        yield found


def begun(channel: int = 0, remote_channel: int = 0) -> bytes:
    return frame(raw.BEGIN, Ushort(remote_channel), Uint(0), Uint(2048), Uint(2048), channel=channel)


def answer(asked: Frame, *, has_count: bool = True, source: object = "node") -> bytes:
    """Return the sender's attach frame that answers *asked*."""
    name, count = asked.fields[0], Uint(0) if has_count else None
    termini = Described(Uint(raw.SOURCE), [source]), Described(Uint(raw.TARGET), ["inbox"])
    return frame(raw.ATTACH, name, Uint(0), False, Ubyte(0), Ubyte(0), *termini, None, None, count)


def attached(listener: socket.socket) -> RawServer:
    """Return a connection on which the broker's link is attached and the test has credit."""
    one = RawServer(listener, opening())
    one.until("begin")
    one.say(begun())
    one.say(answer(one.until("attach")))
    while not [*one.until("flow").fields, *[None] * 7][CREDIT]:
        pass
    return one


class Case(NamedTuple):
    """A frame on a connection that has a link on handle 0, and the performative that reports its error."""

    said: bytes
    ends: str
    condition: str


CASES = {
    "2.7.4: no link with that handle": Case(
        frame(raw.FLOW, Uint(0), Uint(9), Uint(0), Uint(9), Uint(5)), "end", "amqp:session:unattached-handle"
    ),
    "2.7.3: handle in use": Case(attach("other", 0, "q"), "end", "amqp:session:handle-in-use"),
    "2.7.5: transfer without handle": Case(frame(raw.TRANSFER, None, Uint(0), b"0"), "end", "amqp:invalid-field"),
    "2.7.4: flow without windows": Case(frame(raw.FLOW, Uint(0)), "end", "amqp:invalid-field"),
    "2.8.7: delivery-tag of 64 octets": Case(
        frame(raw.TRANSFER, Uint(0), Uint(0), b"t" * 64, payload=BODY), "detach", "amqp:invalid-field"
    ),
    "2.5.1: begin on a channel in use": Case(begin(), "close", "amqp:not-allowed"),
    "2.7.2: second answer to a session": Case(begun(channel=5), "close", "amqp:not-allowed"),
    "2.7.2: answer to no session": Case(begun(channel=5, remote_channel=9), "close", "amqp:not-allowed"),
    "2.5.1: no session on that channel": Case(frame(raw.END, channel=7), "close", "amqp:not-allowed"),
    "2.4.1: second open": Case(opening(), "close", "amqp:not-allowed"),
    "2.3: performative that cannot be decoded": Case(b"\0\0\0\x0a\2\0\0\0\0\x53", "close", "amqp:decode-error"),
}


@pytest.mark.parametrize("name", CASES)
def test_forbidden_frame_ends_what_it_concerns_and_the_broker_goes_on(listener: socket.socket, name: str) -> None:
    case = CASES[name]
    with attached(listener) as one:
        one.say(case.said)
        found = one.until(case.ends)
        assert found.error == case.condition
    with attached(listener) as one:
        one.say(transfer(0, 0, BODY))
        one.until("disposition")


@pytest.mark.parametrize("wrong", ["initial-delivery-count", "address"])
def test_forbidden_answer_to_an_attach_closes_the_link(listener: socket.socket, wrong: str) -> None:
    """The broker detaches after a forbidden attach response, and attaches the link again."""
    with RawServer(listener, opening()) as one:
        one.until("begin")
        one.say(begun())
        asked = one.until("attach")
        one.say(answer(asked, has_count=False) if wrong == "initial-delivery-count" else answer(asked, source=5))
        assert one.until("detach").error == "amqp:invalid-field"
        one.say(frame(raw.DETACH, Uint(0), True))
        one.until("attach")


def test_frame_before_the_open_closes_the_connection(listener: socket.socket) -> None:
    with RawServer(listener, begin()) as one:
        assert one.until("close").error == "amqp:illegal-state"
    attached(listener).sock.close()


def test_echo_of_the_remote_container_is_answered(listener: socket.socket) -> None:  # D4
    with attached(listener) as one:
        one.say(transfer(0, 0, BODY), frame(raw.FLOW, Uint(0), Uint(9), Uint(1), Uint(9), *[None] * 5, True))
        while one.until("flow").fields[0] != 1:
            pass


def test_sessions_freed_by_a_hostile_answer_are_not_used(listener: socket.socket) -> None:
    """Sessions that a hostile begin maps to a second channel are not used after they are freed (a proton defect)."""
    with attached(listener) as one:
        ends = [frame(raw.END, channel=channel) for channel in (5, 0)]
        one.say(begun(channel=5), *ends, *[attach(f"a{number}" * 40, number, "q") for number in range(4)])
        assert one.rest()[-1].error == "amqp:not-allowed"
    attached(listener).sock.close()
