"""What systemd is told if it asks for it: that the broker is up, gets something done, reads its files again, and ends.

Each is a datagram to the socket that `NOTIFY_SOCKET` names, as sd_notify(3) has it:

| datagram | when |
|---|---|
| `READY=1`, `STATUS=` | the store is recovered, and clients are let in |
| `WATCHDOG=1` | four times in `WATCHDOG_USEC`, each time that the core comes to it |
| `RELOADING=1`, `MONOTONIC_USEC=` | users, rules and certificates are read again, whoever asked |
| `READY=1`, `STATUS=` | and it goes by what was read, or nothing has changed, and why |
| `STOPPING=1` | the broker was told to stop |

The core says it itself, as one of its timers: so a worker was awake to run it, and all that the core had begun before
is over, the steps of a cluster's group included. A broker that is stopped, or hangs, says nothing. Nothing is inherited
that way: systemd believes the process that it started, and who was started by that is not meant by `WATCHDOG_PID`.
"""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections.abc import Mapping

from ..base.errors import CairnError
from ..broker.timers import Timers

log = logging.getLogger(__name__)

PATIENCE_S = 5
"""So long systemd is waited for where it has more datagrams than it takes; never by the core."""
AGAIN_S = 0.1
"""What the core has to say, and systemd has no room for, is said again so much later."""


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
        self._is_stopping = False

    def ready(self, status: str) -> None:
        """The broker is up; *status*: one line for who asks systemd. Any thread but the core's."""
        self._say(_ready(status))

    def reloading(self) -> None:
        """Files are read again; `reloaded` has to follow, or systemd waits for it. Any thread but the core's.

        With the time, as `Type=notify-reload` wants it: one from before systemd asked is an answer to somebody else.
        """
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._say(f"RELOADING=1\nMONOTONIC_USEC={now_us}")

    def reloaded(self, status: str, timers: Timers) -> None:
        """That is over; *status* as in `ready`. Core only."""
        if not self._is_stopping and not self._say(_ready(status), socket.MSG_DONTWAIT):
            timers.after(AGAIN_S, self.reloaded, status, timers)

    def stopping(self) -> None:
        """It was told to stop; no keep-alives are waited for from here on. Any thread."""
        self._is_stopping = True
        self._say("STOPPING=1")

    def keep_alive(self, timers: Timers) -> None:
        """Say so, now and from now on. Core only."""
        if self._every_s:
            self._say("WATCHDOG=1", socket.MSG_DONTWAIT)
            timers.after(self._every_s, self.keep_alive, timers)

    def close(self) -> None:
        """Nothing more is said."""
        self._socket.close()

    def _say(self, text: str, flags: int = 0) -> bool:
        """Whether there was room for it, or nobody is there."""
        try:
            self._socket.sendto(text.encode(), flags, self._address)
        except OSError as error:
            if isinstance(error, BlockingIOError) and flags:
                return False
            if not self._is_deaf:
                log.warning("NOTIFY_SOCKET %s: %s; systemd does not learn how this broker is", self._shown, error)
            self._is_deaf = True
        return True


def _ready(status: str) -> str:
    return f"READY=1\nSTATUS={' '.join(status.split())}"  # a new line would begin another assignment


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
