"""Requests to `$management`, and a single-threaded broker that answers the requests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from cairnmq.amqp.codec import encode, sections
from cairnmq.amqp.codec.sections import Properties
from cairnmq.amqp.ports import Open, Terminus
from cairnmq.management.serve import serve
from tests.harness.broker.world import FakeTerminal, World

_TYPES = ("queue", "exchange", "binding", "template", "connection", "session", "link", "transaction", "broker", "store")
_BODIES: dict[str, dict[str, Any]] = {
    "queue": {"durable": True, "arguments": {"max-messages": 3, "overflow": "ring", "dead-letter-address": "q"}},
    "exchange": {"exchange-type": "topic", "durable": True, "arguments": {"alternate-exchange": "amq.fanout"}},
    "binding": {"exchange": "amq.match", "queue": "q", "key": "a.#", "arguments": {"x-match": "any", "color": "red"}},
    "template": {"arguments": {"priorities": True, "message-ttl-ms": 5}},
}


class _Connection:
    name = container = peer = "fuzz"
    user = ""

    def idle_s(self) -> float | None: ...

    def expel(self, description: str, *, elsewhere: bool = False) -> None: ...


def request(properties: dict[str, Any], body: Any = None, **fields: Any) -> bytes:
    parts = [
        sections.properties_section(Properties(**fields)),
        sections.application_properties_section(properties),
    ]
    if body is not None:
        parts.append(encode.described(sections.VALUE, encode.value(body)))
    return b"".join(parts)


@cache
def requests() -> tuple[bytes, ...]:
    """Return requests for each operation on each type, including queries."""
    found = [
        request({"operation": operation}, message_id="id")
        for operation in ("GET-TYPES", "GET-OPERATIONS", "GET-ATTRIBUTES", "GET-ANNOTATIONS", "GET-MGMT-NODES")
    ]
    for type in _TYPES:
        about = {"entityType": type, "type": type, "name": "q"}
        page = {"offset": 0, "count": 5}
        wanted = {"attributeNames": ["name", "type", "messages"]}
        found.append(request({"operation": "QUERY", **about, **page}, wanted, correlation_id=7))
        for operation in ("CREATE", "READ", "UPDATE", "DELETE"):
            about = {"operation": operation, "type": type, "name": "q" if type != "binding" else "amq.match/q/a.%23"}
            found.append(request(about, _BODIES.get(type), message_id=b"id", reply_to="$management"))
    about = {"type": "queue", "name": "q"}
    found += [
        request({"operation": "PURGE", **about}, correlation_id=-1),
        request({"operation": "PEEK", **about}, {"after": 0, "count": 10, "body-bytes": 100}),
        request({"operation": "MOVE", **about}, {"to": "amq.fanout", "count": 2}),
        request({"operation": "DELETE", **about}, {"if-unused": True, "if-empty": False}),
    ]
    return tuple(found)


class Managed:
    """A broker with a request link and an answer link of `$management`."""

    def __init__(self) -> None:
        self.world = World(4 << 20)
        serve(self.world.broker.parts, lambda user, operation, name, *, pattern=False: "")
        self._connection = _Connection()
        self.world.do(self.world.broker.drivers.connection_opened, self._connection)
        self._answers = self._open(to_client=True)
        self._requests = self._open(to_client=False)
        self.world.do(self._answers.driver.request, 1 << 30, False)
        self._number = 0

    def _open(self, *, to_client: bool, address: str = "$management") -> FakeTerminal:
        terminal = FakeTerminal()
        attach = Open(to_client, Terminus(address), connection=self._connection)
        self.world.do(self.world.broker.drivers.open, attach, terminal)
        return terminal

    def fill(self, contents: Sequence[bytes]) -> None:
        """Send messages to the queue that the requests manage."""
        sender = self._open(to_client=False, address="q")
        if sender.driver is not None:
            fragments = [(number, content, 0) for number, content in enumerate(contents)]
            self.world.send(sender, *fragments)
            self.world.do(sender.driver.close, (), False, True)

    def ask(self, content: bytes) -> None:
        """Send a request; check that it is accepted, with at most one answer, or rejected."""
        self._number += 1
        self.world.send(self._requests, (self._number, content, 0))
        self.world.read_all()
        assert not self._requests.failures
        answers, self._answers.forwarded = self._answers.forwarded, []
        for _, answer in answers:
            assert isinstance(answer, bytes)
            sections.index(answer)
        taken = self._number in self._requests.confirmed
        assert taken != (self._number in self._requests.rejected)
        assert len(answers) <= taken
        self._requests.confirmed.clear()
        self._requests.rejected.clear()
