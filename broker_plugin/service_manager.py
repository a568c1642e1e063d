"""The notifications to systemd, if it requests them: readiness, liveness, reloading and stopping.

Each is a datagram to the socket that `NOTIFY_SOCKET` names, as sd_notify(3) defines it:

| datagram | when |
|---|---|
| `READY=1`, `STATUS=` | the store is recovered, and clients are admitted |
| `WATCHDOG=1` | four times in `WATCHDOG_USEC`, sent by the core |
| `RELOADING=1`, `MONOTONIC_USEC=` | users, rules and certificates are being read again, by any request |
| `READY=1`, `STATUS=` | the new files apply, or nothing has changed, with the reason |
| `STOPPING=1` | the broker was asked to stop |

The core sends the watchdog notification from its scheduler. This proves that a worker was awake to run the core, and
that the previous work of the core has ended, including the steps of a cluster's group. A broker that is suspended or
hangs sends nothing. Child processes do not inherit the watchdog: systemd accepts only the process that it started, and
`WATCHDOG_PID` does not name a child.
"""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections.abc import Mapping

from ..base.errors import CairnError
from ..broker.scheduling.scheduler import Scheduler

log = logging.getLogger(__name__)

PATIENCE_S = 5
"""Seconds to wait while systemd has a full queue of datagrams; the core never waits."""
AGAIN_S = 0.1
"""Seconds until a datagram from the core for which the socket had no room is sent again."""


class ServiceManager:
    """The service manager (systemd) that started the broker and receives its notifications."""

    def __init__(self, address: str, watchdog_s: float = 0.0) -> None:
        """*address*: the path or abstract name (beginning with @) of a datagram socket.

        *watchdog_s*: the time without a notification after which systemd ends the broker; 0 for never.
        """
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._shown = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", PATIENCE_S, 0))
        self._every_s = watchdog_s / 4
        self._is_deaf = False
        self._is_stopping = False

    def ready(self, status: str) -> None:
        """Report that the broker is ready; *status*: one line for `systemctl status`. Any thread except the core."""
        self._say(_ready(status))

    def reloading(self) -> None:
        """Report that files are being read; `reloaded` must follow, as systemd waits. Any thread except the core.

        The time is part of it, as `Type=notify-reload` requires: an earlier time would answer another request.
        """
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._say(f"RELOADING=1\nMONOTONIC_USEC={now_us}")

    def reloaded(self, status: str, scheduler: Scheduler) -> None:
        """Report that reloading is over; *status* as in `ready`. Core only."""
        if not self._is_stopping and not self._say(_ready(status), socket.MSG_DONTWAIT):
            scheduler.after(AGAIN_S, self.reloaded, status, scheduler)

    def stopping(self) -> None:
        """Report that the broker was asked to stop; keep-alives are not required from here on. Any thread."""
        self._is_stopping = True
        self._say("STOPPING=1")

    def keep_alive(self, scheduler: Scheduler) -> None:
        """Report that the broker is alive, now and regularly from now on. Core only."""
        if self._every_s:
            self._say("WATCHDOG=1", socket.MSG_DONTWAIT)
            scheduler.after(self._every_s, self.keep_alive, scheduler)

    def close(self) -> None:
        """Close the socket; no more reports are sent."""
        self._socket.close()

    def _say(self, text: str, flags: int = 0) -> bool:
        """Send *text*; return False only if the socket has no room for it."""
        try:
            self._socket.sendto(text.encode(), flags, self._address)
        except OSError as error:
            if isinstance(error, BlockingIOError) and flags:
                return False
            if not self._is_deaf:
                text = "NOTIFY_SOCKET %s: %s; systemd receives no status of this broker"
                log.warning(text, self._shown, error, extra={"event": "systemd.unreachable"})
            self._is_deaf = True
        return True


def _ready(status: str) -> str:
    return f"READY=1\nSTATUS={' '.join(status.split())}"  # a new line would begin another assignment


def service_manager(environment: Mapping[str, str], pid: int) -> ServiceManager | None:
    """Return the service manager that *environment* names for the process *pid*; None without one.

    Raises `CairnError` if the watchdog settings are invalid.
    """
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return None
    if address[0] not in "/@":
        reason = f"{address!r} is neither a path nor an abstract name"
        raise CairnError("NOTIFY_SOCKET", reason, "start the broker by systemd, or without that variable")
    wanted = environment.get("WATCHDOG_USEC", "")
    if not wanted or environment.get("WATCHDOG_PID", str(pid)) != str(pid):
        return ServiceManager(address)
    if not wanted.isascii() or not wanted.isdigit() or not int(wanted):
        reason = f"invalid number of microseconds {wanted!r}"
        raise CairnError("WATCHDOG_USEC", reason, "set WatchdogSec= in the unit file, and start the broker by systemd")
    return ServiceManager(address, int(wanted) / 1e6)
