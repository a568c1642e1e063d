"""Tests of link routes and auto-links to other brokers: proton's example brokers and one with rhea."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection, LinkDetached

from cairnmq.tools.soak.servers import free_port
from tests.harness.clients.peers import Peer
from tests.harness.process import broker
from tests.harness.router.joined import until

from .programs import HERE, TIMEOUT_S, Program, compiled

BURST = [f"burst {number}" for number in range(300)]
EXAMPLES = Path("/usr/share/proton/examples")


class FarBroker:
    """A process of one of proton's example brokers from Debian, which keep their queues in memory."""

    def __init__(self, *command: str) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def start(self) -> None:
        """Start the broker at its port, which is the same for each start."""
        self._process = subprocess.Popen([*self._command, "-a", f"127.0.0.1:{self.port}"], stdout=subprocess.DEVNULL)
        until(self._listens, "it to listen")

    def _listens(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def example(path: str) -> str:
    if not (EXAMPLES / path).exists():
        pytest.skip(f"{EXAMPLES / path} is not there: apt-get install libqpid-proton11-dev-examples")
    return str(EXAMPLES / path)


@pytest.fixture
def python_broker() -> Iterator[FarBroker]:
    found = FarBroker(sys.executable, example("python/broker.py"))
    yield found
    found.kill()


@pytest.fixture(scope="session")
def cpp_example(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile proton's example broker in C++, and return the path of the program."""
    return compiled(Path(example("cpp/broker.cpp")), tmp_path_factory.mktemp("cpp-broker") / "broker")


@pytest.fixture
def cpp_broker(cpp_example: str) -> Iterator[FarBroker]:
    found = FarBroker(cpp_example)
    yield found
    found.kill()


@pytest.fixture(params=["python_broker", "cpp_broker"])
def proton_broker(request: pytest.FixtureRequest) -> FarBroker:
    found: FarBroker = request.getfixturevalue(request.param)
    found.start()
    return found


@pytest.fixture
def rhea_broker(rhea: Program) -> Iterator[int]:
    (node, _), environment = rhea
    with subprocess.Popen([node, str(HERE / "far.js")], stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], TIMEOUT_S)[0], "it did not start"
            yield int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.kill()


@pytest.fixture(params=["python_broker", "cpp_broker", pytest.param("rhea_broker", marks=pytest.mark.interop)])
def far_port(request: pytest.FixtureRequest) -> int:
    """Return the port of the broker at the far end, started if necessary."""
    found = request.getfixturevalue(request.param)
    if isinstance(found, FarBroker):
        found.start()
        return found.port
    return int(found)


def take_all(receiver: Any) -> None:
    """Receive and accept messages until the link is detached."""
    while receiver.receive():
        receiver.accept()


def wait_for_route(port: int) -> None:
    """Wait until the other broker accepts links over the route."""
    peer = Peer(port)

    def goes_on() -> bool:
        link = peer.attach(peer.new_session().sender("try"), "hub.far-jobs")
        return link.remote_target.address is not None

    until(goes_on, "the connector to be up")
    peer.close()


@pytest.mark.timeout(900)
def test_links_go_on_and_queues_are_joined(far_port: int, tmp_path: Path) -> None:  # C42, C60
    """Messages pass a link route to a remote queue, an auto-link to a local queue, and another auto-link back."""
    options = (
        "--connect-to", f"amqp://127.0.0.1:{far_port}?name=hub", "--link-route", "hub.*=hub,strip=hub.",
        "--auto-link", "in:jobs@hub:far-jobs", "--auto-link", "out:results@hub:far-results",
    )  # fmt: skip
    with broker(tmp_path / "store", *options) as running:
        here = BlockingConnection(f"127.0.0.1:{running.port}", timeout=180)
        wait_for_route(running.port)
        sender = here.create_sender("hub.far-jobs")
        bodies = [f"{number}".encode() * 1000 for number in range(20)] + [bytes(300_000)]
        for body in bodies:
            sender.send(Message(body=body, durable=True))
        worker, results = here.create_receiver("jobs", credit=30), here.create_sender("results")
        for body in bodies:
            message = worker.receive()  # proton's body is a view of memory that is freed with the message
            assert bytes(message.body) == body
            worker.accept()
            results.send(Message(body=body[:10], durable=True))
        for credit, address in ((5, "hub.far-results"), (1, "hub.far-one"), (2, "hub.far-two")):
            if credit < 5:
                sender = here.create_sender(address)
                for body in bodies:
                    sender.send(Message(body=body[:10], durable=True))
            routed_receiver = here.create_receiver(address, credit=credit)
            for body in bodies:
                message = routed_receiver.receive()
                assert bytes(message.body) == body[:10]
                routed_receiver.accept()
        here.close()
        assert running.stop() == 0


@pytest.mark.timeout(900)
def test_a_container_is_killed_and_comes_back(proton_broker: FarBroker, tmp_path: Path) -> None:  # C42, C60
    """Messages that a killed remote broker did not accept remain on this broker, and are sent after the restart."""
    options = (
        "--connect-to", f"amqp://127.0.0.1:{proton_broker.port}?name=hub", "--link-route", "hub.*=hub,strip=hub.",
        "--auto-link", "in:jobs@hub:far-jobs", "--auto-link", "out:results@hub:far-results",
    )  # fmt: skip
    with broker(tmp_path / "store", *options) as running:
        here = BlockingConnection(f"127.0.0.1:{running.port}", timeout=180)
        worker, results = here.create_receiver("jobs", credit=100), here.create_sender("results")
        peer = Peer(running.port)
        sends = peer.sender("results")
        for life in range(3):
            wait_for_route(running.port)
            over = BlockingConnection(f"127.0.0.1:{running.port}", timeout=180)
            sender = over.create_sender("hub.far-jobs")
            receiver = over.create_receiver("hub.far-results", credit=100)
            for number in range(10):
                sender.send(Message(body=f"{life}.{number}", durable=True))
                assert worker.receive().body == f"{life}.{number}"
                worker.accept()
                results.send(Message(body=f"back {life}.{number}", durable=True))
            last, found = f"back {life}.9", [""]
            while found[-1] != last:
                found.append(str(receiver.receive().body))
                receiver.accept()
            away = [f"back {life - 1}.{number}" for number in range(10, 30)] if life else []
            wanted = [*away, *(f"back {life}.{number}" for number in range(10))]
            again = found[1 : -len(wanted)]
            assert found[-len(wanted) :] == wanted
            assert again == BURST[len(BURST) - len(again) :], "what was not accepted comes, and all of it"
            burst = [peer.post(sends, Message(body=body, durable=True)) for body in BURST]
            peer.settle_down()
            receiver.receive()  # the far broker has the first message; the others may be on either side
            proton_broker.kill()
            with pytest.raises(LinkDetached, match="amqp:link:detach-forced"):
                take_all(receiver)
            peer.wait(lambda: all(one.settled for one in burst), "all of it to be stored here")  # noqa: B023
            for number in range(10, 30):
                results.send(Message(body=f"back {life}.{number}", durable=True))
            assert peer.refusal(peer.attach(peer.session.sender(f"none {life}"), "hub.far-jobs")) == "amqp:not-found"
            with suppress(LinkDetached):  # raised for the other link
                over.close()
            proton_broker.start()
        peer.close()
        here.close()
        assert running.stop() == 0
