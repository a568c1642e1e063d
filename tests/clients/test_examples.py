"""Tests of Proton's published Python examples, unchanged, as Debian installs them.

Each runs in a process of its own, in this interpreter's environment; `at_port` replaces their port, 5672, with the
broker's.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proton import Message

from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import DEADLINE_S, Peer

EXAMPLES = Path("/usr/share/proton/examples/python")
AT_PORT = Path(__file__).parents[1] / "harness" / "clients" / "at_port.py"
VERSE = [
    "Twas brillig, and the slithy toves",
    "Did gire and gymble in the wabe.",
    "All mimsy were the borogroves,",
    "And the mome raths outgrabe.",
]

# B2.1
pytestmark = pytest.mark.skipif(
    not EXAMPLES.is_dir(), reason=f"{EXAMPLES} is not there: apt-get install libqpid-proton11-dev-examples"
)

Start = Callable[..., "Example"]


class Example:
    """A running example program."""

    def __init__(self, port: int, directory: Path, name: str, *arguments: str) -> None:
        program = EXAMPLES / f"{name}.py"
        if not program.exists():
            pytest.skip(f"{program} is not there")
        command = [sys.executable, "-u", str(AT_PORT), str(port), str(program), *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory
        )
        self._killer = threading.Timer(DEADLINE_S, self.process.kill)
        self._killer.start()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def all_lines(self, told: str = "") -> list[str]:
        """Send *told* to the example, wait until it ends without an error, and return its output."""
        said, _ = self.process.communicate(told)
        assert self.process.returncode == 0, said
        return said.splitlines()

    def end(self) -> None:
        self._killer.cancel()
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def start(broker: RunningBroker, tmp_path: Path) -> Iterator[Start]:
    started: list[Example] = []

    def new(name: str, *arguments: str) -> Example:
        started.append(Example(broker.port, tmp_path, name, *arguments))
        return started[-1]

    yield new
    for example in started:
        example.end()


@pytest.mark.parametrize("name", ["helloworld", "helloworld_blocking"])
def test_hello_world(start: Start, name: str) -> None:
    assert start(name).all_lines() == ["Hello World!"]


def test_simple_send_and_receive(start: Start) -> None:
    receiver = start("simple_recv")
    assert start("simple_send").all_lines() == ["all messages confirmed"]
    assert receiver.all_lines() == [f"{{'sequence': {number}}}" for number in range(1, 101)]


def test_simple_send_to_a_named_queue(start: Start) -> None:
    address = ("-a", "localhost:5672/a/queue", "-m", "7")
    assert start("simple_send", *address).all_lines() == ["all messages confirmed"]
    assert len(start("simple_recv", *address).all_lines()) == 7


@pytest.mark.parametrize("client", ["client", "sync_client"])
@pytest.mark.parametrize("server_name", ["server", "server_tx"])
def test_client_and_server(start: Start, peer: Peer, server_name: str, client: str) -> None:
    """The reply goes to a dynamic node, through the anonymous relay, in a transaction if the server uses them."""
    server = start(server_name)
    if server_name == "server":
        assert server.line().startswith("Listening on")
    assert start(client).all_lines() == [f"{line} => {line.upper()}" for line in VERSE]


def test_queue_browser(start: Start, peer: Peer) -> None:
    """The browser ends when it has shown all that has arrived, so the number of messages it shows depends on timing."""
    sender = peer.sender("examples")
    peer.send(sender, *(Message(body=f"message {number}", durable=True) for number in range(25)))
    said = start("queue_browser").all_lines()
    assert said
    assert all(f"message {number}" in line for number, line in enumerate(said))
    assert len(peer.drain(peer.receiver("examples"), 100)) == 25


def test_colour_send(start: Start, peer: Peer) -> None:
    assert start("colour_send", "-m", "10").all_lines() == ["all messages confirmed"]
    received = peer.drain(peer.receiver("examples"), 100)
    assert [message.message.properties["colour"] for message in received] == ["green", "red"] * 5


def test_selected_recv(start: Start) -> None:
    assert start("colour_send", "-m", "10").all_lines() == ["all messages confirmed"]
    assert start("selected_recv", "-m", "5").all_lines() == [f"green {number}" for number in range(1, 10, 2)]


def test_abstract_server(start: Start) -> None:
    """The program consists of a library and its user."""
    server = start("abstract_server")
    assert start("client").all_lines() == [f"{line} => {line.upper()}" for line in VERSE]
    assert server.line().startswith("Request from: ")


def test_from_database_to_database(start: Start) -> None:
    """The source deletes a record when its message is settled; the target accepts the message after the insertion."""
    for name in ("src_db", "dst_db"):
        assert start("db_ctrl", "init", name).all_lines() == []
    assert start("db_ctrl", "insert", "src_db").all_lines("one\ntwo\nthree\n") == []
    receiver = start("db_recv", "-m", "3")
    assert [line for line in start("db_send", "-m", "3").all_lines() if "settled" in line] == [
        f"settled message {number}" for number in (1, 2, 3)
    ]
    assert receiver.all_lines() == [f"inserted message {number}" for number in (1, 2, 3)]
    said = start("db_ctrl", "list", "dst_db").all_lines()
    assert said == ["(1, 'one')", "(2, 'two')", "(3, 'three')"]
    assert start("db_ctrl", "list", "src_db").all_lines() == []


def test_transactions(start: Start) -> None:
    assert start("tx_send", "-m", "40", "-b", "8").all_lines() == ["all messages committed"]
    assert start("tx_recv", "-m", "40", "-b", "8").all_lines() == [f"{{'sequence': {n}}}" for n in range(1, 41)]


def test_interactive_transactions(start: Start) -> None:
    """Messages that the client settled in an aborted transaction are delivered again."""
    assert start("tx_send", "-m", "3", "-b", "3").all_lines() == ["all messages committed"]
    receiver = start("tx_recv_interactive")
    for command, answers in (
        (None, ["Enter 'fetch', 'commit' or 'abort'", "transaction declared"]),
        ("fetch", ["{'sequence': 1}"]),
        ("fetch", ["{'sequence': 2}"]),
        ("abort", ["transaction aborted", "transaction declared"]),
        ("fetch", ["{'sequence': 1}"]),
        ("commit", ["transaction committed", "transaction declared"]),
        ("fetch", ["{'sequence': 2}"]),
    ):
        if command:
            receiver.say(command)
        assert sorted(receiver.line() for _ in answers) == sorted(answers)
