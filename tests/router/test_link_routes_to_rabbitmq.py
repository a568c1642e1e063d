"""Tests of link routes and auto-links to a container of another vendor: RabbitMQ, as Debian packages it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.broker_plugin.run import RunningBroker
from tests.clients.conftest import StartBroker
from tests.harness.rabbitmq import PASSWORD, USER, RabbitMq, denial_reason
from tests.harness.router.joined import is_up, until


def _take(receiver: Any, number: int) -> list[bytes]:
    seen = list[bytes]()
    while len(seen) < number:
        message = receiver.receive()  # proton's body is a view of memory that is freed with the message
        seen.append(bytes(message.body))
        receiver.accept()
    return seen


@pytest.fixture
def rabbit(tmp_path: Path) -> RabbitMq:
    if reason := denial_reason():
        pytest.skip(reason)
    return RabbitMq(tmp_path / "rabbit")


@pytest.mark.timeout(900)
def test_links_go_on_to_another_kind_of_broker(
    rabbit: RabbitMq, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:  # C42, C60
    """Messages pass both ways, although Proton requests twice the small credit at first, and then withdraws half."""
    monkeypatch.setitem(os.environ, "RABBIT_PASSWORD", PASSWORD)
    with rabbit:
        broker: RunningBroker = start_broker(
            connect_to=(f"amqp://{USER}@127.0.0.1:{rabbit.port}?name=hub&password-env=RABBIT_PASSWORD&insecure-auth=yes",),
            link_routes=("hub.*=hub,strip=hub.",),
        )
        until(lambda: is_up(broker, "hub"))
        here = BlockingConnection(f"127.0.0.1:{broker.port}", timeout=180)
        there = BlockingConnection(
            f"127.0.0.1:{rabbit.port}", timeout=180, user=USER, password=PASSWORD, allowed_mechs="PLAIN",
            sasl_enabled=True, allow_insecure_mechs=True,
        )  # fmt: skip
        bodies = [f"{number}".encode() * 1000 for number in range(20)]
        sender = here.create_sender("hub./queue/via")
        for body in bodies:
            sender.send(Message(body=body, durable=True))
        direct = there.create_receiver("/queue/via", credit=10)
        for body in bodies[:10]:
            assert _take(direct, 1) == [body]
        there.create_sender("/queue/via")  # answered after the outcomes; otherwise RabbitMQ may end before them
        there.close()  # the link alone is not closed as long as it has messages
        receiver = here.create_receiver("hub./queue/via", credit=5)
        first = receiver.receive()
        assert bytes(first.body) == bodies[10]
        receiver.release(delivered=False)
        assert sorted(_take(receiver, 10)) == sorted(bodies[10:])
        for credit in (1, 2, 5):
            sender = here.create_sender(f"hub./queue/{credit}")
            for body in bodies:
                sender.send(Message(body=body, durable=True))
            assert sorted(_take(here.create_receiver(f"hub./queue/{credit}", credit=credit), 20)) == sorted(bodies)
        here.close()


@pytest.mark.timeout(900)
def test_queues_are_joined_with_those_of_another_kind_of_broker(
    rabbit: RabbitMq, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message sent to a queue of RabbitMQ arrives on one auto-link, and returns on another one."""
    monkeypatch.setitem(os.environ, "RABBIT_PASSWORD", PASSWORD)
    with rabbit:
        broker: RunningBroker = start_broker(
            connect_to=(f"amqp://{USER}@127.0.0.1:{rabbit.port}?name=hub&password-env=RABBIT_PASSWORD&insecure-auth=yes",),
            auto_links=("in:jobs@hub:/queue/jobs", "out:jobs@hub:/queue/done"),
        )
        there = BlockingConnection(
            f"127.0.0.1:{rabbit.port}", timeout=180, user=USER, password=PASSWORD, allowed_mechs="PLAIN",
            sasl_enabled=True, allow_insecure_mechs=True,
        )  # fmt: skip
        bodies = [f"{number}".encode() * 1000 for number in range(20)]
        sender, receiver = there.create_sender("/queue/jobs"), there.create_receiver("/queue/done", credit=10)
        for body in bodies:
            sender.send(Message(body=body, durable=True))
        for body in bodies:
            message = receiver.receive()
            assert bytes(message.body) == body
            receiver.accept()
        until(lambda: not broker._broker.nodes.queues["jobs"].messages, "the outcomes")
        there.close()
