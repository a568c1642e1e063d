"""Thousands of queues on a broker, created in batches by management."""

from __future__ import annotations

from proton import Message

from tests.harness.clients.peers import Peer

BATCH = 500


def create_queues(port: int, names: list[str]) -> None:
    """Create transient queues. Raises `AssertionError`."""
    peer = Peer(port, container="creator")
    receiver = peer.attach(peer.session.receiver("responses"), None, dynamic=True)
    receiver.flow(len(names))
    sender = peer.sender("$management")
    for begin in range(0, len(names), BATCH):
        batch = names[begin : begin + BATCH]
        about = [{"operation": "CREATE", "type": "queue", "name": name} for name in batch]
        reply_to = receiver.remote_source.address
        peer.send(sender, *[Message(properties=one, body={"durable": False}, reply_to=reply_to) for one in about])
        for response in peer.take(receiver, len(batch)):
            assert response.message.properties["statusCode"] == 201, response.message.properties
            response.accept()
    peer.close()
