"""Options of the router."""

from __future__ import annotations

from dataclasses import dataclass

from ..amqp.links.events import Limits
from ..amqp.native.buffer_pool import DEFAULT_LIMIT_BYTES
from .admission.admission import AdmissionOptions
from .tls import NONE, TlsOptions

FEWEST_OPENING = 64
"""The minimum number of unauthenticated connections that are allowed at the same time."""


@dataclass(frozen=True)
class RouterOptions:
    """The options of listeners and connections."""

    host: str = "127.0.0.1"
    port: int = 5672
    """The port of the listener; 0 for any free one."""
    worker_threads: int = 1
    anonymous: bool = True
    """Let clients in without a name."""
    max_connections: int = 5000
    max_connections_per_user: int = 1000
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
    """Connections that are not open yet; 0 for a tenth of `max_connections`, and at least `FEWEST_OPENING`."""
    connection_rate: int = 1000
    """New connections of one address in a second; 0 for any number."""

    @property
    def knows_users(self) -> bool:
        """Return whether clients can log in with a name."""
        return bool(self.users_file) or (self.tls is not None and self.tls.clients != NONE)
