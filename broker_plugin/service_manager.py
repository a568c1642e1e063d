"""What systemd is told if it asks for it: that the broker is up, that it gets something done, and that it ends.

Each is a datagram to the socket that `NOTIFY_SOCKET` names, as sd_notify(3) has it:

| datagram | when |
|---|---|
| `READY=1`, `STATUS=` | the store is recovered, and clients are let in |
| `WATCHDOG=1` | four times in `WATCHDOG_USEC`, each time that the core comes to it |
| `STOPPING=1` | the broker was told to stop |

The core says it itself, as one of its timers: so a worker was awake to run it, and all that the core had begun before
is over, the steps of a cluster's group included. A broker that is stopped, or hangs, says nothing. Nothing is inherited
that way: systemd believes the process that it started, and who was started by that is not meant by `WATCHDOG_PID`.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Mapping

from ..base.errors import CairnError
from ..broker.timers import Timers

log = logging.getLogger(__name__)

PATIENCE_S = 5
"""So long systemd is waited for where it has more datagrams than it takes; never with a keep-alive."""


class ServiceManager:
    """Who started this broker, and listens."""

    def __init__(self, address: str, watchdog_s: float = 0.0) -> None:
        """*address*: of a datagram socket, a path or an abstract name that begins with @.

        *watchdog_s*: without a sign of life for so long, the broker is ended; 0 for never.
        """
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._shown = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", PATIENCE_S, 0))
        self._every_s = watchdog_s / 4
        self._is_deaf = False

    def ready(self, status: str) -> None:
        """The broker is up; *status*: one line for who asks systemd. Any thread."""
        self._say(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        """It was told to stop; no keep-alives are waited for from here on. Any thread."""
        self._say("STOPPING=1")

    def keep_alive(self, timers: Timers) -> None:
        """Say so, now and from now on. Core only."""
        if self._every_s:
            self._say("WATCHDOG=1", socket.MSG_DONTWAIT)
            timers.after(self._every_s, self.keep_alive, timers)

    def close(self) -> None:
        """Nothing more is said."""
        self._socket.close()

    def _say(self, text: str, flags: int = 0) -> None:
        try:
            self._socket.sendto(text.encode(), flags, self._address)
        except OSError as error:
            if isinstance(error, BlockingIOError) and flags:
                return  # it will hear the next one
            if not self._is_deaf:
                log.warning("NOTIFY_SOCKET %s: %s; systemd does not learn how this broker is", self._shown, error)
            self._is_deaf = True


def service_manager(environment: Mapping[str, str], pid: int) -> ServiceManager | None:
    """As *environment* tells the process *pid*; None if nobody asks.

    Raises `CairnError` if what it says of the watchdog is nothing that systemd would say.
    """
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return None
    if address[0] not in "/@":
        reason = f"{address!r} is no path and no abstract name"
        raise CairnError("NOTIFY_SOCKET", reason, "start the broker by systemd, or without that variable")
    wanted = environment.get("WATCHDOG_USEC", "")
    if not wanted or environment.get("WATCHDOG_PID", str(pid)) != str(pid):
        return ServiceManager(address)
    if not wanted.isascii() or not wanted.isdigit() or not int(wanted):
        reason = f"{wanted!r} is no number of microseconds above 0"
        raise CairnError("WATCHDOG_USEC", reason, "set WatchdogSec= in the unit file, and start the broker by systemd")
    return ServiceManager(address, int(wanted) / 1e6)
