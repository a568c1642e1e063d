"""Sockets that listen for clients, and the rate at which each address may connect."""

from __future__ import annotations

import logging
import socket
from errno import EADDRINUSE

from ..base.clock import Clock
from ..base.errors import CairnError
from .admission.admission import HostPort
from .admission.openings import ConnectionRate, network_of

log = logging.getLogger(__name__)


class RateLimit:
    """The limit of new connections per address, which logs refusals. The thread that accepts connections."""

    def __init__(self, most_per_s: int, clock: Clock) -> None:
        """*most_per_s*: the limit of new connections per second from one address, 0 for no limit."""
        self._most_per_s = most_per_s
        self._clock = clock
        self._rate = ConnectionRate(most_per_s)
        self._refused_s = 0.0

    def admitted(self, peer: tuple[object, ...]) -> str:
        """Return the network of *peer*, empty if it opens too many connections."""
        address, now_s = network_of(str(peer[0])), self._clock.monotonic_s()
        if self._rate.allows(address, now_s):
            return address
        if now_s - self._refused_s > 1:
            self._refused_s = now_s
            log.warning(
                "%s: refused: more than %d connections in a second come from %s; raise --connection-rate",
                shown(peer), self._most_per_s, address, extra={"event": "connection.refused"},
            )  # fmt: skip
        return ""


def bind(host: str, port: int, option: str = "--port") -> socket.socket:
    """Return a socket that is bound to an address. Raises `CairnError`, which names *option*."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        in_use = "stop the program that uses it, or " if getattr(error, "errno", None) == EADDRINUSE else ""
        remedy = f"{in_use}choose another {option} or --listen"
        if isinstance(error, PermissionError):
            remedy = f"ports below 1024 need CAP_NET_BIND_SERVICE (systemd: AmbientCapabilities); or {remedy}"
        raise CairnError(f"{host}:{port}", f"can't listen there: {reason}", remedy) from error
    return listener


def places_of(listener: socket.socket | None) -> tuple[HostPort, ...]:
    """Return the address and port of a listener."""
    if listener is None:
        return ()
    host, port = listener.getsockname()[:2]
    return ((str(host).partition("%")[0], int(port)),)


def shown(address: tuple[object, ...]) -> str:
    """Return an address as host:port."""
    return ("[%s]:%s" if ":" in str(address[0]) else "%s:%s") % address[:2]
