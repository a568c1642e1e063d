"""Options of the router, and the limits that open files set."""

from __future__ import annotations

import resource
from dataclasses import dataclass, field
from typing import NamedTuple

from ..amqp.links.events import Limits
from ..amqp.native.buffer_pool import DEFAULT_LIMIT_BYTES
from ..base.errors import CairnError
from .admission.admission import AdmissionOptions
from .tls import NONE, TlsOptions

FEWEST_OPENING = 64
"""The minimum number of unauthenticated connections that are allowed at the same time."""
FILES_FOR_OTHERS = 128
"""Open files that connections must leave to the journal, SQL and the rest of the process."""
KEPT_FOR_MANAGERS = 16
"""Connections beyond the limit that are reserved for users who may manage everything."""
FEWEST_FILES = FILES_FOR_OTHERS + KEPT_FOR_MANAGERS + 2 * FEWEST_OPENING
"""With fewer open files a broker does not start."""


@dataclass(frozen=True)
class RouterOptions:
    """The options of listeners and connections."""

    host: str = "127.0.0.1"
    port: int = 5672
    """The port of the listener; 0 for any free one."""
    worker_threads: int = 1
    anonymous: bool = True
    """Let clients in without a name."""
    max_connections: int = 10_000
    max_connections_per_user: int = 5000
    users_file: str = ""
    """The file of users who can log in with a password."""
    insecure_auth: bool = False
    """Passwords may be sent without TLS."""
    tls: TlsOptions | None = None
    plain: bool = True
    """Listen at `port`, too, where no TLS is spoken."""
    limits: Limits = Limits()
    admission: AdmissionOptions = AdmissionOptions()
    buffer_limit_bytes: int = DEFAULT_LIMIT_BYTES
    """Bytes of content that may be on their way between sockets and queues."""
    max_unauthenticated: int = 0
    """Connections that are not open yet; 0 for half of `max_connections`, and at least `FEWEST_OPENING`."""
    connection_rate: int = 1000
    """New connections of one address in a second; 0 for any number."""
    amqp091: bool = False
    """Clients may use AMQP 0-9-1, too."""
    console_token: str = field(default="", repr=False)
    """The secret that the broker shares with its own web console; empty without one."""

    @property
    def most_opening(self) -> int:
        """Return the number of connections that may be unauthenticated at the same time."""
        return self.max_unauthenticated or max(FEWEST_OPENING, self.max_connections // 2)

    @property
    def knows_users(self) -> bool:
        """Return whether clients can log in with a name."""
        return bool(self.users_file) or (self.tls is not None and self.tls.clients != NONE)


class OpenFiles(NamedTuple):
    """The open files that a process may have."""

    most: int

    @classmethod
    def raised(cls) -> OpenFiles:
        """Raise the limit as far as possible, and return it. Raises `CairnError` if that is not enough for a broker."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        most = 1 << 30 if hard == resource.RLIM_INFINITY else hard
        if most < FEWEST_FILES:
            remedy = "raise it: ulimit -Hn, or LimitNOFILE of systemd"
            raise CairnError("open files", f"the limit is {most}, and a broker needs {FEWEST_FILES}", remedy)
        return cls(most)

    def openings(self, wanted: int) -> int:
        """Return how many of *wanted* unauthenticated connections are possible."""
        return min(wanted, (self.most - FILES_FOR_OTHERS - KEPT_FOR_MANAGERS) // 2)

    def connections(self, wanted: int, openings: int) -> int:
        """Return how many of *wanted* connections are possible beside *openings* unauthenticated ones."""
        return min(wanted, self.most - FILES_FOR_OTHERS - KEPT_FOR_MANAGERS - openings)
