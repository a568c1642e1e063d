"""The admission of clients, and the broker's properties in the open frame.

All connections of a router share one `Admission`. It keeps the properties and capabilities of the open frame, the
redirect of all clients to another broker if there is one, and the AMQP container IDs that clients use exclusively.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

from ... import __version__
from ...amqp.codec import encode
from ...amqp.codec.types import Symbol, Uint
from ...amqp.links.events import CAPABILITIES
from ...amqp.links.values import Error
from ...amqp.sasl.server import CONSOLE

CONSOLE_PREFIX = f"{CONSOLE}@"
"""The begin of the AMQP container IDs of the broker's own web console; the address of the browser follows."""
SOLE_CONNECTION = "sole-connection-for-container"
"""The capability that a client desires to have no second connection of its AMQP container ID; offered if supported."""
DETECTION_POLICY = Symbol("sole-connection-detection-policy")
WEAK = 1
"""Only connections that desire the capability are compared; without the property a client assumes strong detection."""
FAILED = "amqp:connection-establishment-failed"
"""The property of an open that a close with an error follows, so that clients do not consider themselves admitted."""
FAILOVER = Symbol("failover-server-list")
"""The property with brokers for failover: a list of redirect addresses, in the form that JMS clients expect."""

HostPort = tuple[str, int]


@dataclass(frozen=True)
class AdmissionOptions:
    """The options for the broker's open frame and for redirects."""

    failover: tuple[HostPort, ...] = ()
    """The brokers for clients to use when this one is not reachable."""
    redirect_to: HostPort | None = None
    """The broker to which all clients are redirected while this one is drained."""
    queue_prefix: str = ""
    """The prefix of queue names for clients that distinguish queues from topics; empty for none."""
    topic_prefix: str = ""


class OpenAnswer(NamedTuple):
    """The answer to an open."""

    capabilities: tuple[str, ...]
    properties: bytes
    """The error info, as an encoded map."""
    error: Error | None = None
    """The error with which the connection is closed right after the open."""


class _Announced(NamedTuple):
    """The information for clients on this broker and the others."""

    properties: dict[Symbol, Any]
    """The properties of open frames."""
    elsewhere: bytes
    """The error info that redirects a client to the others, as an encoded map; empty without others."""


class Admission:
    """The admission of one router. Any thread: openings are rare, so they share a lock."""

    def __init__(self, container_id: str, options: AdmissionOptions) -> None:
        self.container_id = container_id
        self._redirect_to = options.redirect_to
        self._failover = options.failover
        self._about = _properties(options)
        self._announced = dict.fromkeys((False, True), self._announcement(()))
        """Without TLS and with it: other members may have other ports for TLS."""
        self._lock = threading.Lock()
        self._sole: dict[tuple[str, str], object] = {}
        """Exclusive connections by user and AMQP container ID.

        A client chooses the ID freely, so the key contains the user: no user can occupy an ID of another one.
        """

    def failover_to(self, plain: Sequence[HostPort], tls: Sequence[HostPort]) -> None:
        """Add these brokers to the answers for new clients, without TLS and with it."""
        self._announced = {False: self._announcement(plain), True: self._announcement(tls)}

    def _announcement(self, others: Sequence[HostPort]) -> _Announced:
        places = [_place(*one) for one in dict.fromkeys((*self._failover, *others))]
        if not places:
            return _Announced(self._about, b"")
        return _Announced({**self._about, FAILOVER: places}, encode.value({**places[0], FAILOVER: places}))

    def elsewhere(self, *, secure: bool = False) -> bytes:
        """Return the error info that redirects a client to other brokers, as an encoded map; empty without others.

        The first broker is encoded as in a redirect; all are in `failover-server-list`, as in the open. Any thread.
        """
        return self._announced[secure].elsewhere

    def admit(
        self, connection: object, user: str, container: str, desired: tuple[str, ...], *, secure: bool = False,
        is_console: bool = False,
    ) -> OpenAnswer:  # fmt: skip
        """Admit *connection* of *user*, with TLS if *secure*; it has that ID and desires these capabilities."""
        if container.startswith(CONSOLE_PREFIX) and not is_console:
            text = f"container IDs that begin with {CONSOLE_PREFIX!r} are reserved for the web console; use another"
            return self.refuse("amqp:invalid-field", text, {Symbol("invalid-field"): Symbol("container-id")})
        if self._redirect_to is not None:
            host, port = self._redirect_to
            return self.refuse("amqp:connection:redirect", f"go to {host}:{port}", _place(host, port))
        properties = self._announced[secure].properties
        if SOLE_CONNECTION not in desired:
            return OpenAnswer(CAPABILITIES, encode.value(properties))
        with self._lock:
            if self._sole.setdefault((user, container), connection) is not connection:
                info = {Symbol("invalid-field"): Symbol("container-id")}
                return self.refuse("amqp:invalid-field", f"container {container!r} is connected already", info)
        declared = encode.value({**properties, DETECTION_POLICY: Uint(WEAK)})
        return OpenAnswer((*CAPABILITIES, SOLE_CONNECTION), declared)

    @property
    def properties(self) -> bytes:
        """Return the properties of an open of this side, as an encoded map. Any thread."""
        return encode.value(self._announced[False].properties)

    def leave(self, connection: object, user: str, container: str) -> None:
        """Remove *connection*, which was closed."""
        with self._lock:
            if self._sole.get((user, container)) is connection:
                del self._sole[user, container]

    def refuse(self, condition: str, description: str, info: Mapping[Symbol, Any] = MappingProxyType({})) -> OpenAnswer:
        """Answer the open, and close the connection with that error right after."""
        error = Error(condition, description, encode.value(dict(info)))
        return OpenAnswer((), encode.value({**self._announced[False].properties, Symbol(FAILED): True}), error)


def _properties(options: AdmissionOptions) -> dict[Symbol, Any]:
    found: dict[str, Any] = {"product": "CairnMQ", "version": __version__, "instance": str(uuid4())}
    if options.queue_prefix:
        found["queue-prefix"] = options.queue_prefix
    if options.topic_prefix:
        found["topic-prefix"] = options.topic_prefix
    return _symbols(found)


def _place(host: str, port: int) -> dict[Symbol, Any]:
    """Return a broker's address as a redirect encodes it."""
    return _symbols({"network-host": host, "port": Uint(port), "hostname": host})


def _symbols(found: Mapping[str, Any]) -> dict[Symbol, Any]:
    return {Symbol(key): value for key, value in found.items()}
