"""Tests of Python clients from the vendors of other brokers, as far as they work with this broker.

RabbitMQ's client refuses all products but RabbitMQ. Azure's protocol layer is used without its token exchange
(docs/decisions/0025-interop.md).
"""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message

from tests.harness.clients.peers import Peer
from tests.harness.process import BrokerProcess

COUNT = 20


def test_rabbitmq_refuses_every_broker_but_its_own(running: BrokerProcess) -> None:
    # U2, C1: unmodified, the client ends the connection; docs/reference/clients.md states this
    client = pytest.importorskip("rabbitmq_amqp_python_client", reason="pip install '.[interop]'")
    refusal = pytest.importorskip("rabbitmq_amqp_python_client.exceptions").ValidationCodeException
    environment = client.Environment(uri=f"amqp://guest:guest@127.0.0.1:{running.port}/")
    with pytest.raises(refusal, match="Connection to non-RabbitMQ server detected"):
        environment.connection().dial()
    environment.close()


@pytest.fixture
def azure(running: BrokerProcess) -> Any:
    """Return factories for Azure's low-level sender and receiver."""
    layer = pytest.importorskip("azure.servicebus._pyamqp", reason="pip install '.[interop]'")
    sasl = pytest.importorskip("azure.servicebus._pyamqp.sasl")
    constants = pytest.importorskip("azure.servicebus._pyamqp.constants")

    class Anonymous:
        auth_type = "SASL"
        sasl: Any

    Anonymous.sasl = sasl.SASLAnonymousCredential()

    def opened(kind: str, address: str, **options: Any) -> Any:
        client = getattr(layer, kind)(
            f"127.0.0.1:{running.port}",
            address,
            auth=Anonymous(),
            use_tls=False,
            transport_type=constants.TransportType.Amqp,
            **options,
        )
        client.open()
        while not client.client_ready():
            client.do_work()
        return client

    return opened, constants


def test_azure_sends(azure: Any, peer: Peer, address: str) -> None:
    # B2.7: settle modes, and the largest message in the attach
    opened, constants = azure
    message = pytest.importorskip("azure.servicebus._pyamqp.message")
    sender = opened("SendClient", address, receive_settle_mode=constants.ReceiverSettleMode.First)
    for number in range(COUNT):
        sender.send_message(message.Message(data=[b"%d" % number]))
    sender.close()
    received = peer.take(peer.receiver(address, COUNT), COUNT)
    assert [message.body for message in received] == [b"%d" % number for number in range(COUNT)]


def test_azure_receives(azure: Any, peer: Peer, address: str) -> None:
    # B2.7: received unsettled, and accepted one by one after reading
    opened, constants = azure
    peer.send(peer.sender(address), *(Message(body=b"%d" % n, durable=True, inferred=True) for n in range(COUNT)))
    receiver = opened(
        "ReceiveClient", address, link_credit=COUNT, receive_settle_mode=constants.ReceiverSettleMode.First
    )
    seen: list[bytes] = []
    while len(seen) < COUNT:
        receiver.do_work()
        while not receiver._received_messages.empty():
            frame, message = receiver._received_messages.get_nowait()
            seen.append(b"".join(message.data))
            receiver.settle_messages(frame[1], frame[2], "accepted")
    receiver.close()
    assert seen == [b"%d" % number for number in range(COUNT)]
    assert peer.drain(peer.receiver(address), 10) == []
