"""The brokers and clients of `tests/clients`, and a client that sends frames of any content."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cairnmq.broker_plugin.run import RunningBroker
from tests.clients.conftest import broker, connect, new_peer, peer, peer_at, start_broker, start_process
from tests.harness.router.raw import Raw, Say, begin, opening

__all__ = ["broker", "connect", "new_peer", "peer", "peer_at", "start_broker", "start_process"]

BEGUN = begin()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time limit of clients that stream long messages, which wait for others on a busy machine."""
    monkeypatch.setattr("bench.wire.SILENCE_S", 600.0)


@pytest.fixture
def say(broker: RunningBroker) -> Iterator[Say]:
    """Return a function that opens a connection and a session, and sends more frames."""
    opened: list[Raw] = []

    def new(*said: bytes, session: bytes = BEGUN, port: int = 0, container: str = "raw") -> Raw:
        one = Raw(port or broker.port, opening(container), session)
        opened.append(one)
        one.until("begin")
        one.say(*said)
        return one

    yield new
    for one in opened:
        one.sock.close()
