"""Containers that are not ours at the far end of link routes and auto-links: proton's example broker, and rhea."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import ConnectionException, Message
from proton.utils import BlockingConnection, LinkDetached

from tests.process import broker
from tests.router.joined import until

from .programs import HERE, TIMEOUT_S, Program

PYTHON_BROKER = Path("/usr/share/proton/examples/python/broker.py")


@pytest.fixture
def proton_broker() -> Iterator[int]:
    """Proton's Python example, as Debian installs it, at its port."""
    if not PYTHON_BROKER.exists():
        pytest.skip(f"{PYTHON_BROKER} is not there: apt-get install libqpid-proton11-dev-examples")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with subprocess.Popen([sys.executable, str(PYTHON_BROKER), "-a", f"127.0.0.1:{port}"]) as process:
        try:
            yield port
        finally:
            process.kill()


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


@pytest.fixture(params=["proton_broker", pytest.param("rhea_broker", marks=pytest.mark.interop)])
def far_port(request: pytest.FixtureRequest) -> int:
    """Where it listens."""
    return int(request.getfixturevalue(request.param))


@pytest.mark.timeout(300)
def test_links_go_on_and_queues_are_joined(far_port: int, tmp_path: Path) -> None:  # C42, C60
    """Sent over a link route to a queue there, from there by an auto-link to one here, and by another one back."""
    options = (
        "--connect-to", f"amqp://127.0.0.1:{far_port}?name=hub", "--link-route", "hub.*=hub,strip=hub.",
        "--auto-link", "in:jobs@hub:far-jobs", "--auto-link", "out:results@hub:far-results",
    )  # fmt: skip
    with broker(tmp_path / "store", *options) as running:
        here = BlockingConnection(f"127.0.0.1:{running.port}", timeout=60)
        senders = []

        def routed() -> bool:
            try:
                senders.append(here.create_sender("hub.far-jobs"))
            except (LinkDetached, ConnectionException):  # not connected yet
                return False
            return True

        until(routed, "the connector to be up")
        bodies = [f"{number}".encode() * 1000 for number in range(20)] + [bytes(300_000)]
        for body in bodies:
            senders[-1].send(Message(body=body, durable=True))
        worker, results = here.create_receiver("jobs", credit=30), here.create_sender("results")
        for body in bodies:
            message = worker.receive()  # proton's body is a view of memory that goes with the message
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
