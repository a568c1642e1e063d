"""Clients in other languages: proton's C++ library, and rhea on Node.js.

Two small programs, `client.cpp` and `client.js`, do the same when asked the same:

    HOST:PORT send ADDRESS COUNT settled|unsettled SIZE            says `sent COUNT`
    HOST:PORT receive ADDRESS OUTCOMES settled|unsettled SIZE      says `received COUNT`
    HOST:PORT ask ADDRESS QUESTION                                 says `answered ...`

OUTCOMES has a letter for each message to receive: accept, x for reject, release, modify. The n-th message has n as its
subject and (n + i) % 251 as its i-th byte, and a receiver checks both. A refused link is told as `refused: WHY`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Delivery, Message

from tests.clients.peers import Peer
from tests.process import BrokerProcess, broker

HERE = Path(__file__).parent
MIB = 1 << 20
TIMEOUT_S = 120
Program = tuple[list[str], dict[str, str]]
"""A command, and what to add to its environment."""


@pytest.fixture(scope="session")
def cpp(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The C++ client, compiled; without pkg-config, as Debian's libqpid-proton-cpp.pc requires what isn't there."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++: apt-get install g++ libqpid-proton-cpp12-dev")
    program = tmp_path_factory.mktemp("cpp") / "client"
    source = str(HERE / "client.cpp")
    command = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-o", str(program), source, "-lqpid-proton-cpp"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    if "proton/connection.hpp: No such file" in made.stderr:
        pytest.skip("there is no proton for C++: apt-get install libqpid-proton-cpp12-dev")
    assert made.returncode == 0, made.stderr
    assert not made.stderr
    return [str(program)], {}


@pytest.fixture(scope="session")
def rhea(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The rhea client; rhea is installed for this run only."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("there is no npm or node: apt-get install nodejs npm")
    place = tmp_path_factory.mktemp("rhea")
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(place), "rhea@3.0.5"]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert installed.returncode == 0, installed.stderr
    return [node, str(HERE / "client.js")], {"NODE_PATH": str(place / "node_modules")}


@pytest.fixture(params=["cpp", pytest.param("rhea", marks=pytest.mark.interop)])
def program(request: pytest.FixtureRequest) -> Program:
    chosen: Program = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(tmp_path_factory.mktemp("interop") / "store") as started:
        yield started
        assert started.stop() == 0


@pytest.fixture
def peer(running: BrokerProcess) -> Iterator[Peer]:
    connected = Peer(running.port)
    yield connected
    connected.close()


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    return str(request.node.name)


def run(program: Program, running: BrokerProcess, *arguments: object) -> str:
    command, environment = program
    done = subprocess.run(
        [*command, f"127.0.0.1:{running.port}", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


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
) -> None:
    """What is accepted or rejected is gone, the rest is there in order. Proton's C++ can't say `delivery-failed`."""
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


def test_question_and_answer(program: Program, running: BrokerProcess, peer: Peer, address: str) -> None:
    """The reply goes to a dynamic node."""
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
def test_an_address_that_is_none(program: Program, running: BrokerProcess, verb: str) -> None:
    assert run(program, running, verb, "$nowhere", "1", "unsettled", 1) == "refused: amqp:not-found"
