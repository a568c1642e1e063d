"""A client of a member's `$management`, whose responses are those that a client receives over a socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from proton import Message

from cairnmq.amqp.ports import Open, Terminus
from cairnmq.management.serve import serve
from tests.harness.broker.world import FakeTerminal
from tests.harness.cluster.cluster_harness import Connection, SimulatedMember


class Answer(NamedTuple):
    status: int
    text: str
    body: Any


class Manager:
    """A client on a connection of its own; its responses arrive when the harness runs."""

    def __init__(
        self, member: SimulatedMember, denial_reason: Any = lambda user, operation, name, *, pattern=False: ""
    ) -> None:
        self.member = member
        if "$management" not in member.broker.endpoints:
            serve(member.broker.parts, denial_reason)
        self.connection = Connection()
        self._requests = FakeTerminal()
        self._answers = FakeTerminal()
        member.do(member.broker.drivers.connection_opened, self.connection)
        for terminal, to_client in ((self._requests, False), (self._answers, True)):
            attach = Open(to_client, Terminus(address="$management"), False, self.connection)
            member.do(member.broker.drivers.open, attach, terminal)
        member.do(lambda: self._answers.driver is None or self._answers.driver.request(1000, False))

    def ask(
        self, operation: str, type: str, name: str = "", body: Mapping[str, Any] | None = None, **properties: Any
    ) -> None:
        given = {"operation": operation, "type": type, **properties}
        if name:
            given["name"] = name
        request = Message(properties=given, body=None if body is None else dict(body)).encode()
        self.member.do(self._post, request)

    def _post(self, request: bytes) -> None:
        if self._requests.driver is not None:  # there is no link to a member that does not serve
            self._requests.driver.receive([(1, request, 0)])

    @property
    def answers(self) -> list[Answer]:
        found: list[Answer] = []
        for _, content in self._answers.forwarded:
            message = Message()
            message.decode(content)
            told = message.properties
            found.append(Answer(int(told["statusCode"]), str(told["statusDescription"]), message.body))
        return found
