"""A client of a broker's management: requests to the node `$management`, one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

from ...base.errors import BrokerError
from ..codec import decode, encode, sections
from ..codec.primitives import Malformed
from ..frames import performatives as p
from .links import Receiver, Sender
from .login import BrokerLogin
from .loop import Loop
from .wire import LinkRefused, Wire

ADDRESS = "$management"
NOT_FOUND = 404
_CREDIT = 1000
_BODY = 0x77
_NO_MANAGEMENT = ("amqp:unauthorized-access", "amqp:not-found")
"""Conditions of a refused link to management: the user has no access to it, or the broker has none."""


class RequestRefused(BrokerError):
    """A request that the broker did not accept; the link stays open."""


class Answer(NamedTuple):
    """The response to one request."""

    status: int
    description: str
    body: Any


def await_true(wire: Wire, loop: Loop, what: str, is_true: Callable[[], bool]) -> None:
    """Run *loop* until *is_true* returns true. Raises `BrokerError` if it does not in time."""
    end_s = time.monotonic() + wire.where.timeout_s
    while not is_true():
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise BrokerError(wire.where.url, f"no {what} within {wire.where.timeout_s:g} s", "see the broker's log")
        loop.turn(min(100, int(left_s * 1000) + 1))


class Management:
    """Requests and their responses over a pair of links."""

    def __init__(self, wire: Wire, loop: Loop) -> None:
        """Attach the links. Raises `BrokerError`."""
        self._wire, self._loop = wire, loop
        self._answers: list[bytes] = []
        name = f"management-{time.monotonic_ns()}"
        self._requests = Sender(wire, f"{name}-requests", ADDRESS)
        self._replies = Receiver(wire, name, ADDRESS, self._answers.append, reply_to=True)
        wire.attach(self._replies)
        wire.attach(self._requests)
        await_true(wire, loop, "link to $management", lambda: self._requests.attached and self._replies.attached)
        self._replies.allow(_CREDIT)

    def ask(self, properties: dict[str, Any], body: Any = None) -> Answer:
        """Send a request with these application properties. Raises `BrokerError` if no answer comes."""
        about = encode.described(0x73, encode.value([None, None, None, None, self._replies.name]))
        message = about + sections.application_properties_section(properties)
        outcome: list[Any] = []
        self._requests.post(message + encode.described(_BODY, encode.value(body)), outcome.append)
        await_true(self._wire, self._loop, "answer of $management", lambda: bool(self._answers or _refusal(outcome)))
        if not self._answers:
            raise RequestRefused(ADDRESS, _refusal(outcome) or "the request was refused")
        if self._replies.credit < _CREDIT // 2:
            self._replies.allow(_CREDIT - self._replies.credit)
        answer = self._answers.pop()
        try:
            found = sections.application_properties(answer, sections.find(answer, 0x74))
            parts = sections.index(answer).body
            content = decode.value(answer, parts[0].value)[0] if parts else None
            return Answer(int(found["statusCode"]), str(found["statusDescription"]), content)
        except (Malformed, KeyError, ValueError) as error:
            raise BrokerError(ADDRESS, f"the answer can't be decoded: {error}", "is it a CairnMQ broker?") from error


def require_node(where: BrokerLogin, container_id: str, address: str) -> None:
    """Raise `BrokerError` if no queue or exchange has *address*. Nodes that the user may not monitor count as existing.
    """
    try:
        with closing(Wire(where, container_id)) as wire:
            management = Management(wire, Loop(wire))
            name = address.removeprefix("queue://")
            nodes = {("queue", name), ("exchange", name), ("exchange", name.partition("/")[0] or name)}
            asked = ({"operation": "READ", "type": type, "name": name} for type, name in nodes)
            if not name.startswith("topic://") and all(management.ask(one).status == NOT_FOUND for one in asked):
                remedy = "create it first, or permit that with --create (HTTP API: create)"
                raise BrokerError(address, "there is no such queue or exchange", remedy)
    except LinkRefused as error:
        if error.condition not in _NO_MANAGEMENT:
            raise


def _refusal(outcome: list[Any]) -> str:
    if not outcome:
        return ""
    code, fields = p.state_of(outcome[0])
    return "" if code == p.ACCEPTED else p.error_text(fields[0] if fields else None) or "the request was refused"
