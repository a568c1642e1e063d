"""A federated queue in use: two brokers as processes, clients, SIGKILL (D23)."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from proton import Message, ProtonException
from proton.reactor import Copy
from proton.utils import BlockingConnection

from cairnmq.tools.soak.servers import free_port
from tests.harness.process import CAIRNMQ, BrokerProcess

DEADLINE_S = 180.0


def until(found: Callable[[], Any], what: str) -> Any:
    end_s = time.monotonic() + DEADLINE_S
    while not (there := found()):
        assert time.monotonic() < end_s, what
        threading.Event().wait(0.05)
    return there


class Site:
    """A broker process that can be killed and started again."""

    def __init__(self, store_dir: Path, *options: str) -> None:
        self.port = free_port()
        self.store_dir = store_dir
        self._options = options
        self.start()

    def start(self) -> None:
        self.process = BrokerProcess(self.store_dir, "--port", str(self.port), *self._options)
        self.process.ready()

    def kill(self) -> None:
        self.process.stop(signal.SIGKILL)

    def ctl(self, *words: str) -> Any:
        command = [CAIRNMQ, "ctl", "--url", f"amqp://127.0.0.1:{self.port}", "--timeout", "60", "--json", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else None

    def connect(self) -> BlockingConnection:
        return BlockingConnection(f"127.0.0.1:{self.port}", timeout=DEADLINE_S)

    def send(self, body: object, address: str = "q") -> None:
        """Send a message on a new connection: an open one would send no heartbeats while other processes run."""
        connection = self.connect()
        connection.create_sender(address).send(Message(body=body, durable=True))
        connection.close()

    def bodies(self, count: int) -> list[Any]:
        """Consume *count* messages of the queue `q`, durably; return their bodies in order."""
        connection = self.connect()
        receiver = connection.create_receiver("q", credit=100)
        found = []
        for _ in range(count):
            found.append(receiver.receive(timeout=DEADLINE_S).body)
            receiver.accept()
        connection.close()
        self.send("when this is durable, all that is", "behind")
        return found


class Client(threading.Thread):
    """A thread that sends numbers to the queue and consumes some, and reconnects when the broker was killed."""

    def __init__(self, site: Site) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self._site = site
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            with suppress(ProtonException, OSError):
                self._use(self._site.connect())

    def _use(self, connection: BlockingConnection) -> None:
        sender = connection.create_sender("q")
        while not self._over.is_set():
            for _ in range(3):
                sender.send(Message(body=self.sent, durable=True))
                self.sent += 1
            receiver = connection.create_receiver("q", credit=2)
            for _ in range(2):
                receiver.receive(timeout=DEADLINE_S)
                receiver.accept()
            receiver.close()
        connection.close()

    def is_beyond(self, sent: int) -> bool:
        return self.sent > sent

    def stop(self) -> None:
        self._over.set()
        self.join(DEADLINE_S)
        assert not self.is_alive()


@pytest.fixture(params=[(), ("--cluster-size", "1")], ids=["brokers", "clusters of one"])
def sites(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Site, Site]]:
    here, there = [("--cluster-name", name, *request.param) if request.param else () for name in ("here", "there")]
    source = Site(tmp_path / "source", *there)
    follower = Site(tmp_path / "follower", "--connect-to", f"amqp://127.0.0.1:{source.port}?name=there", *here)
    yield source, follower
    for site in (source, follower):
        if site.process.process.poll() is None:
            site.kill()


def following(follower: Site) -> Any:
    return follower.ctl("federated-queues", "show", "q")


def test_a_queue_in_use_is_followed_killed_and_taken_over(sites: tuple[Site, Site]) -> None:  # D23
    source, follower = sites
    client = Client(source)
    client.start()
    until(lambda: client.sent > 30, "the client sends")
    follower.ctl("federated-queues", "create", "q", "there")
    until(lambda: following(follower)["complete"], "it is complete")
    for killed in (follower, source, follower, source):
        before = client.sent
        killed.kill()
        killed.start()
        until(partial(client.is_beyond, before + 15), "the client goes on")
    client.stop()
    count = source.ctl("queues", "show", "q")["messages"]
    (feeder,) = until(lambda: source.ctl("downstreams", "list"), "it is followed again")
    assert feeder["queue"] == "q"
    source_bodies = browse(source, count)
    until(lambda: (now := following(follower))["messages"] == count and now["state"] == "up", "it has caught up")
    until(lambda: following(follower)["lag-seconds"] < 5, "it hears that there is nothing new")
    place = following(follower)["place"]
    assert place <= source.ctl("store")["durable-lsn"]
    source.kill()
    told = follower.ctl("federated-queues", "promote", "q", "--yes")
    assert told is None or "promoted" in json.dumps(told)
    assert follower.bodies(count) == source_bodies
    assert follower.ctl("queues", "show", "q")["messages"] == 0
    follower.kill()
    follower.start()
    assert follower.ctl("queues", "show", "q")["messages"] == 0
    assert follower.ctl("federated-queues", "list") == []


def test_the_source_keeps_its_log_for_a_follower_that_comes_back_and_for_no_other(sites: tuple[Site, Site]) -> None:
    source, follower = sites
    source.send(0)
    federated = partial(follower.ctl, "federated-queues", "show")
    follower.ctl("federated-queues", "create", "copy", "there", "--source", "q")
    until(lambda: federated("copy")["complete"], "it is complete")
    marks = source.store_dir / "bookmarks"
    (mark,) = marks.iterdir()
    follower.process.stop()
    assert [*marks.iterdir()] == [mark]
    source.send(1)
    follower.start()
    until(lambda: federated("copy")["messages"] == 2, "it goes on")
    follower.ctl("federated-queues", "resynchronize", "copy", "--yes")
    until(lambda: (now := federated("copy"))["complete"] and now["messages"] == 2, "it is complete again")
    follower.ctl("federated-queues", "delete", "copy", "--yes")
    until(lambda: not [*marks.iterdir()], "nothing is kept any more")
    assert follower.ctl("federated-queues", "list") == []


def browse(site: Site, count: int) -> list[Any]:
    """Return the bodies of *count* messages on the queue `q`, in order, without consuming them."""
    connection = site.connect()
    receiver = connection.create_receiver("q", credit=max(1, count), options=Copy())
    found = [receiver.receive(timeout=DEADLINE_S).body for _ in range(count)]
    connection.close()
    return found
