"""Sockets that listen for clients, and the rate at which each address may connect."""

from __future__ import annotations

import logging
import socket
from collections import OrderedDict
from errno import EADDRINUSE
from itertools import islice

from ..base.accounts.networks import network_of
from ..base.errors import CairnError
from .admission.admission import HostPort

log = logging.getLogger(__name__)

MOST_ADDRESSES = 4096
"""Addresses whose connections are counted at a time; above it, the address used least recently is removed."""
LOG_S, MOST_LOGGED = 10.0, 20
"""Refused connections are logged once in so many seconds for each address, and so many in a second for all."""
BURST_S = 10
"""Seconds of unused rate that an address may use at once."""


class ConnectionRate:
    """The limit of connections per second from each address. Only for the thread that accepts them."""

    def __init__(self, most_per_s: int) -> None:
        """*most_per_s*: the rate, 0 for no limit."""
        self._most_per_s = most_per_s
        self._logged: OrderedDict[str, float] = OrderedDict()
        """When a refusal of each address was last logged; the latest address is last."""
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Connections that each address may still open, and the time of that count; the latest address is last."""

    def allows(self, address: str, now_s: float) -> bool:
        """Return whether one more connection is allowed now, and count it."""
        if not self._most_per_s:
            return True
        burst = float(self._most_per_s * BURST_S)
        left, since_s = self._left.pop(address, (burst, now_s))
        left = min(burst, left + (now_s - since_s) * self._most_per_s)
        is_allowed = left >= 1
        self._left[address] = (left - 1 if is_allowed else left), now_s
        if len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return is_allowed

    def admitted(self, peer: tuple[object, ...], now_s: float) -> str:
        """Return the network of *peer*; empty if it opens too many connections, which is logged."""
        address = network_of(str(peer[0]))
        if self.allows(address, now_s):
            return address
        if self._may_log(address, now_s):
            log.warning(
                "%s: refused: more than %d connections in a second come from %s; raise --connection-rate",
                shown(peer), self._most_per_s, address, extra={"event": "connection.refused"},
            )  # fmt: skip
        return ""

    def _may_log(self, address: str, now_s: float) -> bool:
        """Return whether a refusal of *address* is logged: one in `LOG_S`, and few of all addresses in a second."""
        while self._logged and now_s - next(iter(self._logged.values())) > LOG_S:
            self._logged.popitem(last=False)
        if address in self._logged:
            return False
        recent = islice(reversed(self._logged.values()), MOST_LOGGED)
        if sum(now_s - logged_s < 1 for logged_s in recent) == MOST_LOGGED:
            return False
        self._logged[address] = now_s
        return True


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
