"""Tests of clients in other languages: proton's C++ library, and rhea on Node.js.

Two small programs, `client.cpp` and `client.js`, have the same commands:

    HOST:PORT send ADDRESS COUNT settled|unsettled SIZE            prints `sent COUNT`
    HOST:PORT receive ADDRESS OUTCOMES settled|unsettled SIZE      prints `received COUNT`
    HOST:PORT ask ADDRESS QUESTION                                 prints `answered ...`

OUTCOMES has a letter for each message to receive: accept, x for reject, release, modify. The n-th message has n as its
subject and (n + i) % 251 as its i-th byte, and a receiver checks both. A refused link is printed as `refused: WHY`.
"""

from __future__ import annotations

import os
import subprocess

import pytest
from proton import Delivery, Message

from tests.harness.clients.peers import Peer
from tests.harness.process import BrokerProcess

from .programs import TIMEOUT_S, Program, run

MIB = 1 << 20


def body_of(number: int, size: int) -> bytes:
    cycle = bytes((number + at) % 251 for at in range(251))
    return (cycle * (size // 251 + 1))[:size]


def put(peer: Peer, address: str, count: int, size: int) -> None:
    messages = [Message(subject=str(n), body=body_of(n, size), durable=True, inferred=True) for n in range(count)]
    peer.send(peer.sender(address), *messages)


modes = pytest.mark.parametrize("mode", ["settled", "unsettled"])
sizes = pytest.mark.parametrize(("count", "size"), [(1, 0), (300, 100), (20, 70_000), (2, 10 * MIB)])


@modes
@sizes
def test_it_sends(
    program: Program, running: BrokerProcess, peer: Peer, address: str, mode: str, count: int, size: int
) -> None:
    assert run(program, running, "send", address, count, mode, size) == f"sent {count}"
    received = peer.take(peer.receiver(address, count), count)
    assert [message.body for message in received] == [body_of(number, size) for number in range(count)]
    assert all(message.message.durable for message in received)


@modes
@sizes
def test_it_receives(
    program: Program, running: BrokerProcess, peer: Peer, address: str, mode: str, count: int, size: int
) -> None:
    put(peer, address, count, size)
    assert run(program, running, "receive", address, "a" * count, mode, size) == f"received {count}"
    assert peer.drain(peer.receiver(address), 10) == []


@modes
@pytest.mark.parametrize("size", [1000, 3 * MIB])
def test_one_sends_to_the_other(
    cpp: Program, rhea: Program, running: BrokerProcess, address: str, mode: str, size: int
) -> None:
    for sender, receiver in ((cpp, rhea), (rhea, cpp)):
        assert run(sender, running, "send", address, 10, mode, size) == "sent 10"
        assert run(receiver, running, "receive", address, "a" * 10, mode, size) == "received 10"


@pytest.mark.parametrize("size", [10, MIB])
def test_outcomes(
    program: Program, running: BrokerProcess, peer: Peer, address: str, size: int, request: pytest.FixtureRequest
) -> None:  # B2.4
    """Released and modified messages remain in order, others are dequeued; proton's C++ can't set `delivery-failed`."""
    put(peer, address, 8, size)
    assert run(program, running, "receive", address, "axrmrxma", "unsettled", size) == "received 8"
    failed = int("rhea" in request.node.name)
    received = peer.take(peer.receiver(address, 8), 4)
    told = [(message.message.subject, message.message.delivery_count) for message in received]
    assert told == [("2", 0), ("3", failed), ("4", 0), ("6", failed)]
    assert {message.message.first_acquirer for message in received} == {False}
    for message in received:
        message.settle(Delivery.ACCEPTED)
    assert peer.drain(peer.receiver(address), 10) == []


def test_question_and_answer(program: Program, running: BrokerProcess, peer: Peer, address: str) -> None:  # B2.3, B2.8
    """A client receives the reply to its request on a dynamic node."""
    command, environment = program
    receiver = peer.receiver(address, 1)
    asking = subprocess.Popen(
        [*command, f"127.0.0.1:{running.port}", "ask", address, "why?"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    (question,) = peer.take(receiver)
    peer.send(peer.sender(None), Message(address=question.message.reply_to, body=question.body.upper()))
    assert asking.communicate(timeout=TIMEOUT_S)[0] == "answered WHY?\n"
    assert asking.returncode == 0


@pytest.mark.parametrize("verb", ["send", "receive"])
def test_an_address_that_is_none(program: Program, running: BrokerProcess, verb: str) -> None:  # B2.4, B2.10
    assert run(program, running, verb, "$nowhere", "1", "unsettled", 1) == "refused: amqp:not-found"
