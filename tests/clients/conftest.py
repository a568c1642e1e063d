"""A broker in this process, a broker in a process of its own, and clients that are closed at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from proton.utils import BlockingConnection

from cairnmq.broker_plugin.options import BrokerOptions, Limits, RouterOptions, StoreOptions
from cairnmq.broker_plugin.run import RunningBroker

from .peers import DEADLINE_S, Peer

DEFAULTS = Limits()
MAIN = "from cairnmq.cli.main import main; main()"
StartBroker = Callable[..., RunningBroker]
NewPeer = Callable[..., Peer]
StartProcess = Callable[..., "Process"]
Connect = Callable[..., Any]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start brokers in this process, on stores of their own."""
    running: list[RunningBroker] = []

    def start(
        *,
        auto_create: tuple[str, ...] = ("*",),
        credit: int = 1000,
        worker_threads: int = 1,
        limits: Limits = DEFAULTS,
    ) -> RunningBroker:
        store_dir = str(tmp_path / f"store-{len(running)}")
        router = RouterOptions(port=0, worker_threads=worker_threads, limits=limits)
        broker = RunningBroker(BrokerOptions(store_dir, StoreOptions(), router, auto_create, credit))
        running.append(broker)
        return broker

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # as the command does
    try:
        yield start
    finally:
        sys.setswitchinterval(interval_s)
        for broker in running:
            failure = broker.failure
            broker.stop()
            assert failure is None


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_broker()


@pytest.fixture
def peer_at() -> Iterator[Callable[..., Peer]]:
    """Connect a peer to a port."""
    with ExitStack() as stack:

        def new(port: int, **options: Any) -> Peer:
            peer = Peer(port, **options)
            stack.callback(peer.cut)
            return peer

        yield new


@pytest.fixture
def new_peer(broker: RunningBroker, peer_at: NewPeer) -> NewPeer:
    """Connect a peer to the broker."""
    return lambda **options: peer_at(broker.port, **options)


@pytest.fixture
def peer(new_peer: NewPeer) -> Peer:
    return new_peer()


@pytest.fixture
def connect(broker: RunningBroker) -> Iterator[Connect]:
    """Connect with proton's blocking API."""
    with ExitStack() as stack:

        def new(port: int = broker.port, **options: Any) -> Any:
            connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE_S, **options)
            stack.callback(connection.close)
            return connection

        yield new


class Process:
    """`cairnmq broker`, run as a command."""

    def __init__(self, store_dir: Path, *arguments: str) -> None:
        command = [sys.executable, "-c", MAIN, "broker", "--store-dir", str(store_dir), "--port", "0"]
        self.process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), line
        self.port = int(line.rsplit(":", 1)[1])

    def stop(self) -> str:
        """Have it shut down; what it said."""
        self.process.send_signal(signal.SIGTERM)
        said, _ = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0
        return said

    def kill(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def start_process(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start `cairnmq broker` on the test's store; the same one each time."""
    started: list[Process] = []

    def start(*arguments: str) -> Process:
        started.append(Process(tmp_path / "store", *arguments))
        return started[-1]

    yield start
    for process in started:
        process.kill()
