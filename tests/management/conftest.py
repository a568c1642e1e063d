"""Fixtures of management clients, in addition to those of client tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import pytest
from proton import Message

from tests.clients.conftest import (
    NewPeer,
    StartBroker,
    StartProcess,
    broker,
    connect,
    new_peer,
    peer,
    peer_at,
    start_broker,
    start_process,
)
from tests.harness.clients.peers import Peer

__all__ = [
    "NewPeer",
    "StartBroker",
    "StartProcess",
    "broker",
    "connect",
    "new_peer",
    "peer",
    "peer_at",
    "start_broker",
    "start_process",
]

_ids = count(1)


class Answer(NamedTuple):
    """A response of the management node."""

    status: int
    text: str
    body: Any
    message: Any


class Manager:
    """A client that sends one request after another, and receives the responses on a dynamic node."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.receiver = peer.attach(peer.session.receiver(f"responses-{next(_ids)}"), None, dynamic=True)
        self.receiver.flow(1000)
        self.sender = peer.sender("$management")
        self.reply_to = self.receiver.remote_source.address

    def ask(
        self,
        operation: str | None,
        type: str | None = None,
        name: str | None = None,
        body: Any = None,
        **properties: Any,
    ) -> Answer:
        given = {"operation": operation, "type": type, "name": name, **properties}
        asked = {key: value for key, value in given.items() if value is not None}
        return self.send(Message(body=body, properties=asked))

    def send(self, request: Any) -> Answer:
        """Send a request and wait for its response."""
        [answer] = self.send_all([request])
        return answer

    def ask_all(self, asked: Sequence[tuple[str, str, str, Any]]) -> list[Answer]:
        """Send requests (operation, type, name and body) together, and return their responses."""
        fields = ("operation", "type", "name")
        return self.send_all([Message(body=body, properties=dict(zip(fields, of, strict=True))) for *of, body in asked])

    def send_all(self, requests: Sequence[Any]) -> list[Answer]:
        """Send requests in one go and wait for all of their responses."""
        for request in requests:
            request.reply_to = self.reply_to
            request.correlation_id = f"request-{next(_ids)}"
        self.peer.send(self.sender, *requests)
        answers = {}
        for received in self.peer.take(self.receiver, len(requests)):
            received.accept()
            message = received.message
            said = message.properties
            answers[message.correlation_id] = Answer(
                said["statusCode"], said["statusDescription"], message.body, message
            )
        return [answers[request.correlation_id] for request in requests]

    def rows(self, type: str, *names: str, **properties: Any) -> list[dict[str, Any]]:
        """Return all rows of a QUERY, page by page."""
        rows: list[dict[str, Any]] = []
        offset: int | None = 0
        while offset is not None:
            answer = self.ask("QUERY", entityType=type, offset=offset, body={"attributeNames": [*names]}, **properties)
            assert answer.status == 200, answer
            rows += [dict(zip(answer.body["attributeNames"], row, strict=True)) for row in answer.body["results"]]
            offset = answer.body["next"]
        return rows


NewManager = Callable[..., Manager]


@pytest.fixture
def manager(peer: Peer) -> Manager:
    return Manager(peer)
