"""Who is let in, and what a client is told of the broker when it opens its connection.

All connections of a router share one `Admission`: it knows what the open says (properties, capabilities), whether
everybody is sent on to another broker, and which container ids are taken by a client that wants to be the only one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

from ..amqp import encode
from ..amqp.events import CAPABILITIES
from ..amqp.values import Symbol, Uint

SOLE_CONNECTION = "sole-connection-for-container"
"""Desired by a client that wants no second connection of its container id; offered back where that is looked after."""
FAILED = "amqp:connection-establishment-failed"
"""The property of an open behind which a close with an error comes, so that clients don't believe they are in."""
FAILOVER = Symbol("failover-server-list")
"""Brokers to go to when this one is gone: a list of what a redirect says, as JMS clients want it."""

HostPort = tuple[str, int]


@dataclass(frozen=True)
class AdmissionOptions:
    """What clients are told."""

    failover: tuple[HostPort, ...] = ()
    """Brokers to go to when this one is gone."""
    redirect_to: HostPort | None = None
    """Send everybody on to this broker: this one is being emptied."""
    queue_prefix: str = ""
    """What clients that tell queues from topics put before a queue's name; empty for nothing."""
    topic_prefix: str = ""


class Error(NamedTuple):
    """An AMQP error."""

    condition: str
    description: str
    info: bytes = b""
    """An encoded map."""


class Answer(NamedTuple):
    """To an open."""

    capabilities: tuple[str, ...]
    properties: bytes
    """An encoded map."""
    error: Error | None = None
    """Why the connection is closed right behind it."""


class Admission:
    """One router's. Any thread: openings are rare, so they share a lock."""

    def __init__(self, container_id: str, options: AdmissionOptions) -> None:
        self.container_id = container_id
        self._redirect_to = options.redirect_to
        self._failover = options.failover
        self._about = _properties(options)
        self._properties = self._properties_with_tls = self._with(())
        """The same for clients that came with TLS, which may find the others elsewhere."""
        self._elsewhere = self._elsewhere_with_tls = self._info(())
        self._lock = threading.Lock()
        self._sole: dict[str, object] = {}
        """Container ids that have a connection which wants to be the only one."""

    def failover_to(self, plain: Sequence[HostPort], tls: Sequence[HostPort]) -> None:
        """Clients that come from now on are told of these brokers as well, without TLS and with it."""
        self._properties, self._properties_with_tls = self._with(plain), self._with(tls)
        self._elsewhere, self._elsewhere_with_tls = self._info(plain), self._info(tls)

    def _with(self, others: Sequence[HostPort]) -> dict[Symbol, Any]:
        places = self._places(others)
        return {**self._about, FAILOVER: places} if places else self._about

    def _info(self, others: Sequence[HostPort]) -> bytes:
        places = self._places(others)
        return encode.value({**places[0], FAILOVER: places}) if places else b""

    def _places(self, others: Sequence[HostPort]) -> list[dict[Symbol, Any]]:
        return [_place(*one) for one in dict.fromkeys((*self._failover, *others))]

    def elsewhere(self, *, secure: bool = False) -> bytes:
        """What the error says that sends a client away which others may serve, as an encoded map; empty without others.

        The first one as a redirect has it, and all in `failover-server-list`, as the open has them. Any thread.
        """
        return self._elsewhere_with_tls if secure else self._elsewhere

    def admit(
        self, connection: object, container: str, desired: tuple[str, ...], *, secure: bool = False
    ) -> Answer:
        """*container* has opened *connection*, with TLS if it is *secure*, and desires these capabilities."""
        if self._redirect_to is not None:
            host, port = self._redirect_to
            return self.refuse("amqp:connection:redirect", f"go to {host}:{port}", _place(host, port))
        capabilities: tuple[str, ...] = CAPABILITIES
        if SOLE_CONNECTION in desired:
            with self._lock:
                if self._sole.setdefault(container, connection) is not connection:
                    info = {Symbol("invalid-field"): Symbol("container-id")}
                    return self.refuse("amqp:invalid-field", f"container {container!r} is connected already", info)
            capabilities += (SOLE_CONNECTION,)
        return Answer(capabilities, encode.value(self._properties_with_tls if secure else self._properties))

    @property
    def properties(self) -> bytes:
        """What an open of this side says, as an encoded map. Any thread."""
        return encode.value(self._properties)

    def leave(self, connection: object, container: str) -> None:
        """*connection* is over."""
        with self._lock:
            if self._sole.get(container) is connection:
                del self._sole[container]

    def refuse(self, condition: str, description: str, info: Mapping[Symbol, Any] = MappingProxyType({})) -> Answer:
        """The connection is answered, and closed with that error right behind."""
        error = Error(condition, description, encode.value(dict(info)))
        return Answer((), encode.value({**self._properties, Symbol(FAILED): True}), error)


def _properties(options: AdmissionOptions) -> dict[Symbol, Any]:
    found: dict[str, Any] = {"product": "CairnMQ", "version": version("cairnmq"), "instance": str(uuid4())}
    if options.queue_prefix:
        found["queue-prefix"] = options.queue_prefix
    if options.topic_prefix:
        found["topic-prefix"] = options.topic_prefix
    return _symbols(found)


def _place(host: str, port: int) -> dict[Symbol, Any]:
    """Where a broker is, as a redirect says it."""
    return _symbols({"network-host": host, "port": Uint(port), "hostname": host})


def _symbols(found: Mapping[str, Any]) -> dict[Symbol, Any]:
    return {Symbol(key): value for key, value in found.items()}
